"""Frames come off the front of what is received whole, once, and are judged by their length word alone."""

import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import FrameTooLargeError, ProtocolError
from thermocline.remoting.frames import FRAME_BYTES_MAX, INCOMPLETE_FRAME, LENGTH, FrameSplitter, frame_end


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def contents_of(buffer: bytes | memoryview) -> Iterator[tuple[bytes, int]]:
    """Each whole frame at the front without its length word, and the position behind it."""
    position = 0
    while (end := frame_end(buffer, position)) != INCOMPLETE_FRAME:
        yield bytes(buffer[position + LENGTH.size : end]), end
        position = end


def split(splitter: FrameSplitter, chunks: Iterable[bytes], *, at_once: int = 1_000) -> Iterator[bytes]:
    """The frames in these chunks; of each chunk at most `at_once` are handled before the next one is received."""
    for chunk in chunks:
        view = splitter.join(memoryview(chunk))
        if view is None:
            continue
        position = 0
        for (content, end), _ in zip(contents_of(view), range(at_once), strict=False):
            yield content
            position = end
        if position < len(view):
            splitter.keep(view[position:])


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    borders = sorted({min(each, len(stream)) for each in cuts} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(borders)]


CONTENTS = st.lists(st.binary(min_size=4, max_size=40), max_size=8)
CUTS = st.lists(st.integers(0, 400))


@given(contents=CONTENTS, cuts=CUTS)
def test_any_chunking_gives_the_same_frames(contents: list[bytes], cuts: list[int]) -> None:
    splitter = FrameSplitter()
    assert list(split(splitter, cut(b"".join(map(frame, contents)), cuts))) == contents
    assert splitter.take_kept() is None


@given(contents=CONTENTS, cuts=CUTS, at_once=st.integers(0, 2))
def test_frames_that_were_left_come_first(contents: list[bytes], cuts: list[int], at_once: int) -> None:
    """A connection that has to stop handling keeps whole frames too."""
    splitter = FrameSplitter()
    handled = list(split(splitter, cut(b"".join(map(frame, contents)), cuts), at_once=at_once))
    kept = splitter.take_kept()
    handled += [content for content, _ in contents_of(kept or b"")]
    assert handled == contents
    assert splitter.take_kept() is None, "what was handed out is not kept"


def test_a_chunk_of_whole_frames_is_not_copied() -> None:
    chunk = memoryview(frame(b"aaaa"))
    assert FrameSplitter().join(chunk) is chunk


def test_a_frame_is_handed_out_when_its_last_byte_has_come() -> None:
    splitter, stream = FrameSplitter(), frame(bytes(1_000))
    splitter.keep(memoryview(stream[:4]))
    assert splitter.take_kept() is None
    for position in range(4, 1_003):
        assert splitter.join(memoryview(stream[position : position + 1])) is None
    assert splitter.join(memoryview(stream[-1:])) == stream


def test_frames_put_before_the_kept_bytes() -> None:
    splitter = FrameSplitter()
    assert splitter.join_before(frame(b"aaaa")) == frame(b"aaaa")
    splitter.keep(memoryview(frame(b"cccc")[:5]))
    assert splitter.join_before(frame(b"bbbb")) == frame(b"bbbb") + frame(b"cccc")[:5]
    assert splitter.take_kept() is None


def test_a_closed_connection_keeps_nothing() -> None:
    splitter = FrameSplitter()
    splitter.keep(memoryview(frame(b"aaaa")))
    splitter.clear()
    assert splitter.take_kept() is None


OVER_LONG = [
    struct.pack(">i", FRAME_BYTES_MAX + 1),
    struct.pack(">i", -1),
    b"\x16\x03\x01\x02\x00\x01",  # a TLS handshake
    b"GET / HTTP/1.1\r\n",
    b"PRI * HTTP/2.0",
]


@pytest.mark.parametrize("start", OVER_LONG)
def test_over_long_frame_is_refused_by_its_length(start: bytes) -> None:
    with pytest.raises(FrameTooLargeError):
        frame_end(start)


@pytest.mark.parametrize("start", [*OVER_LONG, struct.pack(">i", 3)])
def test_an_invalid_length_is_an_error_at_once(start: bytes) -> None:
    """Also when it was kept unread, behind frames for which reading had to stop, or came in two pieces."""
    for kept_bytes in (1, len(start)):
        splitter = FrameSplitter()
        splitter.keep(memoryview(start[:kept_bytes]))
        view = splitter.join(memoryview(start[kept_bytes:]))
        assert view == start
        with pytest.raises(ProtocolError):
            frame_end(view)


def test_frame_of_the_greatest_length_passes() -> None:
    data = frame(bytes(100))
    assert frame_end(data, 0, 100) == len(data)
    with pytest.raises(FrameTooLargeError):
        frame_end(data, 0, 99)


@pytest.mark.parametrize("size_bytes", range(4))
def test_frame_without_room_for_a_header_is_refused(size_bytes: int) -> None:
    with pytest.raises(ProtocolError, match="too small for a header"):
        frame_end(struct.pack(">i", size_bytes))
