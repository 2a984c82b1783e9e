"""Our slave, of a master of ours and of an official one: consumers go on from it where they were when the master dies.

Then it becomes the master, and they go on again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.cluster import BROKER_NAME, OFFICIAL, THERMOCLINE
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import name_server
from tests.interop.replica_brokers import FAST, FILE_SIZES, ReplicaBroker, log_end, wait_routed
from tests.interop.test_slave_metadata import ask
from tests.waiting import wait_until
from thermocline import ConsumeFromWhere, Message, Producer, PullConsumer
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import OfficialSoftware, official_broker

pytestmark = pytest.mark.java

TOPIC, QUEUES, COUNT, CONSUMED = "OurSlaveReads", 4, 60, 20
GROUP, NEW_GROUP, JAVA_GROUP = "OurSlaveGroup", "OurSlaveNewGroup", "OurSlaveJavaGroup"
TOPIC_FIELDS = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": str(QUEUES),
    "writeQueueNums": str(QUEUES),
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


def send(namesrv: str, start: int, count: int) -> set[bytes]:
    """Send messages with these numbers as bodies; the bodies."""
    bodies = [b"%d" % number for number in range(start, start + count)]
    with Producer(group="OurSlaveProducers", namesrv=namesrv) as producer:
        for body in bodies:
            producer.send(Message(TOPIC, body))
    return {*bodies}


def consume(namesrv: str, group: str, wanted: set[bytes]) -> None:
    """Return when the group has got all of them, and nothing else, and has committed."""
    received: list[bytes] = []
    with PullConsumer(
        group=group, namesrv=namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe(TOPIC)

        def has_all() -> bool:
            received.extend(message.body for message in consumer.poll(timeout_ms=1_000))
            return set(received) >= wanted

        wait_until(has_all, what=f"{group} has everything")
    assert sorted(received) == sorted(wanted)


def consumed_count(address: str, group: str, topic: str = TOPIC) -> int:
    """How many messages of a topic a group has consumed, as this broker says."""
    answer = asyncio.run(ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET))
    found = re.search(rf'"{topic}@{group}":{{([^}}]*)}}', bytes(answer.body).decode())
    return 0 if found is None else sum(int(each.partition(":")[2]) for each in found[1].split(","))


@contextlib.contextmanager
def master_of(kind: str, software: OfficialSoftware, directory: Path, namesrv: str) -> Iterator[tuple[str, Path]]:
    """A master; where it serves, and its log. It is killed at the end."""
    if kind == THERMOCLINE:
        with ReplicaBroker(directory, namesrv, "ASYNC_MASTER") as ours:
            yield ours.address, ours.log_folder
        return
    with official_broker(
        software,
        directory,
        namesrv_address=namesrv,
        store_directory=directory / "store",
        properties={**FILE_SIZES, **FAST, "brokerRole": "ASYNC_MASTER", "brokerName": BROKER_NAME},
    ) as official:
        yield official.address, directory / "store" / "commitlog"


@pytest.mark.full
@pytest.mark.parametrize("kind", [THERMOCLINE, OFFICIAL])
def test_consumers_go_on_at_our_slave(
    kind: str, official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    agent, everything = java_agent_process, set[bytes]()
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(name_server(tmp_path / "namesrv"))
        with master_of(kind, official_software, tmp_path / "master", namesrv) as (master, master_log):
            slave = stack.enter_context(ReplicaBroker(tmp_path / "slave", namesrv, "SLAVE", 1, slaveReadEnable="true"))
            asyncio.run(ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC_FIELDS))
            wait_routed(namesrv, TOPIC)
            first = send(namesrv, 0, CONSUMED)
            consume(namesrv, GROUP, first)
            rest = send(namesrv, CONSUMED, COUNT - CONSUMED)
            everything = first | rest
            wait_until(lambda: consumed_count(slave.address, GROUP) == CONSUMED, what="the slave has the offsets")
            wait_until(lambda: log_end(slave.log_folder) == log_end(master_log), what="the slave has the log")
        consume(namesrv, GROUP, rest)
        consume(namesrv, NEW_GROUP, everything)
        agent.call(
            "start_push_consumer",
            name=JAVA_GROUP,
            namesrv=namesrv,
            group=JAVA_GROUP,
            topics={TOPIC: "*"},
        )
        try:
            assert {message.body for message in agent.received(JAVA_GROUP, count=COUNT)} == everything
        finally:
            agent.call("stop_consumer", name=JAVA_GROUP)
        slave.stop()
        slave.become("ASYNC_MASTER", 0)
        slave.start()
        later = send(namesrv, COUNT, CONSUMED)
        for group in (GROUP, NEW_GROUP, JAVA_GROUP):
            assert consumed_count(slave.address, group) == COUNT
        consume(namesrv, GROUP, later)
        consume(namesrv, NEW_GROUP, later)
        slave.check_log()
