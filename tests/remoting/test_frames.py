"""Frames come off the front of a buffer whole, once, and are judged by their length word alone."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import FrameTooLargeError, ProtocolError
from thermocline.remoting.frames import FRAME_BYTES_MAX, take_frames


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


@given(contents=st.lists(st.binary(min_size=4, max_size=40), max_size=8), cuts=st.lists(st.integers(0, 400)))
def test_any_chunking_gives_the_same_frames(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(content) for content in contents)
    borders = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    buffer, taken = bytearray(), []
    for start, end in pairwise(borders):
        buffer += stream[start:end]
        taken += take_frames(buffer)
    assert taken == contents
    assert not buffer


def test_caller_that_stops_early_sees_no_frame_twice() -> None:
    buffer = bytearray(frame(b"aaaa") + frame(b"bbbb"))
    assert next(take_frames(buffer)) == b"aaaa"
    assert list(take_frames(buffer)) == [b"bbbb"]


@pytest.mark.parametrize(
    "start",
    [
        struct.pack(">i", FRAME_BYTES_MAX + 1),
        struct.pack(">i", -1),
        b"\x16\x03\x01\x02\x00\x01",  # a TLS handshake
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0",
    ],
)
def test_over_long_frame_is_refused_by_its_length(start: bytes) -> None:
    with pytest.raises(FrameTooLargeError):
        list(take_frames(bytearray(start)))


def test_frame_of_the_greatest_length_passes() -> None:
    content = bytes(100)
    assert list(take_frames(bytearray(frame(content)), frame_bytes_max=100)) == [content]
    with pytest.raises(FrameTooLargeError):
        list(take_frames(bytearray(frame(content)), frame_bytes_max=99))


@pytest.mark.parametrize("size_bytes", range(4))
def test_frame_without_room_for_a_header_is_refused(size_bytes: int) -> None:
    with pytest.raises(ProtocolError):
        list(take_frames(bytearray(struct.pack(">i", size_bytes))))
