"""SpanTaker: takes the records of one span for a pull, and fetches the frames that its reader will need next.

    first record of a run      its unit (`fetch_plan.py`): a reader that begins there continues
    on into the next frame     the units that the window of read-ahead covers (`read_ahead.py`), once half of it is used
                               up, across the segment's end where that is near
    anywhere else              only the frame: it may be a single read
    a small piece of a pack    the whole piece, whichever records are wanted

Once it has some records, a pull does not wait for more. Bounded: frames (FrameCache), cursors (ReadAhead); a pull with
a condition checks at most `MATCH_RECORDS_MAX` records, in `MATCH_FRAMES_MAX` frames, and one by tags skips at most
`SCAN_RECORDS_MAX`. Belongs to one event loop. Cancelling any call is safe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

import numpy as np

from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.catalog import QueueIndex, QueueSpan
from thermocline.tiered.reading.cold_pull import ColdPull, TakenRecords, take_wanted
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.reading.read_ahead import Cursor, ReadAhead
from thermocline.tiered.segments import DecodedFrame, FrameInfo, LogFooter, SegmentReader, SegmentReaders

logger = logging.getLogger(__name__)

SCAN_RECORDS = 8_192
SCAN_RECORDS_MAX = 65_536
MATCH_RECORDS_MAX = 8_192
MATCH_FRAMES_MAX = 4


class SpanTaker:
    """See the module's header. Each call may raise the store's errors and CorruptDataError."""

    def __init__(
        self,
        *,
        cache: FrameCache,
        readers: SegmentReaders,
        window_frames_max: int,
        span_at: Callable[[QueueIndex, int], Awaitable[QueueSpan]],
    ) -> None:
        """`span_at` returns the span of a queue at a position, loaded if it is in a pack."""
        self._cache = cache
        self._readers = readers
        self._read_ahead = ReadAhead(window_frames_max=window_frames_max)
        self._span_at = span_at
        self._tasks: dict[asyncio.Task[None], str] = {}

    async def take_span(self, taken: TakenRecords, queue: QueueIndex, position: int, request: ColdPull) -> None:
        """Take the records wanted by the pull from the span at `position` of its queue."""
        span = await self._span_at(queue, position)
        key = (request.group, request.topic, span.segment.incarnation, request.queue_id)
        cursor = self._read_ahead.start(key, request.offset)
        if request.tags_codes is None:
            await self._take_all(taken, queue, position, cursor, request.matches)
        else:
            await self._take_matching(taken, span, request)
        cursor.next_offset = taken.next_offset

    async def frame_of(self, span: QueueSpan, queue_offset: QueueOffset, *, owner: str) -> DecodedFrame:
        """The frame that contains a record, without reading ahead."""
        reader = self._readers.of(span.segment)
        footer = await reader.frames_for_records()
        info = footer.frame_of(span.run, queue_offset)
        return await self._cache.get(reader, info, ahead=self._of_small_part(reader, footer, info), owner=owner)

    def reader_left(self, reader: str) -> None:
        """Stop fetching for this reader alone."""
        for task, owner in self._tasks.items():
            if owner == reader:
                task.cancel()
        self._cache.reader_left(reader)

    async def close(self) -> None:
        """Stop reading ahead."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take_all(
        self,
        taken: TakenRecords,
        queue: QueueIndex,
        position: int,
        cursor: Cursor,
        matches: Callable[[bytes], bool] | None,
    ) -> None:
        """Take the matching records of one span, frame by frame; once it has some, only from cached frames."""
        span = await self._span_at(queue, position)
        reader = self._readers.of(span.segment)
        footer = await reader.frames_for_records()
        end_offset, frame_count = span.run.end_offset, 0
        if matches is not None:
            end_offset = min(end_offset, taken.next_offset + MATCH_RECORDS_MAX)
        while taken.has_room and taken.next_offset < end_offset:
            info = footer.frame_of(span.run, taken.next_offset)
            if taken.message_count and not self._cache.is_ready(reader, info):
                return
            if self._read_ahead.enter(cursor, (span.segment.segment_id, info.index)):
                ahead = self._fetch_ahead(queue, position, span, reader, footer, info, cursor, taken.reader)
            elif taken.next_offset == span.run.start_offset:
                ahead = self._units(reader, footer, span, info, window_frames=0)
            else:
                ahead = self._of_small_part(reader, footer, info)
            frame = await self._cache.get(reader, info, ahead=ahead, owner=taken.reader)
            if matches is None:
                taken.add_visible(frame, min(frame.end_offset, end_offset))
                continue
            await take_wanted(taken, frame, min(frame.end_offset, end_offset), matches)
            frame_count += 1
            if frame_count >= MATCH_FRAMES_MAX:
                return

    async def _take_matching(self, taken: TakenRecords, span: QueueSpan, request: ColdPull) -> None:
        """Take the records of one span whose tags code matches in the columns; only their frames are read."""
        assert request.tags_codes is not None
        run, reader = span.run, self._readers.of(span.segment)
        # A unit of a consume queue holds 64 bits, a subscription compares the lower 32.
        codes = np.array(sorted(request.tags_codes), np.int32)
        scan_end = min(run.end_offset, taken.next_offset + SCAN_RECORDS_MAX)
        frame: DecodedFrame | None = None
        while taken.next_offset < scan_end:
            start, end = taken.next_offset, min(scan_end, taken.next_offset + SCAN_RECORDS)
            if taken.message_count and not reader.has_columns(run.queue_id, start_offset=start, end_offset=end):
                return
            columns = await reader.columns(run.queue_id, start_offset=start, end_offset=end, ahead_offset=scan_end)
            matching = np.flatnonzero(np.isin(columns.tags_codes.astype(np.int32), codes))
            offsets = cast(list[QueueOffset], (matching + start).tolist())
            footer = await reader.frames_for_records() if offsets else None
            for queue_offset in offsets:
                assert footer is not None
                if not taken.has_room:
                    return
                if frame is None or queue_offset >= frame.end_offset:
                    info = footer.frame_of(run, queue_offset)
                    if info.max_store_ms < request.cut_ms:
                        continue
                    if taken.message_count and not self._cache.is_ready(reader, info):
                        taken.next_offset = queue_offset
                        return
                    ahead = self._of_small_part(reader, footer, info)
                    frame = await self._cache.get(reader, info, ahead=ahead, owner=taken.reader)
                taken.next_offset = queue_offset
                taken.add_visible(frame, queue_offset + 1)
            if not taken.has_room:
                return
            taken.next_offset = end

    def _of_small_part(self, reader: SegmentReader, footer: LogFooter, info: FrameInfo) -> list[FrameInfo]:
        """The other frames of a small part: one request fetches all, as its other queues will be read soon too."""
        if not reader.is_small or self._cache.is_coming(reader, info):
            return []
        return [footer.frame(index) for index in range(len(footer.frames)) if index != info.index]

    def _units(
        self, reader: SegmentReader, footer: LogFooter, span: QueueSpan, info: FrameInfo, *, window_frames: int
    ) -> list[FrameInfo]:
        """The frames to fetch with this one for a sequential reader: see FetchUnits.ahead."""

        def is_coming(index: int) -> bool:
            return self._cache.is_coming(reader, footer.frame(index))

        wanted = reader.fetch_units(footer).ahead(
            span.run, info.index, window_frames=window_frames, is_coming=is_coming
        )
        return [footer.frame(index) for index in wanted if index != info.index]

    def _fetch_ahead(
        self,
        queue: QueueIndex,
        position: int,
        span: QueueSpan,
        reader: SegmentReader,
        footer: LogFooter,
        info: FrameInfo,
        cursor: Cursor,
        owner: str,
    ) -> list[FrameInfo]:
        """Fetch the frames after `info` once half the window is used up; across the segment's end when it is near.
        Returns the frames to fetch together with `info` if it is not cached."""
        missing = self._units(reader, footer, span, info, window_frames=cursor.window_frames)
        if self._cache.is_coming(reader, info) and len(missing) * 2 >= cursor.window_frames:
            self._cache.read_ahead(reader, missing, owner=owner)
        beyond = info.index + 1 + cursor.window_frames - span.run.frame_end
        if beyond > 0 and position + 1 < len(queue.spans) and queue.spans[position + 1].quarantine is None:
            task = asyncio.get_running_loop().create_task(self._fetch_following(queue, position + 1, beyond, owner))
            self._tasks[task] = owner
            task.add_done_callback(self._tasks.pop)
        return missing

    async def _fetch_following(self, queue: QueueIndex, position: int, frame_count: int, owner: str) -> None:
        """Fetch the first frames of the next segment. Ignores failures: the read that needs them raises."""
        try:
            span = await self._span_at(queue, position)
            reader = self._readers.of(span.segment)
            footer = await reader.frames_for_records()
        except MQError as error:
            logger.debug("read-ahead failed position=%d: %s", position, error)
            return
        first = footer.frame(span.run.frame_start)
        missing = self._units(reader, footer, span, first, window_frames=frame_count - 1)
        if not self._cache.is_coming(reader, first):
            missing.append(first)
        self._cache.read_ahead(reader, missing, owner=owner)
