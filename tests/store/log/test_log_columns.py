"""Log columns: the records that a scan meets, one by one or thousands at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.log_files import Draft, drafts, encode, write_log
from thermocline.remoting.records.message_record import INT, POSITION_BODY_SIZE
from thermocline.remoting.records.record_layout import HOST_V6_MORE_BYTES
from thermocline.store.files.mapped_file_queue import MappedFileQueue
from thermocline.store.log import log_columns
from thermocline.store.log.log_columns import LogColumns, read_columns
from thermocline.store.log.log_scan import LogScan, ScannedRecord

HALF_FILE = ("t", b"x" * 1_900, b"", ("10.0.0.1", 1), ("10.0.0.1", 1))
SMALL = ("t", b"x" * 100, b"", ("10.0.0.1", 1), ("10.0.0.1", 1))

Seen = tuple[int, int, int, bytes, bytes]
"""Physical offset, system flag, store time, topic, properties."""


def read_all(files: MappedFileQueue, *, end_offset: int, count_max: int = 1_000) -> tuple[list[Seen], int]:
    """All records up to where the log is not sound any more, and where that is."""
    found: list[Seen] = []
    position = 0
    while position < end_offset:
        columns = read_columns(files, position, end_offset=end_offset, count_max=count_max)
        assert len(columns) <= count_max
        if columns.end_offset == position:
            break
        found += [seen_of(columns, number) for number in range(len(columns))]
        position = columns.end_offset
    return found, position


def seen_of(columns: LogColumns, number: int) -> Seen:
    heads = columns.heads
    topic, properties = int(heads.topic_starts[number]), int(heads.properties_starts[number])
    return (
        int(heads.integers("physical_offset")[number]),
        int(heads.sys_flags[number]),
        int(heads.integers("store_timestamp_ms")[number]),
        heads.data[topic : topic + int(heads.topic_bytes[number])].tobytes(),
        heads.data[properties : properties + int(heads.properties_bytes[number])].tobytes(),
    )


def scanned(record: ScannedRecord) -> Seen:
    topic = record.topic.encode()
    return record.physical_offset, record.sys_flag, record.store_timestamp_ms, topic, record.properties_text


@settings(max_examples=80, deadline=None)
@given(st.lists(drafts, min_size=1, max_size=12), st.integers(1, 5))
def test_the_same_as_a_scan(records: list[Draft], count_max: int) -> None:
    files, _, end_offset = write_log(records)
    expected = [scanned(record) for record in LogScan(files, 0)]
    assert len(expected) == len(records)
    assert read_all(files, end_offset=end_offset, count_max=count_max) == (expected, end_offset)


@settings(max_examples=150, deadline=None)
@given(st.lists(drafts, min_size=1, max_size=6), st.data())
def test_records_at_which_a_scan_stops(records: list[Draft], data: st.DataObject) -> None:
    """Any four bytes of the log overwritten, a length, a flag or an offset among them: nothing is read beside it.

    Only bytes that no checksum covers: a scan would find a changed body, which here is taken as it is.
    """
    files, offsets, _ = write_log(records)
    number = data.draw(st.integers(0, len(offsets) - 1))
    file = files.find(offsets[number])
    body_size = POSITION_BODY_SIZE + HOST_V6_MORE_BYTES * sum(":" in host[0] for host in records[number][3:])
    field = data.draw(st.sampled_from([0, 4, 12, 20, 28, 32, 36, body_size]))
    value = data.draw(st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-1, 300)))
    position = offsets[number] - file.base_offset + field
    file.file.write_at(INT.pack(value), position)
    scan = LogScan(files, 0)
    expected = [scanned(record) for record in scan]
    found, stopped_at = read_all(files, end_offset=files.end_offset)
    assert found[: len(expected)] == expected
    if len(found) > len(expected):
        # Another body of the same record, whose checksum the scan has seen to be wrong.
        assert found[len(expected)][0] == offsets[number]
    else:
        assert stopped_at == scan.end_offset


def test_a_limit_is_kept_to() -> None:
    """The index follows another process: nothing behind the watermark is looked at, a blank neither."""
    files, offsets, end_offset = write_log([HALF_FILE] * 5)
    file_bytes = files.file_bytes
    assert offsets[2] == file_bytes
    second_end = offsets[1] + offsets[1]
    for limit, count, end in (
        (0, 0, 0),
        (offsets[1] - 1, 0, 0),
        (offsets[1], 1, offsets[1]),
        (second_end, 2, second_end),
        (file_bytes, 2, file_bytes),
        (end_offset, 5, end_offset),
    ):
        found, stopped_at = read_all(files, end_offset=limit)
        assert len(found) == count
        assert stopped_at == end


def test_reading_goes_on_where_it_was_left() -> None:
    files, offsets, end_offset = write_log([SMALL] * 60)
    found, _ = read_all(files, end_offset=end_offset, count_max=7)
    assert [seen[0] for seen in found] == offsets


def test_a_rest_that_is_shorter_than_a_record_s_head_is_no_record() -> None:
    record = encode(0, SMALL)
    data = memoryview(record + bytes(3))
    assert log_columns._walk(data, 0, len(data), 9).tolist() == [0, len(record)]
