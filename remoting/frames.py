"""Frames: how one TCP stream becomes commands.

    int32  size: bytes that follow, not counting these four
    int32  header word: high byte = serialisation of the header, low 24 bits = size of the header
    bytes  header
    bytes  body: the rest

Rules
  - A frame is judged by its length word alone, before any of its bytes are waited for: above the limit or too small to
    hold a header word, the connection is closed. A TLS handshake or an HTTP request read as a length is far above it.
Source: NettyDecoder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from thermocline.remoting.errors import FrameTooLargeError, ProtocolError

LENGTH = struct.Struct(">i")  # bytes that follow
HEADER_WORD = struct.Struct(">I")  # serialisation << 24 | header size

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Default limit, RocketMQ's own (com.rocketmq.remoting.frameMaxLength)."""


def check_frame_size(size_bytes: int, frame_bytes_max: int) -> None:
    """Judge a length word.

    Raises:
        FrameTooLargeError: It is negative or above the limit.
        ProtocolError: A frame of this size has no room for a header word.
    """
    if not 0 <= size_bytes <= frame_bytes_max:
        raise FrameTooLargeError(size_bytes=size_bytes, size_bytes_max=frame_bytes_max)
    if size_bytes < HEADER_WORD.size:
        raise ProtocolError("the frame is too small for a header", size_bytes=size_bytes)


def take_frames(buffer: bytearray, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> Iterator[bytes]:
    """Take each whole frame off the front of `buffer`, without its length word.

    Raises:
        FrameTooLargeError: See `check_frame_size`; the connection is to be closed.
        ProtocolError: As above.
    """
    while len(buffer) >= LENGTH.size:
        (size_bytes,) = LENGTH.unpack_from(buffer)
        check_frame_size(size_bytes, frame_bytes_max)
        end = LENGTH.size + size_bytes
        if len(buffer) < end:
            return
        frame = bytes(memoryview(buffer)[LENGTH.size : end])
        del buffer[:end]  # before the yield: a caller that stops early must not see it twice
        yield frame
