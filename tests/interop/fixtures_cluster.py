"""Fixtures of the interop tests.

`cluster` runs a test on Thermocline; with `--official-peer` (and under `--soak`) on the official broker as well, which
proves the test itself. `java_agent_process` drives official clients; each worker runs one of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import OFFICIAL, THERMOCLINE, Cluster, cluster_of
from tests.interop.java_agent import JavaAgent, java_agent
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--official-peer", action="store_true", help="run the interop tests on the official broker too")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster_kind" not in metafunc.fixturenames:
        return
    parameters = [
        pytest.param(kind, marks=pytest.mark.xdist_group(f"interop-{kind}")) for kind in peer_kinds(metafunc.config)
    ]
    # Through the fixture: what is not would have another number in each case of a test that has cases of its own, and
    # pytest, which puts cases of the same number together, would start the clusters of a module several times.
    metafunc.parametrize("cluster_kind", parameters, indirect=True, scope="session")


def peer_kinds(config: pytest.Config) -> list[str]:
    """Whose daemons a test of both kinds runs on."""
    return [THERMOCLINE, *([OFFICIAL] if config.getoption("--official-peer") or config.getoption("--soak") else [])]


@pytest.fixture(scope="session")
def cluster_kind(request: pytest.FixtureRequest) -> str:
    """Whose NameServer and broker a test runs on: `THERMOCLINE` or `OFFICIAL`."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def official_software() -> OfficialSoftware:
    """Java and the official jars."""
    return have(
        lambda: OfficialSoftware(java_home=find_java_home(with_compiler=True), jars=find_jars(OFFICIAL_ROCKETMQ))
    )


@pytest.fixture(scope="session")
def java_agent_process(
    official_software: OfficialSoftware, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaAgent]:
    """The JVM with the official clients in it."""
    with java_agent(official_software, tmp_path_factory.mktemp("java-agent")) as agent:
        yield agent


@pytest.fixture(autouse=True)
def producers_end_with_their_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the producers stopped that a test has started in `java_agent_process`; the next one has its own.

    Dozens that are left ask for routes and rebalance until the agent ends, which takes a third of a core.
    """
    if "java_agent_process" not in request.fixturenames:
        yield
        return
    agent: JavaAgent = request.getfixturevalue("java_agent_process")
    of_the_module = agent.call("producers")
    yield
    agent.call("retire_producers", keep=of_the_module)


@pytest.fixture
def start_push(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """`start_push(name, group=..., topics=...)` starts a push consumer that is stopped after the test."""
    started: list[str] = []

    def start(name: str, **arguments: object) -> str:
        cluster.agent.call("start_push_consumer", name=name, namesrv=cluster.namesrv, **arguments)
        started.append(name)
        return name

    yield start
    for consumer in started:
        cluster.agent.call("stop_consumer", name=consumer)


@pytest.fixture(scope="session")
def cluster(
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """A NameServer and a broker, shared by the tests of a worker: use topics and groups of your own."""
    directory: Path = tmp_path_factory.mktemp(cluster_kind)
    with cluster_of(cluster_kind, official_software, java_agent_process, directory) as found:
        yield found
