"""Message bodies as producers compress them: zlib, lz4 frames, zstd.

Compression is a matter between clients: a producer compresses bodies above 4 KiB and says so in the system flag, a
consumer decompresses; a broker stores what it got.
Source: ZlibCompressor.java, Lz4Compressor.java, ZstdCompressor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import zlib
from typing import cast

import lz4.frame
import zstandard

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.sys_flag import CompressionType

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Default bound on what one body may grow to, against bodies made to exhaust memory."""

LEVEL_DEFAULT = 5  # RocketMQ's, for each of the three


def compress(body: bytes, compression: CompressionType, *, level: int = LEVEL_DEFAULT) -> bytes:
    """Compress a body; `with_compression` gives the system flag to send with it."""
    if compression is CompressionType.LZ4:
        return cast(bytes, lz4.frame.compress(body, compression_level=level))
    if compression is CompressionType.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(body)
    return zlib.compress(body, level)


def decompress(body: bytes, compression: CompressionType, *, size_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Give back the body as it was before `compress`.

    Raises:
        CorruptDataError: It is not such a body, it is cut short, or it grows beyond `size_bytes_max`.
    """
    try:
        if compression is CompressionType.LZ4:
            lz4_decoder = lz4.frame.LZ4FrameDecompressor()
            plain = cast(bytes, lz4_decoder.decompress(body, max_length=size_bytes_max + 1))
            whole = bool(lz4_decoder.eof)
        elif compression is CompressionType.ZSTD:
            plain, whole = _decompress_zstd(body, size_bytes_max)
        else:
            zlib_decoder = zlib.decompressobj()
            plain = zlib_decoder.decompress(body, size_bytes_max + 1)
            whole = zlib_decoder.eof
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise CorruptDataError("the body cannot be decompressed", compression=compression.name) from error
    if len(plain) > size_bytes_max:
        raise CorruptDataError("the decompressed body is too large", size_bytes_max=size_bytes_max)
    if not whole:
        raise CorruptDataError("the compressed body is cut short", compression=compression.name)
    return plain


def _decompress_zstd(body: bytes, size_bytes_max: int) -> tuple[bytes, bool]:
    with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=False) as reader:
        plain = reader.read(size_bytes_max + 1)
    # The stream reader gives what it has of a frame that is cut short, so the end is asked of a plain decoder.
    if len(plain) > size_bytes_max:
        return plain, True
    decoder = zstandard.ZstdDecompressor().decompressobj()
    decoder.decompress(body)
    return plain, bool(decoder.eof)
