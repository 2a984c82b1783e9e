"""What lookups keep in memory of the newest segments and packs: the same answers as their parts, within its bounds.

Covers `tiered/indexes/fresh_records.py`.
"""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from tests.tiered.ledger_data import make_entry, open_writer
from thermocline.remoting.records.message_record import encode_record
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut
from thermocline.tiered.index_format.index_object import IndexedPlace
from thermocline.tiered.indexes.fresh_index import SIZES_MAX, FreshIndex
from thermocline.tiered.indexes.fresh_records import FreshRecords
from thermocline.tiered.indexes.indexed_parts import PartBytes, part_bytes
from thermocline.tiered.indexes.log_items import END_OF_LOG
from thermocline.tiered.objects.errors import SegmentFormatError
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_writer import SegmentOptions, SegmentWriter
from thermocline.tiered.stores.memory import MemoryObjectStore

HOST = ("10.0.0.1", 10911)
GIB = 1 << 30


class Written:
    """Records of some topics, between each other in the log from `start` on, and what holds them."""

    def __init__(self, random: Random, *, start: int, count: int, step_max: int, topics: tuple[str, ...]) -> None:
        self.rows: list[tuple[int, tuple[str, int], int, int, list[str]]] = []
        """Place, life, queue, offset, keys; in the order of the log."""
        queues: dict[tuple[str, int], list[bytes]] = {}
        starts = {(topic, queue_id): random.randrange(1_000) for topic in topics for queue_id in range(3)}
        place = start
        for _ in range(count):
            topic, queue_id = random.choice(topics), random.randrange(3)
            records = queues.setdefault((topic, queue_id), [])
            offset = starts[topic, queue_id] + len(records)
            keys = [f"id-{place}", random.choice(("many", "some", "rare")), "twice twice"][: random.randint(1, 3)]
            properties = f"UNIQ_KEY\x01{keys[0]}\x02KEYS\x01{' '.join(keys[1:])}\x02"
            record = encode_record(
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=place,
                body=bytes(random.randrange(50)),
                properties_text=properties.encode(),
                born_timestamp_ms=0,
                born_host=HOST,
                store_timestamp_ms=place,
                store_host=HOST,
                sys_flag=0,
            )
            records.append(record)
            self.rows.append((place, (topic, 7), queue_id, offset, " ".join(keys).split()))
            place += len(record) + random.choice((0, 0, random.randrange(step_max)))
        self.parts: list[PartBytes] = []
        for number, topic in enumerate(topics):
            writer = SegmentWriter(
                segment_id=SegmentId(1, number + 1), topic=topic, incarnation=7, options=SegmentOptions()
            )
            for queue_id in range(3):
                found = queues.get((topic, queue_id), [])
                if found:
                    writer.append(queue_id, starts[topic, queue_id], found, [0] * len(found))
            with writer.finish() as finished:
                entry = finished.entry(log_key="l", cq_key="c", idx_key="i", created_ms=0)
                self.parts += part_bytes([(entry, finished.cq, finished.idx)])


@pytest.mark.parametrize("seed", range(6))
def test_records_are_found_by_key_and_by_place_those_before_the_start_are_not(seed: int) -> None:
    random = Random(seed)
    step_max = random.choice((100, 1 << 26))  # those lie more than 4 GiB apart
    written = Written(random, start=random.choice((0, 5 * GIB)), count=400, step_max=step_max, topics=("a", "b", "c"))
    rows = written.rows
    for start in (0, rows[100][0], rows[100][0] + 1, rows[-1][0] + 1, END_OF_LOG - 1):
        records = FreshRecords.of_stored(written.parts, start=start)
        fresh = [row for row in rows if row[0] >= start]
        assert len(records.places) == len(records.place_rows) == len(fresh)
        assert records.places.dtype == (np.int64 if fresh and fresh[-1][0] - fresh[0][0] >= 1 << 32 else np.uint32)
        for place, life, queue_id, offset, _ in rows:
            expected = IndexedPlace(life, queue_id, offset) if place >= start else None
            assert records.find_place(place) == expected
            assert records.find_place(place + 1) is None
        assert records.find_place(0 if rows[0][0] else 1) is None
        assert records.find_place(END_OF_LOG) is None
        for topic in ("a", "b", "c", "d"):
            for key in ("many", "some", "rare", "twice", "missing", rows[150][4][0], rows[20][4][0]):
                expected_offsets = [
                    (queue_id, offset)
                    for _, life, queue_id, offset, keys in reversed(fresh)
                    if life == (topic, 7) and key in keys
                ]
                assert records.find_key((topic, 7), key) == expected_offsets
                assert records.find_key((topic, 8), key) == []


def test_parts_of_another_segment_are_refused() -> None:
    one = Written(Random(1), start=0, count=50, step_max=10, topics=("a",)).parts[0]
    other = Written(Random(2), start=0, count=80, step_max=10, topics=("a", "b")).parts[1]
    for mixed in (PartBytes(one.entry, other.cq, one.idx), PartBytes(one.entry, one.cq, other.idx)):
        with pytest.raises(SegmentFormatError):
            FreshRecords.of_stored([mixed], start=0)


