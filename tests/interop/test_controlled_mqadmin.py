"""The eight `mqadmin` commands of replica sets, against our brokers under our controller and against official ones
under the official one: they print the same.

What differs between runs is masked: addresses, times, numbers of bytes, the configured name of the group. An election
cannot be compared: mqadmin 5.5.0 cannot read the official controller's answer, whose JSON has numbers as names. Ours
has them as texts, and mqadmin prints the new master.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.controlled_brokers import NAME, WAITS_FOR_ALL, controlled_brokers
from tests.interop.java_agent import JavaAgent
from tests.interop.test_java_controller_mode import SMALL
from tests.waiting import wait_until
from thermocline.client import Message, MQError, Producer, SendStatus
from thermocline.client.admin.admin_client import AdminClient
from thermocline.remoting.bodies.replica import ReplicasInfo
from tooling.official_rocketmq import OfficialSoftware, official_broker, official_controller, official_namesrv

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-controller")]

CLUSTER, TOPIC, TIMEOUT_S = "DefaultCluster", "Shown", 120.0
SERVED_SETTINGS = (
    *("controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId", "controllerStorePath"),
    *("scanNotActiveBrokerInterval", "scanInactiveMasterInterval", "electMasterMaxRetryCount"),
    *("enableElectUncleanMaster", "isProcessReadEvent", "notifyBrokerRoleChanged"),
)
_ADDRESSES = re.compile(r"\b\d+\.\d+\.\d+\.\d+:\d+")
_GROUPS = re.compile(r"(?<=#ControllerGroup)\s+\w+")
_NUMBERS = re.compile(r"\b\d{3,}\b|\b\d+\.\d+\b|(?<=diff: )\d+")
_TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A set of two brokers, the first one the master, under one controller."""

    controller: str
    namesrv: str
    addresses: dict[int, str] = field(default_factory=dict)

    def info(self) -> ReplicasInfo:
        """The set as the controller has it; empty while it does not answer."""
        with contextlib.suppress(MQError), AdminClient(namesrv=self.namesrv) as admin:
            return admin.replica_sets(self.controller, [NAME]).get(NAME, ReplicasInfo())
        return ReplicasInfo()

    def wait_for(self, members: set[int], *, master: int) -> None:
        """Return when these are in sync and alive, and this one leads them."""

        def is_so() -> bool:
            info = self.info()
            alive = {replica.broker_id for replica in info.in_sync_replicas if replica.alive}
            return alive == members and info.master_broker_id == master

        wait_until(is_so, what=f"{members} are in sync under {master}", timeout_s=TIMEOUT_S)

    def send(self, agent: JavaAgent) -> None:
        """Make a topic, and send until the set takes a message."""
        agent.admin(self.namesrv, "updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")

        def is_sent() -> bool:
            with (
                contextlib.suppress(MQError),
                Producer(group="shown", namesrv=self.namesrv, send_timeout_ms=3_000) as producer,
            ):
                return producer.send(Message(TOPIC, b"x" * 2_000)).status is SendStatus.SEND_OK
            return False

        wait_until(is_sent, what="a message is sent", timeout_s=TIMEOUT_S)

    def address(self, broker_id: int) -> str:
        """Where one of them serves, or has served before it was cleaned."""
        info = self.info()
        for replica in (*info.in_sync_replicas, *info.not_in_sync_replicas):
            if replica.broker_id == broker_id:
                self.addresses[broker_id] = replica.broker_address
        return self.addresses[broker_id]

    def shown(self, agent: JavaAgent, *words: str) -> list[str]:
        """What a command prints, masked; lines sorted, as the official tools keep much in hash tables."""
        names = {self.controller: "CONTROLLER", self.address(1): "FIRST", self.address(2): "SECOND"}
        arguments = [{value: key for key, value in names.items()}.get(word, word) for word in words]
        text = agent.admin(self.namesrv, *arguments)
        for address, name in names.items():
            text = text.replace(address, name)
        for pattern, name in ((_ADDRESSES, "CLIENT"), (_GROUPS, " GROUP"), (_TIMES, "TIME"), (_NUMBERS, "N")):
            text = pattern.sub(name, text)
        return sorted(line for line in (" ".join(line.split()) for line in text.splitlines()) if line)


