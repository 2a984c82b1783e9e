"""PackMerger: rewrites packs into fewer ones, and topics that have become large into segments of their own. Commits
nothing.

    packs -> their live pieces by topic (k-way, front to back) -> one piece a topic, records byte for byte
          -> packs of the plan's level, cut by ranges of topics;  or, from half a segment on, segments of their own

Expired records and those of deleted topics are omitted. All objects are under ids of this writer, complete before
it is returned, and given up if anything fails; the caller commits it in place of the plan's packs, or gives it up.
A merge uses memory for one buffer a pack and for the pieces of one topic, and disk for the packs that it has begun; it
waits for its shares of the budgets (tier_budgets.py). Buffers take at most half of one, files half of the other, so
that sealing goes on beside it. To a segment that does not fit beside the buffers the merge gives way before its next
piece: buffers are freed, and filled again later. Belongs to the tier process's loop, where one merge runs at a time;
decompressing and compressing run in a worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from thermocline.tiered.budgets import TierBudgets
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.indexes import FreshIndex, Item, part_bytes
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.merging.merge_policy import MergePlan
from thermocline.tiered.packs import (
    BUFFER_BYTES,
    COLUMNS_BUFFER_BYTES,
    RECORD_MEMORY_BYTES,
    PackEntry,
    PackWriter,
    PieceBytes,
    PiecePlace,
    PieceStream,
    rewrite,
    stretches,
    topic_key,
    upload_joined,
)
from thermocline.tiered.segments import FinishedSegment, SegmentEntry, SegmentId, SegmentOptions

BUFFER_BYTES_MIN = 256 * 1024
LARGE_PIECE_BYTES = 16 * 1024 * 1024
"""A rewritten piece from this size on is kept in a file while it is written."""


@dataclass(slots=True)
class MergeResult:
    """The objects written by a merge, to be committed in place of `packs_out`."""

    packs_out: tuple[str, ...]
    packs_in: list[PackEntry] = field(default_factory=list)
    segments_in: list[SegmentEntry] = field(default_factory=list)
    left_out_bytes: int = 0

    @property
    def written_bytes(self) -> int:
        """Stored bytes of all written objects."""
        return sum(pack.object_bytes for pack in self.packs_in) + sum(each.stored_bytes for each in self.segments_in)


class MergeRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a merge: each topic's present TTL class, and its cut."""

    class_of: Callable[[str], str]
    cuts_ms: Mapping[str, int]
    own_bytes: int
    segment_bytes: int


