"""RocketMQ's official Node client for gRPC, unmodified, through a proxy to a broker; `node_grpc/clients.js`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.full_cases import full
from tests.interop.grpc_programs import SCENARIOS, GrpcProgram, make_places, run_scenario
from tests.interop.proxy_daemons import proxy_daemons

pytestmark = pytest.mark.xdist_group("interop-grpc")


@dataclass(frozen=True, slots=True)
class TrustedProxy:
    """A proxy's address, and the authority of its certificate: this client checks it."""

    endpoint: str
    authority: Path


@pytest.fixture(scope="module")
def proxy(node_grpc: GrpcProgram, new_module_folder: Callable[[str], Path]) -> Iterator[TrustedProxy]:
    """A NameServer, a broker and a proxy, with a topic of each type."""
    directory = new_module_folder("proxy-node")
    authority = Authority(directory / "authority")
    certificate, key = authority.issue("p.pem", "p.key", subject="proxy", addresses=["127.0.0.1"])
    settings = {"tlsCertPath": str(certificate), "tlsKeyPath": str(key)}
    with proxy_daemons(directory, settings=settings) as running:
        make_places(running.namesrv, node_grpc.language)
        yield TrustedProxy(running.endpoint, authority.path)


CASES = [*((each, "plain") for each in SCENARIOS), ("transaction", "tls"), *full(("starts", "plain"))]


@pytest.mark.parametrize(("scenario", "security"), CASES)
def test_the_node_client_runs_a_scenario(
    proxy: TrustedProxy, node_grpc: GrpcProgram, tmp_path: Path, scenario: str, security: str
) -> None:
    trust = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(proxy.authority)}
    run_scenario(node_grpc, proxy.endpoint, scenario, home=tmp_path, security=security, environment=trust)
