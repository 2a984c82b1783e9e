"""Master and slave without a controller: two of ours, and each of ours beside an official broker.

The logs of both are compared byte by byte as files.
Covers `broker/assembly/replicas.py`, `broker/processors/replica.py`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.cluster import BROKER_NAME, CLUSTER_NAME
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import name_server
from tests.interop.replica_brokers import (
    FAST,
    FILE_SIZES,
    TOPIC,
    Load,
    ReplicaBroker,
    log_bodies,
    log_end,
    wait_copied,
)
from tests.waiting import wait_until
from thermocline.client import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer, SendStatus
from thermocline.localstack.loopback_port import LOOPBACK, free_port
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from tooling.official_rocketmq import OfficialSoftware, RunningDaemon, official_broker

SLAVE_TIMEOUT_MS = 700
REFUSED_BY_SLAVE = {
    RequestCode.SEND_MESSAGE: ResponseCode.SYSTEM_BUSY,
    RequestCode.SEND_MESSAGE_V2: ResponseCode.SYSTEM_BUSY,
    RequestCode.PULL_MESSAGE: ResponseCode.SYSTEM_BUSY,
    RequestCode.END_TRANSACTION: ResponseCode.SLAVE_NOT_AVAILABLE,
    RequestCode.RECALL_MESSAGE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
FIELDS = {
    "a": "test",
    "b": TOPIC,
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "",
    "j": "0",
    "producerGroup": "test",
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1",
    "flag": "0",
    "properties": "",
    "consumerGroup": "test",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}
"""Of a send, in both of its forms, and of a pull."""
ASYNC_MASTER, SYNC_MASTER, SLAVE = "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with name_server(tmp_path / "namesrv") as address:
        yield address


@contextlib.contextmanager
def official_replica(
    software: OfficialSoftware, directory: Path, namesrv: str, role: str, broker_id: int = 0
) -> Iterator[RunningDaemon]:
    """An official broker of the replica set; its store is in `directory`/store."""
    with official_broker(
        software,
        directory,
        namesrv_address=namesrv,
        store_directory=directory / "store",
        properties={**FILE_SIZES, **FAST, "brokerRole": role, "brokerId": str(broker_id), "brokerName": BROKER_NAME},
    ) as broker:
        yield broker


def wait_consumed(namesrv: str, wanted: set[bytes], *, group: str) -> None:
    """Return when a new group has got messages with all these bodies."""
    found: set[bytes] = set()
    with PullConsumer(
        group=group, namesrv=namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe(TOPIC)

        def has_all() -> bool:
            found.update(message.body for message in consumer.poll())
            return wanted <= found

        wait_until(has_all, what="the messages are consumed", interval_s=0)


def replica_figures(health_port: int) -> dict[str, int]:
    """The figures of a master's page about slaves: how many, and what the one that is there lacks."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{health_port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    found = re.findall(r"^thermocline_replica_(connections|gap)[^ ]* (\d+)$", page, re.MULTILINE)
    return {name: int(value) for name, value in found}


def wait_confirmed(agent: JavaAgent, namesrv: str, master: str, end: int) -> str:
    """`mqadmin haStatus` of a master, once its only slave has confirmed the log up to `end`."""
    seen: list[str] = []

    def is_confirmed() -> bool:
        seen[:] = [agent.admin(namesrv, "haStatus", "-b", master)]
        _address, confirmed, missing, _speed, state, _next = seen[0].strip().splitlines()[-1].split()
        return (confirmed, missing, state) == (str(end), "0", "OK")

    wait_until(is_confirmed, what=f"the slave has confirmed {end}")
    return seen[0]


def is_sealed(admin: AdminClient) -> bool:
    """Seal the topic as far as may be; False while the broker's tier process is not there yet."""
    with contextlib.suppress(BrokerBusyError):
        admin.tier_seal(TOPIC)
        return True
    return False


