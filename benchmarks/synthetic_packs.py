"""Days of ledger, catalog and checkpoints without a record: packs and merges of which only the entries are made.

Sizes are those of 1 MiB/s, a pack each SEAL_AGE_MS; every queue of every topic is in every pack, which is the worst
case for the ledger. Ledger writer, catalog, merge policy, checkpoints and garbage collection are the real ones; what
makes entries of such sizes stands in place of `PackSealer` and `PackMerger`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib
from collections.abc import Callable
from random import Random

import numpy as np

from benchmarks.memory_watch import MemoryWatch
from benchmarks.synthetic_cold_tier import IDENTITY, KEYS
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog, LedgerChanges
from thermocline.tiered.garbage import GarbageCollector
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.merging import OWN_PART, MergeBudget, MergePlan, MergePolicy, MergeResult, MergeRules, Merging
from thermocline.tiered.objects import ObjectStore, SegmentOffset
from thermocline.tiered.packs import FOREVER, PackEntry, PieceExtent, QueueRange, encode_piece_table, topic_key
from thermocline.tiered.segments import CoarseFrame, CoarseRows, PartLocator, QueueRun, RunRows, SegmentEntry
from thermocline.tiered.wrappers import MeteringObjectStore, StoreCall, Verb

MIB, GIB = 1 << 20, 1 << 30
DAY_MS = 24 * 3_600_000
RECORD_BYTES = 1_060
SEAL_AGE_MS = TierConfig().seal_age_ms


class EntryMaker:
    """Makes packs' and segments' entries for objects that are never there. Merges as `PackMerger`, by sizes alone."""

    def __init__(self, writer: LedgerWriter, clock: Callable[[], int]) -> None:
        self._writer = writer
        self._clock = clock

    def pack(
        self, topics: list[str], pieces: list[PieceExtent], *, min_ms: int, max_ms: int, level: int, depth: int
    ) -> PackEntry:
        """A pack of these pieces."""
        pack_id = self._writer.next_segment_id()
        raw_bytes = sum(piece.raw_bytes for piece in pieces)
        footer_bytes = 300 * len(pieces)
        return PackEntry(
            pack_id=str(pack_id),
            ttl_class=FOREVER,
            key=KEYS.pack(FOREVER, pack_id),
            object_bytes=raw_bytes + footer_bytes,
            footer_start=SegmentOffset(raw_bytes),
            section_ends=tuple(SegmentOffset(raw_bytes + 19_200 * (n + 1)) for n in range(-(-len(pieces) // 64))),
            crc32=zlib.crc32(str(pack_id).encode()),
            topics=tuple(topics),
            pieces=encode_piece_table(pieces),
            record_count=raw_bytes // RECORD_BYTES,
            raw_bytes=raw_bytes,
            min_store_ms=min_ms,
            max_store_ms=max_ms,
            min_physical_offset=PhysicalOffset(0),
            end_physical_offset=PhysicalOffset(1 << 50),
            created_ms=self._clock(),
            level=level,
            depth=depth,
        )

    async def merge(self, plan: MergePlan, catalog: Catalog, rules: MergeRules) -> MergeResult:
        """See PackMerger."""
        result = MergeResult(packs_out=tuple(pack.pack_id for pack in plan.packs))
        joined: dict[str, list[PieceExtent]] = {}
        for pack in plan.packs:
            for topic, piece in zip(pack.topics, pack.table().pieces(), strict=True):
                joined.setdefault(topic, []).append(piece)
        min_ms = min(pack.min_store_ms for pack in plan.packs)
        max_ms = max(pack.max_store_ms for pack in plan.packs)
        groups: dict[int, list[str]] = {}
        for topic in sorted(joined, key=topic_key):
            joined[topic] = _joined(joined[topic])
            if sum(piece.raw_bytes for piece in joined[topic]) >= rules.own_bytes:
                for piece in joined[topic]:
                    result.segments_in.extend(self._segments(topic, piece, rules, min_ms, max_ms))
            else:
                groups.setdefault(topic_key(topic)[0] >> (32 - plan.depth), []).append(topic)
        for names in groups.values():
            pieces = [piece for name in names for piece in joined[name]]
            topics = [name for name in names for _ in joined[name]]
            result.packs_in.append(
                self.pack(topics, pieces, min_ms=min_ms, max_ms=max_ms, level=plan.level, depth=plan.depth)
            )
        await asyncio.sleep(0)
        return result

    def give_up(self, result: MergeResult) -> None:
        """See PackMerger."""
        raise AssertionError("nothing overtakes a merge here")

    def _segments(
        self, topic: str, piece: PieceExtent, rules: MergeRules, min_ms: int, max_ms: int
    ) -> list[SegmentEntry]:
        count = -(-piece.raw_bytes // rules.segment_bytes)
        return [self._segment(topic, piece, number, count, min_ms, max_ms) for number in range(count)]

    def _segment(
        self, topic: str, piece: PieceExtent, number: int, count: int, min_ms: int, max_ms: int
    ) -> SegmentEntry:
        segment_id = self._writer.next_segment_id()
        runs: list[QueueRun] = []
        for index, queue in enumerate(piece.queues):
            size = queue.end_offset - queue.start_offset
            start, end = (queue.start_offset + size * part // count for part in (number, number + 1))
            runs.append(
                QueueRun(
                    queue.queue_id,
                    start,
                    end,
                    min_ms,
                    max_ms,
                    index * 16,
                    index * 16 + 16,
                    PhysicalOffset(0),
                    PhysicalOffset(1 << 50),
                )
            )
        raw_bytes = piece.raw_bytes // count
        records = sum(run.record_count for run in runs)
        key = KEYS.merged_segment(topic, segment_id)
        coarse = tuple(
            CoarseFrame(frame, run.start_offset, 8 + frame * MIB, frame * MIB, min_ms)
            for run in runs
            for frame in (run.frame_start, run.frame_start + 8)
        )
        return SegmentEntry(
            segment_id=str(segment_id),
            topic=topic,
            incarnation=1,
            log=PartLocator(key, SegmentOffset(0), SegmentOffset(raw_bytes), SegmentOffset(raw_bytes - 5_000), 1),
            cq=PartLocator(
                key, SegmentOffset(raw_bytes), SegmentOffset(raw_bytes + 4 * records), SegmentOffset(raw_bytes), 2
            ),
            idx=PartLocator(
                key,
                SegmentOffset(raw_bytes + 4 * records),
                SegmentOffset(raw_bytes + 18 * records),
                SegmentOffset(raw_bytes),
                3,
            ),
            runs=RunRows.of(runs),
            coarse=CoarseRows.of(coarse),
            record_count=records,
            raw_bytes=raw_bytes,
            key_count=records,
            bloom_page_bytes=4_096,
            bloom_page_count=1 + records // 3_000,
            created_ms=self._clock(),
        )


def _joined(pieces: list[PieceExtent]) -> list[PieceExtent]:
    """Pieces of one topic, those that follow each other without a gap as one."""
    found: list[PieceExtent] = []
    for piece in sorted(pieces, key=lambda each: each.queues[0].start_offset):
        before = found[-1] if found else None
        if before is None or any(
            one.end_offset != two.start_offset for one, two in zip(before.queues, piece.queues, strict=True)
        ):
            found.append(piece)
            continue
        found[-1] = PieceExtent(
            incarnation=before.incarnation,
            raw_bytes=before.raw_bytes + piece.raw_bytes,
            stored_bytes=before.stored_bytes + piece.stored_bytes,
            queues=tuple(
                QueueRange(one.queue_id, one.start_offset, two.end_offset)
                for one, two in zip(before.queues, piece.queues, strict=True)
            ),
        )
    return found


class _Sizes(MeteringObjectStore):
    """Bytes of ledger entries and checkpoints."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.largest_entry = self.entry_bytes = self.checkpoint_bytes = self.puts = 0

    def note(self, call: StoreCall) -> None:
        """Count one write."""
        self.puts += 1
        if call.key.startswith(KEYS.ledger_prefix):
            self.entry_bytes += call.sent_bytes
            self.largest_entry = max(self.largest_entry, call.sent_bytes)
        elif call.key.startswith(KEYS.checkpoints_prefix):
            self.checkpoint_bytes += call.sent_bytes

    async def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        """See ObjectStore."""
        self.note(StoreCall(verb=Verb.PUT, key=key, sent_bytes=len(data)))
        await super().put(key, data)

    async def create_if_absent(self, key: str, data: bytes | bytearray | memoryview) -> None:
        """See ObjectStore."""
        self.note(StoreCall(verb=Verb.CREATE_IF_ABSENT, key=key, sent_bytes=len(data)))
        await super().create_if_absent(key, data)


