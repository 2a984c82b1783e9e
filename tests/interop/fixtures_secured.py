"""Fixtures of the tests with TLS and access control together: one pair of daemons a worker, and clients that sign over
TLS. Modules take the fixtures under the names that the tests which they repeat ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import THERMOCLINE, Cluster, wait_until_registered
from tests.interop.go_agent import GoAgent, GoClients, built_agent, go_agent
from tests.interop.java_agent import JavaAgent, JavaClients, java_agent
from tests.interop.secured import APP, ROOT, Secured, environment_of, java_tls_options, secured_daemons
from tooling.java_libraries import find_jars
from tooling.official_rocketmq import OfficialSoftware


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The daemons."""
    with secured_daemons(tmp_path_factory.mktemp("secured")) as running:
        yield running


def _signing_agent(
    software: OfficialSoftware, folder: Path, secured: Secured, clients: JavaClients
) -> Iterator[JavaAgent]:
    """A JVM whose clients sign as the user, and whose mqadmin signs as the super user."""
    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n")
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
    options = [
        *java_tls_options(secured.files.authority, secured.files.client),
        f"-Drocketmq.home.dir={home}",
        f"-Dinterop.accessKey={APP.access_key}",
        f"-Dinterop.secretKey={APP.secret_key}",
    ]
    with java_agent(software, folder / "agent", clients=clients, options=options) as agent:
        yield agent


@pytest.fixture(scope="session")
def secured_java(
    official_software: OfficialSoftware, secured: Secured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaAgent]:
    """Clients 5.5."""
    yield from _signing_agent(official_software, tmp_path_factory.mktemp("java"), secured, JavaClients.V5)


@pytest.fixture(scope="session")
def secured_java_4(
    official_software: OfficialSoftware, secured: Secured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaAgent]:
    """Clients 4.9."""
    software = replace(official_software, jars=have(lambda: find_jars(JavaClients.V4.jars_name)))
    yield from _signing_agent(software, tmp_path_factory.mktemp("java-4"), secured, JavaClients.V4)


@pytest.fixture(scope="session")
def secured_go(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoAgent]:
    """Go clients of a version with TLS."""
    have(lambda: built_agent(GoClients.WITH_TLS))
    environment = {
        "INTEROP_TLS": "true",
        "INTEROP_ACCESS_KEY": APP.access_key,
        "INTEROP_SECRET_KEY": APP.secret_key,
    }
    folder = tmp_path_factory.mktemp("go-tls")
    with go_agent(folder, clients=GoClients.WITH_TLS, environment=environment) as agent:
        yield agent


def secured_cluster(secured: Secured, agent: JavaAgent) -> Iterator[Cluster]:
    """The daemons with an agent; clients of the SDK in this process sign over TLS, too, by the environment."""
    wait_until_registered(agent, secured.namesrv, secured.daemons.broker_address)
    with environment_of(secured.environment(APP)):
        yield Cluster(
            kind=THERMOCLINE,
            namesrv=secured.namesrv,
            broker_address=secured.daemons.broker_address,
            agent=agent,
            process=secured.daemons.process,
        )
    agent.call("stop_producers", namesrv=secured.namesrv)
