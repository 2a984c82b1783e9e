"""ConsumerOwner: the consumer's side of its session. A closed connection needs no action here: the calls on it have
failed, and their callers retry."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from thermocline.remoting.bodies import ConsumerData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection

__all__ = ["ConsumerOwner"]


class Consumer(Protocol):
    """A consumer of any kind."""

    def consumer_data(self) -> list[ConsumerData]:
        """Return what heartbeats say of this consumer."""
        ...

    def answer(self, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Serve a broker's request; None where nothing is to be answered."""
        ...


class ConsumerOwner:
    """See the module and `SessionOwner`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def producer_groups(self) -> list[str]:
        """None."""
        return []

    def consumer_data(self) -> list[ConsumerData]:
        """The one group."""
        return self._consumer.consumer_data()

    def answer(self, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Hand it on."""
        return self._consumer.answer(command)

    def connection_closed(self, connection: Connection) -> None:
        """See the module."""
