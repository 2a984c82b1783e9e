"""First visible: which offset of a queue's cold part is the first that has not expired, to the message.

The catalog holds the store times of a whole run, the segment's footer those of a frame, the records those of a message;
each is read only when the one before does not decide. So a stream that lags behind its topic's time to live reports
exactly which messages it has missed, at the price of two requests where the cut is within a run. An object that is gone
or damaged counts as visible here: the task that reads it fails, or leaves it out, as the options say.
"""

from __future__ import annotations

import logging

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.record_heads import read_heads
from thermocline.spark.access.blocking_store import BlockingStore
from thermocline.spark.streaming.cold_line import ColdLine, ColdRun
from thermocline.tiered.segments import decode_log_footer, decompress

logger = logging.getLogger(__name__)


def first_visible(
    line: ColdLine, store: BlockingStore, *, start: QueueOffset, end: QueueOffset, visible_from_ms: int
) -> QueueOffset:
    """The first offset in [start, end) that is in a run and has not expired; `end` when there is none.

    Store times do not fall along a queue.

    Raises:
        UnavailableError: The footer or the frame could not be fetched.
    """
    for each in line.runs_from(start):
        if each.run.start_offset >= end:
            break
        if each.run.max_store_ms < visible_from_ms:
            continue
        first = max(start, each.run.start_offset)
        if each.run.min_store_ms < visible_from_ms:
            try:
                first = _first_in_run(each, store, start=first, visible_from_ms=visible_from_ms)
            except (ObjectNotFoundError, CorruptDataError) as error:
                logger.warning(
                    "the first visible message is not found object=%s reason=%s", each.segment.log.key, error
                )
        if first < min(end, each.run.end_offset):
            return first
    return end


def _first_in_run(each: ColdRun, store: BlockingStore, *, start: QueueOffset, visible_from_ms: int) -> QueueOffset:
    log, run = each.segment.log, each.run
    footer = decode_log_footer(store.run(store.store.get_range(log.key, start=log.footer_start, end=log.end)))
    for info in footer.frames_of(footer.run(run.queue_id), start_offset=start, end_offset=run.end_offset):
        if info.max_store_ms < visible_from_ms:
            continue
        if info.min_store_ms >= visible_from_ms:
            return max(start, info.start_offset)
        position = log.start + info.position
        stored = store.run(store.store.get_range(log.key, start=position, end=position + info.stored_bytes))
        heads = read_heads(decompress(stored, raw_bytes=info.raw_bytes))
        offsets = heads.integers("queue_offset")
        wanted = (heads.integers("store_timestamp_ms") >= visible_from_ms) & (offsets >= start)
        if bool(wanted.any()):
            return QueueOffset(offsets[wanted][0])
    return run.end_offset