async def run_days(
    inner: ObjectStore, *, topics: int, queues: int, days: float, seed: int = 1, memory: MemoryWatch | None = None
) -> dict[str, float | int | str]:
    """The figures; see `request_bill.py`. `memory`: tell how it goes on."""
    now_ms = 4_000_000_000_000
    store, random = _Sizes(inner), np.random.default_rng(seed)

    def clock() -> int:
        return now_ms

    writer = await LedgerWriter.open(store, KEYS, identity=IDENTITY, clock_ms=clock, random=Random(seed))
    config = TierConfig(cold_url="memory://days", seal_age_ms=SEAL_AGE_MS)
    maker, garbage = EntryMaker(writer, clock), GarbageCollector(writer)

    async def amend(change: Callable[[Catalog], LedgerChanges | None]) -> bool:
        changes = change(writer.catalog)
        assert changes is not None
        await writer.commit(changes)
        return True

    merging = Merging(
        merger=maker,  # type: ignore[arg-type]  # it stands for PackMerger
        policy=MergePolicy(fan_in=config.merge_fan_in, pack_bytes=config.pack_bytes),
        budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=clock),
        segment_bytes=config.segment_bytes,
        catalog=lambda: writer.catalog,
        class_of=lambda topic: FOREVER,
        cuts_ms=dict,
        amend=amend,
    )
    names = sorted((f"topic-{number:05}" for number in range(topics)), key=topic_key)
    pack_bytes = MIB * SEAL_AGE_MS // 1_000
    weights = np.array([1 / (int(name[6:]) + 10) for name in names])
    per_queue = np.maximum(1, weights / weights.sum() * pack_bytes / RECORD_BYTES / queues)
    ends = np.zeros((topics, queues), np.int64)
    pack_count, began, merged = int(days * DAY_MS / SEAL_AGE_MS), time.perf_counter(), 0
    for number in range(pack_count):
        now_ms += SEAL_AGE_MS
        counts = np.maximum(1, random.poisson(per_queue[:, None], (topics, queues)))
        starts, ends = ends, ends + counts
        pieces = [
            PieceExtent(
                incarnation=1,
                raw_bytes=int(total) * RECORD_BYTES,
                stored_bytes=int(total) * RECORD_BYTES,
                queues=tuple(
                    QueueRange(queue_id, QueueOffset(start), QueueOffset(end))
                    for queue_id, (start, end) in enumerate(zip(row_starts, row_ends, strict=True))
                ),
            )
            for total, row_starts, row_ends in zip(counts.sum(axis=1), starts.tolist(), ends.tolist(), strict=True)
        ]
        pack = maker.pack(names, pieces, min_ms=now_ms - SEAL_AGE_MS, max_ms=now_ms, level=0, depth=0)
        await writer.commit(LedgerChanges(packs_in=(pack,)))
        while (outcome := await merging.run_once()) is not None:
            merged += outcome.written_bytes
        if garbage.is_due(now_ms=now_ms):
            await garbage.execute(await garbage.plan(now_ms=now_ms), now_ms=now_ms)
        if memory is not None and number % 500 == 499:
            print(_progress(number + 1, pack_count, writer, store, memory), flush=True)
    catalog = writer.catalog
    data_bytes = pack_count * pack_bytes
    return {
        "days": days,
        "topics": topics,
        "queues": topics * queues,
        "data_gib": round(data_bytes / GIB, 1),
        "ledger_versions": catalog.version,
        "largest_entry_kib": round(store.largest_entry / 1024, 1),
        "ledger_part_percent": round(100 * store.entry_bytes / data_bytes, 3),
        "checkpoint_part_percent": round(100 * store.checkpoint_bytes / data_bytes, 3),
        "packs": len(catalog.packs),
        "packs_of_a_topic_max": max(len(each.packs) for each in catalog.packed.values()),
        "own_segments": catalog.segment_count,
        "own_part": OWN_PART,
        "merged_bytes_per_byte": round(merged / data_bytes, 2),
        "piece_table_mib": round(sum(len(pack.pieces) for pack in catalog.packs.values()) / MIB, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _progress(number: int, count: int, writer: LedgerWriter, store: _Sizes, memory: MemoryWatch) -> str:
    catalog = writer.catalog
    checkpoint_part = store.checkpoint_bytes / (number * MIB * SEAL_AGE_MS / 1_000)
    return (
        f"{number}/{count} packs={len(catalog.packs)} segments={catalog.segment_count} entry={store.largest_entry}"
        f" checkpoints={checkpoint_part:.4%} memory={memory.anonymous_kib / 1024:.0f} MiB levels={_levels(catalog)}"
    )


def _levels(catalog: Catalog) -> dict[int, int]:
    levels = sorted(pack.level for pack in catalog.packs.values())
    return {level: len(list(members)) for level, members in itertools.groupby(levels)}
