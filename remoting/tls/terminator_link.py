"""Terminator link: what the server and its terminator send each other, with a socket beside each message.

    server -> terminator     settings first; then each connection that begins with TLS: its socket and first bytes
    terminator -> server     each connection whose handshake is over: a socket with its plain bytes

It is a pair of SOCK_SEQPACKET sockets: a message and its descriptor come as one, or not at all. When one end closes, so
does the other: the terminator ends, the server starts it again.
"""

from __future__ import annotations

import array
import socket
from typing import Any

import msgspec

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.settings import TlsConfig

__all__ = [
    "HELLO_BYTES_MAX",
    "MESSAGE_BYTES_MAX",
    "LinkSettings",
    "PlainConnection",
    "TlsConnection",
    "receive",
    "send",
]

HELLO_BYTES_MAX = 64 * 1024
"""A client sends no more before the server has answered."""
MESSAGE_BYTES_MAX = HELLO_BYTES_MAX + 16 * 1024


class LinkSettings(msgspec.Struct, frozen=True, tag="settings"):
    """The first message."""

    tls: TlsConfig


class TlsConnection(msgspec.Struct, frozen=True, tag="tls"):
    """A connection of a client, whose first bytes are `hello`. Addresses are (host, port)."""

    remote: tuple[str, int]
    local: tuple[str, int]
    hello: bytes


class PlainConnection(msgspec.Struct, frozen=True, tag="plain"):
    """The plain side of a client's connection. `subject`: of its certificate, which was checked; empty: it has none."""

    remote: tuple[str, int]
    local: tuple[str, int]
    subject: str


Message = LinkSettings | TlsConnection | PlainConnection
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def send(link: socket.socket, message: Message, descriptor: int | None = None) -> None:
    """Send a message and a copy of a descriptor; the caller keeps its own.

    Raises:
        BlockingIOError: The other end has not taken earlier ones; nothing was sent.
        OSError: The other end is gone.
    """
    ancillary: list[tuple[int, int, Any]] = []
    if descriptor is not None:
        ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor])))
    link.sendmsg([_ENCODER.encode(message)], ancillary)


def receive(link: socket.socket) -> tuple[Message, int | None] | None:
    """Receive a message and its descriptor, which the caller has to close; None: the other end has closed.

    Raises:
        BlockingIOError: There is none now.
        OSError: The other end is gone.
        ProtocolError: The descriptor could not be taken: too many are open.
    """
    data, descriptors, flags, _address = socket.recv_fds(link, MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    if flags & socket.MSG_CTRUNC:
        raise ProtocolError("a connection was lost: too many descriptors are open")
    return _DECODER.decode(data), descriptors[0] if descriptors else None
