"""Queues of a slave that follows its master's ledger: where those end of which it has no message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.store.store_parts import draft
from thermocline.broker.follower.slave_ledger import SlaveLedger
from thermocline.broker.helpers import CatalogTable, ColdRange, Enrolled, HelperHub, HelperRequestCode
from thermocline.broker.pulls.long_polling import LongPolling
from thermocline.broker.tier.tier_link import TierLink

TOPIC = "Followed"


class Hub:
    """Notes what the slave process gets."""

    def __init__(self) -> None:
        self.store_ids: list[str] = []

    def add_role(self, name: str, role: object) -> None:
        """Nothing connects."""

    def is_connected(self, role: str) -> bool:
        return True

    def tell(self, role: str, code: HelperRequestCode, body: msgspec.Struct) -> bool:
        assert code == HelperRequestCode.ENROLLED
        assert isinstance(body, Enrolled)
        self.store_ids.append(body.store_uuid)
        return True


class World:
    def __init__(self, broker: ControlBroker) -> None:
        self.broker = broker
        self.hub = Hub()
        self.restarts = 0
        self.ledger = SlaveLedger(broker.parts.base.store, cast("HelperHub", self.hub), master_uuid="")
        self.link: TierLink = self.ledger.make_link(timeout_ms=1_000, restart_feed=self._restart)
        self.sequence = 0

    def _restart(self) -> None:
        self.restarts += 1

    def table(self, *ranges: tuple[int, int, int], incarnation: int) -> None:
        """The slave process reports ranges: queue, minimum, end."""
        self.sequence += 1
        table = CatalogTable(
            sequence=self.sequence,
            version=self.sequence,
            committed_offset=0,
            ranges=[
                ColdRange(topic=TOPIC, incarnation=incarnation, queue_id=queue_id, min_offset=start, end_offset=end)
                for queue_id, start, end in ranges
            ],
        )
        self.link.helper_told(HelperRequestCode.CATALOG_TABLE, msgspec.msgpack.encode(table))

    def ends(self) -> dict[int, int]:
        return {
            queue_id: queue.next_offset
            for queue_id, queue in self.broker.parts.base.store.queues.of_topic(TOPIC).items()
        }


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with control_broker(tmp_path) as broker:
        yield World(broker)


async def test_a_queue_without_a_message_ends_where_the_cold_tier_does(world: World) -> None:
    await world.broker.create_topic(TOPIC)
    incarnation = world.broker.parts.tables.topics.incarnation(TOPIC).id
    world.broker.put(TOPIC, 1)
    world.ledger.start(world.broker.parts.tables.topics, LongPolling())
    world.table((0, 3, 40), (1, 0, 60), incarnation=incarnation)
    assert world.ends() == {0: 40, 1: 1}, "a queue with messages goes on by the log"
    queue = world.broker.parts.base.store.queues.find(TOPIC, 0)
    assert queue is not None
    assert queue.min_offset == 40
    world.table((0, 3, 50), incarnation=incarnation)
    assert world.ends() == {0: 40, 1: 1}, "the log brings what is new"


async def test_ranges_wait_for_their_topic(world: World) -> None:
    world.ledger.start(world.broker.parts.tables.topics, LongPolling())
    world.table((0, 0, 7), incarnation=1)
    world.table((0, 0, 9), incarnation=1)
    assert world.ends() == {}
    await world.broker.create_topic(TOPIC)
    assert world.broker.parts.tables.topics.incarnation(TOPIC).id == 1
    assert world.ends() == {0: 9}


async def test_ranges_wait_for_the_topics_next_life(world: World) -> None:
    """The slave's tables are those of an earlier run, the ledger is newer."""
    topics = world.broker.parts.tables.topics
    await world.broker.create_topic(TOPIC)
    world.broker.put(TOPIC, 1)
    world.ledger.start(topics, LongPolling())
    following = topics.incarnation(TOPIC).id + 1
    world.table((0, 0, 7), incarnation=following)
    world.table((1, 0, 8), incarnation=following)
    assert world.ends() == {1: 1}
    await topics.delete(TOPIC)
    await world.broker.create_topic(TOPIC)
    assert topics.incarnation(TOPIC).id == following
    assert world.ends() == {0: 7, 1: 8}


async def test_a_queue_that_gets_a_message_before_its_topic_goes_on_by_the_log(world: World) -> None:
    world.ledger.start(world.broker.parts.tables.topics, LongPolling())
    world.table((0, 0, 7), (1, 0, 7), incarnation=1)
    world.broker.parts.base.store.put(draft(TOPIC, 0))
    await world.broker.create_topic(TOPIC)
    assert world.ends() == {0: 1, 1: 7}


async def test_ranges_of_another_life_move_nothing(world: World) -> None:
    await world.broker.create_topic(TOPIC)
    world.ledger.start(world.broker.parts.tables.topics, LongPolling())
    world.table((0, 0, 7), incarnation=99)
    assert world.ends() == {}


async def test_the_slave_process_is_told_whose_ledger_it_follows(world: World) -> None:
    world.link.helper_connected()
    assert (world.hub.store_ids, world.restarts) == ([], 1)
    world.ledger.enrol("master")
    world.link.helper_connected()
    assert (world.hub.store_ids, world.restarts) == (["master", "master"], 2)
