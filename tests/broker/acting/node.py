"""Brokers and NameServers as a port that answers by request code, and what they were asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.server import RemotingServer

Respond = Callable[[RemotingCommand], RemotingCommand]


class Node:
    """One port."""

    def __init__(self, answers: Mapping[int, Respond]) -> None:
        self.answers = dict(answers)
        self.asked: list[RemotingCommand] = []
        self.address = ""
        self.connection_count = 0

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.asked.append(msgspec.structs.replace(command, body=bytes(command.body)))
        return self.answers[command.code](command)

    def connection_opened(self, connection: Connection) -> None:
        self.connection_count += 1

    def connection_closed(self, connection: Connection) -> None:
        self.connection_count -= 1


@asynccontextmanager
async def node(answers: Mapping[int, Respond]) -> AsyncIterator[Node]:
    """Serve on a free port."""
    found = Node(answers)
    server = RemotingServer(found)
    found.address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    try:
        yield found
    finally:
        await server.close()
