"""Official gRPC clients behind two proxies as the official mqadmin sees them, by the broker: who is there, and how.

Covers `proxy/cluster/client_reports.py`, `proxy/grpc/service/broker_questions.py`, `broker/processors/client_lists.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import Daemons, official_cluster, thermocline_daemons, wait_until_registered
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_load import PREFIX, TOPIC, running_load
from tests.interop.grpc_programs import GrpcProgram
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import KillableBroker, name_server
from tests.interop.proxy_daemons import BROKER_SETTINGS, running_proxy
from tests.waiting import wait_until
from thermocline.client import AdminClient
from tooling.official_rocketmq import OfficialSoftware
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-proxied-clients")]

PYTHON_TOPIC, PYTHON_GROUP = "Proxied", "proxied-group"
PROXY_SETTINGS = {"clientReportIntervalMillis": "200"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """A cluster, and the tools that look at it."""

    daemons: Daemons
    java: JavaAgent

    def mqadmin(self, command: str, *arguments: str) -> str:
        return self.java.admin(self.daemons.namesrv, command, *arguments)

    def members(self, group: str) -> dict[str, tuple[str, str, str]]:
        """The members of a group in `mqadmin consumerConnection`: client id -> address, language, version."""
        lines = self.mqadmin("consumerConnection", "-g", group).splitlines()
        rows = [line.split() for line in lines]
        return {row[0]: (row[1], row[2], row[3]) for row in rows if len(row) == 4 and row[3].startswith("V5_")}

    def wait_for_members(self, group: str, count: int, *, timeout_s: float = 30.0) -> dict[str, tuple[str, str, str]]:
        found: dict[str, tuple[str, str, str]] = {}

        def are_there() -> bool:
            nonlocal found
            found = self.members(group)
            return len(found) == count

        wait_until(are_there, what=f"{count} members of {group}", timeout_s=timeout_s)
        return found

    def shown(self, *words: str) -> str:
        """What `thermocline proxy clients` prints."""
        command = [str(Path(sys.executable).parent / "thermocline"), "proxy", "clients", *words]
        words = ("--namesrv", self.daemons.namesrv)
        return subprocess.run([*command, *words], check=True, capture_output=True, timeout=60, text=True).stdout


@contextlib.contextmanager
def tools_of(daemons: Daemons, java: JavaAgent) -> Iterator[Tools]:
    """With the topics that the clients use."""
    wait_until_registered(java, daemons.namesrv, daemons.broker_address)
    with AdminClient(namesrv=daemons.namesrv) as admin:
        for topic in (PYTHON_TOPIC, TOPIC):
            admin.create_topic(topic, queue_nums=2, attributes={"message.type": "NORMAL"})
    yield Tools(daemons=daemons, java=java)


@pytest.fixture(scope="module")
def tools(java_agent_process: JavaAgent, new_module_folder: Callable[[str], Path]) -> Iterator[Tools]:
    """A NameServer and a broker without a proxy."""
    with (
        thermocline_daemons(new_module_folder("proxied"), settings=BROKER_SETTINGS) as daemons,
        tools_of(daemons, java_agent_process) as found,
    ):
        yield found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ForeignAgent]:
    with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), tmp_path / "agent") as running:
        yield running


def start_push(agent: ForeignAgent, name: str, endpoint: str) -> None:
    agent.call("start_push", name=name, endpoint=endpoint, group=PYTHON_GROUP, topic=PYTHON_TOPIC)


def test_a_groups_members_at_two_proxies_are_known_at_the_broker(
    tools: Tools, agent: ForeignAgent, tmp_path: Path
) -> None:
    namesrv = tools.daemons.namesrv
    one = {**PROXY_SETTINGS, "proxyName": "proxy-one"}
    two = {**PROXY_SETTINGS, "proxyName": "proxy-two"}
    with (
        running_proxy(tmp_path / "one", namesrv=namesrv, settings=one) as (first, _),
        running_proxy(tmp_path / "two", namesrv=namesrv, settings=two, is_killed=True) as (second, process),
    ):
        start_push(agent, "at-one", first)
        start_push(agent, "at-two", second)
        agent.call("start_producer", name="producer", endpoint=second, topics=[PYTHON_TOPIC])
        members = tools.wait_for_members(PYTHON_GROUP, 2)
        for address, language, version in members.values():
            assert address.startswith("127.0.0.1:")
            assert (language, version) == ("PYTHON", "V5_1_2")
        printed = tools.mqadmin("consumerConnection", "-g", PYTHON_GROUP)
        assert "ConsumeType: CONSUME_PASSIVELY" in printed
        assert "MessageModel: CLUSTERING" in printed
        assert any(line.split() == [PYTHON_TOPIC, "*"] for line in printed.splitlines())
        (summary,) = [
            line for line in tools.mqadmin("consumerProgress").splitlines() if line.startswith(f"{PYTHON_GROUP} ")
        ]
        assert summary.split()[1:5] == ["2", "V5_1_2", "PUSH", "CLUSTERING"]
        # The same client ids, each at its proxy, by our command; with what they subscribe to.
        rows: list[dict[str, Any]] = json.loads(tools.shown("--group", PYTHON_GROUP, "--json"))
        assert {row["proxy"] for row in rows} == {"proxy-one", "proxy-two"}
        assert {row["client_id"] for row in rows} == members.keys()
        assert {row["address"] for row in rows} == {address for address, _, _ in members.values()}
        assert all(row["settings"]["subscriptions"] == {PYTHON_TOPIC: "*"} for row in rows)
        printed = tools.shown()
        assert all(word in printed for word in ("proxy-one", "proxy-two", "push consumer", "producer", PYTHON_TOPIC))
        producer = tools.mqadmin("producerConnection", "-g", PYTHON_TOPIC, "-t", PYTHON_TOPIC).split()
        assert producer[-2:] == ["PYTHON", "V5_1_2"]
        status = tools.mqadmin("consumerStatus", "-g", PYTHON_GROUP)
        assert "Same subscription in the same group of consumer" in status
        (of_second,) = [row["client_id"] for row in rows if row["proxy"] == "proxy-two"]
        process.kill()
        assert of_second not in tools.wait_for_members(PYTHON_GROUP, 1)


@pytest.mark.full
def test_clients_of_a_proxy_that_hangs_are_forgotten(tools: Tools, agent: ForeignAgent, tmp_path: Path) -> None:
    namesrv, group = tools.daemons.namesrv, "hanging-group"
    with (
        AdminClient(namesrv=namesrv) as admin,
        running_proxy(tmp_path / "proxy", namesrv=namesrv, settings=PROXY_SETTINGS) as (endpoint, process),
    ):
        agent.call("start_push", name="hanging", endpoint=endpoint, group=group, topic=PYTHON_TOPIC)
        tools.wait_for_members(group, 1)
        admin.update_broker_config("broker-a", {"proxiedClientExpiryMillis": "1000"})
        try:
            os.kill(process.process_id, signal.SIGSTOP)
            tools.wait_for_members(group, 0)
        finally:
            os.kill(process.process_id, signal.SIGCONT)
            admin.update_broker_config("broker-a", {"proxiedClientExpiryMillis": "30000"})
        tools.wait_for_members(group, 1)  # the broker says that it does not know the connection


REFUSED = "the client answers 50100"
"""NOT_IMPLEMENTED."""
SILENT = "the client does not answer"
LANGUAGES = [
    # language, as it says it is, release that is shown, a part of its stacks, the end of a message
    ("java", "JAVA", "V5_2_0", "java.lang.Thread.run", "consumeResult=CR_SUCCESS, remark=from gRPC client"),
    pytest.param("go", "GO", "V5_1_4", "goroutine ", REFUSED, marks=[pytest.mark.full, pytest.mark.go]),
    pytest.param("node", "HTTP", "V5_5_0", "mock stack", REFUSED, marks=pytest.mark.full),
    pytest.param("python", "PYTHON", "V5_1_2", SILENT, SILENT, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("name", "language", "version", "stack", "result"), LANGUAGES)
def test_a_client_shows_its_stacks_and_consumes_a_message_directly(
    name: str,
    language: str,
    version: str,
    stack: str,
    result: str,
    tools: Tools,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    program: GrpcProgram = request.getfixturevalue("python_grpc_load" if name == "python" else f"{name}_grpc")
    # A client that answers may take its time on a busy machine.
    settings = PROXY_SETTINGS | ({"grpcProxyRelayRequestTimeoutInSeconds": "1"} if result == SILENT else {})
    group = f"{PREFIX}-load-{name}"
    with (
        running_proxy(tmp_path / "proxy", namesrv=tools.daemons.namesrv, settings=settings) as (endpoint, _),
        running_load([program], [endpoint], tmp_path) as load,
    ):
        ((client_id, shown),) = tools.wait_for_members(group, 1).items()
        assert shown[1:] == (language, version)
        assert stack in tools.mqadmin("consumerStatus", "-g", group, "-i", client_id, "-s")
        with AdminClient(namesrv=tools.daemons.namesrv) as admin:
            (message, *_) = admin.pull_topic(TOPIC, count_max=1)
        (client,) = load.clients.values()
        body = message.body.decode()
        place = message.offset_message_id

        def receipts() -> int:
            return sum(each == body for _, each in client.got)

        wait_until(lambda: receipts() == 1, what="the consumer has the message")
        printed = tools.mqadmin("queryMsgById", "-t", TOPIC, "-i", place, "-g", group, "-d", client_id)
        assert result in printed, printed
        if "CR_SUCCESS" in result:
            wait_until(lambda: receipts() == 2, what="the listener has it once more")


@pytest.mark.full
def test_an_official_broker_takes_no_reports_and_serves_on(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, agent: ForeignAgent, tmp_path: Path
) -> None:
    with (
        official_cluster(official_software, java_agent_process, tmp_path / "official") as cluster,
        running_proxy(tmp_path / "proxy", namesrv=cluster.namesrv, settings=PROXY_SETTINGS) as (endpoint, process),
    ):
        cluster.admin("updateTopic", "-c", "DefaultCluster", "-t", PYTHON_TOPIC, "-a", "+message.type=NORMAL")
        start_push(agent, "before-official", endpoint)
        agent.call("start_producer", name="official-producer", endpoint=endpoint, topics=[PYTHON_TOPIC])
        agent.call("send", name="official-producer", topic=PYTHON_TOPIC, messages=[{"body": "one"}])
        assert [each["body"] for each in agent.taken("before-official", count=1)] == ["one"]
        wait_until(lambda: "takes no reports of clients" in process.output(), what="the log says so")
        assert process.output().count("takes no reports of clients") == 1


@pytest.mark.full
def test_every_merged_proxy_tells_both_brokers(
    java_agent_process: JavaAgent, agent: ForeignAgent, tmp_path: Path
) -> None:
    with (
        name_server(tmp_path / "namesrv") as namesrv,
        KillableBroker(tmp_path / "a", namesrv, name="broker-a", settings=BROKER_SETTINGS, has_proxy=True) as first,
        KillableBroker(tmp_path / "b", namesrv, name="broker-b", settings=BROKER_SETTINGS, has_proxy=True) as second,
    ):
        with AdminClient(namesrv=namesrv) as admin:
            wait_until(lambda: len(admin.cluster_info()) == 2, what="both brokers are registered")
            admin.create_topic(PYTHON_TOPIC, queue_nums=2, attributes={"message.type": "NORMAL"})
        for name, broker in (("at-a", first), ("at-b", second)):
            start_push(agent, name, broker.proxy_address)

        def members_at(broker: KillableBroker) -> list[str]:
            printed = java_agent_process.admin(namesrv, "consumerConnection", "-g", PYTHON_GROUP, "-b", broker.address)
            return sorted(line.split()[0] for line in printed.splitlines() if " PYTHON " in line)

        for broker in (first, second):
            wait_until(lambda: len(members_at(broker)) == 2, what=f"{broker.name} has both", timeout_s=60)  # noqa: B023
        assert members_at(first) == members_at(second)
        agent.call("stop", name="at-b")
        wait_until(lambda: len(members_at(first)) == 1, what="a client that leaves is forgotten")
        first.check_log()
        second.check_log()
