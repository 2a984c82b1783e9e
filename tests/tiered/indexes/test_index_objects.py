"""Index objects by themselves: pages, chapters, merges, policy, blooms and windows of time.

Covers `tiered/index_format/chapters.py`, `tiered/index_format/index_directory.py`,
`tiered/index_format/index_entry.py`, `tiered/index_format/index_object.py`, `tiered/index_format/index_writer.py`,
`tiered/index_format/key_pages.py`, `tiered/indexes/bloom_cache.py`, `tiered/indexes/index_merger.py`.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from time import process_time

import msgspec
import numpy as np
import pytest

from tests.tiered.ledger_data import KEYS, open_writer
from thermocline.remoting.records.message_id import month_bounds_ms
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.index_format import index_writer, key_pages
from thermocline.tiered.index_format.chapters import CHAPTER_RECORDS, PlaceRows, decode_chapter, encode_chapter
from thermocline.tiered.index_format.index_entry import PLACES, IndexEntry, encode_topics
from thermocline.tiered.index_format.index_object import IndexObject
from thermocline.tiered.index_format.key_pages import index_hash, salt_of, salted
from thermocline.tiered.indexes import index_merger
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.index_builder import IndexBuilder
from thermocline.tiered.indexes.index_merger import IndexMerger
from thermocline.tiered.indexes.index_policy import FAN_IN, OBJECTS_MAX, SLOTS, is_range_due, next_merge
from thermocline.tiered.indexes.indexed_parts import IndexedPart
from thermocline.tiered.indexes.log_items import LogItems
from thermocline.tiered.indexes.range_cut import RECORDS_MAX, cut
from thermocline.tiered.lookups.birth_windows import HOUR_MS, birth_windows
from thermocline.tiered.objects.errors import FrameChecksumError, SegmentFormatError
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.packs.ttl_classes import FOREVER, ttl_class
from thermocline.tiered.segments.key_index import key_hash
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore

DAY_MS = 24 * HOUR_MS


def part_of(topic: str, keys: list[str], *, start: int, first_offset: int, queue_id: int = 0) -> IndexedPart:
    """Records of 100 bytes with a key each, one after another in the log."""
    count = len(keys)
    hashes = np.array([key_hash(key.encode()) for key in keys], np.uint32)
    return IndexedPart(
        topic=topic,
        incarnation=1,
        places=start + 100 * np.arange(count, dtype=np.int64),
        sizes=np.full(count, 100, np.int64),
        queue_ids=np.full(count, queue_id, np.int64),
        offsets=first_offset + np.arange(count, dtype=np.int64),
        newest_ms=np.full(count, 1_000, np.int64),
        oldest_ms=500,
        key_hashes=salted(hashes, salt_of(topic, 1)),
        key_records=np.arange(count, dtype=np.int64),
    )


async def found_in(index: IndexObject, topic: str, key: str) -> list[tuple[int, int]]:
    return [each async for batch in index.find_key(index_hash(topic, 1, key)) for each in batch]


async def test_merged_objects_find_the_same_as_their_inputs() -> None:
    """A key of every record, one of very many, newest first; places, and nothing between them."""
    store = MemoryObjectStore()
    writer = await open_writer(store)
    builder = IndexBuilder(writer, spool_folder=None, clock=lambda: 0)
    merger = IndexMerger(writer, spool_folder=None, clock=lambda: 0)
    entries: dict[str, list[IndexEntry]] = {PLACES: [], FOREVER: []}
    count = 9_000
    for number in range(4):
        keys = ["frequent" if i % 3 == 0 else f"key-{number}-{i}" for i in range(count)]
        start = number * count * 100
        part = part_of("orders", keys, start=start, first_offset=number * count)
        result = await builder.write({PLACES: [part], FOREVER: [part]}, start=start, end=start + count * 100, gaps={})
        await writer.commit(LedgerChanges(indexes_in=tuple(result.indexes_in), indexed_to=start + count * 100))
        for entry in result.indexes_in:
            entries[entry.ttl_class].append(entry)
    merged: dict[str, IndexObject] = {}
    for name, inputs in entries.items():
        result = await merger.merge(inputs, cuts_ms={})
        (entry,) = result.indexes_in
        await writer.commit(LedgerChanges(indexes_in=(entry,), indexes_out=result.indexes_out))
        merged[name] = IndexObject(MeteringObjectStore(store), entry)
        assert (entry.level, entry.start, entry.end, entry.record_count) == (1, 0, 4 * count * 100, 4 * count)
    assert set(writer.catalog.indexes) == {each.entry.index_id for each in merged.values()}
    keys_object, places_object = merged[FOREVER], merged[PLACES]
    frequent = await found_in(keys_object, "orders", "frequent")
    assert frequent == [(0, n * count + i) for n in reversed(range(4)) for i in reversed(range(0, count, 3))]
    blooms, shape = await keys_object.blooms(), keys_object.shape
    for number in range(4):
        for i in (1, 2, 3, 1_000, count - 2):
            key = f"key-{number}-{i}"
            expected = [(0, number * count + i)] if i % 3 else []  # the others have the frequent key
            assert await found_in(keys_object, "orders", key) == expected
            assert not expected or shape.may_hold(blooms, index_hash("orders", 1, key))
            assert await found_in(keys_object, "orders", f"no {key}") == []
            assert await found_in(keys_object, "audits", key) == []
            place = await places_object.find_place((number * count + i) * 100)
            assert place is not None
            assert (place.life, place.queue_id, place.offset) == (("orders", 1), 0, number * count + i)
            assert await places_object.find_place((number * count + i) * 100 + 1) is None
    false_count = sum(shape.may_hold(blooms, index_hash("orders", 1, f"missing-{i}")) for i in range(3_000))
    assert false_count / 3_000 < 0.025


@pytest.mark.parametrize("seed", range(8))
async def test_keys_of_very_many_records_are_merged_frame_by_frame(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is the same, to the byte, as when all entries of a page are sorted at once."""
    random = Random(seed)
    for module in (key_pages, index_merger):
        monkeypatch.setattr(module, "FRAME_ENTRIES", 16)
    monkeypatch.setattr(index_merger, "FRAMES_AT_ONCE", random.randint(1, 3))
    monkeypatch.setattr(index_merger, "SLICE_ENTRIES", 500)
    store = MemoryObjectStore()
    writer = await open_writer(store)
    builder = IndexBuilder(writer, spool_folder=None, clock=lambda: 0)
    merger = IndexMerger(writer, spool_folder=None, clock=lambda: 0)
    names = ["frequent", "often", *(f"key-{number}" for number in range(200))]
    inputs: list[IndexEntry] = []
    sent: list[str] = []
    for _ in range(4):
        keys = random.choices(names, [1_000, random.randint(1, 200), *[1] * 200], k=random.randint(1, 900))
        start = len(sent) * 100
        part = part_of("orders", keys, start=start, first_offset=len(sent))
        sent += keys
        inputs += (await builder.write({FOREVER: [part]}, start=start, end=len(sent) * 100, gaps={})).indexes_in
    bodies: list[bytes] = []
    for entries_max in (1 << 40, random.randint(100, 300), 0):
        monkeypatch.setattr(index_merger, "SLICE_ENTRIES_MAX", entries_max)
        (entry,) = (await merger.merge(inputs, cuts_ms={})).indexes_in
        assert entry.key_count == len(sent)
        bodies.append((await store.get(entry.key))[: entry.footer_start])
        merged = IndexObject(store, entry)
        for key in (*names[:2], *random.sample(names, 10)):
            expected = [(0, offset) for offset, each in enumerate(sent) if each == key]
            assert await found_in(merged, "orders", key) == expected[::-1]
    assert bodies[1] == bodies[0]
    assert bodies[2] == bodies[0]


