"""The system flag that a message record and a send request carry, and its bits.

    0x001         the body is compressed
    0x002         the topic holds messages of several tags
    0x004 0x008   transaction: 0 none, 4 prepared, 8 commit, 12 rollback
    0x010         the born host is IPv6
    0x020         the store host is IPv6
    0x040 0x080   inner batch: the body holds messages that the client takes apart
    bits 8-10     compression: 0 or 3 zlib, 1 lz4 (frame format), 2 zstd

A pull request has a system flag of its own: see `PULL_*`.
Source: MessageSysFlag.java, PullSysFlag.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from enum import IntEnum

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x7 << COMPRESSION_SHIFT

PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4
PULL_CLASS_FILTER = 0x8
PULL_LITE = 0x10


class CompressionType(IntEnum):
    """How a compressed body is compressed, as bits 8-10 say it."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def is_compressed(sys_flag: int) -> bool:
    """Whether the body is compressed."""
    return bool(sys_flag & COMPRESSED)


def compression_type(sys_flag: int) -> CompressionType:
    """The compression that the flag names; zlib for 0 (what clients before 5.0 send) and for every number unknown."""
    number = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    if number == CompressionType.LZ4:
        return CompressionType.LZ4
    if number == CompressionType.ZSTD:
        return CompressionType.ZSTD
    return CompressionType.ZLIB


def with_compression(sys_flag: int, compression: CompressionType) -> int:
    """The flag of the same message with its body compressed."""
    return sys_flag & ~COMPRESSION_MASK | COMPRESSED | compression << COMPRESSION_SHIFT
