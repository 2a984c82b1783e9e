"""The handlers of a connection: one for single requests, and before it one for whole chunks (the fast path)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from thermocline.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from thermocline.remoting.connections.connection import Connection


class RequestHandler(Protocol):
    """Serves the requests of the connections it is given to."""

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """The answer, or an awaitable of it; None to answer later by `connection.send`, or for a one-way request.

        An MQError that it raises becomes an answer by `error_table`.
        """

    def connection_opened(self, connection: Connection) -> None:
        """A connection was made."""

    def connection_closed(self, connection: Connection) -> None:
        """The connection has closed, for any reason; called once."""


class ChunkHandler(Protocol):
    """The fast path's seam: sees received bytes before they are taken apart."""

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        """Handle whole frames at the front of `buffer` and write their answers with `connection.write`.

        Returns how many bytes they had. It stops before the first frame that is not for it, or not whole; that one goes
        to the RequestHandler if it is whole, then `feed` is asked again. It also stops when `connection.is_full`:
        a chunk of small requests may ask for very much. The buffer is only valid during the call.
        """
