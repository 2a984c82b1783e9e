"""HelperHub: a helper is there from its HELLO until its connection closes, and a second one replaces the first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec
import pytest

from tests.broker.wire import Wire
from thermocline.broker.helpers.helper_hub import HelperHub
from thermocline.broker.helpers.helper_protocol import Hello, HelloReply, HelperRequestCode
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.config.store_config import StoreConfig
from thermocline.tiered.budgets.tier_config import TierConfig

ROLE = "index"
GENERATION, BUILD_ID = 3, 7
REPORT = 999


@dataclass(slots=True)
class CountingRole:
    connected: int = 0
    is_broken: bool = False
    reports: list[tuple[int, bytes]] = field(default_factory=list)

    def helper_connected(self) -> None:
        self.connected += 1

    def helper_told(self, code: int, body: bytes | memoryview) -> None:
        assert not self.is_broken, "it does not follow the one before"
        self.reports.append((code, bytes(body)))


def make_hub() -> tuple[HelperHub, CountingRole]:
    settings = HelloReply(
        store=StoreConfig(root_path="/store"),
        tier=TierConfig(),
        store_uuid="u",
        cluster_name="C",
        broker_name="b",
        was_clean=True,
    )
    hub, role = HelperHub(generation=GENERATION, build_id=BUILD_ID, settings=settings), CountingRole()
    hub.add_role(ROLE, role)
    return hub, role


async def hello(hub: HelperHub, *, role: str = ROLE, generation: int = GENERATION, build_id: int = BUILD_ID) -> Wire:
    wire = Wire(hub)
    body = msgspec.msgpack.encode(Hello(role=role, generation=generation, build_id=build_id, pid=1))
    wire.receive(RemotingCommand(code=HelperRequestCode.HELLO, opaque=1, body=body).encode())
    (answer,) = await wire.wait_commands()
    assert answer.code == (ResponseCode.SUCCESS if hub_accepts(role, generation, build_id) else 16)
    await asyncio.sleep(0)  # the hub announces the helper in the loop's next round
    return wire


def hub_accepts(role: str, generation: int, build_id: int) -> bool:
    return (role, generation, build_id) == (ROLE, GENERATION, BUILD_ID)


async def test_a_helper_is_there_until_its_connection_closes() -> None:
    hub, role = make_hub()
    wire = await hello(hub)
    assert hub.is_connected(ROLE)
    assert role.connected == 1
    wire.receive(RemotingCommand(code=REPORT, opaque=2, body=b"report").encode())
    assert role.reports == [(REPORT, b"report")]
    wire.connection.connection_lost(None)
    assert not hub.is_connected(ROLE)
    with pytest.raises(UnavailableError):
        await hub.ask(
            ROLE, HelperRequestCode.STATE_ASK, Hello(role=ROLE, generation=0, build_id=0, pid=0), timeout_ms=9
        )


async def test_a_second_helper_replaces_the_first_and_stays_when_that_one_leaves() -> None:
    hub, role = make_hub()
    first = await hello(hub)
    second = await hello(hub)
    assert first.is_closed
    assert not second.is_closed
    assert role.connected == 2
    first.connection.connection_lost(None)
    assert hub.is_connected(ROLE)


@pytest.mark.parametrize(
    "stranger", [{"role": "other"}, {"generation": GENERATION - 1}, {"build_id": BUILD_ID + 1}], ids=str
)
async def test_a_helper_of_another_boot_build_or_role_is_refused(stranger: dict[str, str]) -> None:
    hub, role = make_hub()
    await hello(hub, **stranger)  # type: ignore[arg-type]
    assert not hub.is_connected(ROLE)
    assert role.connected == 0


async def test_a_report_before_hello_is_refused() -> None:
    hub, role = make_hub()
    wire = Wire(hub)
    wire.receive(RemotingCommand(code=REPORT, opaque=2).encode())
    (answer,) = await wire.wait_commands()
    assert answer.code != ResponseCode.SUCCESS
    assert role.reports == []


async def test_a_report_that_cannot_be_taken_in_is_the_helpers_last() -> None:
    """The next one builds upon it: its gate of local deletion would be that of more than this side has taken in."""
    hub, role = make_hub()
    wire = await hello(hub)
    role.is_broken = True
    wire.receive(RemotingCommand(code=REPORT, opaque=2, flag=2).encode())
    assert wire.is_closed
    role.is_broken = False
    wire.receive(RemotingCommand(code=REPORT, opaque=3, flag=2, body=b"next").encode())
    assert role.reports == []
    wire.connection.connection_lost(None)
    assert not hub.is_connected(ROLE)
    await hello(hub)
    assert role.connected == 2, "its successor begins anew"
