"""RocketMQ's official Go client for gRPC, unmodified, through a proxy to a broker; `go_grpc/main.go`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.full_cases import full
from tests.interop.grpc_programs import GrpcProgram, make_places, run_scenario
from tests.interop.proxy_daemons import ProxyDaemons, proxy_daemons

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-grpc")]


CASES = [
    *((scenario, "plain") for scenario in ("simple", "push", "retry")),
    ("transaction", "tls"),
    *full(*((scenario, "plain") for scenario in ("fifo", "delay", "transaction", "check"))),
]


@pytest.fixture(scope="module")
def daemons(go_grpc: GrpcProgram, new_module_folder: Callable[[str], Path]) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy, with a topic of each type."""
    with proxy_daemons(new_module_folder("proxy-go")) as running:
        make_places(running.namesrv, go_grpc.language)
        yield running


@pytest.mark.parametrize(("scenario", "security"), CASES)
def test_the_go_client_runs_a_scenario(
    daemons: ProxyDaemons, go_grpc: GrpcProgram, tmp_path: Path, scenario: str, security: str
) -> None:
    """TLS is what this client does unless an option forbids it; it takes any certificate."""
    run_scenario(go_grpc, daemons.endpoint, scenario, home=tmp_path, security=security)
