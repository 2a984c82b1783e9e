"""TlsSession: one client's connection inside the terminator, between its TLS socket and its plain one.

    TLS socket -> incoming BIO -> SSL object -> plain socket       what has no room stays in `to_plain`
    plain socket -> SSL object -> outgoing BIO -> TLS socket       what has no room stays in `to_client`

Bounds: a side is read only while nothing waits for the other one, so that at most one read of each side is held
(RECEIVE_BYTES and a record), and a slow reader slows down the writer.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import cast

__all__ = ["TlsSession", "certificate_subject", "make_receive_buffer"]

RECEIVE_BYTES = 256 * 1024
_RECORD_BYTES = 16 * 1024 + 512


def make_receive_buffer() -> memoryview:
    """Make the buffer that all sessions of a thread share: nothing stays in it from one call to the next."""
    return memoryview(bytearray(RECEIVE_BYTES + 2 * _RECORD_BYTES))


class TlsSession:
    """See the module. Methods that move bytes return whether the connection goes on."""

    __slots__ = (
        "_incoming",
        "_outgoing",
        "_received",
        "_tls",
        "client",
        "deadline",
        "is_client_done",
        "is_ending",
        "is_open",
        "is_plain_gone",
        "local",
        "plain",
        "remote",
        "to_client",
        "to_plain",
    )

    def __init__(
        self,
        client: socket.socket,
        context: ssl.SSLContext,
        *,
        remote: tuple[str, int],
        local: tuple[str, int],
        receive_buffer: memoryview,
    ) -> None:
        """`receive_buffer`: one of `make_receive_buffer`."""
        self._received = receive_buffer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.client = client
        self.plain: socket.socket | None = None
        self.remote, self.local = remote, local
        self.to_client = b""
        self.to_plain = b""
        self.deadline: float | None = None
        """Until when the handshake, or the sending of the last bytes, must be over."""
        self.is_open = False
        """Whether the handshake is over."""
        self.is_ending = False
        """Whether the server's side has closed, and what it wrote is being sent."""
        self.is_client_done = False
        """Whether the client has closed, and what it sent is being passed on."""
        self.is_plain_gone = False
        """Whether the server's side has closed, and what it wrote is not read yet."""

    # -- handshake ---------------------------------------------------------------------------------------------------

    def shake(self, data: bytes = b"") -> bool:
        """Go on with the handshake, with bytes of the client; True when it is over, then `subject` is known.

        Raises:
            ssl.SSLError: It failed; what tells the client why was sent if there was room.
            OSError: The client is gone.
        """
        if data:
            self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_to_client()
            return False
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._send_to_client()
            raise
        self._send_to_client()
        self.is_open = True
        return True

    @property
    def subject(self) -> str:
        """The subject of the client's certificate, empty without one."""
        return certificate_subject(self._tls.getpeercert())

    # -- bytes -------------------------------------------------------------------------------------------------------

    def receive_handshake(self) -> bytes:
        """Read what the client sent; empty: it has closed.

        Raises:
            OSError: It is gone, or (BlockingIOError) has sent nothing.
        """
        return self.client.recv(_RECORD_BYTES)

    def client_readable(self) -> bool:
        """Take what the client sent over to the plain side; False when it has closed.

        Raises:
            OSError: A side is gone, or (ssl.SSLError) what came is no TLS.
        """
        try:
            size_bytes = self.client.recv_into(self._received, RECEIVE_BYTES)
        except BlockingIOError:
            return True
        if size_bytes == 0:
            return False
        self._incoming.write(self._received[:size_bytes])
        return self.decrypt()

    def decrypt(self) -> bool:
        """Take what has come whole over to the plain side; False when the client said that no more comes."""
        read, incoming, goes_on, received = self._tls.read, self._incoming, True, self._received
        position = 0
        limit = len(received) - _RECORD_BYTES
        while True:
            try:
                size_bytes = cast(int, read(_RECORD_BYTES, received[position:]))  # with a buffer it is a count
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                size_bytes = 0
            if not size_bytes:
                goes_on = False
                break
            position += size_bytes
            if position > limit:
                self._send_to_plain(received[:position])
                position = 0
            elif not incoming.pending and not self._tls.pending():
                break  # without asking once more, which would raise
        if position:
            self._send_to_plain(received[:position])
        if self._outgoing.pending:  # an answer to a change of keys
            self._send_to_client()
        return goes_on

    def plain_readable(self) -> bool:
        """Take what the server wrote over to the client; False when the server has closed.

        Raises:
            OSError: A side is gone.
        """
        assert self.plain is not None
        try:
            size_bytes = self.plain.recv_into(self._received, RECEIVE_BYTES)
        except BlockingIOError:
            return True
        if size_bytes == 0:
            return False
        self._tls.write(self._received[:size_bytes])
        self._send_to_client()
        return True

    def say_goodbye(self) -> None:
        """Tell the client that no more comes."""
        with contextlib.suppress(ssl.SSLError):  # it waits for the client's own goodbye, which is not needed
            self._tls.unwrap()
        self._send_to_client()

    def client_writable(self) -> None:
        """Send what waits for the client."""
        self._send_to_client()

    def plain_writable(self) -> None:
        """Send what waits for the server."""
        waiting, self.to_plain = self.to_plain, b""
        self._send_to_plain(memoryview(waiting))

    def close(self) -> None:
        """Close both sides. Idempotent."""
        self.client.close()
        if self.plain is not None:
            self.plain.close()

    def _send_to_client(self) -> None:
        data = self._outgoing.read()
        if self.to_client:
            data = self.to_client + data
        if not data:
            return
        try:
            sent = self.client.send(data)
        except BlockingIOError:
            sent = 0
        self.to_client = b"" if sent == len(data) else data[sent:]

    def _send_to_plain(self, data: memoryview) -> None:
        assert self.plain is not None
        if self.to_plain:
            self.to_plain += bytes(data)
            return
        try:
            sent = self.plain.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.to_plain = bytes(data[sent:])


_ATTRIBUTES = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
}


def certificate_subject(certificate: object) -> str:
    """`CN=name,OU=unit`, the subject in what `SSLObject.getpeercert` gives, as RFC 4514 orders and escapes it."""
    if not isinstance(certificate, dict):
        return ""
    pairs = [pair for names in reversed(certificate.get("subject", ())) for pair in names]
    return ",".join(f"{_ATTRIBUTES.get(name, name)}={_escaped(value)}" for name, value in pairs)


def _escaped(value: str) -> str:
    text = "".join(f"\\{letter}" if letter in ',+"\\<>;=' else letter for letter in value)
    return f"\\{text}" if text.startswith(("#", " ")) else text
