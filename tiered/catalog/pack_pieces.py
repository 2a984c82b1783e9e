"""PackPieces: the entries of the pieces of packs, loaded on demand from the packs' footers.

One request loads the section of 64 pieces with a topic's piece, or all sections of a pack. Bounded in bytes: the least
recently used section is dropped first. A section is loaded once, however many calls wait. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict

import msgspec

from thermocline.tiered.catalog.catalog import Catalog, TopicEntry
from thermocline.tiered.objects import ObjectStore, SegmentFormatError, SegmentOffset, run_all
from thermocline.tiered.packs import (
    PACK_MAGIC,
    SECTION_PIECES,
    PackEntry,
    PieceTable,
    check_footer,
    decode_section,
    decode_sections,
)
from thermocline.tiered.segments import TRAILER, SegmentEntry, decode_trailer

PIECES_BYTES_MAX = 48 * 1024 * 1024
TABLES_BYTES_MAX = 16 * 1024 * 1024
SECTION_CONCURRENCY_MAX = 16
_ENTRY_BYTES = 1_200
_RUN_BYTES = 350
_FRAME_BYTES = 40

SectionKey = tuple[str, int]
Section = list[SegmentEntry]


class PackPieces:
    """See the module's header. Each load may raise the store's errors and CorruptDataError."""

    def __init__(
        self, store: ObjectStore, *, bytes_max: int = PIECES_BYTES_MAX, tables_bytes_max: int = TABLES_BYTES_MAX
    ) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self._tables_bytes_max = tables_bytes_max
        self._sections: OrderedDict[SectionKey, Section] = OrderedDict()
        self._loading: dict[SectionKey, asyncio.Task[Section]] = {}
        self._tables: OrderedDict[str, PieceTable] = OrderedDict()
        self._tables_bytes = 0
        self.size_bytes = 0

    def times(self, pack: PackEntry, topic: str) -> tuple[int, int]:
        """Bounds of the store times of the topic's records in the pack, from the ledger; sends no request."""
        piece_times = self.table(pack).times
        indexes = pack.indexes_of(topic)
        if piece_times is None or not indexes:
            return pack.min_store_ms, pack.max_store_ms
        bounds = [piece_times.of(index) for index in indexes]
        return min(least for least, _ in bounds), max(greatest for _, greatest in bounds)

    def table(self, pack: PackEntry) -> PieceTable:
        """The pack's ranges, decoded; sends no request."""
        table = self._tables.get(pack.pack_id)
        if table is None:
            table = self._tables[pack.pack_id] = pack.table()
            self._tables_bytes += table.memory_bytes
            while self._tables_bytes > self._tables_bytes_max and len(self._tables) > 1:
                _, oldest = self._tables.popitem(last=False)
                self._tables_bytes -= oldest.memory_bytes
        else:
            self._tables.move_to_end(pack.pack_id)
        return table

    async def of_topic(self, pack: PackEntry, topic: str) -> Section:
        """The topic's pieces in the pack: one request, or none."""
        indexes = pack.indexes_of(topic)
        if not indexes:
            raise SegmentFormatError("the pack has no piece of the topic", key=pack.key, topic=topic)
        found: Section = []
        for number in range(indexes.start // SECTION_PIECES, (indexes.stop - 1) // SECTION_PIECES + 1):
            found += [entry for entry in await self._section(pack, number) if entry.topic == topic]
        return found

    async def all_of(self, pack: PackEntry) -> Section:
        """Every piece of the pack, by one request; not cached."""
        tail = await self._store.get_range(pack.key, start=pack.footer_start, end=SegmentOffset(pack.object_bytes))
        return self.in_tail(pack, memoryview(tail))

    @staticmethod
    def in_tail(pack: PackEntry, tail: memoryview) -> Section:
        """Every piece of the pack, from `tail`, which holds the whole footer. CorruptDataError if it is damaged."""
        check_footer(tail)
        view = tail[len(tail) - (pack.object_bytes - pack.footer_start) :]
        parts = [
            _checked(
                pack,
                number,
                decode_section(view[start - pack.footer_start : end - pack.footer_start], version=pack.format_version),
            )
            for number, (start, end) in enumerate(pack.sections())
        ]
        return list(itertools.chain.from_iterable(parts))

    def has(self, pack: PackEntry, topic: str) -> bool:
        """Whether the topic's pieces are cached, so that `of_topic` sends no request."""
        return all(
            (pack.pack_id, number) in self._sections
            for number in {index // SECTION_PIECES for index in pack.indexes_of(topic)}
        )

    def keep(self, pack: PackEntry, pieces: Section, topic: str) -> None:
        """Cache a topic's sections out of all pieces of the pack, which the caller has loaded."""
        indexes = pack.indexes_of(topic)
        for number in {index // SECTION_PIECES for index in indexes}:
            if (pack.pack_id, number) not in self._sections:
                start = number * SECTION_PIECES
                self._add((pack.pack_id, number), pieces[start : start + SECTION_PIECES])

    async def first_section(self, key: str) -> Section:
        """The first pieces of the pack stored at `key`, by its trailer alone; two requests, not cached."""
        return next(decode_sections(await self._footer_at(key)), [])

    async def of_topic_at(self, key: str, topic: str) -> Section:
        """The topic's pieces, perhaps none, in the pack stored at `key`; as `first_section`."""
        footer = await self._footer_at(key)
        return [entry for section in decode_sections(footer) for entry in section if entry.topic == topic]

    async def _footer_at(self, key: str) -> bytes:
        """Footer and trailer."""
        tail = (await self._store.get_suffix(key, size_bytes=TRAILER.size)).data
        trailer = decode_trailer(tail, magic=PACK_MAGIC)
        return (await self._store.get_suffix(key, size_bytes=trailer.tail_bytes)).data

    async def _section(self, pack: PackEntry, number: int) -> Section:
        key = (pack.pack_id, number)
        section = self._sections.get(key)
        if section is not None:
            self._sections.move_to_end(key)
            return section
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.get_running_loop().create_task(self._load(pack, number))
            task.add_done_callback(lambda done: self._landed(key, done))
        # Shielded: a cancelled call must not cancel the load for the others.
        return await asyncio.shield(task)

    def _landed(self, key: SectionKey, task: asyncio.Task[Section]) -> None:
        del self._loading[key]
        if not task.cancelled():
            task.exception()  # retrieved, even if no call waits any more

    async def _load(self, pack: PackEntry, number: int) -> Section:
        start, end = pack.sections()[number]
        stored = await self._store.get_range(pack.key, start=start, end=end)
        section = _checked(pack, number, decode_section(stored, version=pack.format_version))
        self._add((pack.pack_id, number), section)
        return section

    def _add(self, key: SectionKey, section: Section) -> None:
        if key in self._sections:
            return  # read meanwhile with the whole footer
        self._sections[key] = section
        self.size_bytes += _memory_bytes(section)
        while self.size_bytes > self._bytes_max and len(self._sections) > 1:
            _, oldest = self._sections.popitem(last=False)
            self.size_bytes -= _memory_bytes(oldest)


def _memory_bytes(section: Section) -> int:
    return sum(_ENTRY_BYTES + _RUN_BYTES * len(entry.runs) + _FRAME_BYTES * len(entry.coarse) for entry in section)


def _checked(pack: PackEntry, number: int, section: Section) -> Section:
    """SegmentFormatError unless a section holds the pieces that the ledger names."""
    start = number * SECTION_PIECES
    if [entry.topic for entry in section] != list(pack.topics[start : start + SECTION_PIECES]):
        raise SegmentFormatError("pack and ledger speak of different topics", key=pack.key, section=number)
    return section


async def with_pieces(pieces: PackPieces, catalog: Catalog, topic: str) -> TopicEntry | None:
    """The topic's entry with each of its pieces as a segment of its own: one request for each pack that holds it."""
    entry, packed = catalog.topics.get(topic), catalog.packed.get(topic)
    if entry is None or packed is None or packed.incarnation != entry.incarnation:
        return entry
    packs = [catalog.packs[pack_id] for pack_id in packed.packs]
    found = await run_all([pieces.of_topic(pack, topic) for pack in packs], concurrency_max=SECTION_CONCURRENCY_MAX)
    return msgspec.structs.replace(entry, segments=entry.segments.with_more([*itertools.chain.from_iterable(found)]))
