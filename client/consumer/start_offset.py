"""Start offset: where a consumer begins in a queue.

It begins at the group's committed offset. If the group has none, the option `consume_from_where` decides:

| option | queue of a topic | queue of the retry topic |
|---|---|---|
| CONSUME_FROM_LAST_OFFSET | the queue's end | 0 |
| CONSUME_FROM_FIRST_OFFSET | 0; if that message is deleted, the broker answers with its minimum offset | 0 |
| CONSUME_FROM_TIMESTAMP | the first message stored at or after `consume_timestamp_ms` | the queue's end |

Without `consume_timestamp_ms` that time is half an hour before the consumer's start, in each queue, whenever it is
taken over.
Source: client/impl/consumer/RebalancePushImpl.java (computePullFromWhere), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.client.consumer.consumer_calls import ConsumerCalls
from thermocline.client.consumer.offset_store import OffsetStore
from thermocline.client.consumer.options import ConsumeFromWhere, ConsumerOptions
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.topic_validation import is_retry_topic

__all__ = ["begin_timestamp_ms", "find_start_offset"]

HALF_AN_HOUR_MS = 30 * 60 * 1000


def begin_timestamp_ms(options: ConsumerOptions, *, start_timestamp_ms: int) -> int:
    """Return the store time for CONSUME_FROM_TIMESTAMP of a consumer that was started at `start_timestamp_ms`; both in
    milliseconds since 1970."""
    wanted_ms = options.consume_timestamp_ms
    return start_timestamp_ms - HALF_AN_HOUR_MS if wanted_ms is None else wanted_ms


async def find_start_offset(
    queue: MessageQueue,
    *,
    store: OffsetStore,
    calls: ConsumerCalls,
    consume_from_where: ConsumeFromWhere,
    consume_timestamp_ms: int,
) -> int:
    """Return the offset of the first pull.

    Raises:
        UnavailableError: No broker returns the group's offset now, or the offset that the option asks for. A guessed
            offset would skip or repeat messages.
    """
    offset = await store.read(queue)
    if offset is not None:
        return offset
    is_retry = is_retry_topic(queue.topic)
    if consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        return 0 if is_retry else await _end(queue, store=store, calls=calls)
    if consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if is_retry:
        return await calls.max_offset(queue)
    return await calls.offset_by_time(queue, consume_timestamp_ms)


async def _end(queue: MessageQueue, *, store: OffsetStore, calls: ConsumerCalls) -> int:
    """The queue's end, for a group that has no offset.

    A broker has no offset for a group while the queue is empty, and gives 0 once it has its first message. It is asked
    again, so that a message stored between the two questions is not passed over.
    """
    end = await calls.max_offset(queue)
    if end:
        offset = await store.read(queue)
        if offset is not None:
            return offset
    return end
