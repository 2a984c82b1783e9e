"""Segment check: reads every byte of one cold segment, compares it with the catalog, and its parts with each other.

    each part   its CRC-32 as the catalog has it, footer and trailer, its segment's id
    `.log`      runs, counts and frames as the catalog has them; every frame decompresses to the records that it should
                hold: topic, queue, offsets, times and places in the log
    `.cq`       every block; the sizes and places of each record as the record itself has them
    `.idx`      every block, hashes in order, ordinals within the segment; the bloom pages are those of the hashes

Bounded: one fetch of `FETCH_BYTES_MAX`, one frame, and 12 bytes a record. Decoding runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.record_heads import RecordHeads, read_heads
from thermocline.tiered.findings import Finding, ObjectKind
from thermocline.tiered.objects import ObjectStore, SegmentFormatError
from thermocline.tiered.scrub.object_check import OtherSegmentError, problem_of
from thermocline.tiered.segments import (
    MAGIC_BYTES,
    ColumnsFooter,
    FrameInfo,
    KeyIndexFooter,
    LogFooter,
    PartLocator,
    QueueRun,
    SegmentEntry,
    Table,
    decode_columns_footer,
    decode_key_index_footer,
    decode_log_footer,
    decompress,
)

_PartCheck: TypeAlias = Callable[[PartLocator], Awaitable[None]]

FETCH_BYTES_MAX = 8 * 1024 * 1024
FRAMES_NAMED_MAX = 8


class _Columns(msgspec.Struct, eq=False):
    """Sizes and places of a run's records, filled from `.log`; -1 where a frame could not be read."""

    start_offset: QueueOffset
    sizes: npt.NDArray[np.int64]
    physical_offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, run: QueueRun) -> _Columns:
        count = run.record_count
        return cls(run.start_offset, np.full(count, -1, np.int64), np.full(count, -1, np.int64))


