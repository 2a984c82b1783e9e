"""Segment recovery: gathers the remaining records of a broken segment, and writes them as new segments.

    hot     the local log, record by record (hot_records.py)
    cold    the readable frames of the segment's own object, or of one that holds it under another's name

Hot records are preferred. The plan lists for each queue the source of each stretch, and the lost offsets; only the plan
is kept in memory between planning and writing. A segment has one gapless run for each queue, so the records between two
losses become a segment of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.string_hash import tags_code
from thermocline.tiered.catalog import LostRange
from thermocline.tiered.healing.frame_salvage import FrameSalvage, SalvagedFrame
from thermocline.tiered.healing.hot_records import HotRecords
from thermocline.tiered.healing.log_parts import LogParts
from thermocline.tiered.objects import OBJECT_START, FormatTooNewError, ObjectStore, SegmentFormatError, SegmentOffset
from thermocline.tiered.sealing import Units
from thermocline.tiered.segments import (
    FinishedSegment,
    LogFooter,
    QueueRun,
    SegmentEntry,
    SegmentId,
    SegmentOptions,
    SegmentReader,
    SegmentWriter,
    decode_frame,
)

APPEND_RECORDS = 4096


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [start_offset, end_offset) of a queue, all from one source: local units, or a frame."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    units: Units | None = None
    frame: SalvagedFrame | None = None


@dataclass(slots=True, kw_only=True)
class RecoveryPlan:
    """`islands[i]`: queue id -> the i-th contiguous run of recoverable stretches of the queue."""

    segment: SegmentEntry
    islands: list[dict[int, list[Stretch]]] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)

    @property
    def hot_count(self) -> int:
        """Records that come from the local log."""
        stretches = (each for island in self.islands for row in island.values() for each in row)
        return sum(each.end_offset - each.start_offset for each in stretches if each.units is not None)


class SegmentRecovery:
    """Belongs to the tier process's loop; decoding, compressing and reading local files run in a worker thread."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        hot: HotRecords,
        options: SegmentOptions,
        spool_folder: Path | None,
        parts: LogParts | None = None,
    ) -> None:
        """`parts`: the `.log` parts found in objects, which never change."""
        self._store = store
        self._parts = parts
        self._hot = hot
        self._options = options
        self._spool_folder = spool_folder

    def reading(self, store: ObjectStore) -> SegmentRecovery:
        """The same recovery, reading segments from another store."""
        return SegmentRecovery(
            store=store,
            hot=self._hot,
            options=self._options,
            spool_folder=self._spool_folder,
            parts=LogParts(store),
        )

    async def plan(
        self, segment: SegmentEntry, wanted: Iterable[LostRange], *, other_keys: Sequence[str] = ()
    ) -> RecoveryPlan:
        """Plan from where to read the wanted offsets of a segment. `other_keys`: objects that may also hold its `.log`.

        ObjectStoreUnavailableError when the store gives no answer: then there is no plan.
        """
        wanted = list(wanted)
        hot: dict[LostRange, tuple[QueueOffset, Units]] = {}
        for part in wanted:
            hot[part] = await asyncio.to_thread(
                self._hot.find, segment, part.queue_id, start_offset=part.start_offset, end_offset=part.end_offset
            )
        salvage = FrameSalvage(self._store, segment, self._parts or LogParts(self._store))
        if any(start > part.start_offset for part, (start, _) in hot.items()):
            await salvage.search(segment.log.key, start=segment.log.start, end=segment.log.end)
            for key in other_keys:
                await salvage.search(key, start=OBJECT_START, end=SegmentOffset(segment.log.size_bytes))
        plan = RecoveryPlan(segment=segment)
        rows: dict[int, list[list[Stretch]]] = {}
        for part in wanted:
            hot_start, units = hot[part]
            stretches = _cold_stretches(salvage.frames.values(), part, end_offset=hot_start)
            if len(units):
                stretches.append(
                    Stretch(queue_id=part.queue_id, start_offset=hot_start, end_offset=part.end_offset, units=units)
                )
            found, lost = _islands(stretches, part, salvage.footer, segment.run(part.queue_id))
            rows.setdefault(part.queue_id, []).extend(found)
            plan.lost += lost
        for number in range(max(map(len, rows.values()), default=0)):
            plan.islands.append(
                {queue_id: found[number] for queue_id, found in sorted(rows.items()) if number < len(found)}
            )
        return plan

    async def write(
        self, plan: RecoveryPlan, island: dict[int, list[Stretch]], segment_id: SegmentId
    ) -> FinishedSegment:
        """Write a new segment of one island. The caller closes it.

        Raises:
            CorruptDataError: A record is missing or changed since planning.
            ObjectStoreUnavailableError: No answer.
        """
        segment = plan.segment
        writer = SegmentWriter(
            segment_id=segment_id,
            topic=segment.topic,
            incarnation=segment.incarnation,
            folder=self._spool_folder,
            options=self._options,
        )
        columns = SegmentReader(self._store, segment)
        try:
            for stretches in island.values():
                for stretch in stretches:
                    await self._append(writer, columns, stretch)
            return await asyncio.to_thread(writer.finish)
        except BaseException:
            writer.close()
            raise

    async def _append(self, writer: SegmentWriter, columns: SegmentReader, stretch: Stretch) -> None:
        queue_id, start = stretch.queue_id, stretch.start_offset
        if stretch.units is not None:
            for first in range(0, len(stretch.units), APPEND_RECORDS):
                units = stretch.units[first : first + APPEND_RECORDS]
                try:
                    records = self._hot.records(units)
                except ObjectNotFoundError as error:
                    raise CorruptDataError("a local file has gone meanwhile", queue_id=queue_id) from error
                codes = units["tags_code"].tolist()
                await asyncio.to_thread(writer.append, queue_id, start + first, records, codes)
            return
        salvaged = stretch.frame
        assert salvaged is not None
        info = salvaged.info
        try:
            stored = await self._store.get_range(
                salvaged.key, start=salvaged.start + info.position, end=salvaged.start + info.end_position
            )
        except ObjectNotFoundError as error:
            raise CorruptDataError("an object has gone meanwhile", key=salvaged.key) from error
        frame = await asyncio.to_thread(decode_frame, stored, info)
        records = list(frame.records(start, stretch.end_offset))
        codes = await _tags_codes(columns, stretch, records)
        await asyncio.to_thread(writer.append, queue_id, start, records, codes)


