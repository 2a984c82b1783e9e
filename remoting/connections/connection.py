"""Connection: one socket that speaks remoting frames, at either end.

    chunk received -> whole frames -> responses settle calls, requests go to the handler -> answers leave in one write,
    behind whatever else the loop has received by then (see `Outbox`)

It belongs to one event loop and its thread; no method may be called from another.

Rules
  - The receive buffer is shared by all connections of a loop: a chunk is handled before the next one is read. Only
    the start of a frame that has not come whole is kept per connection, and it grows with what was received, never
    with what a length word announces.
  - A frame is judged by its length word alone. What cannot be a frame, or has a header that cannot be read, closes the
    connection: there is no opaque to answer to.
  - Frames of one connection are handled in order. A handler that answers at once costs no task; one that returns an
    awaitable gets one, and answers may overtake each other.
  - Bounds, see `ConnectionLimits`. A server's connection stops reading while its peer does not take answers, and while
    too many requests are being handled; it is dropped when the peer takes nothing for `drain_timeout_ms`, or when more
    than `unsent_bytes_max` waits. A client's connection goes on reading, and refuses new calls instead.
  - When it closes, every pending call fails at once with ConnectionLostError.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import cast

from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.connections.connection_limits import ConnectionLimits, Traffic
from thermocline.remoting.connections.held_bytes import UNSENT_NOTED_BYTES, HalfFrames, UnsentBytes
from thermocline.remoting.connections.outbox import Outbox
from thermocline.remoting.connections.pending_calls import PendingCalls
from thermocline.remoting.connections.request_handler import ChunkHandler, RequestHandler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import (
    BrokerBusyError,
    ConnectionLostError,
    MQError,
    ProtocolError,
)
from thermocline.remoting.frames import INCOMPLETE_FRAME, LENGTH, FrameSplitter, frame_end
from thermocline.remoting.records.message_record import encode_host
from thermocline.remoting.request_code import request_name
from thermocline.remoting.socket_address import Host, peer_address

__all__ = [
    "RECEIVE_BYTES",
    "ChunkHandler",
    "Connection",
    "ConnectionLimits",
    "RequestHandler",
    "Traffic",
]

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

RECEIVE_BYTES = 256 * 1024
"""The most that is read and handled at once, so that one connection cannot starve the others."""

_BURST_S = 0.01
"""How long one connection that sends all it can is handled before the others are read."""

_JOIN_BYTES_MAX = 64 * 1024  # below, copying into one piece is cheaper than handing over many


class Connection(asyncio.BufferedProtocol):
    """One open socket."""

    __slots__ = (
        "_burst_s",
        "_calls",
        "_chunk_handler",
        "_clock",
        "_closed",
        "_corked",
        "_drain_timer",
        "_ended",
        "_flush_scheduled",
        "_half_frames",
        "_handler",
        "_handling",
        "_has_half_frame",
        "_is_server",
        "_limits",
        "_on_closed",
        "_outbox",
        "_read_paused",
        "_receive",
        "_running",
        "_splitter",
        "_stalled",
        "_taken_mark",
        "_traffic",
        "_transport",
        "_unsent",
        "_unsent_bytes",
        "_unsent_of_all",
        "_writable",
        "_write_paused",
        "_written_bytes",
        "certificate_subject",
        "context",
        "last_active",
        "local_address",
        "loop",
        "received_at",
        "remote_address",
        "remote_host",
        "remote_host_bytes",
    )

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        handler: RequestHandler,
        chunk_handler: ChunkHandler | None = None,
        limits: ConnectionLimits | None = None,
        receive_buffer: memoryview | None = None,
        is_server: bool,
        on_closed: Callable[[Connection], None] | None = None,
        outbox: Outbox | None = None,
        traffic: Traffic | None = None,
        clock: Callable[[], float] | None = None,
        half_frames: HalfFrames | None = None,
        unsent_of_all: UnsentBytes | None = None,
    ) -> None:
        """`receive_buffer` and `outbox` may be shared by all connections of `loop`; without them the connection makes
        its own.

        `clock` gives seconds for `last_active` and `received_at`, when bytes came last; without it the loop's own time
        is taken. `half_frames` and `unsent_of_all`: bounds on what all connections of a server hold together.
        """
        self.loop = loop
        self._handler = handler
        self._chunk_handler = chunk_handler
        self._limits = limits or ConnectionLimits()
        self._receive = receive_buffer if receive_buffer is not None else memoryview(bytearray(RECEIVE_BYTES))
        self._is_server = is_server
        self._on_closed = on_closed
        self._outbox = outbox or Outbox()
        self._half_frames = half_frames
        self._has_half_frame = False
        self._unsent_of_all = unsent_of_all
        self._burst_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(frame_bytes_max=self._limits.frame_bytes_max)
        self._unsent: list[Buffer] = []
        self._unsent_bytes = 0
        self._corked = False
        self._flush_scheduled = False
        self._handling = False
        self._read_paused = False
        self._write_paused = False
        self._writable: asyncio.Event | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._taken_mark = 0
        self._written_bytes = 0
        self._stalled = False
        self._ended = asyncio.Event()
        self._traffic = traffic or Traffic()
        self._clock = clock or loop.time
        self._running: set[asyncio.Task[None]] = set()
        self._calls = PendingCalls(loop)
        self._closed = False
        self.last_active = self.received_at = self._clock()
        self.context: object | None = None
        self.remote_address = ""
        self.local_address = ""
        self.certificate_subject = ""
        """`CN=name,O=organization` of the peer's certificate, if it showed one that was checked."""
        self.remote_host: Host = ("127.0.0.1", 0)
        self.remote_host_bytes = encode_host(self.remote_host)

    def __repr__(self) -> str:
        return f"<Connection {self.local_address}<->{self.remote_address}{' closed' if self._closed else ''}>"

    # -- what a user of a connection calls -------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the operating system has not taken yet."""
        transport = self._transport
        return self._unsent_bytes + (0 if transport is None else transport.get_write_buffer_size())

    @property
    def is_write_paused(self) -> bool:
        """Whether the peer is slow to take what was written."""
        return self._write_paused

    @property
    def is_full(self) -> bool:
        """Whether as much is unsent as this connection should hold: the time for a `feed` to stop."""
        return self._write_paused or self._unsent_bytes > self._limits.unsent_bytes_high

    @property
    def is_reading_paused(self) -> bool:
        """Whether this side has stopped reading: see the rules above."""
        return self._read_paused

    @property
    def calls_pending(self) -> int:
        """Calls to the peer without an answer yet."""
        return len(self._calls)

    @property
    def requests_running(self) -> int:
        """Requests of the peer whose handler has not returned yet."""
        return len(self._running)

    @property
    def running_requests(self) -> frozenset[asyncio.Task[None]]:
        """The requests whose handlers run."""
        return frozenset(self._running)

    def write(self, data: Buffer | Sequence[Buffer]) -> None:
        """Send bytes of whole frames, in the order of the calls; what is written in one tick leaves together.

        A view must stay valid until it is sent. Nothing is raised: a closed connection takes and forgets.
        """
        if self._closed:
            return
        if isinstance(data, bytes | bytearray | memoryview):
            self._unsent.append(data)
            self._unsent_bytes += len(data)
        else:
            self._unsent.extend(data)
            self._unsent_bytes += sum(map(len, data))
        if not self._corked:
            self._flush_soon()

    def write_now(self, frame: bytes) -> None:
        """Send a whole frame behind what was written before, without waiting for the end of the round."""
        if not self._closed:
            self._unsent.append(frame)
            self._unsent_bytes += len(frame)
            self.flush()

    def send(self, command: RemotingCommand) -> None:
        """Send a request without waiting for an answer, or an answer."""
        body = command.body
        if len(body) < _JOIN_BYTES_MAX:
            self.write(command.encode())
        else:
            self.write((command.encode_head(), body))

    def start_call(self, command: RemotingCommand, *, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """Send a request; the future gives the peer's answer, whatever its code.

        It fails with RequestTimeoutError, or with ConnectionLostError as soon as the connection does. Cancelling it is
        safe: the answer is dropped.

        Raises:
            ConnectionLostError: The connection is closed.
            BrokerBusyError: Too many calls are pending, or too much is unsent.
        """
        self.check_can_send()
        future = self._calls.add(command.opaque, timeout_ms)
        self.send(command)
        return future

    async def call(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for the peer's answer, whatever its code. Cancelling is safe.

        Raises:
            RequestTimeoutError: No answer in time.
            ConnectionLostError: The connection is closed, or closes meanwhile.
            BrokerBusyError: See `start_call`.
        """
        return await self.start_call(command, timeout_ms=timeout_ms)

    def check_can_send(self) -> None:
        """Pass when a further request can be sent.

        Raises:
            ConnectionLostError: The connection is closed.
            BrokerBusyError: Too many calls are pending, or too much is unsent.
        """
        if self._closed:
            raise ConnectionLostError("the connection is closed", address=self.remote_address)
        if len(self._calls) >= self._limits.calls_pending_max:
            raise BrokerBusyError("too many calls are pending", address=self.remote_address)
        if self.unsent_bytes > self._limits.unsent_bytes_max:
            raise BrokerBusyError("the peer does not take what is sent", address=self.remote_address)

    def handle_frames(self, frames: bytes) -> None:
        """Handle whole frames that the chunk handler took and kept for a moment, before what came behind them."""
        if not self._closed:
            self._handle_received(self._splitter.join_before(frames))

    async def wait_writable(self) -> None:
        """Wait until the peer has taken enough of what was written; at once if it has. Cancelling is safe."""
        while self._write_paused and not self._closed:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def close(self) -> None:
        """Close after what was written is sent. Idempotent."""
        if self._closed or self._transport is None:
            return
        self.flush()
        self._shut("closed by this side", abort=False)

    def abort(self) -> None:
        """Close at once; what was not sent is lost. Idempotent."""
        self._shut("aborted by this side", abort=True)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed. Cancelling is safe."""
        await self._ended.wait()

    async def wait_requests(self) -> None:
        """Wait until every request whose handler is running is answered. Cancelling is safe."""
        while self._running:
            await asyncio.wait(set(self._running))

    # -- the transport's callbacks ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._transport = transport
        limits = self._limits
        transport.set_write_buffer_limits(high=limits.unsent_bytes_high, low=limits.unsent_bytes_high // 4)
        self.remote_address, self.remote_host = peer_address(transport.get_extra_info("peername"))
        self.local_address, _ = peer_address(transport.get_extra_info("sockname"))
        self.remote_host_bytes = encode_host(self.remote_host)
        self._handler.connection_opened(self)

    def secure(self, transport: asyncio.Transport, *, certificate_subject: str) -> None:
        """Go on over a transport that encrypts, before anything was read or written."""
        assert self._transport is not None
        assert self._written_bytes == 0
        self._transport = transport
        self.certificate_subject = certificate_subject

    def give_up_transport(self) -> asyncio.Transport:
        """End as if the socket had closed, which goes on with another protocol; before anything was handled."""
        transport = self._transport
        assert transport is not None
        assert self._written_bytes == 0
        self._transport = None
        self.connection_lost(None)
        return transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._shut("lost" if exc is None else str(exc), abort=True)
        self._transport = None
        self._stop_drain_timer()
        self._ended.set()
        self._handler.connection_closed(self)
        if self._on_closed is not None:
            self._on_closed(self)

    def eof_received(self) -> bool:
        """The peer closed its half: answers that it still waits for have nowhere to go."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next chunk goes."""
        return self._receive

    def buffer_updated(self, nbytes: int) -> None:
        """A chunk was received."""
        self.last_active = self.received_at = self._clock()
        if self._closed:
            return
        self._traffic.received_bytes += nbytes
        if nbytes < len(self._receive):
            self._burst_s = 0.0
            self._handle_received(self._splitter.join(self._receive[:nbytes]))
        else:
            self._handle_full_buffer()

    def _handle_full_buffer(self) -> None:
        """Read on in the next round of the loop after a time: uvloop reads up to 32 full buffers in a row."""
        started_s = perf_counter()
        self._handle_received(self._splitter.join(self._receive))
        self._burst_s += perf_counter() - started_s
        if self._burst_s >= _BURST_S and self._transport is not None and not (self._read_paused or self._closed):
            self._burst_s = 0.0
            self._transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not (self._read_paused or self._closed):
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The peer is slow: more is unsent than `unsent_bytes_high`."""
        self._write_paused = True
        self._taken_mark = self._taken_bytes()
        if self._drain_timer is None:
            self._drain_timer = self.loop.call_later(self._limits.drain_timeout_ms / 1000, self._check_drain)
        self._update_reading()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._write_paused = False
        self._stop_drain_timer()
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        self._continue_reading()

    def _stop_drain_timer(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None

    # -- reading ---------------------------------------------------------------------------------------------------

    def _handle_received(self, view: memoryview | None) -> None:
        """Handle the whole frames at the front, and keep the rest: the start of a frame, or frames for which reading
        had to stop. None: the frame at the front is not whole yet."""
        if view is None:
            self._note_half_frame(is_new=False)
            return
        consumed = self._handle_guarded(view)
        if consumed == len(view) or self._closed:
            if self._has_half_frame and self._half_frames is not None:
                self._half_frames.end(self)
                self._has_half_frame = False
            return
        self._splitter.keep(view[consumed:])
        self._note_half_frame(is_new=consumed > 0)
        if self._stalled and not self._read_paused:  # the peer caught up while the answers were being written
            self.loop.call_soon(self._continue_reading)

    def _note_half_frame(self, *, is_new: bool) -> None:
        if self._half_frames is not None:
            self._has_half_frame = True
            self._half_frames.note(self, self._splitter.kept_bytes, is_new=is_new)

    def _handle_guarded(self, view: memoryview) -> int:
        """Handle whole frames at the front of `view`; their bytes. Whatever goes wrong ends at this connection."""
        self._corked = True
        self._handling = True
        self._stalled = False
        try:
            return self._handle_frames(view)
        except ProtocolError as error:
            logger.info("connection dropped remote=%s reason=%s", self.remote_address, error)
            self.flush()
            self._shut(str(error), abort=False)
            return len(view)
        except Exception:  # the end of this connection's work: no peer may take the loop down
            logger.exception("connection dropped, a bug of ours remote=%s", self.remote_address)
            self._shut("internal error", abort=True)
            return len(view)
        finally:
            self._handling = False
            self._corked = False
            if self._unsent:
                self._flush_soon()

    def _handle_frames(self, view: memoryview) -> int:
        end = len(view)
        position = 0
        chunk_handler = self._chunk_handler
        frame_bytes_max = self._splitter.frame_bytes_max
        length_bytes = LENGTH.size
        while end - position >= length_bytes:
            if chunk_handler is not None:
                position += chunk_handler.feed(self, view[position:] if position else view)
                assert position <= end
                if not self._may_go_on() or end - position < length_bytes:
                    break
            next_position = frame_end(view, position, frame_bytes_max)
            if next_position == INCOMPLETE_FRAME:
                break
            self._handle_command(decode_command(view[position + length_bytes : next_position]))
            position = next_position
            if not self._may_go_on():
                break
        return position

    def _may_go_on(self) -> bool:
        """Whether the next request may be handled, as far as this connection's bounds go."""
        if self._unsent_bytes > self._limits.unsent_bytes_high:
            self.flush()
        if self._read_paused:
            self._stalled = True
            return False
        return not self._closed

    def _handle_command(self, command: RemotingCommand) -> None:
        if command.is_response:
            self._calls.settle(command)
            return
        try:
            answer = self._handler.handle(self, command)
        except Exception as error:  # noqa: BLE001 - the end of a request: it becomes an answer
            self._answer_error(command, error)
            return
        if answer is None:
            return
        if isinstance(answer, RemotingCommand):
            assert answer.opaque == command.opaque, "an answer is made by RemotingCommand.response"
            if not command.is_oneway:
                self.send(answer)
            return
        task = self.loop.create_task(self._answer_later(command, answer))
        self._running.add(task)
        task.add_done_callback(self._request_done)
        if len(self._running) >= self._limits.requests_running_max:
            self._update_reading()

    async def _answer_later(self, command: RemotingCommand, answer: Awaitable[RemotingCommand | None]) -> None:
        try:
            response = await answer
            assert response is None or response.opaque == command.opaque
        except Exception as error:  # noqa: BLE001 - the end of a request: it becomes an answer
            self._answer_error(command, error)
            return
        if response is not None and not command.is_oneway:
            self.send(response)

    def _request_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._read_paused:
            self._continue_reading()

    def _answer_error(self, command: RemotingCommand, error: Exception) -> None:
        if isinstance(error, MQError):
            logger.debug("request refused code=%s remote=%s: %s", command.code, self.remote_address, error)
        else:
            logger.error(
                "request failed, a bug of ours code=%s remote=%s",
                request_name(command.code),
                self.remote_address,
                exc_info=error,
            )
        if not command.is_oneway:
            self.send(error_response(command, error))

    def _update_reading(self) -> None:
        """Stop or go on reading, as the bounds say; a client goes on, or it would never get its answers."""
        busy = len(self._running) >= self._limits.requests_running_max
        paused = busy or (self._write_paused and self._is_server)
        if paused == self._read_paused or self._transport is None or self._closed:
            return
        self._read_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _continue_reading(self) -> None:
        self._update_reading()
        if self._stalled and not self._read_paused and not self._handling:
            self._handle_received(self._splitter.take_kept())

    # -- writing ---------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._outbox.add(self)

    def flush(self) -> None:
        """Hand what was written to the transport now; happens by itself at the end of each round of the loop."""
        self._flush_scheduled = False
        unsent = self._unsent
        transport = self._transport
        if not unsent or transport is None:
            return
        self._unsent = []
        if transport.is_closing():
            self._unsent_bytes = 0
            return
        size_bytes = self._unsent_bytes
        self._unsent_bytes = 0
        self._written_bytes += size_bytes
        self._traffic.sent_bytes += size_bytes
        if len(unsent) == 1:
            transport.write(unsent[0])
        elif size_bytes <= _JOIN_BYTES_MAX:
            transport.write(b"".join(unsent))
        else:
            transport.writelines(unsent)
        self.last_active = self._clock()
        if self._unsent_of_all is not None and transport.get_write_buffer_size() >= UNSENT_NOTED_BYTES:
            self._unsent_of_all.note(self, transport.get_write_buffer_size())
        if self._write_paused and self._is_server and self.unsent_bytes > self._limits.unsent_bytes_max:
            self._drop_slow("too much is unsent")

    def _check_drain(self) -> None:
        """The drain timer: drop a peer that took nothing since it was set."""
        self._drain_timer = None
        if self._closed or not self._write_paused:
            return
        taken_bytes = self._taken_bytes()
        if taken_bytes <= self._taken_mark:
            self._drop_slow("it takes nothing")
            return
        self._taken_mark = taken_bytes
        self._drain_timer = self.loop.call_later(self._limits.drain_timeout_ms / 1000, self._check_drain)

    def _taken_bytes(self) -> int:
        """All bytes that the operating system has taken so far."""
        transport = self._transport
        return self._written_bytes - (0 if transport is None else transport.get_write_buffer_size())

    def _drop_slow(self, reason: str) -> None:
        logger.warning(
            "connection dropped, the peer is too slow remote=%s unsent_bytes=%d reason=%s",
            self.remote_address,
            self.unsent_bytes,
            reason,
        )
        self._shut(reason, abort=True)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _shut(self, reason: str, *, abort: bool) -> None:
        """Nothing is handled or sent from here on; `connection_lost` follows."""
        transport = self._transport
        if transport is not None and abort:
            transport.abort()
        if self._closed:
            return
        self._closed = True
        self._unsent = []
        self._unsent_bytes = 0
        self._splitter.clear()
        if self._half_frames is not None:
            self._half_frames.end(self)
        if self._unsent_of_all is not None:
            self._unsent_of_all.end(self)
        if transport is not None and not abort:
            transport.close()
            # A peer that takes nothing would keep a closing connection open for ever.
            self._stop_drain_timer()
            self._drain_timer = self.loop.call_later(self._limits.drain_timeout_ms / 1000, transport.abort)
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        self._calls.fail(ConnectionLostError(ConnectionLostError.LOST, address=self.remote_address, reason=reason))
