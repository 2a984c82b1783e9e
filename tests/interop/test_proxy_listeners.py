"""A proxy with a private and a public address for each protocol, under official clients.

Each client is given one address, and routes send it to another one of the same side, as behind an address translation:
private clients from 127.0.0.2 to 127.0.0.3, public ones from 127.0.0.4 to 127.0.0.5, which takes gRPC by TLS alone.

Covers `proxy/more_listeners.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.full_cases import full
from tests.interop import test_grpc_python
from tests.interop.connections_seen import hosts_connected_at
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import bodies
from tests.interop.grpc_programs import GrpcProgram, make_places, run_scenario
from tests.interop.java_agent import JavaAgent
from tests.interop.proxy_daemons import DEPLOYMENTS, ProxyDaemons, proxy_daemons
from tests.interop.test_proxy_protocols import Both, texts
from thermocline.client import AdminClient
from thermocline.localstack.loopback_port import free_port

pytestmark = [pytest.mark.java, pytest.mark.go, pytest.mark.xdist_group("interop-grpc")]

COUNT = 12

agent = test_grpc_python.agent
admin = test_grpc_python.admin


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two: the host that its clients are given, and the host that their routes name."""

    given: str
    named: str
    security: str


PRIVATE = Side(given="127.0.0.2", named="127.0.0.3", security="plain")
PUBLIC = Side(given="127.0.0.4", named="127.0.0.5", security="tls")
SIDES = [pytest.param(PRIVATE, id="private"), pytest.param(PUBLIC, id="public")]


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    """For gRPC and for remoting, at each of the hosts."""
    return free_port(), free_port()


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def daemons(
    request: pytest.FixtureRequest, ports: tuple[int, int], new_module_folder: Callable[[str], Path]
) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy with all these addresses; its main ones are used by no test."""
    listeners = []
    for protocol, port in zip(("grpc", "remoting"), ports, strict=True):
        for side in (PRIVATE, PUBLIC):
            for host in (side.given, side.named):
                tls = "tls=enforcing" if (protocol, side) == ("grpc", PUBLIC) else ""
                listeners.append(f"{protocol} {host}:{port} access={side.named}:{port} {tls}")
    settings = {"moreListeners": ";".join(listeners)}
    with proxy_daemons(new_module_folder("listeners"), request.param, settings=settings) as running:
        for language in ("Java", "Go"):
            make_places(running.namesrv, language)
        yield running


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("language", ["go", *full("java")])
def test_grpc_clients_stay_on_the_side_that_they_were_given(
    request: pytest.FixtureRequest,
    daemons: ProxyDaemons,
    ports: tuple[int, int],
    tmp_path: Path,
    side: Side,
    language: str,
) -> None:
    program: GrpcProgram = request.getfixturevalue(f"{language}_grpc")
    endpoint = f"{side.given}:{ports[0]}"
    with hosts_connected_at(ports[0]) as seen:
        run_scenario(program, endpoint, "simple", home=tmp_path, security=side.security)
    assert seen == {side.given, side.named}


def test_the_python_client_stays_on_its_side(
    daemons: ProxyDaemons,
    ports: tuple[int, int],
    agent: ForeignAgent,
    admin: AdminClient,
    java_agent_process: JavaAgent,
) -> None:
    place = replace(daemons, endpoint=f"{PRIVATE.given}:{ports[0]}")
    driver = Both(agent, admin, place, java_agent_process)
    driver.make_topic("NORMAL")
    wanted = [str(number) for number in range(COUNT)]
    with hosts_connected_at(ports[0]) as seen:
        driver.send(*({"body": body} for body in wanted))
        assert sorted(bodies(driver.receive(driver.start("simple"), count=COUNT))) == sorted(wanted)
        driver.stop_all()
    assert seen == {PRIVATE.given, PRIVATE.named}


@pytest.mark.parametrize("side", SIDES)
def test_remoting_clients_stay_on_the_side_that_they_were_given(
    daemons: ProxyDaemons,
    ports: tuple[int, int],
    agent: ForeignAgent,
    admin: AdminClient,
    java_agent_process: JavaAgent,
    side: Side,
) -> None:
    """Here the public listener takes plain text, too."""
    driver = Both(agent, admin, replace(daemons, remoting=f"{side.given}:{ports[1]}"), java_agent_process)
    driver.make_topic("NORMAL")
    with hosts_connected_at(ports[1]) as seen:
        consumer = driver.remoting_consumer()
        sent = driver.remoting_send(COUNT)
        assert texts(driver.remoting_received(consumer, COUNT)) == sorted(sent)
        driver.stop_all()
    assert seen == {side.given, side.named}
