"""FrameChoice: which frames of a task's slices may hold a wanted row, by the footers of their segments.

footers of the segments          one GET each, all at once; kept for the next task of this worker
offsets, store times, places     from the footer
tags codes (only with `tags`)    from `.cq`: one GET for its footer and one for the blocks of the range; where that
                                 part is damaged or gone, the frames are read instead
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.remoting.records.record_heads import Mask
from thermocline.remoting.string_hash import tags_code
from thermocline.spark.access.blocking_store import BlockingStore
from thermocline.spark.metrics.task_counts import TaskCounts
from thermocline.spark.reading.losses import Losses
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.wanted_frame import WantedFrame, narrowed, with_names
from thermocline.tiered.objects import SegmentFormatError
from thermocline.tiered.segments import FrameInfo, LogFooter, PartLocator, decode_columns_footer, decode_log_footer

logger = logging.getLogger(__name__)

FOOTERS_KEPT_MAX = 64
FOOTER_FETCHES_MAX = 16
# Its consume queue entries hold the time of delivery in the field of the tags code.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

Answer = TypeVar("Answer")
FooterName: TypeAlias = tuple[str, str, int, int]
FoundFooter: TypeAlias = LogFooter | ObjectNotFoundError | CorruptDataError

_footers: OrderedDict[FooterName, LogFooter] = OrderedDict()


class FrameChoice:
    """Chooses for one task; `store_of` gives the store of a slice. `reads_tags_codes`: `.cq` parts can be read."""

    def __init__(
        self,
        store_of: Callable[[SegmentSlice], BlockingStore],
        *,
        losses: Losses,
        counts: TaskCounts,
        reads_tags_codes: bool = True,
    ) -> None:
        self._store_of = store_of
        self._losses = losses
        self._counts = counts
        self._reads_tags_codes = reads_tags_codes

    def frames(self, slices: Sequence[SegmentSlice]) -> Iterator[WantedFrame]:
        """The frames that are fetched for these slices; raises as FrameReader.read does."""
        footers = self._fetch_footers(slices)
        for part in slices:
            footer = footers[_footer_name(part)]
            if isinstance(footer, ObjectNotFoundError):
                self._losses.object_gone(part, footer)
                continue
            if isinstance(footer, CorruptDataError):
                self._losses.footer_damaged(part, footer)
                continue
            owned = _owned_frames(part, footer)
            frames = [info for info in owned if _may_hold_wanted(part, info)]
            reads_codes = self._reads_tags_codes and part.topic != SCHEDULE_TOPIC
            if frames and part.selection.tags is not None and reads_codes:
                frames = self._with_tags(part, frames)
            self._counts.frames_pruned += len(owned) - len(frames)
            for info in frames:
                yield WantedFrame(part=part, info=info)

    def _with_tags(self, part: SegmentSlice, frames: list[FrameInfo]) -> list[FrameInfo]:
        """The frames that hold a record with the code of a wanted tag; all of them when `.cq` cannot be read."""
        try:
            return self._frames_with_tags(part, frames)
        except (ObjectNotFoundError, CorruptDataError) as error:
            # The read gets slower, not wrong: rows are chosen by the tags themselves.
            logger.warning(
                "frames are read for want of tags codes object=%s topic=%s queue_id=%d reason=%s",
                *(part.cq.key, part.topic, part.queue_id, error),
            )
            return frames
        except ObjectStoreUnavailableError as error:
            raise with_names(error, replace(narrowed(part, frames), log=part.cq)) from error

    def _frames_with_tags(self, part: SegmentSlice, frames: Sequence[FrameInfo]) -> list[FrameInfo]:
        assert part.selection.tags is not None
        store = self._store_of(part)
        start, end = frames[0].start_offset, frames[-1].end_offset
        tail = store.run(_get_footer(store, part.cq))
        footer = decode_columns_footer(tail)
        blocks = footer.blocks_of(part.queue_id, start_offset=start, end_offset=end)
        first = int(blocks[0]["position"])
        last = int(blocks[-1]["position"]) + int(blocks[-1]["stored_bytes"])
        stored = store.run(_get_part(store, part.cq, first, last))
        codes = [tags_code(tag) for tag in part.selection.tags]
        hits_before = [0]
        base = int(blocks[0]["start_offset"])
        for block in blocks:
            position = int(block["position"]) - first
            columns = footer.decode_block(stored[position : position + int(block["stored_bytes"])], block)
            wanted: Mask = np.isin(columns.tags_codes, codes)
            hits_before.extend((np.cumsum(wanted) + hits_before[-1]).tolist())
        return [info for info in frames if hits_before[info.end_offset - base] > hits_before[info.start_offset - base]]

    def _fetch_footers(self, slices: Sequence[SegmentSlice]) -> dict[FooterName, FoundFooter]:
        """The footer of every segment in `slices`, from what this process keeps or from the store."""
        parts: dict[FooterName, SegmentSlice] = {}
        for part in slices:
            parts.setdefault(_footer_name(part), part)
        found: dict[FooterName, FoundFooter] = {name: _footers[name] for name in parts if name in _footers}
        missing = {name: part for name, part in parts.items() if name not in found}
        for url in dict.fromkeys(part.source.url for part in missing.values()):
            names = [name for name, part in missing.items() if part.source.url == url]
            store = self._store_of(missing[names[0]])
            tails = store.run(_gather([_get_footer_of(store, missing[name]) for name in names]))
            for name, tail in zip(names, tails, strict=True):
                if isinstance(tail, ObjectNotFoundError | CorruptDataError):
                    found[name] = tail
                    continue
                try:
                    found[name] = _footers[name] = _decode_footer(missing[name], tail)
                except CorruptDataError as error:
                    found[name] = error
        while len(_footers) > FOOTERS_KEPT_MAX:
            _footers.popitem(last=False)
        return found


def _owned_frames(part: SegmentSlice, footer: LogFooter) -> list[FrameInfo]:
    """The frames that the slice owns: those whose first wanted offset is in its range."""
    run = footer.run(part.queue_id)
    first = part.selection.start_offset
    return [
        info
        for info in footer.frames_of(run, start_offset=part.start_offset, end_offset=part.end_offset)
        if part.start_offset <= max(info.start_offset, first) < part.end_offset
    ]


def _may_hold_wanted(part: SegmentSlice, info: FrameInfo) -> bool:
    """Whether store times, spans and places leave a wanted row possible."""
    selection = part.selection
    if info.min_store_ms >= selection.end_ms or info.max_store_ms < selection.start_ms:
        return False
    if selection.spans is not None and not selection.spans.overlaps(info.start_offset, info.end_offset):
        return False
    if part.places is None:
        return True
    place = bisect_left(part.places, info.start_offset)
    return place < len(part.places) and part.places[place] < info.end_offset


def _decode_footer(part: SegmentSlice, tail: bytes) -> LogFooter:
    footer = decode_log_footer(tail)
    if str(footer.segment_id) != part.segment_id:
        raise SegmentFormatError("the object holds another segment", found=str(footer.segment_id))
    return footer


async def _gather(
    calls: Sequence[Coroutine[Any, Any, Answer]],
) -> list[Answer | ObjectNotFoundError | CorruptDataError]:
    """The answers of all calls, a bounded number at a time; a missing or short object is returned as its error."""
    slots = asyncio.Semaphore(FOOTER_FETCHES_MAX)

    async def answer(call: Coroutine[Any, Any, Answer]) -> Answer | ObjectNotFoundError | CorruptDataError:
        async with slots:
            try:
                return await call
            except (ObjectNotFoundError, CorruptDataError) as error:
                return error

    return await asyncio.gather(*map(answer, calls))


def _get_footer(store: BlockingStore, locator: PartLocator) -> Coroutine[Any, Any, bytes]:
    return store.store.get_range(locator.key, start=locator.footer_start, end=locator.end)


async def _get_footer_of(store: BlockingStore, part: SegmentSlice) -> bytes:
    """The footer of a slice's segment; errors name the slice."""
    try:
        return await _get_footer(store, part.log)
    except ObjectStoreUnavailableError as error:
        raise with_names(error, part) from error


def _get_part(store: BlockingStore, locator: PartLocator, start: int, end: int) -> Coroutine[Any, Any, bytes]:
    """Bytes of a part by positions within it."""
    return store.store.get_range(locator.key, start=locator.start + start, end=locator.start + end)


def _footer_name(part: SegmentSlice) -> FooterName:
    """Segments are immutable and their names never used twice, so place and checksum name a footer for ever."""
    return part.source.url, part.log.key, part.log.start, part.log.crc32
