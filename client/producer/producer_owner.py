"""ProducerOwner: what a producer's session asks of it, and tells it."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.remoting.bodies import ConsumerData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection

__all__ = ["ProducerOwner"]


class ProducerOwner:
    """See the module and `SessionOwner`."""

    def __init__(
        self,
        group: str,
        *,
        answer: Callable[[RemotingCommand], RemotingCommand | None],
        connection_closed: Callable[[Connection], None],
    ) -> None:
        self._group = group
        self._answer = answer
        self._connection_closed = connection_closed

    def producer_groups(self) -> list[str]:
        """The one group."""
        return [self._group]

    def consumer_data(self) -> list[ConsumerData]:
        """None."""
        return []

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Hand it on."""
        return self._answer(command)

    def connection_closed(self, connection: Connection) -> None:
        """Hand it on."""
        self._connection_closed(connection)
