"""The outbox: what is written in one round of the loop leaves at its end, whatever becomes of a single connection."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.broker.wire import WireTransport
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.outbox import Outbox


class Handler:
    """Answers at once."""

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command)

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do."""


class NotingTransport(WireTransport):
    """Notes who writes, in one list for all."""

    def __init__(self, name: str, writers: list[str]) -> None:
        super().__init__()
        self.is_broken = False
        self._name = name
        self._writers = writers

    def write(self, data: Any) -> None:
        if self.is_broken:
            raise RuntimeError("this transport is broken")
        self._writers.append(self._name)


def connect(name: str, outbox: Outbox, written: list[str]) -> tuple[Connection, NotingTransport]:
    connection = Connection(loop=asyncio.get_running_loop(), handler=Handler(), is_server=True, outbox=outbox)
    transport = NotingTransport(name, written)
    connection.connection_made(transport)
    return connection, transport


def receive(connection: Connection, data: bytes) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_all_requests_of_a_round_are_handled_before_the_first_answer_leaves() -> None:
    written: list[str] = []
    outbox = Outbox()
    connections = [connect(name, outbox, written)[0] for name in "abc"]
    for connection in connections:
        receive(connection, RemotingCommand.request(35).encode())
        receive(connection, RemotingCommand.request(35).encode())
    assert written == []
    await asyncio.sleep(0)
    assert written == ["a", "b", "c"]  # both answers of a connection in one write


async def test_a_broken_connection_is_dropped_and_the_others_get_their_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    written: list[str] = []
    outbox = Outbox()
    (first, broken), (second, _) = connect("a", outbox, written), connect("b", outbox, written)
    broken.is_broken = True
    for connection in (first, second):
        receive(connection, RemotingCommand.request(35).encode())
    with caplog.at_level(logging.CRITICAL):  # the error's own line is wanted in the log, not on the screen
        await asyncio.sleep(0)
    assert written == ["b"]
    assert broken.is_closing()
    assert first.is_closed
    assert not second.is_closed