class PackMerger:
    """See the module's header."""

    def __init__(
        self,
        *,
        writer: LedgerWriter,
        options: SegmentOptions,
        spool_folder: Path | None,
        clock: Callable[[], int],
        budgets: TierBudgets | None = None,
        fresh: FreshIndex | None = None,
    ) -> None:
        """`fresh`: receives the index entries of merged records that no index object covers yet, for lookups."""
        self._writer = writer
        self._fresh = fresh
        self._options = options
        self._spool_folder = spool_folder
        self._clock = clock
        self._budgets = budgets if budgets is not None else TierBudgets()

    async def check_newest(self) -> None:
        """See `LedgerWriter`."""
        await self._writer.check_newest()

    async def merge(self, plan: MergePlan, catalog: Catalog, rules: MergeRules) -> MergeResult:
        """Carry out a plan made from `catalog`.

        Raises:
            ObjectStoreUnavailableError: No answer; all written objects have been given up.
            ObjectNotFoundError: A pack has been collected meanwhile.
            CorruptDataError: A piece is damaged: the packs stay as they are.
            DiskFullError: There is no room to write them.
        """
        buffer_bytes = buffer_bytes_of(len(plan.packs), budget_bytes=self._budgets.uploads.bytes_max)
        held_bytes = _held_bytes(plan, buffer_bytes)
        async with self._budgets.spool.hold(self._spooled_bytes(plan, rules)), self._budgets.uploads.hold(held_bytes):
            return await self._merge(plan, catalog, rules, buffer_bytes=buffer_bytes, held_bytes=held_bytes)

    def give_up(self, result: MergeResult) -> None:
        """Give up the written objects: they will not be committed."""
        for pack in result.packs_in:
            self._writer.abandon(pack.id, (pack.key,))
        for segment in result.segments_in:
            self._writer.abandon(segment.id, segment.keys)

    def _spooled_bytes(self, plan: MergePlan, rules: MergeRules) -> int:
        """The approximate disk use: the pack being written, and a segment twice, as parts and as one object."""
        if self._spool_folder is None:
            return 0
        return min(_open_part(plan, plan.raw_bytes) + 2 * rules.segment_bytes, self._budgets.spool.bytes_max // 2)

    async def _merge(
        self, plan: MergePlan, catalog: Catalog, rules: MergeRules, *, buffer_bytes: int, held_bytes: int
    ) -> MergeResult:
        result = MergeResult(packs_out=tuple(pack.pack_id for pack in plan.packs))
        outputs = _Outputs(self._writer, plan, result, folder=self._spool_folder, clock=self._clock, fresh=self._fresh)
        streams = [PieceStream(self._writer.store, pack, buffer_bytes=buffer_bytes) for pack in plan.packs]
        held = _Held(streams, held_bytes)
        try:
            async with contextlib.aclosing(self._topics(streams, catalog, rules, result)) as topics:
                async for places in topics:
                    await self._rewrite_topic(places, rules, outputs, held)
            await outputs.finish()
        except BaseException:
            outputs.give_up()
            raise
        return result

    async def _topics(
        self, streams: Sequence[PieceStream], catalog: Catalog, rules: MergeRules, result: MergeResult
    ) -> AsyncGenerator[list[PiecePlace], None]:
        """The pieces to keep of each topic, topics in the order of packs."""

        def is_wanted(pack_id: str, entry: SegmentEntry) -> bool:
            packed = catalog.packed.get(entry.topic)
            is_live = packed is not None and pack_id in packed.packs and packed.incarnation == entry.incarnation
            is_visible = entry.max_store_ms >= rules.cuts_ms.get(entry.topic, 0)
            if is_live and is_visible:
                return True
            result.left_out_bytes += entry.stored_bytes
            return False

        iterators: list[AsyncIterator[PiecePlace]] = [
            stream.pieces(functools.partial(is_wanted, stream.pack.pack_id)) for stream in streams
        ]
        heads: list[tuple[tuple[int, str], int, PiecePlace]] = []

        async def advance(number: int) -> None:
            place = await anext(iterators[number], None)
            if place is not None:
                heapq.heappush(heads, (topic_key(place.entry.topic), number, place))

        for number in range(len(iterators)):
            await advance(number)
        while heads:
            topic = heads[0][0]
            places: list[PiecePlace] = []
            while heads and heads[0][0] == topic:
                _, number, place = heapq.heappop(heads)
                places.append(place)
                await advance(number)
            yield places

    async def _rewrite_topic(self, places: list[PiecePlace], rules: MergeRules, outputs: _Outputs, held: _Held) -> None:
        topic = places[0].entry.topic
        total_bytes = sum(place.entry.raw_bytes for place in places)
        is_own = total_bytes >= rules.own_bytes
        by_id = {place.entry.segment_id: place for place in places}
        for stretch in stretches([place.entry for place in places], raw_bytes_max=rules.segment_bytes):
            raw_bytes = sum(entry.raw_bytes for entry in stretch)
            folder = self._spool_folder if raw_bytes >= LARGE_PIECE_BYTES else None
            memory_bytes = sum(entry.stored_bytes for entry in stretch) + (raw_bytes if folder is None else 0)
            await held.give_way(self._budgets)
            async with self._budgets.uploads.hold(memory_bytes, own_bytes=held.size_bytes):
                pieces: list[PieceBytes] = []
                for entry in stretch:
                    log, cq = await by_id[entry.segment_id].parts()
                    pieces.append(PieceBytes(entry, log, cq))
                segment_id = self._writer.next_segment_id() if is_own else self._writer.next_piece_ids(1)[0]
                try:
                    finished = await asyncio.to_thread(
                        rewrite,
                        pieces,
                        segment_id=segment_id,
                        options=self._options,
                        folder=folder,
                        cut_ms=rules.cuts_ms.get(topic, 0),
                    )
                except BaseException:
                    if is_own:
                        self._writer.abandon(segment_id, ())
                    raise
                with finished:
                    cut_ms = rules.cuts_ms.get(topic, 0)
                    lasting = sum(entry.record_count for entry in stretch if entry.min_store_ms >= cut_ms)
                    total = sum(entry.record_count for entry in stretch)
                    assert lasting <= finished.footer.record_count <= total, "a merge drops expired records only"
                    if is_own:
                        await outputs.add_segment(finished)
                    else:
                        await outputs.add_piece(rules.class_of(topic), finished)


def buffer_bytes_of(pack_count: int, *, budget_bytes: int) -> int:
    """The buffer of each pack of a merge: all of them take at most half of the budget for uploads."""
    return max(BUFFER_BYTES_MIN, min(BUFFER_BYTES, budget_bytes // 2 // pack_count))


def _open_part(plan: MergePlan, amount: int) -> int:
    """The part of an amount that is in the pack being written: packs are cut by ranges of topics, one after another."""
    return amount >> (plan.depth - min(pack.depth for pack in plan.packs))


def _held_bytes(plan: MergePlan, buffer_bytes: int) -> int:
    """The memory that a merge holds from beginning to end."""
    packs = plan.packs
    footers_bytes = sum(pack.object_bytes - pack.footer_start for pack in packs)
    written_bytes = RECORD_MEMORY_BYTES * _open_part(plan, sum(pack.record_count for pack in packs))
    return len(packs) * (buffer_bytes + COLUMNS_BUFFER_BYTES) + footers_bytes + written_bytes


class _Held(msgspec.Struct, frozen=True):
    """The share of memory that a merge holds from beginning to end, most of it for these buffers."""

    streams: Sequence[PieceStream]
    size_bytes: int

    async def give_way(self, budgets: TierBudgets) -> None:
        """Let those have it that wait for memory, if any; between two pieces, when no buffer is in use."""
        if budgets.uploads.waiting_count:
            for stream in self.streams:
                stream.forget()
            await budgets.uploads.give_way(self.size_bytes)


class _Outputs:
    """The outputs of a merge: one open pack for each TTL class, and segments."""

    def __init__(
        self,
        writer: LedgerWriter,
        plan: MergePlan,
        result: MergeResult,
        *,
        folder: Path | None,
        clock: Callable[[], int],
        fresh: FreshIndex | None,
    ) -> None:
        self._fresh = fresh
        self._writer = writer
        self._plan = plan
        self._result = result
        self._folder = folder
        self._clock = clock
        self._open: dict[str, PackWriter] = {}
        self._uploading: dict[SegmentId, str] = {}

    async def add_segment(self, finished: FinishedSegment) -> None:
        """Upload a segment of its own, its parts in one object."""
        footer = finished.footer
        key = self._writer.keys.merged_segment(footer.topic, footer.segment_id)
        self._uploading[footer.segment_id] = key
        entry = await upload_joined(
            self._writer.store, self._writer.keys, finished, created_ms=self._clock(), folder=self._folder
        )
        del self._uploading[footer.segment_id]
        self._result.segments_in.append(entry)
        await self._keep_fresh(entry, [(entry, finished.cq, finished.idx)])

    async def add_piece(self, ttl_class: str, finished: FinishedSegment) -> None:
        """Put a piece into the open pack of its class; a pack ends where its range of topics does."""
        pack = self._open.get(ttl_class)
        shift = 32 - self._plan.depth
        topic = finished.footer.topic
        if pack is not None and topic_key(pack.last_topic)[0] >> shift != topic_key(topic)[0] >> shift:
            await self._finish(ttl_class)
            pack = None
        if pack is None:
            pack_id = self._writer.next_segment_id()
            key = self._writer.keys.pack(ttl_class, pack_id)
            pack = self._open[ttl_class] = PackWriter(
                pack_id=pack_id, key=key, ttl_class=ttl_class, folder=self._folder
            )
        pack.add(finished, created_ms=self._clock())

    async def finish(self) -> None:
        """Upload the open packs."""
        for ttl_class in list(self._open):
            await self._finish(ttl_class)

    def give_up(self) -> None:
        """Give up all outputs: none will be committed."""
        for pack in self._open.values():
            pack.close()
            self._writer.abandon(pack.pack_id, ())
        for segment_id, key in self._uploading.items():
            self._writer.abandon(segment_id, (key,))
        for entry in self._result.packs_in:
            self._writer.abandon(entry.id, (entry.key,))
        for segment in self._result.segments_in:
            self._writer.abandon(segment.id, segment.keys)

    async def _finish(self, ttl_class: str) -> None:
        pack = self._open[ttl_class]
        entry, content = await asyncio.to_thread(
            pack.finish, level=self._plan.level, depth=self._plan.depth, created_ms=self._clock()
        )
        del self._open[ttl_class]
        self._uploading[pack.pack_id] = pack.key
        with content:
            await self._writer.store.put(pack.key, content.data)
        del self._uploading[pack.pack_id]
        self._result.packs_in.append(entry)
        await self._keep_fresh(entry, pack.columns())

    async def _keep_fresh(self, item: Item, columns: list[tuple[SegmentEntry, bytes, bytes]]) -> None:
        if self._fresh is not None:
            self._fresh.add(item, await asyncio.to_thread(self._fresh.read, item, part_bytes(columns)))
