"""Topics of another broker, as a read-only one shows them.

Covers `broker/follower/followed_incarnations.py`, `broker/process/machine_memory.py`, `broker/tier/tier_link.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.broker.control_broker import ControlBroker, HalfFullDisk, control_broker
from tests.waiting import until
from thermocline.broker.follower.followed_topics import TopicFollower
from thermocline.broker.helpers.helper_hub import HelperHub
from thermocline.broker.helpers.helper_protocol import (
    CatalogTable,
    ColdRange,
    FollowedTopic,
    FollowedTopics,
    HelloReply,
    HelperRequestCode,
)
from thermocline.broker.pulls.long_polling import LongPolling
from thermocline.broker.tier.tier_link import TierLink
from thermocline.remoting.errors import DiskFullError
from thermocline.store.files.disk import RealFile
from thermocline.tiered.budgets.tier_config import TierConfig

MINUTE_MS = 60_000
TOPIC = "Followed"
DEADLINE_S = 10.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


@asynccontextmanager
async def following(broker: ControlBroker) -> AsyncIterator[TierLink]:
    """What the follower process speaks to, of a broker that has just started."""
    store, tables = broker.parts.base.store, broker.parts.tables
    settings = HelloReply(
        store=store.config, tier=TierConfig(), store_uuid="", cluster_name="c", broker_name="b", was_clean=True
    )
    follower = TopicFollower()
    hub = HelperHub(generation=1, build_id=1, settings=settings)
    link = follower.make_link(hub, timeout_ms=1_000, on_fenced=lambda _: None)
    follower.start(
        store=store,
        topics=tables.topics,
        offsets=tables.offsets,
        long_polling=LongPolling(),
        persister=tables.persister,
    )
    yield link
    await follower.close()


@pytest.fixture
async def link(broker: ControlBroker) -> AsyncIterator[TierLink]:
    async with following(broker) as link:
        yield link


async def tell(
    broker: ControlBroker, link: TierLink, *, ttl_ms: int | None, expired_before_ms: int, incarnation: int = 1
) -> None:
    """What the followed broker's ledger says of the topic, taken in."""
    topic = FollowedTopic(
        topic=TOPIC,
        incarnation=incarnation,
        deleted=False,
        ttl_ms=ttl_ms,
        expired_before_ms=expired_before_ms,
        queue_count=1,
        config=None,
    )
    link.helper_told(HelperRequestCode.FOLLOWED_TOPICS, msgspec.msgpack.encode(FollowedTopics(topics=[topic])))
    topics = broker.parts.tables.topics

    def is_taken_in() -> bool:
        fixed_ms = topics.incarnation(TOPIC).expired_before_ms
        return TOPIC in topics and topics.time_to_live_ms(TOPIC) == ttl_ms and fixed_ms == expired_before_ms

    async with asyncio.timeout(DEADLINE_S):
        while not is_taken_in():  # noqa: ASYNC110 - its own task works off what comes
            await asyncio.sleep(0)


async def test_a_time_to_live_that_grew_there_has_expired_nothing_more_here(
    broker: ControlBroker, link: TierLink
) -> None:
    """However late it is heard of: messages of the time in between are there, and have to be here."""
    topics, start_ms = broker.parts.tables.topics, broker.clock.now_ms
    await tell(broker, link, ttl_ms=MINUTE_MS, expired_before_ms=0)
    assert topics.expired_before(TOPIC) == start_ms - MINUTE_MS
    changed_ms = start_ms + 5 * MINUTE_MS
    broker.clock.now_ms = start_ms + 30 * MINUTE_MS
    await tell(broker, link, ttl_ms=60 * MINUTE_MS, expired_before_ms=changed_ms - MINUTE_MS)
    assert topics.expired_before(TOPIC) == changed_ms - MINUTE_MS
    await tell(broker, link, ttl_ms=None, expired_before_ms=changed_ms - MINUTE_MS)
    assert topics.expired_before(TOPIC) == changed_ms - MINUTE_MS


async def test_messages_expired_at_the_writer_stay_hidden_until_the_next_incarnation(
    broker: ControlBroker, link: TierLink
) -> None:
    cut_ms = broker.clock.now_ms - MINUTE_MS
    await tell(broker, link, ttl_ms=None, expired_before_ms=cut_ms)
    assert broker.parts.tables.topics.expired_before(TOPIC) == cut_ms
    await tell(broker, link, ttl_ms=None, expired_before_ms=0, incarnation=2)
    assert broker.parts.tables.topics.expired_before(TOPIC) == 0


@pytest.mark.parametrize(("incarnation", "offset"), [(1, 40), (2, None)])
async def test_groups_begin_anew_in_a_topic_that_was_made_again_while_this_broker_was_down(
    tmp_path: Path, incarnation: int, offset: int | None
) -> None:
    """Their offsets are those of other messages: they would pass over what the topic has now."""
    async with control_broker(tmp_path) as broker, following(broker) as link:
        await tell(broker, link, ttl_ms=None, expired_before_ms=0)
        broker.parts.tables.offsets.commit(TOPIC, "group", 0, 40)
        file = Path(broker.parts.base.store.config.own_path) / "followedTopics.json"
        await until(file.exists, what="the incarnation is kept")
    async with control_broker(tmp_path) as broker, following(broker) as link:
        offsets = broker.parts.tables.offsets
        assert offsets.query(TOPIC, "group", 0) == 40
        await tell(broker, link, ttl_ms=5 * MINUTE_MS, expired_before_ms=0, incarnation=incarnation)
        assert offsets.of_group(TOPIC, "group").get(0) == offset
    async with control_broker(tmp_path) as broker:
        assert broker.parts.tables.offsets.of_group(TOPIC, "group").get(0) == offset


class FullDisk(HalfFullDisk):
    """A disk on which, at times, no file can be made."""

    is_full = False

    def open(self, path: str, *, create: bool = False, random_access: bool = False) -> RealFile:
        if create and self.is_full:
            raise DiskFullError("no room", path=path)
        return super().open(path, create=create, random_access=random_access)


async def test_a_topic_that_had_no_room_is_followed_with_a_later_report(tmp_path: Path) -> None:
    """Its queues end where the cold tier does then, although no report names them any more."""
    disk = FullDisk()
    async with control_broker(tmp_path, disk=disk) as broker, following(broker) as link:
        topics, queues = broker.parts.tables.topics, broker.parts.base.store.queues
        disk.is_full = True
        topic = FollowedTopic(
            topic=TOPIC,
            incarnation=1,
            deleted=False,
            ttl_ms=None,
            expired_before_ms=0,
            queue_count=1,
            config=None,
        )
        link.helper_told(HelperRequestCode.FOLLOWED_TOPICS, msgspec.msgpack.encode(FollowedTopics(topics=[topic])))
        ranges = [ColdRange(topic=TOPIC, incarnation=1, queue_id=0, min_offset=0, end_offset=9)]
        for sequence in (1, 2):
            table = CatalogTable(sequence=sequence, version=sequence, committed_offset=0, ranges=ranges)
            link.helper_told(HelperRequestCode.CATALOG_TABLE, msgspec.msgpack.encode(table))
            await until(lambda version=sequence: link.version == version, what="the table is served")
            ranges, disk.is_full = [], False
        assert TOPIC in topics
        queue = queues.find(TOPIC, 0)
        assert queue is not None
        assert (queue.min_offset, queue.next_offset) == (9, 9)
