"""row_selection: which rows of one queue a read gives, by its options: what batches and streams, cold and live, share.

offsets          the range, within what `where` leaves of it
store times      from startingTimestamp, and from what has not expired, to endingTimestamp; within those of `where`
tags, keys       those of the options, and of `where`
"""

from __future__ import annotations

from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.decoding.arrow_decoder import INT64_MAX, RowSelection
from thermocline.spark.decoding.offset_spans import OffsetSpans
from thermocline.spark.reading.source_options import QueueName, ReadOptions


def row_selection(
    options: ReadOptions,
    *,
    topic: str,
    queue: QueueName,
    start: QueueOffset,
    end: QueueOffset,
    visible_from_ms: int = 0,
) -> RowSelection:
    """What is wanted of offsets [start, end) of a queue; no offset at all when the condition rules the queue out."""
    whole = OffsetSpans.of([(start, end)])
    where = options.filters
    is_wanted = where.wants_queue(topic=topic, broker_name=queue.broker_name, queue_id=queue.queue_id)
    spans = whole.intersect(where.spans) if is_wanted else OffsetSpans(())
    tags = options.tags if where.tags is None else where.tags & (options.tags or where.tags)
    return RowSelection(
        start_offset=spans.start if spans.spans else start,
        end_offset=spans.end if spans.spans else start,
        start_ms=max(options.starting_ms or 0, visible_from_ms, where.start_ms, 0),
        end_ms=min(INT64_MAX if options.ending_ms is None else options.ending_ms, where.end_ms),
        tags=tags,
        keys=key_sets(options),
        spans=spans if len(spans.spans) > 1 else None,
    )


def key_sets(options: ReadOptions) -> tuple[frozenset[str], ...]:
    """Sets of keys, of each of which a message has to have one."""
    return options.filters.keys if options.keys is None else (options.keys, *options.filters.keys)


def wants_offsets(selection: RowSelection, start: QueueOffset, end: QueueOffset) -> bool:
    """Whether any of the offsets [start, end) may be wanted."""
    start, end = max(start, selection.start_offset), min(end, selection.end_offset)
    return start < end and (selection.spans is None or selection.spans.overlaps(start, end))