async def test_a_page_has_a_bounded_number_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_pages, "FRAME_ENTRIES", 16)
    monkeypatch.setattr(index_merger, "SLICE_ENTRIES_MAX", 0)
    monkeypatch.setattr(index_writer, "FRAMES_OF_PAGE_MAX", 3)
    writer = await open_writer(MemoryObjectStore())
    builder = IndexBuilder(writer, spool_folder=None, clock=lambda: 0)
    merger = IndexMerger(writer, spool_folder=None, clock=lambda: 0)
    inputs: list[IndexEntry] = []
    for number in range(2):
        part = part_of("orders", ["a"] * 30, start=number * 3_000, first_offset=number * 30)
        result = await builder.write({FOREVER: [part]}, start=number * 3_000, end=(number + 1) * 3_000, gaps={})
        inputs += result.indexes_in
    with pytest.raises(SegmentFormatError):
        await merger.merge(inputs, cuts_ms={})


async def test_a_merge_leaves_out_places_that_have_expired() -> None:
    writer = await open_writer(MemoryObjectStore())
    builder = IndexBuilder(writer, spool_folder=None, clock=lambda: 0)
    inputs: list[IndexEntry] = []
    for number in range(2):
        parts = [
            part_of(topic, ["a"] * 5, start=number * 10_000 + 1_000 * i, first_offset=number * 5)
            for i, topic in enumerate(("orders", "gone"))
        ]
        result = await builder.write({PLACES: parts}, start=number * 10_000, end=(number + 1) * 10_000, gaps={})
        inputs += result.indexes_in
    merger = IndexMerger(writer, spool_folder=None, clock=lambda: 0)
    (entry,) = (await merger.merge(inputs, cuts_ms={"gone": 1_001})).indexes_in
    assert entry.record_count == 10
    merged = IndexObject(writer.store, entry)
    assert await merged.find_place(10_000) is not None
    assert await merged.find_place(11_000) is None


