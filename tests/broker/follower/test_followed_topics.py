"""Topics of another broker, as a read-only one shows them.

Covers `broker/process/machine_memory.py`, `broker/tier/tier_link.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from thermocline.broker.follower.followed_topics import TopicFollower
from thermocline.broker.helpers.helper_hub import HelperHub
from thermocline.broker.helpers.helper_protocol import FollowedTopic, FollowedTopics, HelloReply, HelperRequestCode
from thermocline.broker.pulls.long_polling import LongPolling
from thermocline.broker.tier.tier_link import TierLink
from thermocline.store.config.store_config import StoreConfig
from thermocline.tiered.budgets.tier_config import TierConfig

MINUTE_MS = 60_000
TOPIC = "Followed"
DEADLINE_S = 10.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


@pytest.fixture
async def link(broker: ControlBroker, tmp_path: Path) -> AsyncIterator[TierLink]:
    """What the follower process speaks to."""
    settings = HelloReply(
        store=StoreConfig(root_path=str(tmp_path)),
        tier=TierConfig(),
        store_uuid="",
        cluster_name="c",
        broker_name="b",
        was_clean=True,
    )
    follower = TopicFollower()
    hub = HelperHub(generation=1, build_id=1, settings=settings)
    link = follower.make_link(hub, timeout_ms=1_000, on_fenced=lambda _: None)
    tables = broker.parts.tables
    follower.start(
        store=broker.parts.base.store, topics=tables.topics, offsets=tables.offsets, long_polling=LongPolling()
    )
    yield link
    await follower.close()


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
