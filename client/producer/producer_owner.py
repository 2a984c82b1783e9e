"""ProducerOwner: what a producer's session asks of it, and tells it."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.client.producer.send_pipeline import SendPipeline
from thermocline.remoting.bodies import ConsumerData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connection import Connection

__all__ = ["ProducerOwner"]


class ProducerOwner:
    """See the module and `SessionOwner`. `answer` serves what brokers ask."""

    def __init__(
        self, group: str, pipeline: SendPipeline, answer: Callable[[RemotingCommand], RemotingCommand | None]
    ) -> None:
        self._group = group
        self._pipeline = pipeline
        self._answer = answer

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
        """Let the pipeline send again what was lost with the connection."""
        self._pipeline.connection_closed(connection)
