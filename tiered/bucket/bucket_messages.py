"""Messages of a topic, read from a bucket alone, as its broker would give them: nothing that has expired by now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.tiered.bucket.opened_bucket import BrokerTier, opened_bucket
from thermocline.tiered.catalog import topic_visible_from_ms
from thermocline.tiered.reading import ColdPull, ColdPullStatus, ColdReader, catalog_reader

PULL_COUNT = 1_000
PULL_BYTES = 4 * 1024 * 1024

Found = tuple[str, MessageRecord]
"""The broker's name and one of its records."""


class WantedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Queue offsets [start_offset, end_offset) of one queue of a topic, or of all, with store times in
    [start_ms, end_ms); at most `count_max` of each queue. None: no bound."""

    topic: str
    queue_id: int | None = None
    start_offset: QueueOffset = QUEUE_START
    end_offset: QueueOffset | None = None
    start_ms: int = 0
    end_ms: int | None = None
    count_max: int | None = None


def read_messages(url: str, wanted: WantedMessages, *, broker: str | None = None) -> Iterator[Found]:
    """The messages by broker, queue and offset, given as they are read: memory holds one pull and the frame cache.

    Raises as `opened_bucket`, and
        TopicNotFoundError: No broker has messages of the topic there.
        InvalidRequestError: The topic has no such queue there.
        CorruptDataError: Records of the range are damaged or lost; messages before them have been given.
    """
    with asyncio.Runner() as runner:
        pulls = _pulls(url, wanted, broker)
        try:
            while (records := runner.run(_next(pulls))) is not None:
                yield from records
        finally:
            runner.run(pulls.aclose())  # type: ignore[attr-defined]


async def _next(pulls: AsyncIterator[list[Found]]) -> list[Found] | None:
    return await anext(pulls, None)


async def _pulls(url: str, wanted: WantedMessages, broker: str | None) -> AsyncIterator[list[Found]]:
    async with opened_bucket(url, broker=broker, only_topics=frozenset([wanted.topic])) as tiers:
        having = [tier for tier in tiers if tier.catalog.queue_bounds(wanted.topic)]
        if not having:
            raise TopicNotFoundError("the bucket holds no messages of this topic", topic=wanted.topic)
        queue_ids = {queue_id for tier in having for queue_id in tier.catalog.queue_bounds(wanted.topic)}
        if wanted.queue_id is not None and wanted.queue_id not in queue_ids:
            raise InvalidRequestError("the topic has no such queue there", topic=wanted.topic, queue_id=wanted.queue_id)
        for tier in having:
            async with catalog_reader(tier.store, tier.catalog) as reader:
                for queue_id in sorted(tier.catalog.queue_bounds(wanted.topic)):
                    if wanted.queue_id in (None, queue_id):
                        async for records in _pulls_of_queue(reader, tier, wanted, queue_id):
                            yield [(tier.catalog.broker_name, record) for record in records]


async def _pulls_of_queue(
    reader: ColdReader, tier: BrokerTier, wanted: WantedMessages, queue_id: int
) -> AsyncIterator[list[MessageRecord]]:
    visible_ms = topic_visible_from_ms(tier.catalog, wanted.topic, now_ms=wall_clock_ms())
    offset, end_offset, missing = wanted.start_offset, wanted.end_offset, wanted.count_max
    while (missing is None or missing > 0) and (end_offset is None or offset < end_offset):
        count_max = PULL_COUNT if missing is None else min(PULL_COUNT, missing)
        if end_offset is not None:
            count_max = min(count_max, end_offset - offset)
        pull = ColdPull(
            topic=wanted.topic,
            queue_id=queue_id,
            offset=offset,
            count_max=count_max,
            bytes_max=PULL_BYTES,
            cut_ms=max(visible_ms, wanted.start_ms),
            group="bucket",
        )
        result = await reader.pull(pull)
        if result.status in (ColdPullStatus.ABOVE_END, ColdPullStatus.NO_QUEUE):
            break
        found = [record for buffer in result.buffers for record in iterate_records(buffer)]
        records = [record for record in found if _is_wanted(record, wanted)]
        yield records
        if len(records) < len(found):  # times rise within a queue, as offsets do
            break
        offset = result.next_offset
        missing = None if missing is None else missing - len(records)


def _is_wanted(record: MessageRecord, wanted: WantedMessages) -> bool:
    is_before_end = wanted.end_offset is None or record.queue_offset < wanted.end_offset
    return is_before_end and (wanted.end_ms is None or record.store_timestamp_ms < wanted.end_ms)
