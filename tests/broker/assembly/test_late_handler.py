"""LateHandler: busy until the real handlers are there, then as they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.wire import Wire
from thermocline.broker.assembly.late_handler import LateHandler
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.response_code import ResponseCode

REQUEST = RemotingCommand(code=10, opaque=7).encode()


class Real:
    """Answers each request, and notes who comes and goes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        self.notes.append("fed")
        return 0

    def end_round(self) -> None:
        """Nothing is kept."""

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, remark="real")

    def connection_opened(self, connection: Connection) -> None:
        self.notes.append("opened")

    def connection_closed(self, connection: Connection) -> None:
        self.notes.append("closed")


@pytest.mark.parametrize(("tells_state", "sentence"), [(True, "the broker is starting"), (False, "system busy")])
async def test_requests_before_the_parts_are_there_are_busy(*, tells_state: bool, sentence: str) -> None:
    late, real = LateHandler(tells_state=tells_state), Real()
    early = Wire(late)
    assert late.feed(early.connection, memoryview(REQUEST)) == 0
    early.receive(REQUEST)
    (answer,) = early.take_commands()
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, 7)
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
