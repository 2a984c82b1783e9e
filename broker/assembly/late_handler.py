"""Late handler: answers requests while the broker's parts are still being made.

The port must be bound before the parts exist, because a free port's number is part of the address that they are made
with. A request that arrives before they exist gets "busy", upon which every client tries again. With authentication the
answer says nothing of the broker: users are not loaded yet, so no request is known to come from one. Nothing of the
request is looked at but its opaque.
"""

from collections.abc import Awaitable

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import ChunkHandler, Connection, RequestHandler
from thermocline.remoting.errors import BrokerBusyError

STARTING = "the broker is starting"
BUSY = "system busy"


class LateHandler:
    """RequestHandler and ChunkHandler that pass on to the real ones once they are there."""

    def __init__(self, *, tells_state: bool) -> None:
        """`tells_state`: whether every client may know that the broker is starting."""
        self._busy = STARTING if tells_state else BUSY
        self._handler: RequestHandler | None = None
        self._chunk_handler: ChunkHandler | None = None

    def serve(self, handler: RequestHandler, chunk_handler: ChunkHandler) -> None:
        """From now on requests go to these."""
        self._handler, self._chunk_handler = handler, chunk_handler

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        """See ChunkHandler."""
        return 0 if self._chunk_handler is None else self._chunk_handler.feed(connection, buffer)

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """See RequestHandler."""
        if self._handler is None:
            raise BrokerBusyError(self._busy)
        return self._handler.handle(connection, command)

    def connection_opened(self, connection: Connection) -> None:
        """See RequestHandler."""
        if self._handler is not None:
            self._handler.connection_opened(connection)

    def connection_closed(self, connection: Connection) -> None:
        """See RequestHandler."""
        if self._handler is not None:
            self._handler.connection_closed(connection)
