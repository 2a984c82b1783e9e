"""RocketMQ's official Rust client for gRPC, unmodified, through a proxy to a broker; `rust_grpc/src/main.rs`.

Version 5.0.0 has no push consumer and no TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.grpc_programs import GrpcProgram, make_places, run_scenario
from tests.interop.proxy_daemons import ProxyDaemons, proxy_daemons

pytestmark = pytest.mark.xdist_group("interop-grpc")


@pytest.fixture(scope="module")
def daemons(rust_grpc: GrpcProgram, new_module_folder: Callable[[str], Path]) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy, with a topic of each type."""
    # This client cannot change an invisible time, so the test of order waits for the end of a short one.
    settings = {"minInvisibleTimeMillsForRecv": "1000"}
    with proxy_daemons(new_module_folder("proxy-rust"), settings=settings) as running:
        make_places(running.namesrv, rust_grpc.language)
        yield running


@pytest.mark.parametrize("scenario", ["simple", "fifo", "delay", "transaction", "check"])
def test_the_rust_client_runs_a_scenario(
    daemons: ProxyDaemons, rust_grpc: GrpcProgram, tmp_path: Path, scenario: str
) -> None:
    run_scenario(rust_grpc, daemons.endpoint, scenario, home=tmp_path)