@dataclass(slots=True)
class SegmentCheck:
    """Checks one segment once. `read_bytes` counts fetched bytes."""

    store: ObjectStore
    entry: SegmentEntry
    findings: list[Finding] = field(default_factory=list)
    read_bytes: int = 0
    _columns: dict[int, _Columns] = field(default_factory=dict)

    async def run(self) -> list[Finding]:
        """Return all findings. ObjectStoreUnavailableError when the store gives no answer."""
        self._columns = {run.queue_id: _Columns.of(run) for run in self.entry.runs}
        await self._part(ObjectKind.LOG, self.entry.log, self._check_log)
        await self._part(ObjectKind.COLUMNS, self.entry.cq, self._check_columns)
        await self._part(ObjectKind.KEY_INDEX, self.entry.idx, self._check_key_index)
        return self.findings

    async def _part(self, kind: ObjectKind, part: PartLocator, check: _PartCheck) -> None:
        try:
            await check(part)
        except (ObjectNotFoundError, CorruptDataError) as error:
            problem, detail = problem_of(error)
            finding = Finding(
                kind=kind,
                problem=problem,
                key=part.key,
                detail=detail,
                topic=self.entry.topic,
                segment_id=self.entry.segment_id,
            )
            self.findings.append(finding)

    # -- .log ----------------------------------------------------------------------------------------------------------

    async def _check_log(self, part: PartLocator) -> None:
        tail = await self._read(part, part.footer_start - part.start, part.size_bytes)
        footer = decode_log_footer(tail)
        self._check_id(str(footer.segment_id))
        check_log_footer(footer, self.entry)
        checksum, bad_frames = 0, dict[int, str]()
        async for start, data in self._body(part, _cuts(footer)):
            checksum = zlib.crc32(data, checksum)
            frames = [info for info in _frames(footer) if start <= info.position < start + len(data)]
            bad_frames |= await asyncio.to_thread(self._check_frames, footer, frames, data, start)
        if bad_frames:
            named = [f"frame {index} ({reason})" for index, reason in list(bad_frames.items())[:FRAMES_NAMED_MAX]]
            raise SegmentFormatError("frames are damaged", count=len(bad_frames), frames=", ".join(named))
        _check_crc(zlib.crc32(tail, checksum), part)

    def _check_frames(self, footer: LogFooter, frames: list[FrameInfo], data: bytes, start: int) -> dict[int, str]:
        """Frame index -> what is wrong with it."""
        bad: dict[int, str] = {}
        for info in frames:
            run = next(run for run in footer.runs if run.frame_start <= info.index < run.frame_end)
            stored = memoryview(data)[info.position - start : info.end_position - start]
            try:
                heads = read_frame(stored, info, run, topic=self.entry.topic)
            except CorruptDataError as error:
                bad[info.index] = f"offsets [{info.start_offset}, {info.end_offset}) of queue {run.queue_id}: {error}"
                continue
            columns = self._columns[run.queue_id]
            place = slice(info.start_offset - columns.start_offset, info.end_offset - columns.start_offset)
            columns.sizes[place] = heads.integers("size_bytes")
            columns.physical_offsets[place] = heads.integers("physical_offset")
        return bad

    # -- .cq -----------------------------------------------------------------------------------------------------------

    async def _check_columns(self, part: PartLocator) -> None:
        tail = await self._read(part, part.footer_start - part.start, part.size_bytes)
        footer = decode_columns_footer(tail)
        self._check_id(str(footer.segment_id))
        rows = [(int(block["position"]), int(block["stored_bytes"])) for block in footer.blocks]
        _check_end_to_end(rows, MAGIC_BYTES, part.footer_start - part.start)
        checksum = 0
        async for start, data in self._body(part, rows):
            checksum = zlib.crc32(data, checksum)
            inside = (footer.blocks["position"] >= start) & (footer.blocks["position"] < start + len(data))
            await asyncio.to_thread(self._check_column_blocks, footer, footer.blocks[inside], data, start)
        if footer.record_count != self.entry.record_count:
            raise SegmentFormatError("other records than the catalog has", record_count=footer.record_count)
        _check_crc(zlib.crc32(tail, checksum), part)

    def _check_column_blocks(self, footer: ColumnsFooter, blocks: Table, data: bytes, start: int) -> None:
        for block in blocks:
            position = int(block["position"]) - start
            found = footer.decode_block(memoryview(data)[position : position + int(block["stored_bytes"])], block)
            log = self._columns.get(found.queue_id)
            run = self.entry.run(found.queue_id)
            if log is None or run is None or found.start_offset < run.start_offset or found.end_offset > run.end_offset:
                raise SegmentFormatError("columns of records that the segment does not hold", queue_id=found.queue_id)
            place = slice(found.start_offset - log.start_offset, found.end_offset - log.start_offset)
            is_read = log.sizes[place] >= 0
            is_same = (log.sizes[place] == found.sizes) & (log.physical_offsets[place] == found.physical_offsets)
            if not (is_same | ~is_read).all():
                offset = found.start_offset + int(np.argmin(is_same | ~is_read))
                raise SegmentFormatError("columns of another record", queue_id=found.queue_id, queue_offset=offset)

    # -- .idx ----------------------------------------------------------------------------------------------------------

    async def _check_key_index(self, part: PartLocator) -> None:
        entry = self.entry
        tail = await self._read(part, part.footer_start - part.start, part.size_bytes)
        footer = decode_key_index_footer(tail)
        self._check_id(str(footer.segment_id))
        if footer.bloom != entry.bloom or footer.entry_count != entry.key_count:
            raise SegmentFormatError("other keys than the catalog has", entry_count=footer.entry_count)
        blocks_start = MAGIC_BYTES + footer.bloom.size_bytes
        rows = [(int(block["position"]), int(block["stored_bytes"])) for block in footer.blocks]
        _check_end_to_end(rows, blocks_start, part.footer_start - part.start)
        pages, checksum = bytearray(), 0
        hashes: list[npt.NDArray[np.uint32]] = []
        async for start, data in self._body(part, [(MAGIC_BYTES, footer.bloom.size_bytes), *rows]):
            checksum = zlib.crc32(data, checksum)
            pages += data[max(0, MAGIC_BYTES - start) : max(0, blocks_start - start)]
            inside = (footer.blocks["position"] >= start) & (footer.blocks["position"] < start + len(data))
            blocks = footer.blocks[inside]
            hashes += await asyncio.to_thread(_index_hashes, footer, blocks, data, start, entry.record_count)
        joined = np.concatenate(hashes) if hashes else np.empty(0, np.uint32)
        if (joined[1:] < joined[:-1]).any():
            raise SegmentFormatError("hashes are out of order")
        if await asyncio.to_thread(footer.bloom.build, joined) != bytes(pages):
            raise SegmentFormatError("the bloom pages are not those of the keys")
        _check_crc(zlib.crc32(tail, checksum), part)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _check_id(self, found: str) -> None:
        if found != self.entry.segment_id:
            raise OtherSegmentError("another segment is stored here", expected=self.entry.segment_id, found=found)

    async def _read(self, part: PartLocator, start: int, end: int) -> bytes:
        data = await self.store.get_range(part.key, start=part.start + start, end=part.start + end)
        self.read_bytes += len(data)
        return data

    async def _body(self, part: PartLocator, pieces: list[tuple[int, int]]) -> AsyncIterator[tuple[int, bytes]]:
        """Magic and body in fetches that end where a piece (position, size) does: where each starts, and its bytes."""
        start, end = 0, MAGIC_BYTES
        for position, size_bytes in pieces:
            if position + size_bytes - start > FETCH_BYTES_MAX and end > start:
                yield start, await self._read(part, start, end)
                start = end
            end = position + size_bytes
        yield start, await self._read(part, start, end)


