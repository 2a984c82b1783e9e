"""Bits of the system flag."""

import pytest

from thermocline.remoting.records import sys_flag
from thermocline.remoting.records.sys_flag import CompressionType


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (0x001, CompressionType.ZLIB),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x301, CompressionType.ZLIB),
        (0x701, CompressionType.ZLIB),
    ],
)
def test_compression_type(flag: int, expected: CompressionType) -> None:
    assert sys_flag.compression_type(flag) is expected


@pytest.mark.parametrize("compression", CompressionType)
def test_compression_is_set_and_nothing_else(compression: CompressionType) -> None:
    flag = sys_flag.TRANSACTION_COMMIT | sys_flag.BORN_HOST_V6
    compressed = sys_flag.with_compression(flag | 0x700, compression)
    assert sys_flag.is_compressed(compressed)
    assert sys_flag.compression_type(compressed) is compression
    assert compressed & ~(sys_flag.COMPRESSION_MASK | sys_flag.COMPRESSED) == flag
    assert not sys_flag.is_compressed(flag)
