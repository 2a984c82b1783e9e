"""An official master is killed; its queues are read from its official slave, behind our NameServer, by our SDK and by
official clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.cluster import BROKER_NAME
from tests.interop.go_agent import GoAgent
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import name_server
from tests.interop.replica_brokers import wait_routed
from tests.interop.test_slave_metadata import ask
from tests.waiting import wait_until
from thermocline import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer
from thermocline.remoting.bodies import TopicRouteData
from thermocline.remoting.errors import ResponseError, UnavailableError
from thermocline.remoting.json_dialect import loads_dialect
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import OfficialSoftware, RunningDaemon, official_broker

pytestmark = [pytest.mark.java, pytest.mark.full]

TOPIC, QUEUES, COUNT = "SlaveReads", 4, 100
SYNC_TIMEOUT_S = 180.0
"""An official slave asks for topics a minute after its start."""


def answer_to(address: str, code: int, **fields: str) -> bytes:
    """The body of a successful answer."""
    return bytes(asyncio.run(ask(address, code, fields)).body)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveAlone:
    """The slave of a master that is dead."""

    namesrv: str
    slave: RunningDaemon
    bodies: set[bytes]
    route_before: TopicRouteData

    def route(self) -> TopicRouteData:
        """The topic's."""
        return TopicRouteData.decode(answer_to(self.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC))

    def committed(self, group: str) -> int:
        """The sum of the group's offsets at the slave."""
        offsets = loads_dialect(answer_to(self.slave.address, RequestCode.GET_ALL_CONSUMER_OFFSET))
        table: dict[int, int] = offsets["offsetTable"].get(f"{TOPIC}@{group}", {})
        return sum(table.values())


def has_all(slave: RunningDaemon) -> bool:
    """Whether the slave has the topic and its messages."""
    try:
        topics = json.loads(answer_to(slave.address, RequestCode.GET_ALL_TOPIC_CONFIG))
        if TOPIC not in topics["topicConfigTable"]:
            return False
        total = 0
        for queue_id in range(QUEUES):
            fields = {"topic": TOPIC, "queueId": str(queue_id)}
            answer = asyncio.run(ask(slave.address, RequestCode.GET_MAX_OFFSET, fields))
            assert answer.ext_fields is not None
            total += int(answer.ext_fields["offset"])
    except ResponseError:
        return False
    return total == COUNT


@pytest.fixture(scope="module")
def alone(official_software: OfficialSoftware, module_folder: Path) -> Iterator[SlaveAlone]:
    """A slave that has everything, and whose master was killed."""
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(name_server(module_folder / "namesrv"))

        def start(role: str, broker_id: int) -> RunningDaemon:
            return stack.enter_context(
                official_broker(
                    official_software,
                    module_folder / role,
                    namesrv_address=namesrv,
                    store_directory=module_folder / role / "store",
                    properties={
                        "brokerName": BROKER_NAME,
                        "brokerId": str(broker_id),
                        "brokerRole": role,
                        "slaveReadEnable": "true",
                        "mappedFileSizeCommitLog": str(4 << 20),
                        "maxHashSlotNum": "50000",
                        "maxIndexNum": "200000",
                    },
                )
            )

        master = start("ASYNC_MASTER", 0)
        fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "perm": "6"}
        fields |= {"writeQueueNums": str(QUEUES), "topicFilterType": "SINGLE_TAG", "order": "false"}
        answer_to(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)
        slave = start("SLAVE", 1)
        bodies = {f"message {number}".encode() for number in range(COUNT)}
        wait_routed(namesrv, TOPIC)
        with Producer(group="SlaveReadsProducers", namesrv=namesrv) as producer:
            for body in sorted(bodies):
                producer.send(Message(TOPIC, body))
        wait_until(lambda: has_all(slave), what="the slave has everything", timeout_s=SYNC_TIMEOUT_S, interval_s=1)
        route = TopicRouteData.decode(answer_to(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC))
        found = SlaveAlone(namesrv=namesrv, slave=slave, bodies=bodies, route_before=route)
        master.process.kill()
        wait_until(
            lambda: all(0 not in broker.broker_addrs for broker in found.route().broker_datas),
            what="the NameServer has dropped the master",
        )
        yield found


def test_a_dead_master_leaves_its_queues_in_the_route(alone: SlaveAlone) -> None:
    (before,), (after,) = alone.route_before.broker_datas, alone.route().broker_datas
    assert set(before.broker_addrs) == {0, 1}
    assert after.broker_addrs == {1: before.broker_addrs[1]} == {1: alone.slave.address}
    assert alone.route().queue_datas == alone.route_before.queue_datas
    assert after.broker_name == BROKER_NAME


def test_tools_show_the_slave_and_take_its_address(alone: SlaveAlone, java_agent_process: JavaAgent) -> None:
    address = alone.slave.address
    with AdminClient(namesrv=alone.namesrv) as admin:
        assert [(one.broker_id, one.address) for one in admin.cluster_info()] == [(1, address)]
        assert [(one.broker_id, one.address) for one in admin.topic_route(TOPIC).brokers] == [(1, address)]
        assert admin.broker_config(address)["brokerRole"] == "SLAVE"
        with pytest.raises(UnavailableError, match="has no master now"):
            admin.broker_config(BROKER_NAME)  # a name means its master
    route = java_agent_process.admin(alone.namesrv, "topicRoute", "-t", TOPIC)
    assert f'1:"{address}"' in route or f'"1":"{address}"' in route, route
    clusters = java_agent_process.admin(alone.namesrv, "clusterList")
    assert [line.split()[2:4] for line in clusters.splitlines() if BROKER_NAME in line] == [["1", address]], clusters
    assert "brokerActive" in java_agent_process.admin(alone.namesrv, "brokerStatus", "-b", address)


def test_nothing_can_be_sent(alone: SlaveAlone) -> None:
    with Producer(group="SlaveReadsProducers", namesrv=alone.namesrv) as producer, pytest.raises(UnavailableError):
        producer.send(Message(TOPIC, b"too late"))


def test_our_consumer_reads_and_commits_at_the_slave(alone: SlaveAlone) -> None:
    group, received = "SlaveReadsSdk", set[bytes]()
    with PullConsumer(
        group=group, namesrv=alone.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe(TOPIC)

        def has_read() -> bool:
            with contextlib.suppress(UnavailableError):
                received.update(message.body for message in consumer.poll(timeout_ms=1_000))
            return received == alone.bodies

        wait_until(has_read, what="everything is read")
    wait_until(lambda: alone.committed(group) == COUNT, what="the slave has the group's offsets")


def test_an_official_java_consumer_reads_and_commits_at_the_slave(
    alone: SlaveAlone, java_agent_process: JavaAgent
) -> None:
    group, agent = "SlaveReadsJava", java_agent_process
    agent.call("start_push_consumer", name=group, namesrv=alone.namesrv, group=group, topics={TOPIC: "*"})
    try:
        received = agent.received(group, count=COUNT)
        assert {message.body for message in received} == alone.bodies
    finally:
        agent.call("stop_consumer", name=group)
    wait_until(lambda: alone.committed(group) == COUNT, what="the slave has the group's offsets")


@pytest.mark.go
def test_an_official_go_client_reads_at_the_slave(alone: SlaveAlone, go_agent_process: GoAgent) -> None:
    """It pulls from an offset that it has; for a group's offset it asks masters alone."""
    received = [
        message.body
        for queue_id in range(QUEUES)
        for message in go_agent_process.pull_queue(alone.namesrv, TOPIC, queue_id=queue_id)
    ]
    assert sorted(received) == sorted(alone.bodies)