def test_logs_are_equal_through_kills_of_both(tmp_path: Path, namesrv: str) -> None:
    load, health_port = Load(namesrv), free_port()
    with (
        ReplicaBroker(tmp_path / "master", namesrv, ASYNC_MASTER, healthPort=str(health_port)) as master,
        ReplicaBroker(tmp_path / "slave", namesrv, SLAVE, 1) as slave,
    ):
        with load.running():
            load.wait_for(300)
            slave.kill()
            load.wait_for(300)
            slave.start()
            load.wait_for(300)
            master.kill()
            master.start()
            load.wait_for(300)
        wait_copied(master.log_folder, slave.log_folder)
        slave.stop()
        slave.start()
        wait_copied(master.log_folder, slave.log_folder)
        wait_until(
            lambda: replica_figures(health_port) == {"connections": 1, "gap": 0}, what="the page shows the slave"
        )
        assert load.acknowledged <= log_bodies(master.log_folder)
        master.check_log()
        slave.check_log()


def test_a_send_waits_for_its_slave_and_no_acknowledged_one_is_lost_with_the_master(
    tmp_path: Path, namesrv: str
) -> None:
    """A frozen slave confirms nothing: sends end as FLUSH_SLAVE_TIMEOUT. Then the master loses its disk under load."""
    load = Load(namesrv)
    settings = {"inSyncReplicas": "2", "slaveTimeout": str(SLAVE_TIMEOUT_MS)}
    with (
        ReplicaBroker(tmp_path / "master", namesrv, SYNC_MASTER, **settings) as master,
        ReplicaBroker(tmp_path / "slave", namesrv, SLAVE, 1) as slave,
    ):
        with Producer(group="test", namesrv=namesrv, send_timeout_ms=10_000) as producer:
            wait_until(
                lambda: producer.send(Message(TOPIC, b"first")).status is SendStatus.SEND_OK,
                what="the slave follows",
            )
            slave.freeze()
            assert producer.send(Message(TOPIC, b"frozen")).status is SendStatus.FLUSH_SLAVE_TIMEOUT
            unwaited = producer.send(Message(TOPIC, b"unwaited", wait_store_ok=False))
            assert unwaited.status is SendStatus.SEND_OK
            slave.thaw()
            wait_until(
                lambda: producer.send(Message(TOPIC, b"thawed")).status is SendStatus.SEND_OK,
                what="the slave is back",
            )
        with load.running():
            load.wait_for(500)
            master.kill()
        shutil.rmtree(master.log_folder)
        assert len(load.acknowledged) >= 500
        slave.stop()
        assert load.acknowledged <= log_bodies(slave.log_folder)
        assert b"frozen" in log_bodies(slave.log_folder)
        # What docs/replicas.md has an operator do: the topic is made again by its next message.
        slave.become(ASYNC_MASTER, 0)
        for number in range(2):
            slave.start()
            with Producer(group="test", namesrv=namesrv, send_timeout_ms=10_000) as producer:
                producer.send(Message(TOPIC, b"later %d" % number))
            wait_consumed(namesrv, load.acknowledged | {b"later %d" % number}, group=f"reader{number}")
            slave.stop()
        slave.check_log()


def test_the_bucket_has_nothing_that_the_slave_lacks(tmp_path: Path, namesrv: str) -> None:
    settings = {"inSyncReplicas": "2", "slaveTimeout": "200"}
    with (
        ReplicaBroker(tmp_path / "master", namesrv, SYNC_MASTER, has_cold_tier=True, **settings) as master,
        AdminClient(namesrv=namesrv) as admin,
        Producer(group="test", namesrv=namesrv, send_timeout_ms=10_000) as producer,
    ):
        for number in range(5):
            assert producer.send(Message(TOPIC, b"%d" % number)).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        wait_until(lambda: is_sealed(admin), what="the tier process serves")
        assert master.packs == []
        with ReplicaBroker(tmp_path / "slave", namesrv, SLAVE, 1) as slave:
            wait_copied(master.log_folder, slave.log_folder)
            wait_until(
                lambda: producer.send(Message(TOPIC, b"confirmed")).status is SendStatus.SEND_OK,
                what="the slave confirms",
            )
            admin.tier_seal(TOPIC)
            assert master.packs
        master.check_log()


