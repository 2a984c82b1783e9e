"""Frames of HTTP/2: their head, types, flags, settings and error codes.

    length, 24 bits | type | flags | stream id, 31 bits | payload
Source: RFC 9113, sections 4, 6 and 7.
"""

from __future__ import annotations

import struct
from enum import IntEnum

__all__ = [
    "FRAME_HEAD",
    "PREFACE",
    "ErrorCode",
    "FatalFrameError",
    "Flag",
    "FrameType",
    "Setting",
    "encode_frame",
    "encode_go_away",
    "encode_reset",
    "encode_settings",
    "encode_window_update",
    "read_settings",
    "without_padding",
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first."""

FRAME_HEAD = struct.Struct(
    ">H"  # upper 16 bits of the length
    "B"  # lower 8 bits of the length
    "B"  # type
    "B"  # flags
    "I"  # stream id; the highest bit is reserved
)
assert FRAME_HEAD.size == 9

FRAME_BYTES_DEFAULT = 16_384
"""SETTINGS_MAX_FRAME_SIZE: the default, and the least value allowed."""
WINDOW_DEFAULT = 65_535
WINDOW_MAX = (1 << 31) - 1
_WINDOW_UPDATE_HEAD = b"\x00\x00\x04\x08\x00"


class FrameType(IntEnum):
    """The kinds of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag:
    """Flags; what a bit means depends on the frame."""

    END_STREAM = 0x1
    ACK = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    PRIORITY = 0x20


class Setting(IntEnum):
    """The parameters of SETTINGS."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class FatalFrameError(Exception):
    """The connection cannot go on: it ends with GOAWAY and this code."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


SETTING = struct.Struct(
    ">H"  # which
    "I"  # value
)
assert SETTING.size == 6


def encode_frame(frame_type: int, flags: int, stream_id: int, payload: bytes | memoryview = b"") -> bytes:
    """Return one frame."""
    length = len(payload)
    return FRAME_HEAD.pack(length >> 8, length & 0xFF, frame_type, flags, stream_id) + payload


def encode_settings(settings: dict[Setting, int]) -> bytes:
    """Return a SETTINGS frame."""
    return encode_frame(FrameType.SETTINGS, 0, 0, b"".join(SETTING.pack(*item) for item in settings.items()))


def encode_window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return _WINDOW_UPDATE_HEAD + stream_id.to_bytes(4, "big") + increment.to_bytes(4, "big")


def encode_reset(stream_id: int, code: int) -> bytes:
    """Return an RST_STREAM frame."""
    return encode_frame(FrameType.RST_STREAM, 0, stream_id, int(code).to_bytes(4, "big"))


def encode_go_away(last_stream_id: int, code: int) -> bytes:
    """Return a GOAWAY frame."""
    return encode_frame(FrameType.GOAWAY, 0, 0, last_stream_id.to_bytes(4, "big") + int(code).to_bytes(4, "big"))


def read_settings(payload: bytes) -> dict[int, int]:
    """Return the values in the payload of a SETTINGS frame.

    Raises:
        FatalFrameError: It is cut short, or a value is out of range.
    """
    if len(payload) % SETTING.size:
        raise FatalFrameError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS is cut short")
    settings: dict[int, int] = {}
    for name, value in SETTING.iter_unpack(payload):
        if name == Setting.INITIAL_WINDOW_SIZE and value > WINDOW_MAX:
            raise FatalFrameError(ErrorCode.FLOW_CONTROL_ERROR, "the initial window is too large")
        if name == Setting.MAX_FRAME_SIZE and not FRAME_BYTES_DEFAULT <= value < 1 << 24:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "the largest frame's size is out of range")
        if name == Setting.ENABLE_PUSH and value > 1:
            raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
        settings[name] = value
    return settings


def without_padding(payload: bytes) -> bytes:
    """Return the payload of a padded frame without its padding.

    Raises:
        FatalFrameError: The padding is longer than the frame.
    """
    if not payload or payload[0] >= len(payload):
        raise FatalFrameError(ErrorCode.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]
