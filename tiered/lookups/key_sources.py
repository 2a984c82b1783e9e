"""The sources that may name a topic's records with a key: index objects, and segments and packs not in them.

    below `indexed_to`    the index objects that hold the topic, and the data in quarantine when these were made
    behind it             segments and packs, by their records in memory (`lookup_memory.py`), else by their own `.idx`
                          parts; all of a pack's are one request

Sources are searched from the newest place of the log on. The segments of a damaged or missing index object replace it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Set
from typing import Protocol

import msgspec

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog import Catalog, PackPieces, TopicEntry
from thermocline.tiered.index_format import IndexEntry, IndexObject, Life, QueuePlace, index_hash
from thermocline.tiered.indexes import FreshRecords, Item, item_id
from thermocline.tiered.lookups.lookup_memory import LookupMemory
from thermocline.tiered.objects import ObjectStore, SegmentOffset
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.segments import SegmentEntry, SegmentReaders, decode_key_index_footer, key_hash

TAIL_BYTES_MAX = 16 * 1024 * 1024
KEPT_BYTES_MAX = 16 * 1024 * 1024
WHOLE_PARTS_MAX = 8
"""Up to so many unindexed segments are searched by their whole `.idx` parts: one request each."""


class KeySource(Protocol):
    """`name` is that of the object; all its records are before `end_place`."""

    @property
    def name(self) -> str:
        """See the class."""

    @property
    def end_place(self) -> PhysicalOffset:
        """See the class."""

    @property
    def store_times(self) -> tuple[int, int]:
        """Bounds of its records' store times, inclusive."""

    def find(self, key: str) -> AsyncIterator[list[QueuePlace]]:
        """Queue and offset of each record that may have the key, newest first, a few at a time."""


class IndexSource(msgspec.Struct, frozen=True):
    """One index object."""

    index: IndexEntry
    store: ObjectStore
    topic: str
    incarnation: int

    @property
    def name(self) -> str:
        """See KeySource."""
        return self.index.index_id

    @property
    def end_place(self) -> PhysicalOffset:
        """See KeySource."""
        return self.index.end

    @property
    def store_times(self) -> tuple[int, int]:
        """See KeySource."""
        return self.index.min_store_ms, self.index.max_store_ms

    def hash_of(self, key: str) -> int:
        """The hash of the key in this index object."""
        return index_hash(self.topic, self.incarnation, key)

    def find(self, key: str) -> AsyncIterator[list[QueuePlace]]:
        """See KeySource."""
        return IndexObject(self.store, self.index).find_key(self.hash_of(key))


class FreshSource(msgspec.Struct, frozen=True, kw_only=True):
    """One segment or pack, by its records in memory: perhaps not all of them, so it has another name."""

    name: str
    end_place: PhysicalOffset
    store_times: tuple[int, int]
    life: Life
    records: FreshRecords

    async def find(self, key: str) -> AsyncIterator[list[QueuePlace]]:
        """See KeySource."""
        yield self.records.find_key(self.life, key)


class SegmentSource(msgspec.Struct, frozen=True):
    """One segment, or piece of a pack, by its own `.idx` part."""

    segment: SegmentEntry
    readers: SegmentReaders
    reads_whole: bool

    @property
    def name(self) -> str:
        """See KeySource."""
        return self.segment.segment_id

    @property
    def end_place(self) -> PhysicalOffset:
        """See KeySource."""
        return self.segment.end_physical_offset

    @property
    def store_times(self) -> tuple[int, int]:
        """See KeySource."""
        return self.segment.min_store_ms, self.segment.max_store_ms

    async def find(self, key: str) -> AsyncIterator[list[QueuePlace]]:
        """See KeySource."""
        reader = self.readers.of(self.segment)
        found = await reader.find_key(key.encode(), reads_whole=self.reads_whole)
        yield [(run.queue_id, offset) for run, offset in found]


class PackSource(msgspec.Struct, frozen=True):
    """One pack, by the `.idx` parts of the topic's pieces in it."""

    pack: PackEntry
    topic: str
    tails: PackTails

    @property
    def name(self) -> str:
        """See KeySource."""
        return self.pack.pack_id

    @property
    def end_place(self) -> PhysicalOffset:
        """See KeySource."""
        return self.pack.end_physical_offset

    @property
    def store_times(self) -> tuple[int, int]:
        """See KeySource."""
        return self.tails.pieces.times(self.pack, self.topic)

    async def find(self, key: str) -> AsyncIterator[list[QueuePlace]]:
        """See KeySource."""
        hash_value = key_hash(key.encode())
        parts = await self.tails.keys_of(self.pack, self.topic)
        for segment, idx in sorted(parts, key=lambda each: each[0].end_physical_offset, reverse=True):
            footer = decode_key_index_footer(idx)
            if not footer.bloom.page_count:
                continue
            page = footer.bloom.page_position(hash_value)
            if not footer.bloom.may_hold(idx[page : page + footer.bloom.page_bytes], hash_value):
                continue
            blocks = footer.blocks_of(hash_value)
            start = int(blocks["position"][0]) if len(blocks) else 0
            ordinals = footer.find_ordinals(memoryview(idx)[start:], blocks, hash_value)
            places = [segment.place_of_ordinal(ordinal) for ordinal in dict.fromkeys(ordinals)]
            yield [(run.queue_id, offset) for run, offset in places]


