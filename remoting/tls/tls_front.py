"""TlsFront: decides by a connection's first byte, and passes those that begin with TLS to the terminator.

    first byte 0x16   mode disabled: closed, with a line; else the socket goes to the terminator, which is started if
                      it is not there, and comes back as a plain connection with the client's address once the
                      handshake is over
    anything else     mode enforcing: closed, with a line; else served as it is

The server computes nothing for TLS but one message for each new connection. While the terminator is away (it starts, or
has failed) connections wait for it, WAITING_MAX of them, for as long as a handshake may take.
Belongs to the server's event loop.
Source: NettyRemotingServer.TlsModeHandler, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from thermocline.remoting.connections import Connection, ForwardedPeer, RemotingServer
from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.settings import TlsConfig, TlsMode
from thermocline.remoting.tls.terminator_link import (
    HELLO_BYTES_MAX,
    LinkSettings,
    PlainConnection,
    TlsConnection,
    receive,
    send,
)

__all__ = ["HANDSHAKE_BYTE", "TlsFront"]

logger = logging.getLogger(__name__)

HANDSHAKE_BYTE = 0x16
WAITING_MAX = 1_024
TAKEN_AT_ONCE_MAX = 64
"""Connections that are taken back in one turn of the loop."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    connection: Connection
    transport: asyncio.Transport
    hello: bytes
    until: float


class TlsFront:
    """See the module. `launch` starts the terminator, which gets its end of a new link from `new_link`; it is called
    when a connection waits and there is no link, more than once if a terminator ends."""

    def __init__(self, config: TlsConfig, *, launch: Callable[[], None]) -> None:
        self._config = config
        self._launch = launch
        self._server: RemotingServer | None = None
        self._link: socket.socket | None = None
        self._waiting: deque[_Waiting] = deque()
        self._is_writing = False
        self._adopting: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def attach(self, server: RemotingServer) -> None:
        """Give plain connections to this server; on its loop."""
        self._server = server

    # -- Gate --------------------------------------------------------------------------------------------------------

    def admit(self, connection: Connection, transport: asyncio.Transport, chunk: memoryview) -> bool:
        """Whether a new connection is served as it is; otherwise it was dealt with."""
        is_tls = chunk[0] == HANDSHAKE_BYTE
        if not is_tls and self._config.server_mode != TlsMode.ENFORCING:
            return True
        if not is_tls:
            logger.warning(
                "connection closed, it is not encrypted and tls.server.mode is enforcing remote=%s",
                connection.remote_address,
            )
            connection.abort()
        elif not self._config.takes_tls:
            logger.warning(
                "connection closed, it is TLS and tls.server.mode is disabled remote=%s", connection.remote_address
            )
            connection.abort()
        elif len(chunk) > HELLO_BYTES_MAX or self._is_closed or len(self._waiting) >= WAITING_MAX:
            logger.warning("TLS connection refused remote=%s waiting=%d", connection.remote_address, len(self._waiting))
            connection.abort()
        else:
            self._pass_on(connection, transport, bytes(chunk))
        return False

    # -- the terminator ----------------------------------------------------------------------------------------------

    def new_link(self) -> socket.socket:
        """Make the link to a terminator that is being started; returns its end, which the caller has to close."""
        self._drop_link()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        send(ours, LinkSettings(tls=self._config))
        self._link = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._link_readable)
        self._send_waiting()
        return theirs

    def start(self) -> None:
        """Start the terminator before the first connection needs it, where TLS is expected."""
        config = self._config
        if config.server_mode == TlsMode.ENFORCING or (config.takes_tls and not config.is_self_signed):
            self._launch()

    async def close(self) -> None:
        """Let the terminator end; connections that wait for it are closed. Idempotent."""
        self._is_closed = True
        self._drop_link()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.connection.abort()
        for task in tuple(self._adopting):
            task.cancel()
        await asyncio.gather(*self._adopting, return_exceptions=True)

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(link.fileno())
            if self._is_writing:
                loop.remove_writer(link.fileno())
                self._is_writing = False
            link.close()

    # -- to the terminator -------------------------------------------------------------------------------------------

    def _pass_on(self, connection: Connection, transport: asyncio.Transport, hello: bytes) -> None:
        loop = connection.loop
        transport.pause_reading()
        timeout_s = self._config.handshake_timeout_ms / 1000
        self._waiting.append(_Waiting(connection, transport, hello, loop.time() + timeout_s))
        loop.call_later(timeout_s, self._expire)
        if self._link is None:
            self._launch()
        elif not self._is_writing:
            self._send_waiting()

    def _send_waiting(self) -> None:
        link, waiting = self._link, self._waiting
        assert link is not None
        loop = asyncio.get_running_loop()
        while waiting:
            each = waiting[0]
            if not each.connection.is_closed:
                message = TlsConnection(
                    remote=each.connection.remote_host, local=each.connection.local_host, hello=each.hello
                )
                try:
                    send(link, message, each.transport.get_extra_info("socket").fileno())
                except BlockingIOError:
                    if not self._is_writing:
                        self._is_writing = True
                        loop.add_writer(link.fileno(), self._send_waiting)
                    return
                except OSError:
                    self._drop_link()  # its supervisor starts another; what waits goes there
                    return
                each.connection.abort()  # ours is not the last descriptor of the socket: it stays open
            waiting.popleft()
        if self._is_writing:
            self._is_writing = False
            loop.remove_writer(link.fileno())

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and self._waiting[0].until <= now:
            each = self._waiting.popleft()
            if not each.connection.is_closed:
                logger.warning(
                    "TLS connection refused, no terminator in time remote=%s", each.connection.remote_address
                )
                each.connection.abort()

    # -- from the terminator -----------------------------------------------------------------------------------------

    def _link_readable(self) -> None:
        for _ in range(TAKEN_AT_ONCE_MAX):
            link = self._link
            if link is None:
                return
            try:
                received = receive(link)
            except BlockingIOError:
                return
            except ProtocolError as error:
                logger.error("TLS connection refused: %s", error)
                continue
            except OSError:
                received = None
            if received is None:
                self._drop_link()
                if self._waiting and not self._is_closed:
                    self._launch()
                return
            message, descriptor = received
            assert isinstance(message, PlainConnection)
            assert descriptor is not None
            self._adopt(message, socket.socket(fileno=descriptor))

    def _adopt(self, message: PlainConnection, sock: socket.socket) -> None:
        assert self._server is not None
        sock.setblocking(False)
        peer = ForwardedPeer(remote=message.remote, local=message.local, certificate_subject=message.subject)
        task = asyncio.get_running_loop().create_task(self._server.adopt(sock, peer))
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)
