"""Decompressing frames into one buffer: the same bytes, and every damage noticed."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import CorruptDataError
from thermocline.spark.reading.frame_buffer import FrameBuffer

COMPRESSOR = zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True)


def test_frames_lie_end_to_end_and_the_buffer_is_used_again() -> None:
    buffer = FrameBuffer()
    for contents in ([b"a" * 1000, b"bc" * 70_000, b"d"], [b"e" * 300_000], [b"f", b"g"]):
        for content in contents:
            buffer.add(COMPRESSOR.compress(content), raw_bytes=len(content))
        assert buffer.records == b"".join(contents)
        assert buffer.size_bytes == sum(map(len, contents))
        assert [bytes(buffer.records_of(index)) for index in range(len(contents))] == contents
        buffer.clear()


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_damaged_frame_is_never_taken(content: bytes, data: st.DataObject) -> None:
    stored = bytearray(COMPRESSOR.compress(content))
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] ^= data.draw(st.integers(1, 255))
    buffer = FrameBuffer()
    buffer.add(COMPRESSOR.compress(b"before"), raw_bytes=6)
    try:
        buffer.add(bytes(stored), raw_bytes=len(content))
    except CorruptDataError:
        assert buffer.records == b"before"
    else:
        assert buffer.records == b"before" + content  # a bit of the header that means nothing


@pytest.mark.parametrize("position", [-1, -2, -3, -4])
def test_the_checksum_itself_is_compared(position: int) -> None:
    stored = bytearray(COMPRESSOR.compress(b"x" * 5_000))
    stored[position] ^= 1
    with pytest.raises(CorruptDataError):
        FrameBuffer().add(bytes(stored), raw_bytes=5_000)


def test_other_sizes_and_cut_frames_are_damage() -> None:
    stored = COMPRESSOR.compress(b"x" * 5_000)
    for damaged, raw_bytes in ((stored, 4_999), (stored, 5_001), (stored[:-6], 5_000), (stored[:-1], 5_000), (b"", 1)):
        with pytest.raises(CorruptDataError):
            FrameBuffer().add(damaged, raw_bytes=raw_bytes)
    with pytest.raises(CorruptDataError, match="impossible"):
        FrameBuffer().add(stored, raw_bytes=2**40)