class Cached:
    """A cache, and segments that are one after another in the log, committed or not."""

    def __init__(self, *, bytes_max: int = 1 << 20, items_max: int = 100) -> None:
        self.fresh = FreshIndex(bytes_max=bytes_max, items_max=items_max)
        self.items: list[SegmentEntry] = []

    async def open(self) -> None:
        self.writer = await open_writer(MemoryObjectStore())

    @property
    def catalog(self) -> Catalog:
        return self.writer.catalog

    async def written(self, *, count: int = 40) -> SegmentEntry:
        """One more segment, not committed; its records are read."""
        start = self.items[-1].end_physical_offset if self.items else 0
        topic = f"topic-{len(self.items)}"
        part = Written(Random(len(self.items)), start=start, count=count, step_max=10, topics=(topic,)).parts[0]
        item = msgspec.structs.replace(part.entry, segment_id=str(self.writer.next_segment_id()))
        self.items.append(item)
        self.fresh.add(item, self.fresh.read(part.entry, [part]))
        return item

    async def commit(self, *segments: SegmentEntry, indexed_to: int = 0, out: tuple[SegmentEntry, ...] = ()) -> None:
        gone = tuple(SegmentOut(each.topic, each.segment_id) for each in out)
        await self.writer.commit(LedgerChanges(segments_in=segments, segments_out=gone, indexed_to=indexed_to))
        self.fresh.follow(self.catalog)

    @property
    def kept(self) -> list[bool]:
        return [self.fresh.get(item) is not None for item in self.items]


async def test_committed_records_stay_until_they_are_indexed_or_deleted() -> None:
    cached = Cached()
    await cached.open()
    one, two, three = [await cached.written() for _ in range(3)]
    await cached.commit(one)
    assert cached.kept == [True, True, True], "what is not committed yet may still be"
    assert cached.fresh.find_place(two.min_physical_offset) is not None
    await cached.commit(two, three)
    assert not cached.fresh.missing(cached.catalog)
    await cached.commit(indexed_to=one.end_physical_offset)
    assert cached.kept == [False, True, True]
    assert cached.fresh.find_place(one.min_physical_offset) is None
    await cached.commit(out=(two,))
    assert cached.kept == [False, False, True]
    given_up = await cached.written()
    again = await cached.written()
    await cached.commit(again, indexed_to=given_up.end_physical_offset)
    assert cached.kept == [False, False, False, False, True]
    assert cached.fresh.size_bytes > 0
    await cached.commit(indexed_to=again.end_physical_offset)
    assert cached.fresh.size_bytes == cached.fresh.count == 0


async def test_the_newest_have_the_room_that_there_is() -> None:
    for bounds, expected_count in ({"items_max": 3}, 3), ({"bytes_max": 9_000}, 4):
        cached = Cached(**bounds)  # type: ignore[arg-type]  # one of two numbers
        await cached.open()
        for _ in range(12):
            await cached.commit(await cached.written())
        assert cached.kept == [False] * (12 - expected_count) + [True] * expected_count
        missing = [item.segment_id for item in reversed(cached.items[:-expected_count])]
        found = cached.fresh.missing(cached.catalog)
        assert [item.segment_id for item in found] == missing[: bounds.get("items_max", 100)]
        assert not any(cached.fresh.has_room(item) for item in cached.items[:-expected_count])
        newer = make_entry(SegmentId(9, 9), start=1_000_000)
        assert cached.fresh.has_room(newer)
        await cached.commit(indexed_to=cached.items[-2].end_physical_offset)
        assert cached.kept == [False] * 11 + [True]


async def test_one_that_is_too_large_is_neither_read_nor_kept_nor_wished_for_again() -> None:
    cached = Cached(bytes_max=2_800)
    await cached.open()
    small = await cached.written(count=10)
    large = await cached.written(count=200)
    assert cached.fresh.get(large) is None
    assert not cached.fresh.has_room(large)
    # By the guess there is room, by its size there is none.
    tight = msgspec.structs.replace(small, segment_id="0000000009-0000000001")
    assert cached.fresh.has_room(tight)
    cached.fresh.add(tight, FreshRecords.of_stored(written_parts(200), start=0))
    assert cached.fresh.get(tight) is None
    assert not cached.fresh.has_room(tight)
    assert cached.kept == [True, False], "it evicts no other entry"


def written_parts(count: int) -> list[PartBytes]:
    return Written(Random(1), start=0, count=count, step_max=10, topics=("a",)).parts


def test_sizes_are_remembered_of_a_bounded_number() -> None:
    fresh, nothing = FreshIndex(items_max=1), FreshRecords.of_stored([], start=0)
    for number in range(SIZES_MAX + 10):
        fresh.add(make_entry(SegmentId(1, number + 1), start=number), nothing)
    assert len(fresh._sizes) <= SIZES_MAX + 1
    assert fresh.count == 1
