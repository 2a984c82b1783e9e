"""Logs of small files with any records in them, for what walks a log."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.records.message_record import BLANK, MAGIC_BLANK, encode_record
from thermocline.store.files.mapped_file import file_name
from thermocline.store.files.mapped_file_queue import MappedFileQueue

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
    """Write a log with these records; returns its files, the offset of each record, and the end of the log."""
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
