"""TlsLayer: a server's TLS, between a connection and its socket; its handshake computes in a thread.

    socket's transport -> incoming BIO -> SSL object -> the connection's receive buffer
    connection -> SSL object -> outgoing BIO -> socket's transport

It is the protocol of the socket's transport and, once the handshake is over, the transport of the connection. It
belongs to the loop, but for the steps of the handshake: while the thread computes one, reading is paused, and nothing
else touches the SSL object. One step is up to a millisecond of signature; a record costs the loop a few microseconds,
less than a hop through another process would (docs/adr/0047-tls-in-the-hot-process.md).

Bounds: one read of the socket and one record wait here at most, while the connection has reading paused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, cast

from thermocline.remoting.connections import GatedConnection
from thermocline.remoting.tls.certificate_subject import certificate_subject

__all__ = ["TlsLayer"]

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

RECORD_BYTES = 16 * 1024
"""The plain bytes of the largest record."""
JOIN_BYTES_MAX = 1024 * 1024


class TlsLayer(asyncio.Transport, asyncio.BufferedProtocol):
    """See the module."""

    __slots__ = (
        "_connection",
        "_deadline",
        "_incoming",
        "_is_open",
        "_is_read_paused",
        "_on_shaken",
        "_outgoing",
        "_received",
        "_socket",
        "_thread",
        "_tls",
    )

    def __init__(
        self,
        connection: GatedConnection,
        transport: asyncio.Transport,
        *,
        thread: Executor,
        received: memoryview,
        on_shaken: Callable[[TlsLayer], None],
    ) -> None:
        """`received`: where bytes are read from the socket, which layers of one loop share. `on_shaken` is called once,
        when the handshake is over or has failed."""
        self._connection = connection
        self._socket = transport
        self._thread = thread
        self._received = received
        self._on_shaken: Callable[[TlsLayer], None] | None = on_shaken
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_open = False
        self._is_read_paused = False

    # -- handshake ---------------------------------------------------------------------------------------------------

    def start(self, make_context: Callable[[], ssl.SSLContext], hello: Buffer, *, timeout_ms: int) -> None:
        """Begin the handshake with what the client sent first. `make_context` is called in the thread."""
        self._incoming.write(hello)
        self._socket.set_protocol(self)
        self._deadline = self._connection.loop.call_later(timeout_ms / 1000, self._too_late)
        self._step(make_context)

    def _step(self, make_context: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._socket.pause_reading()
        step = self._connection.loop.run_in_executor(self._thread, self._compute, make_context)
        step.add_done_callback(self._stepped)

    def _compute(self, make_context: Callable[[], ssl.SSLContext] | None) -> tuple[bool, str]:
        """In the thread. Whether the handshake is over, and then the subject of the client's certificate."""
        if make_context is not None:
            self._tls = make_context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False, ""
        return True, certificate_subject(self._tls.getpeercert())

    def _stepped(self, step: asyncio.Future[tuple[bool, str]]) -> None:
        if step.cancelled() or self._connection.is_closed:
            self._shaken()
            return
        error = step.exception()
        if self._outgoing.pending:  # of a failure too: it tells the client why
            self._socket.write(self._outgoing.read())
        if error is not None:
            reason = error.reason if isinstance(error, ssl.SSLError) else error
            logger.info("TLS handshake failed remote=%s reason=%s", self._connection.remote_address, reason)
            self._shaken()
            self._connection.close()
            return
        is_over, subject = step.result()
        self._socket.resume_reading()
        if is_over:
            self._is_open = True
            self._shaken()
            self._connection.secure(self, certificate_subject=subject)
            if self._incoming.pending:  # the first requests may have come with the handshake's end
                self._deliver()

    def _shaken(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        on_shaken, self._on_shaken = self._on_shaken, None
        if on_shaken is not None:
            on_shaken(self)

    def _too_late(self) -> None:
        logger.info("TLS handshake took too long remote=%s", self._connection.remote_address)
        self._connection.abort()

    # -- the socket's protocol ---------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes of the socket go."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came from the socket."""
        if self._connection.is_closed:
            return
        self._incoming.write(self._received[:nbytes])
        if self._is_open:
            self._deliver()
        else:
            self._step()

    def eof_received(self) -> bool:
        """The client closed its half."""
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """The client is slow."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._shaken()
        self._connection.connection_lost(exc)

    def _deliver(self) -> None:
        """Give the connection what has come in whole records, a receive buffer at a time, until it pauses reading."""
        incoming, tls = self._incoming, self._tls
        assert tls is not None
        goes_on, has_ended = True, False
        while goes_on and not (self._is_read_paused or self._connection.is_closed):
            connection = self._connection  # another one behind `set_protocol`
            buffer = connection.get_buffer(-1)
            position, last_position = 0, len(buffer) - RECORD_BYTES
            try:
                while goes_on and position <= last_position:
                    # With a buffer it is a count; of one whole record, which is never larger.
                    size_bytes = cast(int, tls.read(RECORD_BYTES, buffer[position:] if position else buffer))
                    if not size_bytes:  # the client said that no more comes
                        goes_on, has_ended = False, True
                    position += size_bytes
                    if not incoming.pending:
                        goes_on = False  # without asking once more, which would raise
            except ssl.SSLWantReadError:
                goes_on = False
            except ssl.SSLError as error:
                logger.info("TLS connection dropped remote=%s reason=%s", connection.remote_address, error.reason)
                connection.abort()
                return
            if position:
                connection.buffer_updated(position)
        if self._outgoing.pending:  # an answer to a change of keys
            self._socket.write(self._outgoing.read())
        if has_ended:
            self._connection.close()

    # -- the connection's transport ----------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what comes from now on to another connection."""
        self._connection = cast(GatedConnection, protocol)

    def write(self, data: Buffer) -> None:
        """Encrypt and send."""
        assert self._tls is not None
        written = self._tls.write(data)
        assert written == len(data)  # a BIO in memory takes all
        self._socket.write(self._outgoing.read())

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:  # type: ignore[override]
        """Encrypt and send; what is small in few records."""
        if sum(map(len, list_of_data)) <= JOIN_BYTES_MAX:
            self.write(b"".join(list_of_data))
            return
        assert self._tls is not None
        for data in filter(len, list_of_data):
            written = self._tls.write(data)
            assert written == len(data)
        self._socket.write(self._outgoing.read())

    def close(self) -> None:
        """Close after what was written is sent."""
        if self._is_open and not self._socket.is_closing():
            assert self._tls is not None
            with contextlib.suppress(ssl.SSLError):  # it waits for the client's own goodbye, which is not needed
                self._tls.unwrap()
            self._socket.write(self._outgoing.read())
        self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._socket.is_closing()

    def pause_reading(self) -> None:
        """Give the connection nothing for now."""
        if not self._is_read_paused:
            self._is_read_paused = True
            if not self._socket.is_closing():
                self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Give the connection the bytes that came meanwhile, and later ones."""
        if self._is_read_paused:
            self._is_read_paused = False
            if not self._socket.is_closing():
                self._socket.resume_reading()
                self._connection.loop.call_soon(self._deliver_rest)

    def _deliver_rest(self) -> None:
        assert self._tls is not None
        if not self._connection.is_closed and (self._incoming.pending or self._tls.pending()):
            self._deliver()

    def get_write_buffer_size(self) -> int:
        """Bytes that the operating system has not taken yet."""
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Those of the socket."""
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the socket's transport tells."""
        return self._socket.get_extra_info(name, default)
