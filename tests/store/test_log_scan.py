"""LogScan: sound records one after the other, and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.message_record import BLANK, MAGIC_BLANK, encode_record
from thermocline.store.log_scan import LogScan
from thermocline.store.mapped_file import file_name
from thermocline.store.mapped_file_queue import MappedFileQueue

FILE_BYTES = 4_096

Draft = tuple[str, bytes, bytes, tuple[str, int], tuple[str, int]]
"""Topic, body, properties, born host, store host."""

text = st.text(st.characters(exclude_characters="\0\1\2", exclude_categories=("Cs",)), min_size=1, max_size=40)
properties = st.dictionaries(text, text, max_size=3).map(
    lambda items: "".join(f"{name}\1{value}\2" for name, value in items.items()).encode()
)
hosts = st.sampled_from([("10.0.0.1", 1), ("2001:db8::1", 65_535)])
drafts = st.tuples(
    st.one_of(text, text.map(lambda name: (name * 130)[:130])),
    st.binary(max_size=700),
    st.one_of(properties, st.just(b"")),
    hosts,
    hosts,
)


def encode(physical_offset: int, draft: Draft) -> bytes:
    topic, body, properties_text, born_host, store_host = draft
    return encode_record(
        topic=topic,
        queue_id=1,
        queue_offset=2,
        physical_offset=physical_offset,
        body=body,
        properties_text=properties_text,
        born_timestamp_ms=3,
        born_host=born_host,
        store_timestamp_ms=4,
        store_host=store_host,
    )


def write_log(records: list[Draft]) -> tuple[MappedFileQueue, list[int], int]:
    """A log with these records: its files, where each lies, and where the log ends."""
    disk = SimulatedDisk()
    disk.make_directory("/log")
    content = bytearray()
    offsets = []
    for draft in records:
        size_bytes = len(encode(0, draft))
        room = FILE_BYTES - len(content) % FILE_BYTES
        if size_bytes + BLANK.size > room:
            content += BLANK.pack(room, MAGIC_BLANK).ljust(room, b"\0")
        offsets.append(len(content))
        content += encode(len(content), draft)
    end_offset = len(content)
    content += bytes(-len(content) % FILE_BYTES)
    for base_offset in range(0, len(content), FILE_BYTES):
        file = disk.open(f"/log/{file_name(base_offset)}", create=True)
        file.write_at(content[base_offset : base_offset + FILE_BYTES], 0)
        file.close()
    files = MappedFileQueue(disk, "/log", file_bytes=FILE_BYTES)
    files.load()
    return files, offsets, end_offset


@settings(max_examples=80, deadline=None)
@given(st.lists(drafts, min_size=1, max_size=12))
def test_every_sound_record_is_met(records: list[Draft]) -> None:
    """Wherever it lies, none is taken for a torn one."""
    files, offsets, end_offset = write_log(records)
    scan = LogScan(files, 0, check_tears=True)
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
    scan = LogScan(files, 0, check_tears=True)
    found = [record.physical_offset for record in scan]
    if any(lost):
        assert found == offsets[:last]
        assert scan.end_offset <= offsets[last]
    else:
        assert found == offsets  # what was lost was zero anyway


def test_a_limit_is_kept_to() -> None:
    """The index follows another process: nothing behind the watermark is looked at, a blank neither."""
    record = ("t", b"x" * 1_900, b"", ("10.0.0.1", 1), ("10.0.0.1", 1))
    files, offsets, end_offset = write_log([record] * 5)
    assert offsets[2] == FILE_BYTES
    second_end = offsets[1] + offsets[1]
    for limit, count, end in (
        (0, 0, 0),
        (offsets[1] - 1, 0, 0),
        (offsets[1], 1, offsets[1]),
        (second_end, 2, second_end),
        (FILE_BYTES, 2, FILE_BYTES),
        (end_offset, 5, end_offset),
    ):
        scan = LogScan(files, 0, end_offset=limit)
        assert len(list(scan)) == count
        assert scan.end_offset == end


def test_a_scan_goes_on_where_it_was_left() -> None:
    record = ("t", b"x" * 100, b"", ("10.0.0.1", 1), ("10.0.0.1", 1))
    files, offsets, end_offset = write_log([record] * 60)
    found: list[int] = []
    position = 0
    while position < end_offset:
        scan = LogScan(files, position, end_offset=end_offset)
        for count, scanned in enumerate(scan, start=1):
            found.append(scanned.physical_offset)
            if count == 7:
                break
        assert scan.end_offset > position
        position = scan.end_offset
    assert found == offsets


def test_half_a_blank_is_none() -> None:
    record = ("t", b"x" * 1_900, b"", ("10.0.0.1", 1), ("10.0.0.1", 1))
    files, offsets, _ = write_log([record] * 3)
    blank = 2 * offsets[1]
    files.find(0).file.write_at(bytes(4), blank)
    scan = LogScan(files, 0)
    assert len(list(scan)) == 2
    assert scan.end_offset == blank
