"""LateHandler: refuses until the real handlers are there, then is as they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.wire import Wire
from thermocline.broker.port import late_handler
from thermocline.broker.port.late_handler import LateHandler
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.response_code import ResponseCode

REQUEST = RemotingCommand(code=11, opaque=7).encode()


class Real:
    """Answers each request, and notes who comes and goes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.served: list[int] = []
        """The opaques of requests."""

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        self.notes.append("fed")
        return 0

    def end_round(self) -> None:
        """Nothing is kept."""

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.served.append(command.opaque)
        return RemotingCommand.response(command, remark="real")

    def connection_opened(self, connection: Connection) -> None:
        self.notes.append("opened")

    def connection_closed(self, connection: Connection) -> None:
        self.notes.append("closed")


@pytest.mark.parametrize(("tells_state", "sentence"), [(True, "the broker is starting"), (False, "system busy")])
async def test_requests_before_the_parts_are_there_are_refused(*, tells_state: bool, sentence: str) -> None:
    late, real = LateHandler(tells_state=tells_state), Real()
    early = Wire(late)
    assert late.feed(early.connection, memoryview(REQUEST)) == 0
    early.receive(REQUEST)
    (answer,) = early.take_commands()
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, 7)
    assert sentence in (answer.remark or "")
    for code in (10, 310, 320, 324, 325):
        early.receive(RemotingCommand(code=code, opaque=code).encode())
        (answer,) = early.take_commands()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, "producers of RocketMQ 4.9 try that again, not busy"
        assert sentence in (answer.remark or "")
    late.connection_closed(early.connection)
    late.serve(real, real)
    assert real.notes == []
    early.receive(REQUEST)
    (answer,) = early.take_commands()
    assert answer.remark == "real"
    wire: Any = Wire(late)
    assert real.notes == ["opened"]
    assert late.feed(wire.connection, memoryview(REQUEST)) == 0
    late.connection_closed(wire.connection)
    assert real.notes == ["opened", "fed", "closed"]


SENTENCE = "the broker's role changes"
PULL, SEND = RemotingCommand(code=11, opaque=8).encode(), RemotingCommand(code=10, opaque=9).encode()


async def test_while_others_come_sends_are_refused_and_pulls_wait() -> None:
    late, before, after = LateHandler(tells_state=True), Real(), Real()
    late.serve(before, before)
    wire: Any = Wire(late)
    late.pause(SENTENCE, refused_codes={10})
    wire.receive(SEND)
    wire.receive(PULL)
    (answer,) = wire.take_commands()
    assert (answer.opaque, answer.code) == (9, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert SENTENCE in (answer.remark or "")
    await asyncio.sleep(0)
    assert late.waiting_count == 1
    late.serve(after, after)
    (answer,) = await wire.wait_commands()
    assert (answer.opaque, answer.remark) == (8, "real")
    assert late.waiting_count == 0


async def test_a_connection_that_ends_meanwhile_is_told_to_the_next_ones() -> None:
    late, before, after = LateHandler(tells_state=True), Real(), Real()
    late.serve(before, before)
    wire: Any = Wire(late)
    late.pause(SENTENCE, refused_codes=())
    late.connection_closed(wire.connection)
    assert before.notes == ["opened"]
    late.serve(after, after)
    assert after.notes == ["closed"]


async def test_what_waits_for_a_connection_that_has_ended_is_not_served() -> None:
    """A heartbeat would register a member that has left, after the parts have dropped it: it would keep its queues."""
    late, before, after = LateHandler(tells_state=True), Real(), Real()
    late.serve(before, before)
    wire = Wire(late)
    late.pause(SENTENCE, refused_codes=())
    wire.receive(PULL)
    await asyncio.sleep(0)
    assert late.waiting_count == 1
    wire.connection.close()
    wire.lose()
    late.serve(after, after)
    await wire.connection.wait_requests()
    assert late.waiting_count == 0
    assert (after.notes, after.served) == (["closed"], [])


async def test_what_waits_is_bounded_in_time_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_handler, "WAIT_S", 0.01)
    monkeypatch.setattr(late_handler, "WAITING_MAX", 1)
    late, before = LateHandler(tells_state=True), Real()
    late.serve(before, before)
    wire: Any = Wire(late)
    late.pause(SENTENCE, refused_codes=())
    wire.receive(PULL)
    await asyncio.sleep(0)
    wire.receive(SEND)
    (answer,) = wire.take_commands()
    assert (answer.opaque, answer.code) == (9, ResponseCode.SERVICE_NOT_AVAILABLE), "one more than may wait"
    (answer,) = await wire.wait_commands()
    assert (answer.opaque, answer.code) == (8, ResponseCode.SYSTEM_BUSY), "it has waited for too long"
    body = bytes(late_handler.WAITING_BYTES_MAX + 1)
    wire.receive(RemotingCommand(code=11, opaque=7, body=body).encode())
    (answer,) = wire.take_commands()
    assert answer.opaque == 7, "it is too large to wait"
