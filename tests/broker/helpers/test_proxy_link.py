"""ProxyLink: the broker's HELLO to a proxy, and what the proxy says of itself."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.broker.helpers.test_helper_hub import BUILD_ID, GENERATION, make_hub
from tests.broker.wire import Wire
from thermocline.broker.helpers.helper_hub import HelperHub
from thermocline.broker.helpers.helper_protocol import PROXY_ROLE, Hello, HelperRequestCode
from thermocline.broker.helpers.proxy_link import ProxyLink, ProxySettings, ProxyState
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError, UnavailableError

SETTINGS = ProxySettings(
    config=b"config",
    port=0,
    remoting_port=0,
    broker_name="b",
    socket_path="/run/b.sock",
    credentials=("key", "secret", ""),
)


def make_link() -> tuple[HelperHub, ProxyLink]:
    hub, _ = make_hub()
    return hub, ProxyLink(hub, SETTINGS)


async def connect(hub: HelperHub) -> tuple[Wire, ProxySettings]:
    """A proxy that has sent HELLO, and its answer."""
    wire = Wire(hub)
    body = msgspec.msgpack.encode(Hello(role=PROXY_ROLE, generation=GENERATION, build_id=BUILD_ID, pid=1))
    wire.receive(RemotingCommand(code=HelperRequestCode.HELLO, opaque=1, body=body).encode())
    (answer,) = await wire.wait_commands()
    await asyncio.sleep(0)  # the hub announces the helper in the loop's next round
    return wire, msgspec.msgpack.decode(answer.body, type=ProxySettings)


def tell(wire: Wire, state: ProxyState) -> None:
    command = RemotingCommand.request(HelperRequestCode.PROXY_STATE, body=msgspec.msgpack.encode(state), oneway=True)
    wire.receive(command.encode())


async def test_a_proxy_gets_its_own_settings_and_nothing_of_the_cold_tier() -> None:
    hub, link = make_link()
    wire, settings = await connect(hub)
    assert settings == SETTINGS
    tell(wire, ProxyState(host="127.0.0.1", port=8081))
    assert await link.wait_ready(timeout_ms=1_000) == ("127.0.0.1:8081", "")


async def test_the_next_proxy_takes_the_ports_of_the_first() -> None:
    hub, link = make_link()
    wire, _ = await connect(hub)
    tell(wire, ProxyState(host="127.0.0.1", port=40_000, remoting_port=40_001))
    _, settings = await connect(hub)
    assert settings == msgspec.structs.replace(SETTINGS, port=40_000, remoting_port=40_001)
    assert await link.wait_ready(timeout_ms=1_000) == ("127.0.0.1:40000", "127.0.0.1:40001")


async def test_a_proxy_that_cannot_serve_ends_the_start_but_no_broker_that_runs() -> None:
    hub, link = make_link()
    wire, _ = await connect(hub)
    tell(wire, ProxyState(refusal="the port is taken"))
    with pytest.raises(InvalidRequestError, match="the port is taken"):
        await link.wait_ready(timeout_ms=1_000)

    hub, link = make_link()
    wire, _ = await connect(hub)
    tell(wire, ProxyState(host="127.0.0.1", port=8081))
    tell(wire, ProxyState(refusal="the port is taken"))
    assert await link.wait_ready(timeout_ms=1_000) == ("127.0.0.1:8081", "")


async def test_a_proxy_that_says_nothing_is_waited_for_so_long() -> None:
    _, link = make_link()
    with pytest.raises(UnavailableError):
        await link.wait_ready(timeout_ms=1)
