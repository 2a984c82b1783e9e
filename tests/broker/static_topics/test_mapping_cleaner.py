"""What is taken out of mappings: parts that hold nothing any more, and what is outdated.

Covers `broker/tables/static_topic_table.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.static_topics.two_brokers import GROUP, TOPIC, Side, TwoBrokers, item, two_brokers
from thermocline.broker.assembly.recurring import make_mapping_cleaner
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.bodies import LogicQueueMappingItem
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand

FIRST = item(0, "a", 0, queue_id=2)
MOVED = item(1, "b", 10_000, queue_id=1)
MOVED_BACK = item(2, "a", 20_000, queue_id=3)
DELETE_HOUR = 4


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[TwoBrokers]:
    async with two_brokers(tmp_path) as both:
        for side in (both.a, both.b):
            assert (await side.map({0: [FIRST]} if side.name == "a" else {})).code == 0
            await side.ask(200, body=b'{"groupName":"%s"}' % GROUP.encode())
        yield both


async def tell(brokers: TwoBrokers, *items: LogicQueueMappingItem, epoch: int) -> None:
    for side in (brokers.a, brokers.b):
        assert (await side.map({0: list(items)}, epoch=epoch)).code == 0


def generations(side: Side) -> list[int]:
    queues = side.broker.parts.tables.static_topics.details[TOPIC].hosted_queues
    return [item.gen for item in queues.get(0, [])]


async def clean(side: Side, *, hour: int = DELETE_HOUR) -> None:
    await make_mapping_cleaner(side.broker.parts, hour=lambda: hour).clean()


def expire(side: Side) -> None:
    """Let everything that the broker holds of the topic be invisible."""
    side.broker.parts.base.store.incarnations.expire_before(TOPIC, side.broker.clock.now_ms + 1)


async def test_a_part_goes_once_nothing_of_it_is_visible(brokers: TwoBrokers) -> None:
    await brokers.a.send()
    await tell(brokers, FIRST, MOVED, epoch=2)
    await clean(brokers.b)
    assert generations(brokers.b) == [0, 1], "it holds a message"
    expire(brokers.a)
    await clean(brokers.b, hour=DELETE_HOUR + 1)
    assert generations(brokers.b) == [0, 1], "it is not the hour for it"
    await clean(brokers.b)
    assert generations(brokers.b) == [1]
    version = brokers.b.broker.parts.tables.static_topics.data_version
    await clean(brokers.b)
    assert brokers.b.broker.parts.tables.static_topics.data_version == version, "nothing changes, nothing is written"


async def test_the_leaders_part_stays_and_so_does_one_in_front_of_an_undecided_one(brokers: TwoBrokers) -> None:
    await clean(brokers.a)
    assert generations(brokers.a) == [0]
    await tell(brokers, FIRST, item(1, "b", -1, queue_id=1), epoch=2)
    await clean(brokers.b)
    assert generations(brokers.b) == [0, 1]


async def test_nothing_goes_while_its_broker_cannot_be_asked(brokers: TwoBrokers) -> None:
    await tell(brokers, FIRST, MOVED, epoch=2)
    del brokers.peers.addresses["a"]
    await clean(brokers.b)
    assert generations(brokers.b) == [0, 1]


async def test_a_group_that_had_read_a_part_to_its_end_goes_on_behind_it(brokers: TwoBrokers) -> None:
    """As a new group that begins at the end, it would skip what came meanwhile."""
    await brokers.a.send()
    assert (await brokers.a.commit(1)).code == 0
    await tell(brokers, FIRST, MOVED, epoch=2)
    await brokers.b.send()
    expire(brokers.a)
    await clean(brokers.b)
    assert generations(brokers.b) == [1]
    assert await brokers.b.committed() == 10_000


async def register(name_server: str, side: Side, opened: list[ClientConnection]) -> None:
    connection = await ClientConnection.open(name_server)
    opened.append(connection)
    registration: Any = side.broker.parts.cluster.registration
    registration.call = connection.call
    command: RemotingCommand = registration.command(None)
    assert (await connection.call(command, timeout_ms=5_000)).code == 0


async def test_a_list_that_names_a_former_leader_goes_when_the_present_one_is_as_new(brokers: TwoBrokers) -> None:
    await tell(brokers, FIRST, MOVED, epoch=2)
    assert (await brokers.a.map({0: [FIRST, MOVED, MOVED_BACK]}, epoch=3)).code == 0
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    address = f"127.0.0.1:{await server.start()}"
    opened: list[ClientConnection] = []
    try:
        await register(address, brokers.a, opened)
        await register(address, brokers.b, opened)
        # Broker b gets from the second move only what it needs: the epoch, and that it leads no queue.
        details: Any = brokers.b.broker.parts.tables.static_topics.details
        third = item(2, "c", 20_000, queue_id=0)
        details[TOPIC].hosted_queues[0] = [FIRST, MOVED, third]
        await clean(brokers.b)
        assert generations(brokers.b) == [0, 1, 2], "its mapping is older than the leader's"
        details[TOPIC].epoch = 3
        await clean(brokers.b)
        assert generations(brokers.b) == []
    finally:
        for connection in opened:
            connection.close()
        await server.close()
