"""Our side of a set under a controller, beside official parts: RocketMQ's controller with brokers of ours, and one of
its brokers as master and as slave of ours. The stores are compared byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.controlled.store_broker import FILE_BYTES, StoreBroker, store_brokers
from tests.interop.java_agent import JavaAgent
from tests.replication.replica_pair import bytes_of
from tests.waiting import until
from thermocline.broker.controlled import BrokerNames
from thermocline.client import Message, Producer
from thermocline.client.admin.admin_client import AdminClient
from thermocline.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfigSerializeWrapper
from thermocline.remoting.bodies.replica import ReplicasInfo
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.controller import ElectMasterRequestHeader
from thermocline.remoting.headers.namesrv import RegisterBrokerRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.replication.epoch_file import decode_epochs
from tooling.official_rocketmq import (
    OfficialSoftware,
    free_broker_port,
    official_broker,
    official_controller,
    official_namesrv,
)

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-controller")]

NAMES = BrokerNames(cluster="DefaultCluster", broker_name="broker-a")
TOPIC, TIMEOUT_S, SILENCE_MS = "Followed", 100.0, 600_000


class Admin:
    """What an operator sees and does at a controller."""

    def __init__(self, controller: str, names: BrokerNames) -> None:
        self.controller = controller
        self.names = names
        self.info = ReplicasInfo()

    async def fetch_info(self) -> ReplicasInfo:
        """The set as the controller has it."""

        def fetch_info() -> ReplicasInfo:
            with contextlib.suppress(MQError), AdminClient(namesrv=self.controller) as admin:
                return admin.replica_sets(self.controller, [self.names.broker_name]).get(
                    self.names.broker_name, ReplicasInfo()
                )
            return ReplicasInfo()

        self.info = await asyncio.to_thread(fetch_info)
        return self.info

    async def wait_for(self, members: set[int], *, master: int | None = None) -> ReplicasInfo:
        """Return when these are in sync, and this one is the master."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                info = await self.fetch_info()
                found = {replica.broker_id for replica in info.in_sync_replicas}
                if found == members and master in (None, info.master_broker_id):
                    return info
                await asyncio.sleep(0.2)

    async def elect(self, broker_id: int) -> None:
        """Have this one elected."""
        header = ElectMasterRequestHeader(
            cluster_name=self.names.cluster,
            broker_name=self.names.broker_name,
            broker_id=broker_id,
            designate_elect=True,
        )
        async with RemotingClient() as client:
            command = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
            await client.request(self.controller, command, timeout_ms=10_000)


async def test_our_brokers_under_the_official_controller(official_software: OfficialSoftware, tmp_path: Path) -> None:
    with official_controller(official_software, tmp_path / "controller") as controller:
        async with store_brokers(tmp_path, controller.address, count=3) as brokers:
            first, second, third = brokers
            admin = Admin(controller.address, first.names)
            for seed, broker in enumerate(brokers):
                await broker.start(seed=seed)
                await broker.driver.wait_role()
            await admin.wait_for({1, 2, 3}, master=1)
            await first.put_acknowledged(500)
            await third.close()
            await admin.wait_for({1, 2})
            await third.start()
            await admin.wait_for({1, 2, 3})
            assert third.number == 3
            await first.put_acknowledged(100)
            confirmed = first.end_offset
            assert first._ha_port is not None
            first._ha_port.close()
            await first.driver.close()
            first.put(20)
            await first.close()
            await until(lambda: second.is_master or third.is_master, what="another one is elected", timeout_s=TIMEOUT_S)
            master, other = (second, third) if second.is_master else (third, second)
            await admin.wait_for({2, 3})
            await master.put_acknowledged(50)
            await first.start()
            await admin.wait_for({1, 2, 3})
            assert [alignment.end_offset for alignment in first.cuts] == [confirmed]
            await master.put_acknowledged(50)
            end = master.end_offset
            for broker in (first, other):
                assert bytes_of(broker.store, 0, end) == bytes_of(master.store, 0, end)
            await admin.elect(1)
            await until(lambda: first.is_master, what="the operator's broker is the master", timeout_s=TIMEOUT_S)


