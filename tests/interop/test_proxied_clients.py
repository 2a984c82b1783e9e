"""Official gRPC clients behind two proxies as the official mqadmin sees them, by the broker: who is there, and how.

Covers `proxy/cluster/client_reports.py`, `proxy/grpc/service/broker_questions.py`, `broker/processors/client_lists.py`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import Daemons, thermocline_daemons, wait_until_registered
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_load import PREFIX, TOPIC, running_load
from tests.interop.grpc_programs import GrpcProgram
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.java_agent import JavaAgent
from tests.interop.proxy_daemons import BROKER_SETTINGS, running_proxy
from tests.waiting import wait_until
from thermocline.client import AdminClient
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

    def shown(self, *words: str) -> list[dict[str, Any]]:
        """`thermocline proxy clients --json`."""
        command = [str(Path(sys.executable).parent / "thermocline"), "proxy", "clients", *words, "--json"]
        printed = subprocess.run(
            [*command, "--namesrv", self.daemons.namesrv], check=True, capture_output=True, timeout=60
        ).stdout
        found: list[dict[str, Any]] = json.loads(printed)
        return found


@contextlib.contextmanager
def tools_of(daemons: Daemons, java: JavaAgent) -> Iterator[Tools]:
    """With the topics that the clients use."""
    wait_until_registered(java, daemons.namesrv, daemons.broker_address)
    with AdminClient(namesrv=daemons.namesrv) as admin:
        for topic in (PYTHON_TOPIC, TOPIC):
            admin.create_topic(topic, queue_nums=2, attributes={"message.type": "NORMAL"})
    yield Tools(daemons=daemons, java=java)


@pytest.fixture(scope="module")
def tools(java_agent_process: JavaAgent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """A NameServer and a broker without a proxy."""
    with (
        thermocline_daemons(tmp_path_factory.mktemp("proxied"), settings=BROKER_SETTINGS) as daemons,
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
    with running_proxy(tmp_path / "one", namesrv=namesrv, settings=one) as (first, _):
        with running_proxy(tmp_path / "two", namesrv=namesrv, settings=two, is_killed=True) as (second, process):
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
            rows = tools.shown("--group", PYTHON_GROUP)
            assert {row["proxy"] for row in rows} == {"proxy-one", "proxy-two"}
            assert {row["client_id"] for row in rows} == members.keys()
            assert {row["address"] for row in rows} == {address for address, _, _ in members.values()}
            assert all(row["settings"]["subscriptions"] == {PYTHON_TOPIC: "*"} for row in rows)
            producer = tools.mqadmin("producerConnection", "-g", PYTHON_TOPIC, "-t", PYTHON_TOPIC).split()
            assert producer[-2:] == ["PYTHON", "V5_1_2"]
            status = tools.mqadmin("consumerStatus", "-g", PYTHON_GROUP)
            assert "Same subscription in the same group of consumer" in status
            (of_second,) = [row["client_id"] for row in rows if row["proxy"] == "proxy-two"]
            process.kill()
            assert of_second not in tools.wait_for_members(PYTHON_GROUP, 1)


def offset_id(tools: Tools) -> str:
    """The id, by its place, of a message that was sent."""
    with AdminClient(namesrv=tools.daemons.namesrv) as admin:
        found = admin.pull_topic(TOPIC, count_max=1)
    return found[0].offset_message_id


def test_clients_of_each_language_answer_as_they_can(
    tools: Tools,
    java_grpc: GrpcProgram,
    go_grpc: GrpcProgram,
    node_grpc: GrpcProgram,
    python_grpc_load: GrpcProgram,
    tmp_path: Path,
) -> None:
    programs = [java_grpc, go_grpc, node_grpc, python_grpc_load]
    with (
        running_proxy(
            tmp_path / "proxy",
            namesrv=tools.daemons.namesrv,
            settings={**PROXY_SETTINGS, "grpcProxyRelayRequestTimeoutInSeconds": "1"},
        ) as (endpoint, _),
        running_load(programs, [endpoint], tmp_path) as load,
    ):
        place = offset_id(tools)
        stacks, verified, versions = {}, {}, {}
        for program in programs:
            name = program.language
            group = f"{PREFIX}-load-{name.lower()}"
            ((client, (_, language, version)),) = tools.wait_for_members(group, 1).items()
            versions[name] = (language, version)
            stacks[name] = tools.mqadmin("consumerStatus", "-g", group, "-i", client, "-s")
            verified[name] = tools.mqadmin("queryMsgById", "-t", TOPIC, "-i", place, "-g", group, "-d", client)
    print(versions, stacks, verified)
    raise AssertionError
