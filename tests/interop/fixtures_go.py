"""Fixtures of the tests with the official Go client: `go` drives it; one agent and one broker live per worker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import thermocline_daemons
from tests.interop.go_agent import GoAgent, built_agent, go_agent
from tests.interop.go_driver import GoCluster, GoDriver
from thermocline.client import AdminClient

SETTINGS = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    # It asks soon about transactions.
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    # Levels 3 to 5, those of the first three tries to consume again, are shorter than RocketMQ's.
    "messageDelayLevel": "1s 5s 1s 2s 3s 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def go_agent_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoAgent]:
    """The process with the official Go clients in it."""
    have(built_agent)
    with go_agent(tmp_path_factory.mktemp("go-agent")) as agent:
        yield agent


@pytest.fixture(scope="session")
def go_cluster(go_agent_process: GoAgent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoCluster]:
    """A NameServer and a broker, shared by all tests of the worker."""
    with (
        thermocline_daemons(tmp_path_factory.mktemp("go-cluster"), settings=SETTINGS) as daemons,
        AdminClient(namesrv=daemons.namesrv) as admin,
    ):
        yield GoCluster(namesrv=daemons.namesrv, agent=go_agent_process, admin=admin)


@pytest.fixture
def go_name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Go{next(_numbers)}x{request.node.originalname[5:35]}"


@pytest.fixture
def go(go_cluster: GoCluster, go_name: str) -> Iterator[GoDriver]:
    """The Go clients of this test, on the shared broker."""
    driver = GoDriver(go_cluster, go_name)
    yield driver
    driver.close()