async def test_an_official_broker_as_our_master_and_as_our_slave(
    official_software: OfficialSoftware, tmp_path: Path, java_agent_process: JavaAgent
) -> None:
    directory, ha_port = tmp_path / "official", free_broker_port()
    epoch_path, log_path = directory / "store" / "epochFileCheckpoint", directory / "store" / "commitlog" / f"{0:020}"
    with (
        official_controller(official_software, tmp_path / "controller") as controller,
        official_namesrv(official_software, tmp_path / "namesrv") as name_server,
    ):
        properties = {
            "mappedFileSizeCommitLog": str(FILE_BYTES),
            "enableControllerMode": "true",
            "controllerAddr": controller.address,
            "controllerHeartBeatTimeoutMills": "3000",
            "syncBrokerMetadataPeriod": "1000",
            "checkSyncStateSetPeriod": "1000",
            "registerNameServerPeriod": "10000",
            "haListenPort": str(ha_port),
            "haSendHeartbeatInterval": "1000",
            "storePathEpochFile": str(epoch_path),
            "storePathBrokerIdentity": str(directory / "store" / "brokerIdentity"),
        }
        admin = Admin(controller.address, NAMES)
        async with RemotingClient() as to_name_server, contextlib.AsyncExitStack() as resources:

            async def register(broker: StoreBroker) -> None:
                """An official slave asks a NameServer for its master's replication port. Of two masters a NameServer
                keeps the one of the newer epoch, which is the state version of its topics."""
                topics = TopicConfigSerializeWrapper(data_version=DataVersion(state_version=broker.last_epoch))
                header = RegisterBrokerRequestHeader(
                    broker_name=NAMES.broker_name,
                    broker_addr=broker.address,
                    cluster_name=NAMES.cluster,
                    ha_server_addr=broker.ha_address,
                    broker_id=0,
                    heartbeat_timeout_millis=SILENCE_MS,
                )
                command = RemotingCommand.request(
                    RequestCode.REGISTER_BROKER,
                    header,
                    body=RegisterBrokerBody(topic_config_serialize_wrapper=topics).encode(),
                )
                await to_name_server.request(name_server.address, command, timeout_ms=10_000)

            with official_broker(
                official_software,
                directory,
                namesrv_address=name_server.address,
                store_directory=directory / "store",
                properties=properties,
            ):
                await admin.wait_for({1}, master=1)
                await send(name_server.address, 30)
                ours = StoreBroker(tmp_path / "ours", controller.address, names=NAMES, on_master=register)
                resources.push_async_callback(ours.close)
                await ours.start()
                await admin.wait_for({1, 2}, master=1)
                assert (tmp_path / "ours" / "brokerIdentity").read_text() == "DefaultCluster#broker-a#2"
                await send(name_server.address, 30)
                await until(lambda: count_of(ours) == 60, what="ours has all messages", timeout_s=TIMEOUT_S)
                end = ours.end_offset
                assert bytes_of(ours.store, 0, end) == log_path.read_bytes()[:end]

                await admin.elect(2)
                await until(lambda: ours.is_master, what="ours is the master", timeout_s=TIMEOUT_S)
                await admin.wait_for({1, 2}, master=2)
                await ours.put_acknowledged(100)
                end = ours.end_offset
                assert bytes_of(ours.store, 0, end) == log_path.read_bytes()[:end]

                shown = await asyncio.to_thread(
                    java_agent_process.admin, name_server.address, "getBrokerEpoch", "-b", NAMES.broker_name
                )
                by_master, by_slave = (epochs_shown(shown, broker_id) for broker_id in (0, 1))
                assert by_master == by_slave, "an official broker shows the same epochs of the same log"
                assert by_master[-1].endswith(f"endOffset={end}}}")
                assert len(by_master) >= 2

                await admin.elect(1)
                await admin.wait_for({1, 2}, master=1)
                assert not ours.is_master
                await send(name_server.address, 20)
                await until(lambda: count_of(ours) == 80, what="ours follows again", timeout_s=TIMEOUT_S)
                end = ours.end_offset
                assert bytes_of(ours.store, 0, end) == log_path.read_bytes()[:end]
                assert list(ours.epochs) == list(decode_epochs(epoch_path.read_bytes()))


def epochs_shown(text: str, broker_id: int) -> list[str]:
    """The epochs of one broker in what `mqadmin getBrokerEpoch` prints."""
    part = text.split(f"#brokerId\t{broker_id}\n")[1].split("#clusterName")[0]
    return [line for line in part.splitlines() if line.startswith("#Epoch: ")]


def count_of(broker: StoreBroker) -> int:
    """How many messages of TOPIC a broker has."""
    return sum(queue.next_offset for queue in broker.store.queues if queue.topic == TOPIC)


async def send(namesrv: str, count: int) -> None:
    """Send so many messages, each until a master takes it."""

    def send_one(body: bytes) -> bool:
        with contextlib.suppress(MQError), Producer(group="wire", namesrv=namesrv) as producer:
            producer.send(Message(TOPIC, body))
            return True
        return False

    for number in range(count):
        await repeat(lambda number=number: send_one(b"%d " % number + bytes(1_000)))  # type: ignore[misc]


async def repeat(attempt: Callable[[], bool]) -> None:
    """Try, in a thread, until it succeeds."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await asyncio.to_thread(attempt):  # noqa: ASYNC110 - the state is in another process
            await asyncio.sleep(0.2)