def test_chapters_hold_runs_with_holes_of_many_queues() -> None:
    random = Random(5)
    incarnations = [("orders", 1), ("orders", 2), ("%RETRY%g", 1)]
    offsets = {(life, queue): random.randrange(1 << 40) for life in range(3) for queue in range(4)}
    rows: list[tuple[int, int, int, int, int]] = []
    place = 1 << 50
    for _ in range(5_000):
        life, queue, size = random.randrange(3), random.randrange(4), random.randrange(90, 4_000)
        rows.append((place, size, life, queue, offsets[life, queue]))
        offsets[life, queue] += 1 if random.random() < 0.99 else 7
        place += size + random.choice((0, 0, 100))
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    before = PlaceRows(
        incarnations=incarnations,
        places=columns[0],
        sizes=columns[1],
        life=columns[2],
        queue_ids=columns[3],
        offsets=columns[4],
    )
    stored = encode_chapter(before)
    after = decode_chapter(stored)
    for name in ("places", "sizes", "queue_ids", "offsets"):
        assert getattr(after, name).tolist() == getattr(before, name).tolist()
    assert [after.incarnations[i] for i in after.life] == [incarnations[i] for i in columns[2]]
    assert len(stored) < 5 * len(rows)
    assert len(before) <= CHAPTER_RECORDS
    for damaged in (stored[:-1], stored[:40] + bytes([stored[40] ^ 1]) + stored[41:], b"", stored[1:]):
        with pytest.raises((FrameChecksumError, SegmentFormatError)):
            decode_chapter(damaged)


