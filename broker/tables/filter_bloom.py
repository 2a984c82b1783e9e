"""Filter bloom: the bit positions that identify a group's filter in RocketMQ's broker.

Its broker may note in a queue's extended unit which groups a message is for: a bit map in which each filter that
matches sets its positions. Nothing here reads or writes such maps; the positions stand in consumerFilter.json
(consumer_filter_table.py), and a file without them RocketMQ's broker does not take over.

    BIT_COUNT positions, of which a filter has HASH_COUNT: hash1 + i * hash2 for i = 1..3, in 32 bits, all bits flipped
    when negative, modulo BIT_COUNT; hash1 and hash2 are the low and the high half of murmur3's first 64 bits.

The counts are those of its defaults `maxErrorRateOfBloomFilter` 20 (percent) and `expectConsumerNumUseFilter` 32; under
other settings its broker begins anew, as it does when they are changed.
Source: filter/util/BloomFilter.java, Apache RocketMQ 5.3; MurmurHash3 (x64, 128 bits), Austin Appleby, public domain.
"""

from __future__ import annotations

import struct

import msgspec

BIT_COUNT = 112
HASH_COUNT = 3

_BLOCK = struct.Struct("<QQ")
assert _BLOCK.size == 16, "murmur3 takes blocks of 128 bits"
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_FACTOR_1 = 0x87C3_7B91_1142_53D5
_FACTOR_2 = 0x4CF5_AD43_2745_937F


class BloomFilterData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The positions of one filter."""

    bit_num: int = 0
    bit_pos: tuple[int, ...] = ()


def bloom_of(group: str, topic: str) -> BloomFilterData:
    """The positions of a group's filter for a topic."""
    first = murmur3_first_half(f"{group}#{topic}".encode())
    low, high = first & 0xFFFF_FFFF, first >> 32
    positions = []
    for index in range(1, HASH_COUNT + 1):
        combined = (low + index * high) & 0xFFFF_FFFF
        if combined >= 1 << 31:  # negative to Java
            combined ^= 0xFFFF_FFFF
        positions.append(combined % BIT_COUNT)
    return BloomFilterData(bit_num=BIT_COUNT, bit_pos=tuple(positions))


def murmur3_first_half(data: bytes) -> int:
    """The first 64 of the 128 bits that murmur3 (x64) makes of `data` with seed 0."""
    hash_1 = hash_2 = 0
    end = len(data) - len(data) % _BLOCK.size
    for word_1, word_2 in _BLOCK.iter_unpack(data[:end]):
        hash_1 ^= _mixed_1(word_1)
        hash_1 = (_rotated(hash_1, 27) + hash_2) * 5 + 0x52DC_E729 & _MASK
        hash_2 ^= _mixed_2(word_2)
        hash_2 = (_rotated(hash_2, 31) + hash_1) * 5 + 0x3849_5AB5 & _MASK
    word_1, word_2 = _BLOCK.unpack(data[end:].ljust(_BLOCK.size, b"\0"))  # zeros change nothing
    hash_1 ^= _mixed_1(word_1) ^ len(data)
    hash_2 ^= _mixed_2(word_2) ^ len(data)
    hash_1 = hash_1 + hash_2 & _MASK
    hash_2 = hash_2 + hash_1 & _MASK
    return _finished(hash_1) + _finished(hash_2) & _MASK


def _mixed_1(word: int) -> int:
    return _rotated(word * _FACTOR_1 & _MASK, 31) * _FACTOR_2 & _MASK


def _mixed_2(word: int) -> int:
    return _rotated(word * _FACTOR_2 & _MASK, 33) * _FACTOR_1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finished(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51_AFD7_ED55_8CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CE_B9FE_1A85_EC53 & _MASK
    return value ^ value >> 33
