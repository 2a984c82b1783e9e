"""RocketMQ's official Go client for gRPC, unmodified, through a proxy to a broker; `go_grpc/main.go`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.built_programs import built_go_program
from tests.interop.grpc_programs import SCENARIOS, make_places, run_scenario
from tests.interop.proxy_daemons import ProxyDaemons, proxy_daemons

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-grpc")]

SOURCES = Path(__file__).resolve().parent / "go_grpc"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy, with a topic of each type."""
    with proxy_daemons(tmp_path_factory.mktemp("proxy-go")) as running:
        make_places(running.namesrv, "Go")
        yield running


@pytest.fixture(scope="module")
def program() -> Path:
    return have(lambda: built_go_program(SOURCES, "go-grpc"))


@pytest.mark.parametrize(("scenario", "security"), [*((each, "plain") for each in SCENARIOS), ("transaction", "tls")])
def test_the_go_client_runs_a_scenario(
    daemons: ProxyDaemons, program: Path, tmp_path: Path, scenario: str, security: str
) -> None:
    """TLS is what this client does unless it is told not to; it takes any certificate."""
    home = {"HOME": str(tmp_path)}
    run_scenario([str(program)], daemons.endpoint, "Go", scenario, security=security, environment=home)
