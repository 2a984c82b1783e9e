"""Compressed bodies: all three kinds, cut short, damaged, and made to exhaust memory."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.compression import compress, decompress
from thermocline.remoting.records.sys_flag import CompressionType

KINDS = pytest.mark.parametrize("compression", CompressionType)


@KINDS
@given(body=st.binary(max_size=2_000))
def test_round_trip(compression: CompressionType, body: bytes) -> None:
    assert decompress(compress(body, compression), compression) == body


@KINDS
def test_cut_short(compression: CompressionType) -> None:
    data = compress(bytes(range(256)) * 20, compression)
    for length in (0, 1, 5, len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptDataError):
            decompress(data[:length], compression)


@KINDS
@given(noise=st.binary(max_size=200))
def test_noise(compression: CompressionType, noise: bytes) -> None:
    with contextlib.suppress(CorruptDataError):
        decompress(noise, compression)


@KINDS
def test_bound(compression: CompressionType) -> None:
    data = compress(bytes(1_000_000), compression)
    assert len(decompress(data, compression, size_bytes_max=1_000_000)) == 1_000_000
    with pytest.raises(CorruptDataError, match="too large"):
        decompress(data, compression, size_bytes_max=999_999)
