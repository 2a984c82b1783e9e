"""Our slave of an official master that is gone: consumers go on from it, where they were.

Its tables come from the master over remoting, while that runs; its log is a copy of the master's files.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.replicas.following import following
from tests.broker.slave_config import slave_config
from tests.interop.cluster import BROKER_NAME, CLUSTER_NAME, OFFICIAL_PROPERTIES
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import name_server
from tests.interop.test_slave_metadata import ask
from tests.waiting import until, wait_until
from thermocline import ConsumeFromWhere, Message, Producer, PullConsumer
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import OfficialSoftware, official_broker

pytestmark = pytest.mark.java

TOPIC, QUEUES, COUNT, CONSUMED = "OurSlaveReads", 4, 60, 20
GROUP, NEW_GROUP, JAVA_GROUP = "OurSlaveGroup", "OurSlaveNewGroup", "OurSlaveJavaGroup"


def send(namesrv: str, start: int, count: int) -> None:
    with Producer(group="OurSlaveProducers", namesrv=namesrv) as producer:
        for number in range(start, start + count):
            producer.send(Message(TOPIC, b"%d" % number))


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


@asynccontextmanager
async def our_slave(root: Path, namesrv: str) -> AsyncIterator[DataBroker]:
    """It serves, and is registered with id 1."""
    config = slave_config(
        cluster_name=CLUSTER_NAME, broker_name=BROKER_NAME, name_server_addresses=namesrv, slave_read=True
    )
    async with (
        data_broker(
            root,
            config=config,
            port=free_port(),
            log_file_bytes=int(OFFICIAL_PROPERTIES["mappedFileSizeCommitLog"]),
            queue_file_bytes=20 * 300_000,
        ) as slave,
        AsyncExitStack() as resources,
    ):
        slave.parts.cluster.start(resources)
        await slave.parts.cluster.registration.wait_registered()
        yield slave


async def test_consumers_go_on_at_our_slave(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    everything = {b"%d" % number for number in range(COUNT)}
    first = {b"%d" % number for number in range(CONSUMED)}
    root = tmp_path / "slave"
    with name_server(tmp_path / "namesrv") as namesrv:
        with official_broker(
            official_software,
            tmp_path / "master",
            namesrv_address=namesrv,
            store_directory=tmp_path / "master" / "store",
            properties={**OFFICIAL_PROPERTIES, "brokerName": BROKER_NAME},
            ends_cleanly=True,
        ) as master:
            fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "perm": "6"}
            fields |= {"writeQueueNums": str(QUEUES), "topicFilterType": "SINGLE_TAG", "order": "false"}
            await ask(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            await asyncio.to_thread(send, namesrv, 0, CONSUMED)
            await asyncio.to_thread(consume, namesrv, GROUP, first)
            async with following(root, master_address=master.address) as slave:
                await slave.follower.follow_all()
                offsets = slave.slave.parts.tables.offsets.of_group(TOPIC, GROUP)
                assert sum(offsets.values()) == CONSUMED
            await asyncio.to_thread(send, namesrv, CONSUMED, COUNT - CONSUMED)
        shutil.rmtree(root / "commitlog", ignore_errors=True)
        shutil.copytree(tmp_path / "master" / "store" / "commitlog", root / "commitlog")

        async with our_slave(root, namesrv) as slave_broker:
            assert slave_broker.parts.cluster.registration.master is None
            await asyncio.to_thread(consume, namesrv, GROUP, everything - first)
            await asyncio.to_thread(consume, namesrv, NEW_GROUP, everything)
            call = {"namesrv": namesrv, "group": JAVA_GROUP, "topics": {TOPIC: "*"}}
            agent = java_agent_process
            await asyncio.to_thread(agent.call, "start_push_consumer", name=JAVA_GROUP, **call)
            try:
                received = await asyncio.to_thread(agent.received, JAVA_GROUP, count=COUNT)
                assert {message.body for message in received} == everything
            finally:
                await asyncio.to_thread(agent.call, "stop_consumer", name=JAVA_GROUP)
            table = slave_broker.parts.tables.offsets
            for group in (GROUP, NEW_GROUP, JAVA_GROUP):
                await until(
                    lambda group=group: sum(table.of_group(TOPIC, group).values()) == COUNT,  # type: ignore[misc]
                    what=f"{group} has committed at the slave",
                )