async def test_a_slave_refuses_what_belongs_to_its_master(tmp_path: Path, namesrv: str) -> None:
    """With RocketMQ's codes, also where the request would be for the fast path; its log stays the master's."""
    with (
        ReplicaBroker(tmp_path / "master", namesrv, ASYNC_MASTER) as master,
        ReplicaBroker(tmp_path / "slave", namesrv, SLAVE, 1) as slave,
    ):
        with Producer(group="test", namesrv=namesrv, send_timeout_ms=10_000) as producer:
            producer.send(Message(TOPIC, b"first"))
        wait_copied(master.log_folder, slave.log_folder)
        end = log_end(slave.log_folder)
        connection = await ClientConnection.open(slave.address)
        for serialize_type in SerializeType:
            for code, expected in REFUSED_BY_SLAVE.items():
                request = RemotingCommand(code=code, opaque=code, ext_fields=FIELDS, body=b"refused")
                request.serialize_type = serialize_type
                answer = await connection.call(request, timeout_ms=10_000)
                assert answer.code == expected, code
        connection.close()
        assert log_end(slave.log_folder) == end


@pytest.mark.java
def test_an_official_slave_copies_our_master(
    tmp_path: Path, namesrv: str, official_software: OfficialSoftware, java_agent_process: JavaAgent
) -> None:
    """`mqadmin` shows the pair as it shows an official one."""
    load = Load(namesrv)
    agent = java_agent_process
    with (
        ReplicaBroker(tmp_path / "master", namesrv, SYNC_MASTER, inSyncReplicas="2") as master,
        official_replica(official_software, tmp_path / "slave", namesrv, SLAVE, 1) as slave,
    ):
        slave_log = tmp_path / "slave" / "store" / "commitlog"
        with load.running():
            wait_until(lambda: len(load.acknowledged) > 500, what="sends are confirmed by the official slave")
        wait_copied(master.log_folder, slave_log)
        end = log_end(master.log_folder)
        status = wait_confirmed(agent, namesrv, master.address, end)
        assert f"#MasterCommitLogMaxOffset\t{end}\n#SlaveNum\t1\n#InSyncSlaveNum\t1\n" in status
        cluster = agent.admin(namesrv, "clusterList")
        assert {line.split()[2]: line.split()[3] for line in cluster.splitlines() if line.startswith(CLUSTER_NAME)} == {
            "0": master.address,
            "1": slave.address,
        }
        assert load.acknowledged <= log_bodies(slave_log)


@pytest.mark.java
def test_our_slave_copies_an_official_master(
    tmp_path: Path, namesrv: str, official_software: OfficialSoftware, java_agent_process: JavaAgent
) -> None:
    load = Load(namesrv)
    agent = java_agent_process
    with official_replica(official_software, tmp_path / "master", namesrv, ASYNC_MASTER) as master:
        master_log = tmp_path / "master" / "store" / "commitlog"
        with ReplicaBroker(tmp_path / "slave", namesrv, SLAVE, 1) as slave:
            with load.running():
                load.wait_for(300)
                slave.kill()
                load.wait_for(900)
                slave.start()
                load.wait_for(300)
            wait_copied(master_log, slave.log_folder)
            status = wait_confirmed(agent, namesrv, master.address, log_end(master_log))
            assert "#SlaveNum\t1\n#InSyncSlaveNum\t1\n" in status
            status = agent.admin(namesrv, "haStatus", "-b", slave.address)
            assert f"#CommitLogMaxOffset\t{log_end(slave.log_folder)}\n" in status
            slave.check_log()
