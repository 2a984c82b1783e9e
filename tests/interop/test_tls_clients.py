"""Official clients over TLS, to ports that take nothing else and ask for a certificate: a feature of each kind, as in
other modules; and what they get with a wrong certificate, or none.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop import test_java_client, test_java_consumption, test_java_pop, test_java_transactions
from tests.interop.cluster import (
    OFFICIAL_PROPERTIES,
    Cluster,
    Daemons,
    cluster_with,
    wait_until_registered,
)
from tests.interop.go_agent import GoClients, built_agent, go_agent
from tests.interop.java_agent import JavaAgent, JavaAgentError, JavaClients, java_agent
from tests.interop.secured import PASSWORD, Files, certificate_files, java_tls_options, tls_daemons
from thermocline.localstack.child_process import ChildProcess
from tooling.java_libraries import find_jars
from tooling.official_rocketmq import OfficialSoftware, official_broker, official_namesrv

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("tls-clients")]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def files(new_module_folder: Callable[[str], Path]) -> Files:
    return certificate_files(new_module_folder("certificates"))


@pytest.fixture(scope="module")
def daemons(files: Files, module_folder: Path) -> Iterator[Daemons]:
    """A NameServer and a broker that ask for certificates of clients."""
    settings = test_java_transactions.SETTINGS
    with tls_daemons(module_folder, files, client_certificates="require", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def java_agent_process(
    official_software: OfficialSoftware, files: Files, new_module_folder: Callable[[str], Path]
) -> Iterator[JavaAgent]:
    """The JVM with clients 5.x."""
    options = java_tls_options(files.authority, files.client)
    with java_agent(official_software, new_module_folder("java-tls"), options=options) as agent:
        yield agent


@pytest.fixture(scope="module")
def cluster(daemons: Daemons, java_agent_process: JavaAgent) -> Iterator[Cluster]:
    with cluster_with(daemons, java_agent_process) as cluster:
        yield cluster


@pytest.fixture
def asking_cluster(cluster: Cluster) -> Cluster:
    return cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Tls{next(_numbers)}x{request.node.originalname[5:35]}"


test_sends_and_push = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_large_bodies = test_java_client.test_large_bodies_are_compressed_by_the_client_and_come_back_whole
test_request_and_reply = test_java_consumption.test_a_request_gets_its_reply
test_pop = test_java_pop.test_many_are_acknowledged_at_once
producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_transactions = test_java_transactions.test_committed_messages_arrive_and_others_do_not


def test_mqadmin(cluster: Cluster) -> None:
    assert cluster.broker_address in cluster.admin("clusterList")
    printed = cluster.admin("getBrokerConfig", "-b", cluster.broker_address)
    assert "enforcing" in printed
    assert PASSWORD not in printed
    change = ("-k", "tls.server.mode", "-v", "permissive")
    refused = cluster.admin("updateBrokerConfig", "-b", cluster.broker_address, *change)
    assert "TLS settings are changed in the configuration file alone" in refused


def test_clients_4_9(
    official_software: OfficialSoftware, files: Files, daemons: Daemons, tmp_path: Path, name: str
) -> None:
    software = replace(official_software, jars=have(lambda: find_jars(JavaClients.V4.jars_name)))
    options = java_tls_options(files.authority, files.client)
    with (
        java_agent(software, tmp_path, clients=JavaClients.V4, options=options) as agent,
        cluster_with(daemons, agent) as cluster,
    ):

        def start_push(consumer: str, **arguments: object) -> str:
            agent.call("start_push_consumer", name=consumer, namesrv=cluster.namesrv, **arguments)
            return consumer

        test_java_client.test_every_kind_of_send_arrives_exactly_once(cluster, name, start_push)
        agent.call("stop_consumer", name=f"{name}-push")


@pytest.mark.parametrize(
    "fault",
    [
        "no certificate",
        "other authority",
        pytest.param("plain", marks=pytest.mark.full),
        pytest.param("foreign certificate", marks=pytest.mark.full),
    ],
)
def test_a_client_with_a_fault_is_refused_and_others_are_served(
    official_software: OfficialSoftware, files: Files, cluster: Cluster, tmp_path: Path, name: str, fault: str
) -> None:
    options = {
        "plain": [],
        "no certificate": java_tls_options(files.authority, None),
        "foreign certificate": java_tls_options(files.authority, files.foreign_client),
        "other authority": java_tls_options(files.foreign, files.client),
    }[fault]
    topic = cluster.make_topic(name)
    with java_agent(official_software, tmp_path, options=options) as agent, pytest.raises(JavaAgentError):
        agent.produce(
            kind="sync", name=name, group=name, namesrv=cluster.namesrv, topic=topic, prefix=topic, tags=["A"], count=1
        )
    assert test_java_client.produce(cluster, topic, kind="sync", count=1)[0].queue_offset == 0


@pytest.mark.full
def test_a_go_client_has_no_certificate_to_show(cluster: Cluster, tmp_path: Path, name: str) -> None:
    """It speaks TLS, and is refused where a certificate is needed."""
    have(lambda: built_agent(GoClients.WITH_TLS))
    topic = cluster.make_topic(name)
    with (
        go_agent(tmp_path, clients=GoClients.WITH_TLS, environment={"INTEROP_TLS": "true"}) as agent,
        pytest.raises(JavaAgentError),
    ):
        agent.produce(kind="sync", name=name, group=name, namesrv=cluster.namesrv, topic=topic, prefix=topic, count=1)


@pytest.mark.full
def test_an_official_broker_registers_over_tls(
    official_software: OfficialSoftware, files: Files, cluster: Cluster, tmp_path: Path
) -> None:
    """At a NameServer that takes nothing else and asks for a certificate."""
    own_port = [f"-Dtls.server.certPath={files.client[0]}", f"-Dtls.server.keyPath={files.client[1]}"]
    with official_broker(
        official_software,
        tmp_path / "broker",
        namesrv_address=cluster.namesrv,
        store_directory=tmp_path / "store",
        properties={**OFFICIAL_PROPERTIES, "brokerName": "broker-official"},
        options=(*java_tls_options(files.authority, files.client), *own_port, "-Dtls.server.mode=permissive"),
    ) as broker:
        wait_until_registered(cluster.agent, cluster.namesrv, broker.address)


@pytest.mark.full
def test_a_broker_registers_over_tls_at_an_official_name_server(
    official_software: OfficialSoftware, tmp_path: Path
) -> None:
    """Whose certificate is the one that it signs itself, so it cannot be checked."""
    speaks_tls = ["-Dtls.server.mode=permissive"]
    with official_namesrv(official_software, tmp_path / "namesrv", options=speaks_tls) as name_server:
        process = ChildProcess(
            [
                str(Path(sys.executable).parent / "thermocline"),
                *("broker", "--listen", "127.0.0.1:0", "--namesrv", name_server.address),
                *("--data", str(tmp_path / "data"), "--set", "tls.enable=true"),
            ],
            log_path=tmp_path / "broker.log",
            working_directory=tmp_path,
        )
        try:
            registered = f"registered name_server={name_server.address} address="
            process.wait_until(lambda: registered in process.output(), timeout_s=60)
            assert "the certificates of servers are not checked" in process.output()
        finally:
            process.stop()
