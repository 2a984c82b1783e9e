"""Frame salvage: finds the readable frames of a `.log` part, even if its footer is damaged.

    the footer is whole      its table has the position of each frame
    it is not                the body is read frame by frame until one does not decompress: from its first byte, and
                             again from each frame in the catalog's coarse table
    the position of a pack's piece is unknown
                             every `.log` part of its topic in the pack is searched (log_parts.py)

A frame counts when it decompresses to records of the topic, queue, offsets, times and places in the catalog: an object
that belongs to another segment has none, whatever its name.
"""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import zstandard

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.record_heads import find_records
from thermocline.tiered.healing.log_parts import LogParts
from thermocline.tiered.objects import FormatTooNewError, ObjectStore, SegmentOffset
from thermocline.tiered.scrub import check_records, read_frame
from thermocline.tiered.segments import (
    FRAME_RAW_BYTES_MAX,
    MAGIC_BYTES,
    FrameInfo,
    LogFooter,
    QueueRun,
    SegmentEntry,
    decode_log_footer,
)


class SalvagedFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame that was read and checked; `key` is the object, `start` the part's position in it."""

    key: str
    start: SegmentOffset
    info: FrameInfo
    run: QueueRun


class FrameSalvage:
    """Searches the frames of one segment in its own object, or in another that holds them."""

    def __init__(self, store: ObjectStore, segment: SegmentEntry, parts: LogParts) -> None:
        self._store = store
        self._segment = segment
        self._parts = parts
        self.frames: dict[tuple[int, int], SalvagedFrame] = {}
        """By queue id and first offset."""
        self.footer: LogFooter | None = None

    async def search(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> None:
        """Search bytes [start, end) of an object, as far as they exist; adds to `frames`.

        ObjectStoreUnavailableError when the store gives no answer: then no record counts as lost.
        """
        try:
            size_bytes = (await self._store.head(key)).size_bytes
        except ObjectNotFoundError:
            return
        end = min(end, SegmentOffset(size_bytes))
        footer = await self._footer_of(key, start=start, end=end)
        if footer is not None:
            self.footer = footer
            await self._search_frames(key, start, footer)
        elif is_unknown(self._segment):
            await self._search_parts(key, size_bytes)
        else:
            await self._walk(key, start, end)

    async def _footer_of(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> LogFooter | None:
        """The footer at the end of the part, if it is this segment's."""
        segment = self._segment
        tail_bytes = segment.log.end - segment.log.footer_start
        if end - start != segment.log.size_bytes:
            return None
        try:
            footer = decode_log_footer(await self._store.get_range(key, start=end - tail_bytes, end=end))
        except FormatTooNewError:
            raise
        except (CorruptDataError, ObjectNotFoundError):
            return None
        is_ours = str(footer.segment_id) == segment.segment_id and footer.runs == segment.runs
        return footer if is_ours else None

    async def _search_frames(self, key: str, start: SegmentOffset, footer: LogFooter) -> None:
        for run in footer.runs:
            for index in range(run.frame_start, run.frame_end):
                await self._search_frame(key, start, footer.frame(index), run)

    async def _search_parts(self, key: str, size_bytes: int) -> None:
        segment = self._segment
        for part in await self._parts.of(key, size_bytes=size_bytes):
            if (part.topic, part.incarnation) == (segment.topic, segment.incarnation):
                await self._search_frames(key, part.start, await self._parts.footer(key, part))

    async def _search_frame(self, key: str, start: SegmentOffset, info: FrameInfo, run: QueueRun) -> None:
        name = run.queue_id, info.start_offset
        if name in self.frames:
            return
        try:
            stored = await self._store.get_range(key, start=start + info.position, end=start + info.end_position)
            await asyncio.to_thread(read_frame, stored, info, run, topic=self._segment.topic)
        except (CorruptDataError, ObjectNotFoundError):
            return
        self.frames[name] = SalvagedFrame(key=key, start=start, info=info, run=run)

    # -- without a footer ----------------------------------------------------------------------------------------------

    async def _walk(self, key: str, start: SegmentOffset, end: SegmentOffset) -> None:
        segment = self._segment
        coarse = segment.coarse
        body_end = segment.log.footer_start - segment.log.start
        for number, row in enumerate(coarse):
            stop = coarse[number + 1].position if number + 1 < len(coarse) else body_end
            frame_end = coarse[number + 1].frame_index if number + 1 < len(coarse) else segment.runs[-1].frame_end
            stop = min(stop, end - start)
            run = next(run for run in segment.runs if run.frame_start <= row.frame_index < run.frame_end)
            if not MAGIC_BYTES <= row.position < stop:
                continue
            try:
                data = await self._store.get_range(key, start=start + row.position, end=start + stop)
            except (CorruptDataError, ObjectNotFoundError):
                continue
            found = await asyncio.to_thread(
                walk_frames,
                data,
                run=run,
                topic=segment.topic,
                index=row.frame_index,
                frame_end=min(frame_end, run.frame_end),
                position=row.position,
                start_offset=row.start_offset,
            )
            for info in found:
                salvaged = SalvagedFrame(key=key, start=start, info=info, run=run)
                self.frames.setdefault((run.queue_id, info.start_offset), salvaged)


def is_unknown(segment: SegmentEntry) -> bool:
    """Whether the entry stands for pieces of a pack whose entries are unreadable: it has no frames."""
    return not segment.coarse


def walk_frames(
    data: bytes, *, run: QueueRun, topic: str, index: int, frame_end: int, position: int, start_offset: QueueOffset
) -> list[FrameInfo]:
    """The frames at the front of `data` that hold records of `run` from `start_offset` on."""
    found: list[FrameInfo] = []
    while data and index < frame_end:
        try:
            if not 0 < zstandard.frame_content_size(data) <= FRAME_RAW_BYTES_MAX:
                break
            walker = zstandard.ZstdDecompressor().decompressobj()
            content = walker.decompress(data)
            if not walker.eof:
                break
            count = len(find_records(np.frombuffer(content, np.uint8))[0])
            heads = check_records(content, start_offset, start_offset + count, run, topic)
        except (zstandard.ZstdError, CorruptDataError):
            break
        times = heads.integers("store_timestamp_ms")
        stored_bytes = len(data) - len(walker.unused_data)
        found.append(
            FrameInfo(
                index=index,
                position=position,
                stored_bytes=stored_bytes,
                raw_position=0,
                raw_bytes=len(content),
                start_offset=start_offset,
                end_offset=start_offset + count,
                min_store_ms=int(times.min()),
                max_store_ms=int(times.max()),
            )
        )
        data = data[stored_bytes:]
        index, position, start_offset = index + 1, position + stored_bytes, start_offset + count
    return found