class PackTails:
    """The `.idx` parts of topics in unindexed packs: the most recently used ones are cached."""

    def __init__(self, store: ObjectStore, pieces: PackPieces) -> None:
        self.pieces = pieces
        self._store = store
        self._kept: OrderedDict[tuple[str, str], list[tuple[SegmentEntry, bytes]]] = OrderedDict()
        self._kept_bytes = 0

    def is_readable(self, pack: PackEntry) -> bool:
        """Whether one request can read everything behind the `.log` parts."""
        return bool(pack.columns_start) and pack.object_bytes - pack.columns_start <= TAIL_BYTES_MAX

    def forget(self, keys: Set[str]) -> None:
        """Drop the cached content of these objects."""
        for name in [name for name in self._kept if name[0] in keys]:
            self._kept_bytes -= _size(self._kept.pop(name))

    async def keys_of(self, pack: PackEntry, topic: str) -> list[tuple[SegmentEntry, bytes]]:
        """The topic's pieces in the pack with their `.idx` parts: one request, or none. The pieces are cached, too."""
        name = (pack.key, topic)
        cached = self._kept.get(name)
        if cached is not None:
            self._kept.move_to_end(name)
            return cached
        start = pack.columns_start
        tail = memoryview(await self._store.get_range(pack.key, start=start, end=SegmentOffset(pack.object_bytes)))
        everything = self.pieces.in_tail(pack, tail)
        self.pieces.keep(pack, everything, topic)
        found: list[tuple[SegmentEntry, bytes]] = []
        for piece in everything:
            if piece.topic == topic:
                idx = bytes(tail[piece.idx.start - start : piece.idx.end - start])
                piece.idx.check(idx)
                found.append((piece, idx))
        if name not in self._kept:
            self._kept[name] = found
            self._kept_bytes += _size(found)
            while self._kept_bytes > KEPT_BYTES_MAX and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._kept_bytes -= _size(oldest)
        return found


def _size(parts: Iterable[tuple[SegmentEntry, bytes]]) -> int:
    return sum(len(idx) + 2_000 for _, idx in parts)


async def sources_between(
    catalog: Catalog,
    entry: TopicEntry,
    *,
    start: PhysicalOffset,
    end: PhysicalOffset,
    readers: SegmentReaders,
    tails: PackTails,
    memory: LookupMemory,
) -> list[KeySource]:
    """The topic's segments and packs with places in [start, end). One request for a pack whose tail is large, and that
    is not in memory."""
    found: list[KeySource] = []
    segments: list[SegmentEntry] = []
    life = (entry.topic, entry.incarnation)
    for segment in entry.segments.between(start, end):
        if segment.key_count:
            records = memory.records_of(segment, start=start)
            if records is None:
                segments.append(segment)
                continue
            times = segment.min_store_ms, segment.max_store_ms
            found.append(_fresh(segment, life, records, times))
    reads_whole = len(segments) <= WHOLE_PARTS_MAX
    found += [SegmentSource(segment, readers, reads_whole) for segment in segments]
    for pack in packs_of(catalog, entry):
        if pack.min_physical_offset < end and pack.end_physical_offset > start:
            records = memory.records_of(pack, start=start)
            if records is None:
                found += await _sources_of_pack(pack, entry, readers, tails)
                continue
            found.append(_fresh(pack, life, records, tails.pieces.times(pack, entry.topic)))
    return found


def _fresh(item: Item, life: Life, records: FreshRecords, store_times: tuple[int, int]) -> FreshSource:
    return FreshSource(
        name=f"{item_id(item)} in memory",
        end_place=item.end_physical_offset,
        store_times=store_times,
        life=life,
        records=records,
    )


async def sources_of_gaps(
    catalog: Catalog, entry: TopicEntry, *, readers: SegmentReaders, tails: PackTails
) -> list[KeySource]:
    """The present holders of offsets that were in quarantine when an index object was made."""
    gaps = [
        gap
        for index in catalog.indexes.values()
        for gap in index.gaps
        if gap.topic == entry.topic and gap.incarnation == entry.incarnation
    ]
    if not gaps:
        return []
    found: list[KeySource] = []
    for segment in entry.segments:
        ranges = [(run.queue_id, run.start_offset, run.end_offset) for run in segment.runs]
        if any(_overlaps(each, (gap.queue_id, gap.start_offset, gap.end_offset)) for each in ranges for gap in gaps):
            found.append(SegmentSource(segment, readers, reads_whole=False))
    for pack in packs_of(catalog, entry):
        table = tails.pieces.table(pack)
        ranges = [
            (queue.queue_id, queue.start_offset, queue.end_offset)
            for index in pack.indexes_of(entry.topic)
            for queue in table.piece(index).queues
        ]
        if any(_overlaps(each, (gap.queue_id, gap.start_offset, gap.end_offset)) for each in ranges for gap in gaps):
            found += await _sources_of_pack(pack, entry, readers, tails)
    return found


def packs_of(catalog: Catalog, entry: TopicEntry) -> list[PackEntry]:
    """The packs that hold this incarnation of the topic."""
    packed = catalog.packed.get(entry.topic)
    if packed is None or packed.incarnation != entry.incarnation:
        return []
    return [catalog.packs[pack_id] for pack_id in packed.packs]


async def _sources_of_pack(
    pack: PackEntry, entry: TopicEntry, readers: SegmentReaders, tails: PackTails
) -> list[KeySource]:
    if tails.is_readable(pack):
        return [PackSource(pack, entry.topic, tails)]
    pieces = await tails.pieces.of_topic(pack, entry.topic)
    return [SegmentSource(piece, readers, reads_whole=False) for piece in pieces if piece.key_count]


def _overlaps(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
