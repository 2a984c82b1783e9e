"""Index entries: of records that look alike and of those that do not, the same as of each by itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.records.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from thermocline.store.files.mapped_file import file_name
from thermocline.store.files.mapped_file_queue import MappedFileQueue
from thermocline.store.index.index_entries import ROWS_MIN, IndexEntries, entries_of
from thermocline.store.index.index_keys import key_hash
from thermocline.store.log.log_columns import read_columns

FILE_BYTES = 1 << 20

Record = tuple[str, bytes, int]
"""Topic, properties, system flag."""

letter = st.sampled_from("ab \0\1\2é𝄞=")
value = st.one_of(st.text(letter, max_size=4), st.text("abcd", min_size=3, max_size=3))
piece = st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "KEY", "XKEYS", ""]), value).map("\1".join)
properties_texts = st.lists(piece, max_size=5).flatmap(
    lambda pieces: st.sampled_from(["\2".join(pieces), "\2".join(pieces) + "\2"])
)
records_of_any_look = st.tuples(
    st.sampled_from(["t", "u", "é", "topic"]), properties_texts.map(str.encode), st.sampled_from([0, 4, 8, 12])
)


def entries(records: list[Record]) -> IndexEntries:
    """Those of a log of these records."""
    disk = SimulatedDisk()
    disk.make_directory("/log")
    content = b""
    for number, (topic, properties_text, sys_flag) in enumerate(records):
        content += encode_record(
            topic=topic,
            queue_id=0,
            queue_offset=number,
            physical_offset=len(content),
            body=bytes(number % 3),
            properties_text=properties_text,
            sys_flag=sys_flag,
            born_timestamp_ms=3,
            born_host=("10.0.0.1", 1),
            store_timestamp_ms=number,
            store_host=("10.0.0.1", 1),
        )
    file = disk.open(f"/log/{file_name(0)}", create=True)
    file.write_at(content.ljust(FILE_BYTES, b"\0"), 0)
    file.close()
    files = MappedFileQueue(disk, "/log", file_bytes=FILE_BYTES)
    files.load()
    columns = read_columns(files, 0, end_offset=len(content), count_max=len(records))
    assert len(columns) == len(records)
    return entries_of(columns.heads)


def expected(records: list[Record]) -> list[tuple[int, int]]:
    """Hash and store time of each entry, from the definition."""
    found = []
    for number, (topic, properties_text, sys_flag) in enumerate(records):
        if sys_flag == TRANSACTION_ROLLBACK:
            continue
        properties = decode_properties(properties_text)
        keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
        found += [(key_hash(f"{topic}#{key}"), number) for key in keys if key]
        if "TAGS" in properties:
            found.append((key_hash(f"{topic}#T#{properties['TAGS']}"), number))
    return found


def listed(found: IndexEntries) -> list[tuple[int, int]]:
    return list(zip(found.hashes.tolist(), found.store_timestamps_ms.tolist(), strict=True))


@settings(max_examples=200, deadline=None)
@given(st.lists(records_of_any_look, min_size=1, max_size=60))
def test_any_records(records: list[Record]) -> None:
    assert listed(entries(records)) == expected(records)


@settings(max_examples=100, deadline=None)
@given(st.lists(records_of_any_look, min_size=1, max_size=3), st.data())
def test_many_that_look_alike(looks: list[Record], data: st.DataObject) -> None:
    """A few looks, many records, one character of each another: a name, a mark, a space, a value."""
    records = []
    for _ in range(data.draw(st.integers(ROWS_MIN, 40))):
        topic, properties_text, sys_flag = data.draw(st.sampled_from(looks))
        changed = bytearray(properties_text)
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.sampled_from(b"ab \1\2\0"))
        records.append((topic, changed.decode("utf-8", "replace").encode(), sys_flag))
    assert listed(entries(records)) == expected(records)


def test_entries_come_in_the_order_of_records_and_keys() -> None:
    """Alike or not: unique id, each key, then the tag, as Apache RocketMQ 5.5 files them."""
    records: list[Record] = []
    for number in range(3 * ROWS_MIN):
        text = f"TAGS\1red\2KEYS\1k{number:02d} l{number:02d}\2UNIQ_KEY\1id{number:02d}\2"
        records.append(("t", text.encode(), 0))
        records.append(("other", f"KEYS\1{'x' * number}\2".encode(), 0))
        records.append(("t", b"", 0))
    found = entries(records)
    assert listed(found) == expected(records)
    assert len(found) == 3 * ROWS_MIN * 4 + 3 * ROWS_MIN - 1
    assert found.physical_offsets.tolist() == sorted(found.physical_offsets.tolist())


def test_a_rolled_back_record_has_none() -> None:
    alike = b"KEYS\1k\2"
    assert len(entries([("t", alike, TRANSACTION_ROLLBACK)] * 20)) == 0
    assert len(entries([("t", alike, TRANSACTION_PREPARED)] * 20)) == 20
    assert len(entries([("t", b"", 0)] * 20)) == 0
