"""Brokers of one name learn when another one has the least id; brokers are ports, the NameServer is real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.broker.acting.node import Node, node
from tests.waiting import until
from thermocline.namesrv import least_id_notices
from thermocline.namesrv.least_id_notices import LeastIdChange, LeastIdNotices
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.route_registry import BrokerRegistration
from thermocline.namesrv.server import NameServer
from thermocline.remoting.bodies import DataVersion, TopicConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from thermocline.remoting.request_code import RequestCode

NOTICE = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE


class Set:
    """A NameServer, and three brokers of one name, which are registered when a test says so."""

    def __init__(self, server: NameServer, nodes: list[Node]) -> None:
        self.server = server
        self.nodes = nodes

    def register(self, broker_id: int, *, acting: bool = True) -> None:
        self.server.registry.register(
            BrokerRegistration(
                cluster="c",
                broker_name="b",
                broker_id=broker_id,
                address=self.nodes[broker_id].address,
                ha_address=f"log of {broker_id}",
                enable_acting_master=acting,
                data_version=DataVersion(),
                topics={name: TopicConfig(topic_name=name) for name in ("one", "two")},
            ),
            object(),
        )

    def unregister(self, broker_id: int) -> None:
        self.server.registry.unregister(cluster="c", broker_name="b", address=self.nodes[broker_id].address)

    async def notices_to(self, *broker_ids: int) -> list[tuple[int, str | None, str | None]]:
        """What these brokers, and no others, get: the least id, who went, where the log is."""
        await until(lambda: all(self.nodes[id_].asked for id_ in broker_ids), what="the brokers have the notice")
        assert [id_ for id_, each in enumerate(self.nodes) if each.asked] == sorted(broker_ids)
        found = []
        for id_ in broker_ids:
            (command,) = self.nodes[id_].asked
            header = command.header(NotifyMinBrokerIdChangeRequestHeader)
            assert command.is_oneway
            assert header.min_broker_addr == self.nodes[header.min_broker_id or 0].address
            found.append((header.min_broker_id or 0, header.offline_broker_addr, header.ha_broker_addr))
            self.nodes[id_].asked.clear()
        return found


@pytest.fixture
async def replica_set(request: pytest.FixtureRequest) -> AsyncIterator[Set]:
    async with AsyncExitStack() as stack:
        answers = {NOTICE: RemotingCommand.response}
        nodes = [await stack.enter_async_context(node(answers)) for _ in range(3)]
        is_on = getattr(request, "param", True)
        server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0, least_id_notices=is_on))
        await server.start()
        stack.push_async_callback(server.close)
        yield Set(server, nodes)


async def test_those_that_were_there_are_told_of_a_lesser_one(replica_set: Set) -> None:
    replica_set.register(2)
    replica_set.register(1)
    assert await replica_set.notices_to(2) == [(1, None, "log of 1")]
    replica_set.register(0)
    assert await replica_set.notices_to(1, 2) == [(0, None, "log of 0")] * 2
    replica_set.register(0)  # again
    replica_set.unregister(0)
    gone = replica_set.nodes[0].address
    assert await replica_set.notices_to(1, 2) == [(1, gone, None)] * 2


async def test_a_greater_one_that_goes_is_no_news(replica_set: Set) -> None:
    for broker_id in (0, 1, 2):
        replica_set.register(broker_id)
    replica_set.unregister(2)
    replica_set.unregister(0)
    assert await replica_set.notices_to(1) == [(1, replica_set.nodes[0].address, None)]


async def test_brokers_without_the_notion_are_not_told_that_one_goes(replica_set: Set) -> None:
    for broker_id in (0, 1):
        replica_set.register(broker_id, acting=False)
    replica_set.unregister(0)
    replica_set.register(0)
    assert await replica_set.notices_to(1) == [(0, None, "log of 0")]


async def test_no_connection_stays_behind(replica_set: Set) -> None:
    """A NameServer kept one to each address that had ever registered: brokers that were replaced, or made up."""
    for broker_id in (2, 1):
        replica_set.register(broker_id)
    await replica_set.notices_to(2)
    await until(lambda: not replica_set.nodes[2].connection_count, what="the connection is closed", timeout_s=20)


@pytest.mark.parametrize("replica_set", [False], indirect=True)
async def test_without_the_setting_none_is_told(replica_set: Set) -> None:
    changes: list[LeastIdChange] = []
    replica_set.server.registry._on_least_id = changes.append
    for broker_id in (1, 0):
        replica_set.register(broker_id)
    replica_set.unregister(0)
    assert changes == []


async def test_a_broker_that_is_not_there_and_too_many_notices_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(least_id_notices, "NOTICES_MAX", 1)
    notices = LeastIdNotices(None)
    addresses = {1: "127.0.0.1:1", 2: "127.0.0.1:2"}
    notices.send(LeastIdChange(broker_name="b", addresses=addresses, offline_address="127.0.0.1:3"))
    assert len(notices._tasks) == 1
    await until(lambda: "notice of the least id not sent address=127.0.0.1:1" in caplog.text, what="it is passed over")
    await notices.close()