def check_log_footer(footer: LogFooter, entry: SegmentEntry) -> None:
    """SegmentFormatError unless footer and catalog describe the same records."""
    stated = (footer.topic, footer.incarnation, footer.record_count, footer.raw_bytes, footer.runs)
    if stated != (entry.topic, entry.incarnation, entry.record_count, entry.raw_bytes, tuple(entry.runs)):
        raise SegmentFormatError("footer and catalog speak of different records", key=entry.log.key)


def read_frame(stored: bytes | memoryview, info: FrameInfo, run: QueueRun, *, topic: str) -> RecordHeads:
    """The heads of a frame's records.

    Raises:
        CorruptDataError: The frame is damaged, or holds other records than those of the run that it should hold.
    """
    return check_records(decompress(stored, raw_bytes=info.raw_bytes), info.start_offset, info.end_offset, run, topic)


def check_records(
    data: bytes, start_offset: QueueOffset, end_offset: QueueOffset, run: QueueRun, topic: str
) -> RecordHeads:
    """The heads of the records in `data`. CorruptDataError unless they are those of these offsets of the run."""
    heads = read_heads(data)
    if len(heads) != end_offset - start_offset:
        raise SegmentFormatError("another number of records", records=len(heads))
    name = np.frombuffer(topic.encode(), np.uint8)
    is_right = (heads.head["queue_id"] == run.queue_id) & (heads.topic_bytes == len(name))
    is_right &= heads.head["queue_offset"] == np.arange(start_offset, end_offset)
    times, places = heads.integers("store_timestamp_ms"), heads.integers("physical_offset")
    is_right &= (times >= run.min_store_ms) & (times <= run.max_store_ms)
    is_right &= (places >= run.min_physical_offset) & (places < run.end_physical_offset)
    if is_right.all():
        rows = heads.topic_starts[:, None] + np.arange(len(name))
        is_right &= (heads.data[rows] == name).all(axis=1)
    if not is_right.all():
        offset = start_offset + int(np.argmin(is_right))
        raise SegmentFormatError("another record is stored here", queue_id=run.queue_id, queue_offset=offset)
    return heads


def _frames(footer: LogFooter) -> list[FrameInfo]:
    return [footer.frame(index) for index in range(len(footer.frames))]


def _cuts(footer: LogFooter) -> list[tuple[int, int]]:
    return [(info.position, info.stored_bytes) for info in _frames(footer)]


def _check_end_to_end(rows: list[tuple[int, int]], start: int, end: int) -> None:
    for position, stored_bytes in rows:
        if position != start:
            raise SegmentFormatError("blocks do not lie end to end", position=position)
        start += stored_bytes
    if start != end:
        raise SegmentFormatError("blocks do not fill the part", end=start)


def _check_crc(found: int, part: PartLocator) -> None:
    if found != part.crc32:
        raise SegmentFormatError("the part's checksum is another", expected=part.crc32, found=found)


def _index_hashes(
    footer: KeyIndexFooter, blocks: Table, data: bytes, start: int, record_count: int
) -> list[npt.NDArray[np.uint32]]:
    """The hashes of these blocks, each checked against its row."""
    found: list[npt.NDArray[np.uint32]] = []
    for block in blocks:
        position = int(block["position"]) - start
        stored = memoryview(data)[position : position + int(block["stored_bytes"])]
        hashes, ordinals = footer.decode_block(stored, entry_count=int(block["entry_count"]))
        if (ordinals >= record_count).any():
            raise SegmentFormatError("a key of a record that is not there")
        if (hashes[0], hashes[-1]) != (block["first_hash"], block["last_hash"]):
            raise SegmentFormatError("a block of other hashes than its row says")
        found.append(hashes)
    return found
