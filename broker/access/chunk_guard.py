"""Chunk guard: access control of the message path, on whole chunks of received bytes.

    allowed_bytes(connection, buffer)    -> so many bytes at the front are whole frames of sends and pulls, each allowed
                                            beyond doubt; what follows is for ordinary code, which checks it itself

Rules
  - A frame is read as the fast path reads it (the same decoder, the last of two equal members counts), and anything
    unusual ends the allowed bytes: an ordinary request costs more and is checked once more.
  - Frames that were allowed and not taken are not checked again when the rest of their chunk comes back: else a chunk
    of requests that the fast path leaves to ordinary code would be checked over and over.
Owner: the hot process's event loop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.auth.access_control import AccessControl
from thermocline.auth.auth_store import AuthSnapshot
from thermocline.auth.users import User
from thermocline.remoting.command import SerializeType, decode_binary_header
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import HeaderDecodeError
from thermocline.remoting.frames import FRAME_HEAD, LENGTH
from thermocline.remoting.header_codec import Int
from thermocline.remoting.request_code import RequestCode

HEAD_BYTES = FRAME_HEAD.size
HEADER_BYTES_MASK = 0xFF_FFFF
PREFIX_BYTES = 12
CODE_BYTES = 2

SEND_NAMES, SEND_LETTERS, PULL = "topic", "b", "pull"
JSON_KINDS = {
    b'{"code":310,': SEND_LETTERS,
    b'{"code":320,': SEND_LETTERS,
    b'{"code":10,"': SEND_NAMES,
    b'{"code":11,"': PULL,
    b'{"code":361,': PULL,
}
"""How the header of a common request starts -> of a send the field with the topic."""
BINARY_KINDS = {
    int(code).to_bytes(CODE_BYTES, "big"): kind
    for code, kind in (
        (RequestCode.SEND_MESSAGE_V2, SEND_LETTERS),
        (RequestCode.SEND_BATCH_MESSAGE, SEND_LETTERS),
        (RequestCode.SEND_MESSAGE, SEND_NAMES),
        (RequestCode.PULL_MESSAGE, PULL),
        (RequestCode.LITE_PULL_MESSAGE, PULL),
    )
}

unpack_head = FRAME_HEAD.unpack_from


class _Header(msgspec.Struct):
    ext_fields: dict[str, str] = msgspec.field(name="extFields")
    version: Int = 0


_decode_json = msgspec.json.Decoder(_Header).decode


class ChunkGuard:
    """See the module. `keep_pull` is told of each pull that is allowed."""

    def __init__(self, access: AccessControl, *, keep_pull: Callable[[Connection, User, str, str], None]) -> None:
        self._access = access
        self._keep_pull = keep_pull
        # Bytes allowed at the start of what comes next from a connection, and under which users and policies.
        self._ahead: tuple[Connection, AuthSnapshot, int] | None = None
        self._allowed_bytes = 0

    def allowed_bytes(self, connection: Connection, buffer: memoryview) -> int:
        """See the module."""
        position = 0
        ahead = self._ahead
        if ahead is not None and ahead[0] is connection:
            self._ahead = None
            if ahead[1] is self._access.snapshot and ahead[2] <= len(buffer):
                position = ahead[2]
        address = connection.remote_host[0]
        end = len(buffer)
        while end - position > HEAD_BYTES + PREFIX_BYTES:
            frame_bytes, header_word = unpack_head(buffer, position)
            header_start = position + HEAD_BYTES
            header_end = header_start + (header_word & HEADER_BYTES_MASK)
            frame_end = position + LENGTH.size + frame_bytes
            if not header_end <= frame_end <= end or not self._is_allowed(
                connection, address, buffer, header_word >> 24, header_start, header_end, frame_end
            ):
                break
            position = frame_end
        self._allowed_bytes = position
        return position

    def taken(self, connection: Connection, buffer: memoryview, taken_bytes: int) -> None:
        """So many of the allowed bytes at the front of `buffer` were taken; ordinary code serves the next frame."""
        if taken_bytes + LENGTH.size > self._allowed_bytes:
            return
        (frame_bytes,) = LENGTH.unpack_from(buffer, taken_bytes)
        ahead_bytes = self._allowed_bytes - taken_bytes - LENGTH.size - frame_bytes
        if ahead_bytes > 0:
            self._ahead = connection, self._access.snapshot, ahead_bytes

    def _is_allowed(
        self,
        connection: Connection,
        address: str,
        buffer: memoryview,
        serialize_type: int,
        header_start: int,
        header_end: int,
        frame_end: int,
    ) -> bool:
        if serialize_type == SerializeType.JSON:
            kind = JSON_KINDS.get(bytes(buffer[header_start : header_start + PREFIX_BYTES]))
            if kind is None:
                return False
            try:
                header = _decode_json(buffer[header_start:header_end])
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return False
            fields, version = header.ext_fields, header.version
        elif serialize_type == SerializeType.ROCKETMQ:
            kind = BINARY_KINDS.get(bytes(buffer[header_start : header_start + CODE_BYTES]))
            if kind is None:
                return False
            try:
                command = decode_binary_header(bytes(buffer[header_start:header_end]))
            except HeaderDecodeError:
                return False
            fields, version = command.ext_fields or {}, command.version
        else:
            return False
        if kind is not PULL:
            topic = fields.get(kind)
            return topic is not None and self._access.allows_send(
                fields, bytes(buffer[header_end:frame_end]), version, topic, address
            )
        topic, group = fields.get("topic"), fields.get("consumerGroup")
        if topic is None or group is None or header_end != frame_end:
            return False
        user = self._access.allows_pull(fields, version, topic, group, address)
        if user is None:
            return False
        self._keep_pull(connection, user, topic, group)
        return True
