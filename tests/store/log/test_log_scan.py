"""LogScan: sound records one after the other, and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.log_files import FILE_BYTES, Draft, drafts, write_log
from thermocline.remoting.offsets import LOG_START
from thermocline.store.log.log_scan import LogScan


@settings(max_examples=80, deadline=None)
@given(st.lists(drafts, min_size=1, max_size=12))
def test_every_sound_record_is_met(records: list[Draft]) -> None:
    """Wherever a sound record is, it is never taken for a torn one."""
    files, offsets, end_offset = write_log(records)
    scan = LogScan(files, 0, tears_from=LOG_START)
    found = list(scan)
    assert [record.physical_offset for record in found] == offsets
    assert [record.topic for record in found] == [record[0] for record in records]
    assert [record.properties_text for record in found] == [record[2] for record in records]
    assert {(record.queue_id, record.queue_offset, record.store_timestamp_ms) for record in found} == {(1, 2, 4)}
    assert scan.end_offset == end_offset


@settings(max_examples=80, deadline=None)
@given(st.lists(drafts, min_size=2, max_size=6), st.data())
def test_a_record_that_is_cut_off_ends_the_scan(records: list[Draft], data: st.DataObject) -> None:
    """At any byte: what was not written reads as zeroes."""
    files, offsets, end_offset = write_log(records)
    last = len(offsets) - 1
    kept_bytes = data.draw(st.integers(0, end_offset - offsets[last] - 1))
    file = files.find(offsets[last])
    position = offsets[last] - file.base_offset + kept_bytes
    lost = bytes(file.view[position:])
    file.file.write_at(bytes(FILE_BYTES - position), position)
    scan = LogScan(files, 0, tears_from=LOG_START)
    found = [record.physical_offset for record in scan]
    if any(lost):
        assert found == offsets[:last]
        assert scan.end_offset <= offsets[last]
    else:
        assert found == offsets  # what was lost was zero anyway


def test_half_a_blank_is_none() -> None:
    record = ("t", b"x" * 1_900, b"", ("10.0.0.1", 1), ("10.0.0.1", 1))
    files, offsets, _ = write_log([record] * 3)
    blank = 2 * offsets[1]
    files.find(0).file.write_at(bytes(4), blank)
    scan = LogScan(files, 0)
    assert len(list(scan)) == 2
    assert scan.end_offset == blank
