"""Frames: how a TCP stream is split into the frames of commands.

    int32  size: bytes that follow, not counting these four
    int32  header word: high byte = serialisation of the header, low 24 bits = size of the header
    bytes  header
    bytes  body: the rest

Rules
  - The length word (`size`) is checked before the rest of the frame has arrived. If it is negative, above the limit or
    too small for a header word, the connection is closed. The first four bytes of a TLS handshake or of an HTTP request
    are, as a length, far above the limit.
  - `frame_end` reads bytes and returns a position. Connections of clients and of brokers use it
    (remoting/connections/connection.py). The broker's fast path (store/sends/fast_path.py) reads length word and header
    word of a frame in one step; `frame_end` checks every frame that the fast path does not take.
Source: NettyDecoder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct

from thermocline.remoting.errors import FrameTooLargeError, ProtocolError

LENGTH = struct.Struct(">i")  # bytes that follow
HEADER_WORD = struct.Struct(">I")  # serialisation << 24 | header size
FRAME_HEAD = struct.Struct(">iI")  # both
assert FRAME_HEAD.size == LENGTH.size + HEADER_WORD.size == 8, "wire format shared with Apache RocketMQ"

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Default limit; the default of RocketMQ, too (com.rocketmq.remoting.frameMaxLength)."""


INCOMPLETE_FRAME = -1
"""Returned by `frame_end` if the buffer ends before the frame does."""

_LENGTH_BYTES = LENGTH.size
_FRAME_BYTES_MIN = HEADER_WORD.size
_unpack_length = LENGTH.unpack_from


def frame_end(buffer: bytes | bytearray | memoryview, start: int = 0, frame_bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Return the position after the frame whose length word is at `start`, or INCOMPLETE_FRAME.

    `decode_command` reads the frame without its length word: from `start + LENGTH.size` to the returned position.

    Raises:
        FrameTooLargeError: The length is negative or above the limit; close the connection.
        ProtocolError: The length is too small for a header word; close the connection.
    """
    try:
        (size_bytes,) = _unpack_length(buffer, start)
    except struct.error:  # the length word is incomplete
        return INCOMPLETE_FRAME
    if _FRAME_BYTES_MIN <= size_bytes <= frame_bytes_max:
        end: int = start + _LENGTH_BYTES + size_bytes
        return end if end <= len(buffer) else INCOMPLETE_FRAME
    if 0 <= size_bytes < _FRAME_BYTES_MIN:
        raise ProtocolError("the frame is too small for a header", size_bytes=size_bytes)
    raise FrameTooLargeError(size_bytes=size_bytes, size_bytes_max=frame_bytes_max)


class FrameSplitter:
    """Keeps the bytes that one connection has received and not handled: an incomplete frame, or frames during a pause.

        received chunk -> join(chunk) -> None: the first frame is incomplete
                                      -> bytes: handle their whole frames (`frame_end`), then keep(unhandled bytes)

    A chunk of whole frames is not copied if all of them are handled at once. Memory is allocated for received bytes
    only, never for the size in a length word.
    """

    __slots__ = ("_first_frame_bytes", "_kept", "frame_bytes_max")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._kept = bytearray()
        self._first_frame_bytes = 0  # of the kept bytes, with its length word; 0: unknown, or the length is invalid

    @property
    def kept_bytes(self) -> int:
        """How many bytes are kept."""
        return len(self._kept)

    def join(self, chunk: memoryview) -> memoryview | None:
        """Return the kept bytes followed by `chunk`, and keep nothing. Without kept bytes, return `chunk` itself.

        If the first frame is known to be incomplete, keep all these bytes and return None.
        """
        if not self._kept:
            return chunk
        self._kept += chunk
        return self.take_kept()

    def join_before(self, frames: bytes) -> memoryview | None:
        """Return `frames`, which are whole, followed by the kept bytes, and keep nothing."""
        kept, self._kept = self._kept, bytearray()
        return memoryview(frames + kept) if kept else memoryview(frames)

    def take_kept(self) -> memoryview | None:
        """Return the kept bytes, and keep nothing.

        None without kept bytes; also None, and still keep them, if the first frame is known to be incomplete.
        """
        kept = self._kept
        if not kept or len(kept) < self._first_frame_bytes:
            return None
        self._kept = bytearray()
        return memoryview(kept)

    def keep(self, unhandled: memoryview) -> None:
        """Keep a copy of `unhandled`, the end of the bytes that the last call returned."""
        assert not self._kept, "bytes are handled before further ones are kept"
        self._kept = bytearray(unhandled)
        size_bytes = _unpack_length(unhandled)[0] if len(unhandled) >= _LENGTH_BYTES else 0
        # With an invalid length the next call returns the bytes, and `frame_end` raises.
        is_valid_length = _FRAME_BYTES_MIN <= size_bytes <= self.frame_bytes_max
        self._first_frame_bytes = _LENGTH_BYTES + size_bytes if is_valid_length else 0

    def clear(self) -> None:
        """Drop the kept bytes: the connection is closed."""
        self._kept = bytearray()