def index_of(number: int, *, level: int = 0, newest_ms: int = 0, name: str = FOREVER, size: int = 1_000) -> IndexEntry:
    return IndexEntry(
        index_id=f"{1:010}-{number + 1:010}",
        ttl_class=name,
        key=f"{KEYS.indexes_prefix}{number}",
        object_bytes=size,
        crc32=0,
        start=number * 100,
        end=(number + 1) * 100,
        topics=encode_topics(["orders"]),
        min_store_ms=newest_ms,
        max_store_ms=newest_ms,
        record_count=1,
        key_count=1,
        page_bytes=64,
        page_count=1,
        blooms_start=8,
        chapters_start=72,
        footer_start=72,
        directory=b"",
        created_ms=0,
        level=level,
    )


async def merged_by_policy(name: str, count: int, step_ms: int) -> list[IndexEntry]:
    """What is left after `count` objects of the lowest level have come, each merged as the policy says."""
    catalog = (await open_writer(MemoryObjectStore())).catalog
    indexes: dict[str, IndexEntry] = {}
    most = 0
    for number in range(count):
        new = index_of(number, newest_ms=number * step_ms, name=name)
        indexes[new.index_id] = new
        while True:
            chosen = next_merge(msgspec.structs.replace(catalog, indexes=indexes))
            if chosen is None:
                break
            assert all(before.end == after.start for before, after in pairwise(chosen))
            merged = msgspec.structs.replace(
                chosen[-1],
                start=chosen[0].start,
                level=max(each.level for each in chosen) + 1,
                object_bytes=sum(each.object_bytes for each in chosen),
            )
            for each in chosen:
                del indexes[each.index_id]
            indexes[merged.index_id] = merged
        most = max(most, len(indexes))
        ttl_ms = 30 * DAY_MS if name != FOREVER else 1 << 60
        for each in [each for each in indexes.values() if each.max_store_ms < new.max_store_ms - ttl_ms]:
            del indexes[each.index_id]
    assert most <= OBJECTS_MAX
    return list(indexes.values())


async def test_there_are_never_more_objects_than_allowed() -> None:
    """Sixty days of an object every forty minutes: thirty days' worth is left, in few objects, none far too old."""
    name = ttl_class(30 * DAY_MS)
    remaining = await merged_by_policy(name, 60 * 36, 40 * 60_000)
    assert len(remaining) <= SLOTS + 1 + (FAN_IN - 1) * 4
    # None but the oldest one holds more than a slot of what has expired.
    oldest = min(remaining, key=lambda each: each.start)
    assert (oldest.end - oldest.start) // 100 * 40 * 60_000 <= 31 * DAY_MS // SLOTS
    forever = await merged_by_policy(FOREVER, 3_000, HOUR_MS)
    assert len(forever) <= (FAN_IN - 1) * 6
    assert sum(each.end - each.start for each in forever) == 3_000 * 100


def pack_of(number: int, *, start: int, end: int, record_count: int) -> PackEntry:
    return PackEntry(
        pack_id=f"{1:010}-{number + 1:010}",
        ttl_class=FOREVER,
        key=f"{KEYS.packs_prefix}{number}",
        object_bytes=0,
        footer_start=0,
        section_ends=(),
        crc32=0,
        topics=(),
        pieces=b"",
        record_count=record_count,
        raw_bytes=0,
        min_store_ms=0,
        max_store_ms=0,
        min_physical_offset=start,
        end_physical_offset=end,
        created_ms=0,
    )


def test_a_range_is_cut_where_an_item_ends_before_there_are_too_many_records() -> None:
    """Or within the first item, when that alone is too much; never behind records of that item."""
    random = Random(7)
    assert cut(LogItems.of(()), start=5, end=100) == 5
    for _ in range(300):
        packs = [
            pack_of(number, start=start, end=start + random.randint(1, 400), record_count=random.randint(1, 100))
            for number, start in enumerate(random.sample(range(1_000), random.randint(1, 8)))
        ]
        start, gate = random.randint(0, 500), random.randint(600, 1_500)
        there = [each for each in packs if each.min_physical_offset < gate and each.end_physical_offset > start]
        ends = sorted(min(gate, each.end_physical_offset) for each in there)

        def count(to: int, start: int = start, there: list[PackEntry] = there) -> float:
            """Records in [start, to), if those of each pack lie evenly in it."""
            return sum(
                each.record_count
                * max(0, min(to, each.end_physical_offset) - max(start, each.min_physical_offset))
                / (each.end_physical_offset - each.min_physical_offset)
                for each in there
            )

        found = cut(LogItems.of(packs), start=start, end=gate, records_max=60)
        fitting = [end for end in ends if count(end) <= 60]
        if fitting or not ends:
            assert found == max(fitting, default=start)
        else:
            assert start < found < ends[0]
            assert count(found) <= 60 < count(found + 2) or found == start + 1


