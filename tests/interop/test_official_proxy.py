"""RocketMQ's own proxy, unmodified, in cluster mode before a NameServer and a broker of ours."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop import test_java_client
from tests.interop.cluster import Cluster, cluster_with, thermocline_daemons
from tests.interop.grpc_programs import SCENARIOS, GrpcProgram, make_places, run_scenario
from tests.interop.java_agent import JavaAgent
from tests.interop.proxy_daemons import BROKER_SETTINGS
from thermocline.localstack.loopback_port import LOOPBACK
from tooling.java_libraries import OFFICIAL_ROCKETMQ_PROXY, find_jars
from tooling.official_rocketmq import OfficialSoftware, official_proxy

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("interop-official-proxy")]

SETTINGS = {
    **BROKER_SETTINGS,
    # That proxy registers the producers of transactions every 20 s, and there is a check every second.
    "transactionCheckMax": "1000",
}
PROXY_SETTINGS = {
    "useEndpointPortFromRequest": True,
    "minInvisibleTimeMillsForRecv": 1_000,
    "remotingAccessAddr": LOOPBACK,
}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def endpoints(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, new_module_folder: Callable[[str], Path]
) -> Iterator[tuple[str, Cluster]]:
    """Where the proxy serves gRPC, and the cluster as remoting clients of the proxy see it."""
    software = replace(official_software, jars=have(lambda: find_jars(OFFICIAL_ROCKETMQ_PROXY)))
    directory = new_module_folder("official-proxy")
    with (
        thermocline_daemons(directory / "ours", settings=SETTINGS) as daemons,
        cluster_with(daemons, java_agent_process) as behind,
        official_proxy(
            software, directory / "proxy", namesrv_address=daemons.namesrv, proxy_settings=PROXY_SETTINGS
        ) as proxy,
    ):
        port = json.loads((directory / "proxy" / "rmq-proxy.json").read_text())["remotingListenPort"]
        cluster = replace(behind, namesrv=f"{LOOPBACK}:{port}", name_server=behind.namesrv)
        yield proxy.address, cluster
        java_agent_process.call("stop_producers", namesrv=cluster.namesrv)


@pytest.fixture
def cluster(endpoints: tuple[str, Cluster]) -> Cluster:
    return endpoints[1]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"OfficialP{next(_numbers)}x{request.node.originalname[5:35]}"


@pytest.fixture(scope="module")
def grpc_endpoint(endpoints: tuple[str, Cluster], java_grpc: GrpcProgram) -> str:
    """The proxy's, with the topics of the program behind it."""
    endpoint, cluster = endpoints
    make_places(cluster.tools_namesrv, java_grpc.language)
    return endpoint


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_client_for_grpc_runs_a_scenario(
    grpc_endpoint: str, java_grpc: GrpcProgram, tmp_path: Path, scenario: str
) -> None:
    run_scenario(java_grpc, grpc_endpoint, scenario, home=tmp_path)


test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_order = test_java_client.test_an_orderly_consumer_sees_each_queue_in_order
test_two_consumers = test_java_client.test_two_push_consumers_share_the_queues_and_one_takes_over
