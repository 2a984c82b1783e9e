"""RocketMQ's official Node client for gRPC, unmodified, through a proxy to a broker; `node_grpc/clients.js`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.proxy_daemons import ProxyDaemons, proxy_daemons
from thermocline.client import AdminClient
from tooling.node_packages import ROCKETMQ_GRPC_NODE
from tooling.system_packages import find_node

pytestmark = pytest.mark.xdist_group("interop-grpc")

PROGRAM = Path(__file__).resolve().parent / "node_grpc" / "clients.js"
TIMEOUT_S = 200


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy, with three topics."""
    with proxy_daemons(tmp_path_factory.mktemp("proxy-node")) as running:
        with AdminClient(namesrv=running.namesrv) as admin:
            for name in ("Node", "NodeB", "NodeC"):
                admin.create_topic(name, queue_nums=4, attributes={"message.type": "NORMAL"})
        yield running


@pytest.mark.parametrize("scenario", ["starts", "simple"])
def test_the_node_client_runs_a_scenario(daemons: ProxyDaemons, tmp_path: Path, scenario: str) -> None:
    modules = have(ROCKETMQ_GRPC_NODE.find)
    environment = {**os.environ, "NODE_PATH": str(modules / "node_modules"), "HOME": str(tmp_path)}
    command = [str(find_node()), str(PROGRAM), daemons.endpoint, "Node", "node-group", scenario, "10"]
    finished = subprocess.run(
        command, capture_output=True, timeout=TIMEOUT_S, encoding="utf-8", check=False, env=environment
    )
    assert finished.stdout.splitlines()[-1:] == ["OK"], finished.stdout[-2_000:] + finished.stderr[-2_000:]