def test_a_range_is_due_by_its_items_or_by_its_records() -> None:
    """Those that lie wholly below the gate, as far as they are not indexed."""

    def is_due(*counts: int, gate: int = 1 << 40, indexed_to: int = 0) -> bool:
        packs = [
            pack_of(number, start=number * 100, end=(number + 1) * 100, record_count=count)
            for number, count in enumerate(counts)
        ]
        return is_range_due(LogItems.of(packs), start=indexed_to, gate=gate)

    assert not is_due()
    assert not is_due(1, 1, 1)
    assert is_due(1, 1, 1, 1)
    assert not is_due(1, 1, 1, 1, gate=399)
    assert not is_due(1, 1, 1, 1, indexed_to=100)
    assert is_due(RECORDS_MAX)
    assert not is_due(RECORDS_MAX - 1)
    assert is_due(RECORDS_MAX // 2, RECORDS_MAX // 2)
    assert not is_due(RECORDS_MAX // 2, RECORDS_MAX // 2, gate=150)
    assert not is_due(RECORDS_MAX, indexed_to=1)
    assert is_due(2 * RECORDS_MAX, indexed_to=50)


def test_a_long_history_that_is_not_indexed_is_cut_at_once() -> None:
    """As of a bucket that was written before there were index objects."""
    packs = [pack_of(number, start=number * 50, end=number * 50 + 120, record_count=10) for number in range(30_000)]
    began = process_time()
    assert cut(LogItems.of(packs), start=0, end=1 << 40, records_max=1 << 30) == 30_000 * 50 + 70
    assert process_time() - began < 5


def test_blooms_of_new_objects_push_out_old_ones() -> None:
    cache = BloomCache(bytes_max=3 * 64)
    indexes = [index_of(number) for number in range(5)]
    for index in (indexes[3], indexes[1], indexes[2]):
        cache.add(index, bytes(64))
    assert not cache.has_room(indexes[0])
    cache.add(indexes[0], bytes(64))
    assert cache.get(indexes[0]) is None
    cache.add(indexes[4], bytes(64))
    assert [cache.get(index) is not None for index in indexes] == [False, False, True, True, True]
    assert cache.size_bytes == 3 * 64
    cache.keep_only([indexes[4].index_id])
    assert (cache.size_bytes, cache.get(indexes[4])) == (64, bytes(64))


def test_an_id_says_when_it_was_made_in_each_month_of_history() -> None:
    now_ms = 1_763_800_000_000
    month_start_ms, _ = month_bounds_ms(now_ms)
    key = f"0A010203000000000000{now_ms - month_start_ms:08X}0001"
    (window,) = birth_windows(key, oldest_ms=now_ms - DAY_MS // 2, newest_ms=now_ms)
    assert window == (now_ms - 14 * HOUR_MS, now_ms + 24 * HOUR_MS)
    windows = birth_windows(key, oldest_ms=now_ms - 70 * DAY_MS, newest_ms=now_ms)
    assert len(windows) == 4
    assert all(after[1] < before[0] for before, after in pairwise(windows))
    grpc_id = "0102FC00000001534C0B1977CD00000000"
    for other in ("an order's number", key[:-1], "Z" * 32, "F" * 32, grpc_id):
        assert birth_windows(other, oldest_ms=0, newest_ms=now_ms) == []
