"""Messages of a queue, read from a bucket alone, as its broker would give them: nothing that has expired by now."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError
from thermocline.remoting.message_record import MessageRecord, iterate_records
from thermocline.tiered.bucket.opened_bucket import BrokerTier, opened_bucket
from thermocline.tiered.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.cold_reader import ColdReader
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.ttl import topic_visible_from_ms

CACHE_BYTES = 64 * 1024 * 1024
PULL_COUNT = 1_000
PULL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMessages:
    """Queue offsets [start_offset, end_offset) of one queue of a topic, or of all; at most `count_max` of each."""

    topic: str
    queue_id: int | None = None
    start_offset: int = 0
    end_offset: int | None = None
    count_max: int = 32


def read_messages(url: str, wanted: WantedMessages, *, broker: str | None = None) -> list[tuple[str, MessageRecord]]:
    """Broker name and record of each message, by queue and offset.

    Raises as `opened_bucket`, and
        TopicNotFoundError: Nobody has the topic.
        InvalidRequestError: The topic has no such queue there.
        CorruptDataError: Records of the range are damaged or lost.
    """

    async def run() -> list[tuple[str, MessageRecord]]:
        async with opened_bucket(url, broker=broker, only_topics=frozenset([wanted.topic])) as tiers:
            having = [tier for tier in tiers if tier.catalog.queue_bounds(wanted.topic)]
            if not having:
                raise TopicNotFoundError("the bucket holds no messages of this topic", topic=wanted.topic)
            found = [(tier.catalog.broker_name, record) for tier in having for record in await _read(tier, wanted)]
        known = {queue_id for tier in having for queue_id in tier.catalog.queue_bounds(wanted.topic)}
        if wanted.queue_id is not None and wanted.queue_id not in known:
            raise InvalidRequestError("the topic has no such queue there", topic=wanted.topic, queue_id=wanted.queue_id)
        return found

    return asyncio.run(run())


async def _read(tier: BrokerTier, wanted: WantedMessages) -> list[MessageRecord]:
    cache = FrameCache(bytes_max=CACHE_BYTES)
    reader = ColdReader(tier.store, catalog=lambda: tier.catalog, cache=cache)
    try:
        bounds = tier.catalog.queue_bounds(wanted.topic)
        records: list[MessageRecord] = []
        for queue_id in sorted(bounds):
            if wanted.queue_id in (None, queue_id):
                records += await _read_queue(reader, tier, wanted, queue_id)
        return records
    finally:
        await reader.close()
        await cache.close()


async def _read_queue(
    reader: ColdReader, tier: BrokerTier, wanted: WantedMessages, queue_id: int
) -> list[MessageRecord]:
    cut_ms = topic_visible_from_ms(tier.catalog, wanted.topic, now_ms=time.time_ns() // 1_000_000)
    records: list[MessageRecord] = []
    offset, end_offset = wanted.start_offset, wanted.end_offset
    while len(records) < wanted.count_max and (end_offset is None or offset < end_offset):
        count_max = min(PULL_COUNT, wanted.count_max - len(records))
        if end_offset is not None:
            count_max = min(count_max, end_offset - offset)
        pull = ColdPull(
            topic=wanted.topic,
            queue_id=queue_id,
            offset=offset,
            count_max=count_max,
            bytes_max=PULL_BYTES,
            cut_ms=cut_ms,
            group="bucket",
        )
        result = await reader.pull(pull)
        if result.status in (ColdPullStatus.ABOVE_END, ColdPullStatus.NO_QUEUE):
            break
        found = [record for buffer in result.buffers for record in iterate_records(buffer)]
        records += [record for record in found if end_offset is None or record.queue_offset < end_offset]
        offset = result.next_offset
    return records
