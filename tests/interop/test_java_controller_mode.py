"""Two unmodified official brokers in controller mode, elected by our controller; and mqadmin's controller commands."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.controller.controller_group import controller_group
from tests.interop.java_agent import JavaAgent
from tests.waiting import wait_until
from thermocline.client import Message, Producer
from thermocline.client.admin.admin_client import AdminClient
from thermocline.remoting.bodies.replica import ReplicasInfo
from thermocline.remoting.errors import MQError
from tooling.official_rocketmq import OfficialSoftware, RunningDaemon, official_broker, official_namesrv

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-controller")]

NAME, CLUSTER, TOPIC = "broker-a", "DefaultCluster", "Elected"
TIMEOUT_S = 120.0
COMMANDS = frozenset(
    {
        *("getSyncStateSet", "getControllerMetaData", "getControllerConfig"),
        *("updateControllerConfig", "electMaster", "cleanBrokerMetadata"),
    }
)
"""mqadmin's, which `commands` runs."""
SMALL: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "enableControllerMode": "true",
    "controllerHeartBeatTimeoutMills": "3000",
    "syncBrokerMetadataPeriod": "1000",
    "checkSyncStateSetPeriod": "1000",
    "allAckInSyncStateSet": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A controller, a NameServer, and where brokers keep their stores."""

    controller: str
    namesrv: str
    software: OfficialSoftware
    directory: Path

    @contextlib.contextmanager
    def broker(self, number: int) -> Iterator[RunningDaemon]:
        """One of the pair; its store outlives it."""
        directory = self.directory / f"broker-{number}"
        properties = {
            **SMALL,
            "controllerAddr": self.controller,
            "storePathEpochFile": str(directory / "store" / "epochFileCheckpoint"),
            "storePathBrokerIdentity": str(directory / "store" / "brokerIdentity"),
        }
        with official_broker(
            self.software,
            directory,
            namesrv_address=self.namesrv,
            store_directory=directory / "store",
            properties=properties,
        ) as running:
            yield running

    def replicas(self) -> ReplicasInfo | None:
        """The set as the controller has it."""
        with AdminClient(namesrv=self.namesrv) as admin:
            try:
                return admin.replica_sets(self.controller, [NAME]).get(NAME)
            except MQError:
                return None

    def wait_for(self, *, master: str | None = None, in_sync: int) -> ReplicasInfo:
        """Return when this broker is the master (or any is) and so many replicas are in sync and alive."""
        found: list[ReplicasInfo] = []

        def is_so() -> bool:
            info = self.replicas()
            if info is None or info.master_address is None or (master is not None and info.master_address != master):
                return False
            found.append(info)
            return len([replica for replica in info.in_sync_replicas if replica.alive]) == in_sync

        wait_until(is_so, what=f"{master or 'a broker'} is the master of {in_sync} replicas", timeout_s=TIMEOUT_S)
        return found[-1]

    def send(self, text: str) -> None:
        """Send one message; waits until a master takes it."""
        problems: list[MQError] = []

        def is_sent() -> bool:
            try:
                with Producer(group="elected", namesrv=self.namesrv, send_timeout_ms=3_000) as producer:
                    producer.send(Message(TOPIC, text.encode()))
            except MQError as error:
                problems.append(error)
                return False
            return True

        wait_until(is_sent, what=f"{text} is sent; the last problem was {problems[-1:]}", timeout_s=TIMEOUT_S)


@pytest.fixture
def setup(official_software: OfficialSoftware, tmp_path: Path) -> Iterator[Setup]:
    settings = {
        "newLeaderElectionWaitMs": "3000",
        "scanNotActiveBrokerInterval": "500",
        "scanInactiveMasterInterval": "500",
    }
    with (
        official_namesrv(official_software, tmp_path / "namesrv") as name_server,
        controller_group(tmp_path / "controller", size=1, settings=settings) as controllers,
    ):
        yield Setup(
            controller=controllers.text,
            namesrv=name_server.address,
            software=official_software,
            directory=tmp_path,
        )


def test_a_pair_elects_goes_on_without_its_master_and_takes_it_back(
    setup: Setup, java_agent_process: JavaAgent
) -> None:
    with setup.broker(1) as staying, contextlib.ExitStack() as until_killed:
        setup.wait_for(master=staying.address, in_sync=1)
        first = until_killed.enter_context(setup.broker(2))
        info = setup.wait_for(master=staying.address, in_sync=2)
        java_agent_process.admin(setup.namesrv, "updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")
        setup.send("before")
        commands(setup, java_agent_process, info)
        setup.wait_for(master=first.address, in_sync=2)
        setup.send("by the elected")
        until_killed.close()
        setup.wait_for(master=staying.address, in_sync=1)
        setup.send("after the kill")
        with setup.broker(2) as again:
            info = setup.wait_for(master=staying.address, in_sync=2)
            places = {replica.broker_id: replica.broker_address for replica in info.in_sync_replicas}
            assert places == {1: staying.address, 2: again.address}
            setup.send("after the return")
            with AdminClient(namesrv=setup.namesrv) as admin:
                bodies = [message.body.decode() for message in admin.pull_topic(TOPIC, offset=0)]
            assert sorted(set(bodies)) == ["after the kill", "after the return", "before", "by the elected"]


def commands(setup: Setup, agent: JavaAgent, info: ReplicasInfo) -> None:
    """mqadmin's commands against our controller; the first broker is elected by one of them."""
    controller = setup.controller

    def admin(command: str, *arguments: str) -> str:
        return agent.admin(setup.namesrv, command, *arguments)

    shown = admin("getControllerMetaData", "-a", controller)
    assert shown.split() == [
        *("#ControllerGroup", "default", "#ControllerLeaderId", "n0"),
        *("#ControllerLeaderAddress", controller, "#Peer:", f"n0:{controller}"),
    ]
    states = admin("getSyncStateSet", "-a", controller, "-b", NAME)
    assert f"#MasterAddr\t{info.master_address}" in states
    assert "#SyncStateSetNums\t2" in states
    assert states.count("InSyncReplica:\tReplicaIdentity{brokerName='broker-a'") == 2
    assert "alive=true" in states
    config = admin("getControllerConfig", "-a", controller)
    assert re.search(r"^notifyBrokerRoleChanged +=  true$", config, re.MULTILINE)
    changed = admin("updateControllerConfig", "-a", controller, "-k", "notifyBrokerRoleChanged", "-v", "true")
    assert "update controller config success!" in changed
    refused = admin("cleanBrokerMetadata", "-a", controller, "-bn", NAME, "-c", CLUSTER, "-b", "1")
    assert "is still alive, clean up failure" in refused
    other = next(replica for replica in info.in_sync_replicas if replica.broker_id != info.master_broker_id)
    elected = admin("electMaster", "-a", controller, "-c", CLUSTER, "-bn", NAME, "-b", str(other.broker_id))
    assert f"#BrokerMasterAddr\t{other.broker_address}" in elected, elected
    assert f"#MasterEpoch\t{(info.master_epoch or 0) + 1}" in elected
