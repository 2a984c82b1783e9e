"""Frames: how one TCP stream becomes commands.

    int32  size: bytes that follow, not counting these four
    int32  header word: high byte = serialisation of the header, low 24 bits = size of the header
    bytes  header
    bytes  body: the rest

Rules
  - A frame is judged by its length word alone, before any of its bytes are waited for: above the limit or too small to
    hold a header word, the connection is closed. A TLS handshake or an HTTP request read as a length is far above it.
  - Bytes in, positions out; both ends of every connection split so (remoting/connections/connection.py). The broker's
    fast path (store/sends/fast_path.py) reads the length words and header words of its frames together, and leaves all
    others, whatever their length, to `frame_end`.
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
"""Default limit, RocketMQ's own (com.rocketmq.remoting.frameMaxLength)."""


NOT_WHOLE = -1
"""The result of `frame_end` while bytes of the frame are missing."""

_LENGTH_BYTES = LENGTH.size
_FRAME_BYTES_MIN = HEADER_WORD.size
_unpack_length = LENGTH.unpack_from


def frame_end(buffer: bytes | bytearray | memoryview, start: int = 0, frame_bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Return the position behind the frame whose length word is at `start`, or NOT_WHOLE.

    The frame itself, as `decode_command` reads it, begins `LENGTH.size` behind `start`.

    Raises:
        FrameTooLargeError: Its length is negative or above the limit; the connection is to be closed.
        ProtocolError: A frame of this length has no room for a header word; as above.
    """
    try:
        (size_bytes,) = _unpack_length(buffer, start)
    except struct.error:  # the length word is not whole
        return NOT_WHOLE
    if _FRAME_BYTES_MIN <= size_bytes <= frame_bytes_max:
        end: int = start + _LENGTH_BYTES + size_bytes
        return end if end <= len(buffer) else NOT_WHOLE
    if 0 <= size_bytes < _FRAME_BYTES_MIN:
        raise ProtocolError("the frame is too small for a header", size_bytes=size_bytes)
    raise FrameTooLargeError(size_bytes=size_bytes, size_bytes_max=frame_bytes_max)


class FrameSplitter:
    """Keeps what one connection has received and not handled: the start of a frame, or whole frames that wait.

        received chunk -> join(chunk) -> None: the frame at the front is not whole yet
                                      -> bytes: handle the frames at their front (`frame_end`), then keep(the rest)

    A chunk is copied only where a frame crosses its end. No bytes are reserved for what a length word announces.
    """

    __slots__ = ("_kept", "_whole_bytes", "frame_bytes_max")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._kept = bytearray()
        self._whole_bytes = 0  # with fewer bytes kept, the frame at the front is not whole

    def join(self, chunk: memoryview) -> memoryview | None:
        """Return `chunk` behind the bytes kept; None, and keep them all, while the frame at the front is not whole.

        What is returned is no longer kept. It may be `chunk` itself.
        """
        if not self._kept:
            return chunk
        self._kept += chunk
        return self.take_kept()

    def join_before(self, frames: bytes) -> memoryview | None:
        """Return whole `frames` with the bytes kept behind them. Those are no longer kept."""
        kept, self._kept = self._kept, bytearray()
        return memoryview(frames + kept) if kept else memoryview(frames)

    def take_kept(self) -> memoryview | None:
        """Return the bytes kept, which are no longer kept then; None while the frame at the front is not whole."""
        kept = self._kept
        if not kept or len(kept) < self._whole_bytes:
            return None
        self._kept = bytearray()
        return memoryview(kept)

    def keep(self, rest: memoryview) -> None:
        """Keep a copy of what was not handled of the bytes that the last call returned."""
        assert not self._kept, "bytes are handled before further ones are kept"
        self._kept = bytearray(rest)
        size_bytes = _unpack_length(rest)[0] if len(rest) >= _LENGTH_BYTES else 0
        # A length that is refused is not waited for: the next bytes are handed on, and `frame_end` raises.
        is_length = _FRAME_BYTES_MIN <= size_bytes <= self.frame_bytes_max
        self._whole_bytes = _LENGTH_BYTES + size_bytes if is_length else 0

    def clear(self) -> None:
        """Forget the bytes kept: the connection is closed."""
        self._kept = bytearray()
