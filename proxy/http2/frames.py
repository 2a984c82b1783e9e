"""Frames of HTTP/2: their head, types, flags, settings and error codes.

    length, 24 bits | type | flags | stream id, 31 bits | payload
Source: RFC 9113, sections 4, 6 and 7.
"""

from __future__ import annotations

import struct
from enum import IntEnum

__all__ = ["FRAME_HEAD", "PREFACE", "ErrorCode", "Flag", "FrameType", "Setting", "encode_frame", "encode_settings"]

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
