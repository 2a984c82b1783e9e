"""RocketMQ's official Java client for gRPC, unmodified, through a proxy to a broker; `java_grpc/GrpcClients.java`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.full_cases import full
from tests.interop.grpc_programs import GrpcProgram, make_places, run_scenario
from tests.interop.proxy_daemons import DEPLOYMENTS, ProxyDaemons, proxy_daemons

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-grpc")]


CASES = [
    *((scenario, "plain") for scenario in ("simple", "push", "fifo", "delay", "check")),
    ("transaction", "tls"),
    *full(*((scenario, "plain") for scenario in ("retry", "transaction"))),
]


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def daemons(
    request: pytest.FixtureRequest, java_grpc: GrpcProgram, new_module_folder: Callable[[str], Path]
) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy, with a topic of each type."""
    with proxy_daemons(new_module_folder("proxy-java"), request.param) as running:
        make_places(running.namesrv, java_grpc.language)
        yield running


@pytest.mark.parametrize(("scenario", "security"), CASES)
def test_the_java_client_runs_a_scenario(
    daemons: ProxyDaemons, java_grpc: GrpcProgram, tmp_path: Path, scenario: str, security: str
) -> None:
    """TLS is what this client does unless an option forbids it; it takes any certificate."""
    run_scenario(java_grpc, daemons.endpoint, scenario, home=tmp_path, security=security)
