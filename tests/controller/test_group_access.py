"""Three controllers with access control and TLS: they sign and encrypt what they send to one another."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.controller.controller_under_test import Caller, config_for
from tests.waiting import until
from thermocline.controller import ControllerConfig, ControllerServer
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.settings import TlsConfig
from tooling.official_rocketmq import free_broker_port

INNER = Credentials(access_key="inner", secret_key="the-key-of-inner")
KEYS = json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key})


def configs(directory: Path, *, tls: TlsConfig, keys: dict[str, str] | None = None) -> list[ControllerConfig]:
    """Of three nodes; `keys`: of a node that has others."""
    ports: set[int] = set()
    while len(ports) < 3:
        ports.add(free_broker_port())
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(sorted(ports)))
    return [
        config_for(
            directory / node,
            peers_text=peers,
            node=node,
            tls=tls,
            authentication_enabled=True,
            authorization_enabled=True,
            inner_credentials=(keys or {}).get(node, KEYS),
        )
        for node in ("n0", "n1", "n2")
    ]


async def started(stack: contextlib.AsyncExitStack, config: ControllerConfig) -> ControllerServer:
    server = ControllerServer(config)
    stack.push_async_callback(server.close)
    await server.start()
    return server


@pytest.mark.parametrize("tls", [TlsConfig(), TlsConfig(server_mode="enforcing", outgoing=True)], ids=["plain", "tls"])
async def test_they_elect_a_leader_and_strangers_are_refused(tmp_path: Path, tls: TlsConfig) -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await started(stack, config) for config in configs(tmp_path, tls=tls)]
        await until(lambda: any(server.node.is_serving for server in servers), what="a controller leads")
        leader = next(server for server in servers if server.node.is_serving)
        await until(
            lambda: all(server.node.leader == leader.config.node for server in servers), what="the others follow it"
        )
        if tls.server_mode == "enforcing":
            return
        caller = await Caller.connect(leader.config)
        refused = await caller.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
        assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
        caller.connection.credentials = INNER
        assert (await caller.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)).code == ResponseCode.SUCCESS


async def test_one_with_other_keys_takes_no_part(tmp_path: Path) -> None:
    other = json.dumps({"accessKey": "inner", "secretKey": "another-key"})
    async with contextlib.AsyncExitStack() as stack:
        servers = [await started(stack, config) for config in configs(tmp_path, tls=TlsConfig(), keys={"n2": other})]
        await until(lambda: any(server.node.is_serving for server in servers[:2]), what="the two elect a leader")
        assert servers[2].node.leader is None
        assert not servers[2].node.is_serving