@contextlib.contextmanager
def official_side(software: OfficialSoftware, directory: Path, until_killed: contextlib.ExitStack) -> Iterator[Side]:
    """`until_killed`: ends the second broker."""
    with (
        official_controller(software, directory / "controller") as controller,
        official_namesrv(software, directory / "namesrv") as name_server,
        contextlib.ExitStack() as stack,
    ):
        side = Side(controller=controller.address, namesrv=name_server.address)
        for number in (1, 2):
            store = directory / f"broker-{number}" / "store"
            properties = {
                **SMALL,
                "controllerAddr": controller.address,
                "storePathEpochFile": str(store / "epochFileCheckpoint"),
                "storePathBrokerIdentity": str(store / "brokerIdentity"),
            }
            (stack if number == 1 else until_killed).enter_context(
                official_broker(
                    software,
                    store.parent,
                    namesrv_address=name_server.address,
                    store_directory=store,
                    properties=properties,
                )
            )
            side.wait_for(set(range(1, number + 1)), master=1)
        yield side


def test_the_eight_commands_print_the_same(
    official_software: OfficialSoftware, tmp_path: Path, java_agent_process: JavaAgent
) -> None:
    agent = java_agent_process
    with (
        contextlib.ExitStack() as until_killed,
        official_side(official_software, tmp_path / "official", until_killed) as official,
        controlled_brokers(tmp_path / "ours", **WAITS_FOR_ALL) as found,
    ):
        found.start(2)
        ours = Side(controller=found.controller_addresses, namesrv=found.namesrv)
        for side in (official, ours):
            side.wait_for({1, 2}, master=1)
            side.send(agent)
        differing = [
            line
            for words in (
                ("haStatus", "-b", "FIRST"),
                ("haStatus", "-b", "SECOND"),
                ("haStatus", "-c", CLUSTER),
                ("getSyncStateSet", "-a", "CONTROLLER", "-b", NAME),
                ("getSyncStateSet", "-a", "CONTROLLER", "-c", CLUSTER),
                ("getBrokerEpoch", "-b", NAME),
                ("getBrokerEpoch", "-c", CLUSTER),
                ("getControllerMetaData", "-a", "CONTROLLER"),
                ("updateControllerConfig", "-a", "CONTROLLER", "-k", "notifyBrokerRoleChanged", "-v", "true"),
                ("cleanBrokerMetadata", "-a", "CONTROLLER", "-bn", NAME, "-c", CLUSTER, "-b", "1"),
                ("cleanBrokerMetadata", "-a", "CONTROLLER", "-bn", "none", "-c", CLUSTER, "-b", "1"),
                ("electMaster", "-a", "CONTROLLER", "-c", CLUSTER, "-bn", NAME, "-b", "9"),
            )
            for line in compare(official.shown(agent, *words), ours.shown(agent, *words), words)
        ]
        assert not differing, "\n".join(differing)
        words = ("electMaster", "-a", "CONTROLLER", "-c", CLUSTER, "-bn", NAME, "-b", "2")
        assert ours.shown(agent, *words) == [
            *("#BrokerMasterAddr SECOND", "#BrokerName broker-a", "#ClusterName DefaultCluster"),
            *("#MasterEpoch 2", "#SyncStateSetEpoch 3"),
        ]
        assert any("not support unquoted name" in line for line in official.shown(agent, *words))
        for side in (official, ours):
            side.wait_for({1, 2}, master=2)
        until_killed.close()
        found.brokers[2].kill()
        for side in (official, ours):
            side.wait_for({1}, master=1)
        words = ("cleanBrokerMetadata", "-a", "CONTROLLER", "-bn", NAME, "-c", CLUSTER, "-b", "2")
        differing = compare(official.shown(agent, *words), ours.shown(agent, *words), words)
        assert not differing, "\n".join(differing)
        configs = [
            {
                line.partition("=")[0].strip(" +")
                for line in side.shown(agent, "getControllerConfig", "-a", "CONTROLLER")
            }
            for side in (official, ours)
        ]
        assert set(SERVED_SETTINGS) <= configs[0] & configs[1], "the others of RocketMQ's have no effect here"


def compare(official: list[str], ours: list[str], words: tuple[str, ...]) -> list[str]:
    """The lines in which they differ."""
    command = " ".join(words)
    return [
        *(f"{command}: only official: {line}" for line in official if line not in ours),
        *(f"{command}: only ours: {line}" for line in ours if line not in official),
    ]
