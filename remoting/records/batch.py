"""The body of a batch request: many messages of one topic and queue.

Each message, one after another:
    int32  size of this message, these four bytes included
    int32  magic, 0
    int32  body checksum, 0
    int32  flag, the user's
    int32  body size, then the body
    int16  properties size, then the properties' text
Source: MessageDecoder.java (encodeMessage, decodeMessages), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from thermocline.remoting.errors import MessageIllegalError, PropertiesTooLargeError
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX

HEAD = struct.Struct(
    ">i"  # size of the message in this layout
    "i"  # magic, 0
    "i"  # body checksum, 0
    "i"  # flag
    "i"  # body size
)
PROPERTIES_SIZE = struct.Struct(">h")
assert HEAD.size == 20, "wire format shared with Apache RocketMQ"

MESSAGE_BYTES_MIN = HEAD.size + PROPERTIES_SIZE.size


class BatchMessage(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch."""

    body: bytes
    properties_text: bytes = b""
    flag: int = 0


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """The body of a batch request.

    Raises:
        PropertiesTooLargeError: A message's property text does not fit its 16-bit length.
    """
    pieces: list[bytes] = []
    for message in messages:
        properties_bytes = len(message.properties_text)
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise PropertiesTooLargeError(size_bytes=properties_bytes, size_bytes_max=PROPERTIES_BYTES_MAX)
        body = message.body
        body_bytes = len(body)
        size_bytes = MESSAGE_BYTES_MIN + body_bytes + properties_bytes
        pieces += (
            HEAD.pack(size_bytes, 0, 0, message.flag, body_bytes),
            body,
            PROPERTIES_SIZE.pack(properties_bytes),
            message.properties_text,
        )
    return b"".join(pieces)


def decode_batch(body: bytes) -> list[BatchMessage]:
    """Every message of a batch request's body.

    Raises:
        MessageIllegalError: The sizes in it do not add up.
    """
    messages: list[BatchMessage] = []
    position = 0
    while position < len(body):
        if len(body) - position < MESSAGE_BYTES_MIN:
            raise MessageIllegalError("the batch is cut short", position=position)
        # The size of the whole is not looked at, as RocketMQ does not: the two inner sizes say the same.
        _size_bytes, _magic, _checksum, flag, body_bytes = HEAD.unpack_from(body, position)
        body_start = position + HEAD.size
        body_end = body_start + body_bytes
        if body_bytes < 0 or body_end + PROPERTIES_SIZE.size > len(body):
            raise MessageIllegalError("impossible body size in a batch", position=position, size_bytes=body_bytes)
        (properties_bytes,) = PROPERTIES_SIZE.unpack_from(body, body_end)
        properties_start = body_end + PROPERTIES_SIZE.size
        end = properties_start + properties_bytes
        if properties_bytes < 0 or end > len(body):
            raise MessageIllegalError(
                "impossible properties size in a batch", position=position, size_bytes=properties_bytes
            )
        messages.append(BatchMessage(body[body_start:body_end], body[properties_start:end], flag))
        position = end
    return messages
