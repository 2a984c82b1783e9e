"""Queues of a topic on all brokers: which names are looked up and remembered. See also test_assignment.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clock import Clock
from thermocline.broker.cluster.cluster_queues import ClusterQueues
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import MessageQueue, QueueData, TopicConfig, TopicRouteData
from thermocline.remoting.command import RemotingCommand


class NameServer:
    """Stands for the connection to NameServers: another broker has every topic."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        self.asked.append((command.ext_fields or {})["topic"])
        route = TopicRouteData(queue_datas=[QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=6)])
        return RemotingCommand.response(command, body=route.encode())


@pytest.mark.parametrize("characters", [256, 10_000_000])
async def test_a_name_that_no_topic_can_have_is_neither_asked_for_nor_remembered(characters: int) -> None:
    name = "T" * characters
    server: Any = NameServer()
    topics: Any = {}
    queues = ClusterQueues(topics, server, config=BrokerConfig, clock=Clock(0))
    assert await queues.find(name) is None
    assert (server.asked, queues._routes) == ([], {})
    for topic in ("T" * 127, "%RETRY%" + "G" * 248, "%RETRY%G+T"):
        assert await queues.find(topic) == [MessageQueue(topic=topic, broker_name="b", queue_id=0)]
    topics[name] = TopicConfig(topic_name=name, read_queue_nums=1)
    assert [each.broker_name for each in await queues.find(name) or ()] == ["broker-a", "b"]
