"""Terminator: ends the TLS of a server's connections, and passes their plain bytes on.

    server accepts -> first byte is TLS's -> socket comes here -> handshake -> pair of unix sockets, one to the server

It is a thread, or the only work of a process, around one epoll: no asyncio, because its bytes only pass through. It
belongs to that thread. It ends when the server's end of the link closes, after what was written is sent.

Rules
  - A handshake that is not over in `handshake_timeout_ms` is ended, and so is one above `handshakes_max`.
  - A server learns of a connection when its handshake is over.
  - The server decides when a slow connection ends: it sees that its plain side takes nothing.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import time
from collections import deque

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.settings import TlsConfig
from thermocline.remoting.tls.server_context import LOOK_INTERVAL_S, ReloadedContext
from thermocline.remoting.tls.terminator_link import LinkSettings, PlainConnection, TlsConnection, receive, send
from thermocline.remoting.tls.tls_session import TlsSession, make_receive_buffer

__all__ = ["run_terminator"]

logger = logging.getLogger(__name__)

EVENTS_MAX = 256
LAST_BYTES_TIMEOUT_S = 30.0
"""How long a client may take over the last bytes of a connection that the server has closed."""
STOP_TIMEOUT_S = 2.0
"""The same, when the server is gone or stops."""
REFUSED_LINE_INTERVAL_S = 1.0

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR


def run_terminator(link: socket.socket) -> None:
    """Work until the other end of `link` closes, which is closed then. Its first message are the settings."""
    with link:
        link.setblocking(True)
        first = receive(link)
        if first is None:
            return
        settings, _ = first
        assert isinstance(settings, LinkSettings)
        link.setblocking(False)
        Terminator(link, settings.tls).run()


class Terminator:
    """See the module."""

    def __init__(self, link: socket.socket, config: TlsConfig) -> None:
        self._link = link
        self._config = config
        self._context = ReloadedContext(config)
        self._epoll = select.epoll()
        self._receive_buffer = make_receive_buffer()
        self._sides: dict[int, tuple[TlsSession, bool]] = {}
        """Descriptor -> its session, and whether it is the client's side."""
        self._interest: dict[int, int] = {}
        self._timed: set[TlsSession] = set()
        """Sessions with a deadline."""
        self._shaking = 0
        self._unsent: deque[tuple[PlainConnection, socket.socket]] = deque()
        """Connections that the server has not taken yet."""
        self._refused_count = 0
        self._refused_at = 0.0
        self._stop_at: float | None = None

    def run(self) -> None:
        """Work until the link closes and nothing is left to send."""
        link, epoll = self._link.fileno(), self._epoll
        epoll.register(link, _IN)
        look_at = time.monotonic() + LOOK_INTERVAL_S
        try:
            while True:
                for descriptor, events in epoll.poll(LOOK_INTERVAL_S, EVENTS_MAX):
                    if descriptor == link:
                        self._link_ready(events)
                    elif descriptor in self._sides:  # else closed by an event before it
                        self._side_ready(descriptor, events)
                now = time.monotonic()
                if now >= look_at:
                    look_at = now + LOOK_INTERVAL_S
                    self._look(now)
                if self._stop_at is not None and (not self._sides or now >= self._stop_at):
                    return
        finally:
            for session in {session for session, _ in self._sides.values()}:
                session.close()
            for _, sock in self._unsent:
                sock.close()
            epoll.close()

    # -- the server's link -------------------------------------------------------------------------------------------

    def _link_ready(self, events: int) -> None:
        try:
            if events & _OUT:
                self._send_connections()
            if events & (_IN | _GONE):
                self._take_connections()
        except BlockingIOError:
            return
        except OSError:
            self._link_closed()

    def _take_connections(self) -> None:
        for _ in range(EVENTS_MAX):
            try:
                received = receive(self._link)
            except ProtocolError as error:
                logger.error("TLS connection refused: %s", error)
                continue
            if received is None:
                self._link_closed()
                return
            message, descriptor = received
            assert isinstance(message, TlsConnection)
            assert descriptor is not None
            self._begin(message, socket.socket(fileno=descriptor))

    def _link_closed(self) -> None:
        """No connection comes any more; those that are open get the answers that were written."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + STOP_TIMEOUT_S
            self._epoll.unregister(self._link.fileno())
            for session in [session for session, is_client in self._sides.values() if is_client]:
                if not session.is_open:
                    self._end(session)

    def _send_connections(self) -> None:
        unsent = self._unsent
        while unsent:
            message, sock = unsent[0]
            try:
                send(self._link, message, sock.fileno())
            except BlockingIOError:
                self._epoll.modify(self._link.fileno(), _IN | _OUT)
                return
            unsent.popleft()
            sock.close()
        self._epoll.modify(self._link.fileno(), _IN)

    # -- a connection's life -----------------------------------------------------------------------------------------

    def _begin(self, message: TlsConnection, client: socket.socket) -> None:
        context = self._context.current
        if context is None or self._shaking + len(self._unsent) >= self._config.handshakes_max:
            client.close()
            self._refused(message.remote)
            return
        client.setblocking(False)
        session = TlsSession(
            client, context, remote=message.remote, local=message.local, receive_buffer=self._receive_buffer
        )
        session.deadline = time.monotonic() + self._config.handshake_timeout_ms / 1000
        self._timed.add(session)
        self._shaking += 1
        self._sides[client.fileno()] = session, True
        self._set_interest(client.fileno(), _IN)
        self._shake(session, message.hello)

    def _shake(self, session: TlsSession, data: bytes) -> None:
        try:
            is_over = session.shake(data)
        except OSError as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            logger.info("TLS handshake failed remote=%s:%d reason=%s", *session.remote, reason or error)
            self._end(session)
            return
        if is_over:
            self._open(session)
        else:
            self._update(session)

    def _open(self, session: TlsSession) -> None:
        session.deadline = None
        self._timed.discard(session)
        self._shaking -= 1
        session.plain, server_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        session.plain.setblocking(False)
        self._sides[session.plain.fileno()] = session, False
        message = PlainConnection(remote=session.remote, local=session.local, subject=session.subject)
        self._unsent.append((message, server_side))
        try:
            self._send_connections()
        except OSError:
            self._link_closed()
        try:
            self._client_read(session, session.decrypt())  # the first requests may have come with the handshake's end
        except OSError:
            self._end(session)

    def _end(self, session: TlsSession) -> None:
        """Close both sides at once."""
        if not session.is_open:
            self._shaking -= 1
        self._timed.discard(session)
        for sock in (session.client, session.plain):
            if sock is not None and self._sides.pop(sock.fileno(), None) is not None:
                self._set_interest(sock.fileno(), None)
        session.close()

    def _finish(self, session: TlsSession) -> None:
        """The server has closed: close when what it wrote is sent."""
        assert session.plain is not None
        session.is_ending = True
        session.say_goodbye()
        if not session.to_client:
            self._end(session)
            return
        self._set_deadline(session)
        self._update(session)

    # -- bytes -------------------------------------------------------------------------------------------------------

    def _side_ready(self, descriptor: int, events: int) -> None:
        session, is_client = self._sides[descriptor]
        try:
            if not session.is_open:
                self._handshake_ready(session, events)
            elif is_client:
                self._client_ready(session, events)
            else:
                self._plain_ready(session, events)
        except OSError as error:  # a side is gone, or the client's bytes are no TLS
            if isinstance(error, ssl.SSLError):
                logger.info("TLS connection dropped remote=%s:%d reason=%s", *session.remote, error.reason or error)
            self._end(session)

    def _handshake_ready(self, session: TlsSession, events: int) -> None:
        if events & _OUT:
            session.client_writable()
        if not events & (_IN | _GONE):
            self._update(session)
            return
        try:
            data = session.receive_handshake()
        except BlockingIOError:
            self._update(session)
            return
        if data:
            self._shake(session, data)
        else:
            self._end(session)

    def _client_ready(self, session: TlsSession, events: int) -> None:
        if events & _OUT:
            session.client_writable()
            if session.is_ending and not session.to_client:
                self._end(session)
                return
        if events & _IN and self._interest[session.client.fileno()] & _IN:
            self._client_read(session, session.client_readable())
        elif events & _GONE:
            self._end(session)
        else:
            self._update(session)

    def _client_read(self, session: TlsSession, goes_on: bool) -> None:
        """What the client sent was read; unless it goes on, it has closed."""
        if not goes_on:
            session.is_client_done = True
            if not session.to_plain:
                self._end(session)
                return
            self._set_deadline(session)
        self._update(session)

    def _plain_ready(self, session: TlsSession, events: int) -> None:
        assert session.plain is not None
        if events & _OUT:
            session.plain_writable()
            if session.is_client_done and not session.to_plain:
                self._end(session)
                return
        if events & _IN and self._interest[session.plain.fileno()] & _IN:
            if not session.plain_readable():
                self._finish(session)
                return
        elif events & _GONE:
            # The server has closed; what it wrote is read when the client has taken what it has now.
            self._set_interest(session.plain.fileno(), None)
            session.is_plain_gone = True
            self._set_deadline(session)
        self._update(session)

    def _update(self, session: TlsSession) -> None:
        """Wait for what can be done next: a side is read while nothing waits for the other."""
        is_ending = session.is_ending or session.is_client_done
        can_read = not (session.to_plain or is_ending)
        self._set_interest(session.client.fileno(), (_IN if can_read else 0) | (_OUT if session.to_client else 0))
        if session.plain is not None:
            can_read = not (session.to_client or is_ending)
            interest = (_IN if can_read else 0) | (_OUT if session.to_plain else 0)
            if can_read or not session.is_plain_gone:
                self._set_interest(session.plain.fileno(), interest)

    def _set_interest(self, descriptor: int, events: int | None) -> None:
        """None: no event at all, not even that the other end is gone."""
        present = self._interest.get(descriptor)
        if events == present:
            return
        if events is None:
            self._epoll.unregister(descriptor)
            del self._interest[descriptor]
            return
        if present is None:
            self._epoll.register(descriptor, events)
        else:
            self._epoll.modify(descriptor, events)
        self._interest[descriptor] = events

    # -- time --------------------------------------------------------------------------------------------------------

    def _set_deadline(self, session: TlsSession) -> None:
        session.deadline = time.monotonic() + LAST_BYTES_TIMEOUT_S
        self._timed.add(session)

    def _look(self, now: float) -> None:
        """What happens every LOOK_INTERVAL_S."""
        self._context.look()
        for session in [session for session in self._timed if session.deadline is not None and session.deadline <= now]:
            if not session.is_open:
                logger.info("TLS handshake took too long remote=%s:%d", *session.remote)
            self._end(session)

    def _refused(self, remote: tuple[str, int]) -> None:
        """One line for many."""
        self._refused_count += 1
        now = time.monotonic()
        if now - self._refused_at >= REFUSED_LINE_INTERVAL_S:
            reason = "there is no certificate" if self._context.current is None else "too many handshakes are under way"
            logger.warning(
                "TLS connection refused, %s remote=%s:%d count=%d", reason, remote[0], remote[1], self._refused_count
            )
            self._refused_count, self._refused_at = 0, now