def check_equal(old: SegmentEntry, new: SegmentEntry) -> None:
    """CorruptDataError unless `new` holds the same records as `old`, by the catalog's values."""

    def comparable(entry: SegmentEntry) -> list[tuple[int, ...]]:
        return [
            (
                run.queue_id,
                run.start_offset,
                run.end_offset,
                run.min_store_ms,
                run.max_store_ms,
                run.min_physical_offset,
                run.end_physical_offset,
            )
            for run in entry.runs
        ]

    one = (old.topic, old.incarnation, old.record_count, old.raw_bytes, old.key_count, comparable(old))
    if one != (new.topic, new.incarnation, new.record_count, new.raw_bytes, new.key_count, comparable(new)):
        raise SegmentFormatError("the recovered records differ from the sealed ones", segment_id=old.segment_id)


async def _tags_codes(columns: SegmentReader, stretch: Stretch, records: list[memoryview]) -> list[int]:
    """From `.cq` if it is readable; else computed from the records' own tags, as for a queue's unit."""
    try:
        found = await columns.columns(
            stretch.queue_id, start_offset=stretch.start_offset, end_offset=stretch.end_offset
        )
    except FormatTooNewError:
        raise
    except (CorruptDataError, ObjectNotFoundError):
        return await asyncio.to_thread(
            lambda: [tags_code(decode_record(record, check_crc=False).tags) for record in records]
        )
    codes: list[int] = found.tags_codes.tolist()
    return codes


def _cold_stretches(frames: Iterable[SalvagedFrame], part: LostRange, *, end_offset: QueueOffset) -> list[Stretch]:
    """The stretches of a range that frames supply, up to the first hot record."""
    found: list[Stretch] = []
    for frame in sorted(frames, key=lambda frame: frame.info.start_offset):
        start = max(part.start_offset, frame.info.start_offset)
        end = min(end_offset, frame.info.end_offset)
        if frame.run.queue_id == part.queue_id and start < end:
            found.append(Stretch(queue_id=part.queue_id, start_offset=start, end_offset=end, frame=frame))
    return found


def _islands(
    stretches: list[Stretch], part: LostRange, footer: LogFooter | None, run: QueueRun | None
) -> tuple[list[list[Stretch]], list[LostRange]]:
    """Contiguous runs of stretches, and the gaps between them."""
    islands: list[list[Stretch]] = []
    lost: list[LostRange] = []
    position = part.start_offset
    for stretch in stretches:
        if stretch.start_offset > position:
            lost += _lost(part.queue_id, position, stretch.start_offset, footer, run)
        if not islands or stretch.start_offset > position:
            islands.append([])
        islands[-1].append(stretch)
        position = stretch.end_offset
    if position < part.end_offset:
        lost += _lost(part.queue_id, position, part.end_offset, footer, run)
    return islands, lost


def _lost(
    queue_id: int, start_offset: QueueOffset, end_offset: QueueOffset, footer: LogFooter | None, run: QueueRun | None
) -> list[LostRange]:
    """Lost ranges by frame, where the footer lists frames."""
    if footer is None or run is None:
        return [LostRange(queue_id, start_offset, end_offset)]
    return [
        LostRange(queue_id, max(start_offset, info.start_offset), min(end_offset, info.end_offset), info.index)
        for info in footer.frames_of(run, start_offset=start_offset, end_offset=end_offset)
    ]
