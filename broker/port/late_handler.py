"""Late handler: answers requests while the broker's parts are being made, at the start or for another role.

The port must be bound before the parts exist, because a free port's number is part of the address that they are made
with. A request that arrives before they exist is refused with a code upon which clients try again: "service not
available" for sends, since producers before RocketMQ 5.0 give up on "busy", and "busy" for all else. With
authentication the answer says nothing of the broker: users are not loaded yet, so no request is known to come from one.
Nothing of the request is read but its code and its opaque.

    serve   requests go to the parts
    pause   the parts end, others come: what a slave refuses is refused at once, so that senders go on elsewhere;
            all else (pulls, heartbeats, offsets) waits for the others, WAIT_S at the longest. If its connection has
            ended by then, it is not served: nothing would forget it any more
Bound: WAITING_MAX requests wait, of WAITING_BYTES_MAX each; beyond that they are refused.
"""

import asyncio
from collections.abc import Awaitable, Collection

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import ChunkHandler, Connection, RequestHandler
from thermocline.remoting.errors import BrokerBusyError, ServiceUnavailableError, UnavailableError
from thermocline.remoting.request_code import RequestCode

STARTING = "the broker is starting"
BUSY = "system busy"
SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
WAIT_S = 3.0
WAITING_MAX = 20_000
WAITING_BYTES_MAX = 64 << 10


class LateHandler:
    """RequestHandler and ChunkHandler that pass on to the real ones once they are there."""

    def __init__(self, *, tells_state: bool) -> None:
        """`tells_state`: whether every client may know what the broker does."""
        self._tells_state = tells_state
        self._reason = STARTING if tells_state else BUSY
        self._handler: RequestHandler | None = None
        self._chunk_handler: ChunkHandler | None = None
        self._refused_codes: Collection[int] | None = None
        """While it is paused: the codes of requests that do not wait."""
        self._served = asyncio.Event()
        self._waiting_count = 0
        self._closed: list[Connection] = []

    def serve(self, handler: RequestHandler, chunk_handler: ChunkHandler) -> None:
        """From now on requests go to these."""
        self._handler, self._chunk_handler, self._refused_codes = handler, chunk_handler, None
        closed, self._closed = self._closed, []
        for connection in closed:
            handler.connection_closed(connection)
        self._served.set()

    def pause(self, sentence: str, *, refused_codes: Collection[int]) -> None:
        """The parts end, and others will come. `refused_codes`: of requests that do not wait for them."""
        self._reason = sentence if self._tells_state else BUSY
        self._handler = self._chunk_handler = None
        self._refused_codes = refused_codes
        self._served.clear()

    @property
    def waiting_count(self) -> int:
        """How many requests wait for other parts."""
        return self._waiting_count

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        """See ChunkHandler."""
        return 0 if self._chunk_handler is None else self._chunk_handler.feed(connection, buffer)

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """See RequestHandler."""
        if self._handler is None:
            if not self._may_wait(command):
                raise self._refusal(command)
            return self._handle_later(connection, command)
        return self._handler.handle(connection, command)

    def connection_opened(self, connection: Connection) -> None:
        """See RequestHandler."""
        if self._handler is not None:
            self._handler.connection_opened(connection)

    def connection_closed(self, connection: Connection) -> None:
        """See RequestHandler."""
        if self._handler is not None:
            self._handler.connection_closed(connection)
        elif self._refused_codes is not None:
            self._closed.append(connection)  # tables of clients outlast the parts

    def _may_wait(self, command: RemotingCommand) -> bool:
        return (
            self._refused_codes is not None
            and command.code not in self._refused_codes
            and self._waiting_count < WAITING_MAX
            and len(command.body or b"") <= WAITING_BYTES_MAX
        )

    def _refusal(self, command: RemotingCommand) -> UnavailableError:
        return ServiceUnavailableError(self._reason) if command.code in SENDS else BrokerBusyError(self._reason)

    async def _handle_later(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self._waiting_count += 1
        try:
            async with asyncio.timeout(WAIT_S):
                await self._served.wait()
        except TimeoutError:
            raise self._refusal(command) from None
        finally:
            self._waiting_count -= 1
        if self._handler is None:
            raise self._refusal(command)
        if connection.is_closed:
            return None
        answer = self._handler.handle(connection, command)
        return await answer if isinstance(answer, Awaitable) else answer
