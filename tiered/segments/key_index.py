"""`.idx`: from a message key to the records of a segment that carry it, at a fixed number of requests.

    8 bytes   IDX_MAGIC
    bloom     page_count pages of page_bytes bytes each
    blocks    one zstd frame each: up to BLOCK_ENTRIES entries
    footer    IDX_HEAD, IDX_BLOCK x block_count
    trailer

A miss costs one request (the key's bloom page, found from the two numbers that the catalog carries), a hit three: page,
footer, block. Shared layout of parts: `segment_format.py`; whole specification: docs/cold-format.md.

Keys are those of RocketMQ's index: UNIQ_KEY, and each word of KEYS (words are parted by a space, empty ones do not
count). A key that a record names twice has two entries, as there. One segment is one topic, so the topic is not hashed.

    hash(key)   = mix(CRC-32 of its UTF-8 bytes), mix: the 32-bit finaliser of MurmurHash3
    page(hash)  = hash * page_count >> 32
    bits(hash)  = (m + i * b) modulo page_bits, i in [0, 7), with m = mix(hash xor 0x9E3779B9), b = m >> 16 | 1;
                  bit n of a page is bit n % 8, counted from the lowest, of byte n / 8
Entries are (hash, ordinal), ordinal = the record's place in the segment, runs one after another. They are sorted by
hash, those of one hash newest first (falling physical offset). Content of a block of n entries, byte planes as in `.cq`
    4 planes   difference to the hash before, uint32; the first entry's own hash
    4 planes   ordinals, uint32
Different keys may share a hash: a lookup compares the keys of the records found.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.tiered.objects import SegmentFormatError
from thermocline.tiered.segments.part_kind import PartKind
from thermocline.tiered.segments.queue_columns import from_planes, to_planes
from thermocline.tiered.segments.segment_format import (
    IDX_MAGIC,
    MAGIC_BYTES,
    SegmentId,
    Table,
    decode_footer,
    decompress,
    encode_footer,
)

BLOCK_ENTRIES = 2048
BLOOM_BITS_PER_KEY = 10
BLOOM_PROBES = 7
PAGE_BYTES_MIN = 16
PAGE_BYTES_MAX = 4096
PROBE_SEED = 0x9E37_79B9
_MASK = 0xFFFF_FFFF

IDX_HEAD = struct.Struct(
    "<Q"  # epoch of the segment's id
    "Q"  # sequence of the segment's id
    "Q"  # entries
    "I"  # size of a bloom page, bytes: a power of two
    "I"  # bloom pages
    "I"  # blocks
)
assert IDX_HEAD.size == 36, "cold format version 1"

IDX_BLOCK = np.dtype(
    [
        ("first_hash", "<u4"),
        ("last_hash", "<u4"),
        ("position", "<u8"),
        ("stored_bytes", "<u4"),
        ("entry_count", "<u4"),
    ]
)
assert IDX_BLOCK.itemsize == 24, "cold format version 1"

Hashes = npt.NDArray[np.uint32]


def key_hash(key: bytes) -> int:
    """The hash of one key."""
    return mix(zlib.crc32(key))


def mix_checksums(checksums: Hashes) -> Hashes:
    """The hashes of keys, from their CRC-32 values."""
    value = checksums.astype(np.uint32)
    value ^= value >> np.uint32(16)
    value *= np.uint32(0x85EB_CA6B)
    value ^= value >> np.uint32(13)
    value *= np.uint32(0xC2B2_AE35)
    value ^= value >> np.uint32(16)
    return value


def mix(value: int) -> int:
    """The 32-bit finaliser of MurmurHash3."""
    value ^= value >> 16
    value = value * 0x85EB_CA6B & _MASK
    value ^= value >> 13
    value = value * 0xC2B2_AE35 & _MASK
    return value ^ value >> 16


class BloomShape(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the bloom part; with it a key's page is found without the footer. No pages: no keys."""

    page_bytes: int
    page_count: int

    @classmethod
    def for_keys(cls, key_count: int) -> BloomShape:
        """Room for BLOOM_BITS_PER_KEY bits for each of `key_count` different keys."""
        needed_bytes = -(-key_count * BLOOM_BITS_PER_KEY // 8)
        page_bytes = PAGE_BYTES_MIN
        while page_bytes < min(needed_bytes, PAGE_BYTES_MAX):
            page_bytes *= 2
        return cls(page_bytes=page_bytes, page_count=-(-needed_bytes // page_bytes))

    @property
    def size_bytes(self) -> int:
        """All pages together."""
        return self.page_bytes * self.page_count

    def page_position(self, hash_value: int) -> int:
        """Where in the part the page for this hash starts."""
        assert self.page_count
        return MAGIC_BYTES + (hash_value * self.page_count >> 32) * self.page_bytes

    def may_hold(self, page: bytes, hash_value: int) -> bool:
        """False when no key of this hash is in the segment; `page` is the page for this hash."""
        assert len(page) == self.page_bytes
        mixed = mix(hash_value ^ PROBE_SEED)
        step, bits = mixed >> 16 | 1, self.page_bytes * 8
        places = [(mixed + probe * step) % bits for probe in range(BLOOM_PROBES)]
        return all(page[place >> 3] >> (place & 7) & 1 for place in places)

    def build(self, hashes: Hashes) -> bytes:
        """All pages, with `hashes` in them."""
        bits = self.page_bytes * 8
        flags = np.zeros(self.page_count * bits, np.bool_)
        if self.page_count:
            pages = (hashes.astype(np.uint64) * np.uint64(self.page_count)) >> np.uint64(32)
            mixed = mix_checksums(hashes ^ np.uint32(PROBE_SEED)).astype(np.uint64)
            step = mixed >> np.uint64(16) | np.uint64(1)
            for probe in range(BLOOM_PROBES):
                flags[pages * np.uint64(bits) + (mixed + np.uint64(probe) * step) % np.uint64(bits)] = True
        return np.packbits(flags, bitorder="little").tobytes()


class BlockDecoder(Protocol):
    """Decodes a stored block of one version to hashes and ordinals."""

    def __call__(self, stored: bytes | memoryview, *, entry_count: int) -> tuple[Hashes, Hashes]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyIndexFooter:
    """The footer of an `.idx` part: rows of IDX_BLOCK, by rising hash, and the block decoder of its version."""

    segment_id: SegmentId
    entry_count: int
    bloom: BloomShape
    blocks: Table
    decode_block: BlockDecoder

    def blocks_of(self, hash_value: int) -> Table:
        """The blocks that may hold the hash; they are stored end to end, and only one except for very frequent keys."""
        blocks = self.blocks
        return blocks[(blocks["first_hash"] <= hash_value) & (hash_value <= blocks["last_hash"])]

    def find_ordinals(self, stored: bytes | memoryview, blocks: Table, hash_value: int) -> list[int]:
        """Ordinals of the entries of a hash, newest first; `stored` holds all of `blocks`, from `blocks_of`."""
        found: list[int] = []
        if not len(blocks):
            return found
        start = int(blocks["position"][0])
        for block in blocks:
            position, count = int(block["position"]) - start, int(block["entry_count"])
            hashes, ordinals = self.decode_block(
                memoryview(stored)[position : position + int(block["stored_bytes"])], entry_count=count
            )
            found.extend(ordinals[hashes == hash_value].tolist())
        return found

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of this footer."""
        return int(self.blocks.nbytes) + 300


class EncodedKeyIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of an `.idx` part, and its values for the catalog."""

    data: bytes
    entry_count: int
    bloom: BloomShape


def encode_key_index(
    segment_id: SegmentId,
    *,
    hashes: Hashes,
    ordinals: npt.NDArray[np.uint32],
    physical_offsets: npt.NDArray[np.int64],
) -> EncodedKeyIndex:
    """The `.idx` part of entries in any order; physical offsets only order the entries of one hash."""
    assert len(hashes) == len(ordinals) == len(physical_offsets)
    order = np.lexsort((-physical_offsets, hashes))
    hashes, ordinals = hashes[order], ordinals[order]
    bloom = BloomShape.for_keys(len(np.unique(hashes)))
    body = bytearray(IDX_MAGIC)
    body += bloom.build(hashes)
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    rows: list[tuple[int, ...]] = []
    for start in range(0, len(hashes), BLOCK_ENTRIES):
        block = hashes[start : start + BLOCK_ENTRIES].astype("<u4")
        steps = block.copy()
        steps[1:] -= block[:-1]
        content = to_planes(steps) + to_planes(ordinals[start : start + BLOCK_ENTRIES].astype("<u4"))
        stored = compressor.compress(content)
        rows.append((int(block[0]), int(block[-1]), len(body), len(stored), len(block)))
        body += stored
    head = IDX_HEAD.pack(
        segment_id.epoch, segment_id.sequence, len(hashes), bloom.page_bytes, bloom.page_count, len(rows)
    )
    blocks = np.array(rows, IDX_BLOCK)
    assert int(blocks["entry_count"].sum()) == len(hashes)
    assert (bloom.page_count == 0) == (len(hashes) == 0)
    content = head + blocks.tobytes()
    data = bytes(body) + encode_footer(content, kind=KEY_INDEX, body_end=len(body))
    return EncodedKeyIndex(data=data, entry_count=len(hashes), bloom=bloom)


def decode_key_index_footer(tail: bytes | memoryview) -> KeyIndexFooter:
    """The footer in `tail`, the end of an `.idx` part. Raises as `decode_footer`."""
    return decode_footer(tail, kind=KEY_INDEX)


def _decode_footer_1(content: bytes) -> KeyIndexFooter:
    if len(content) < IDX_HEAD.size:
        raise SegmentFormatError("the footer is too short", size_bytes=len(content))
    epoch, sequence, entry_count, page_bytes, page_count, block_count = IDX_HEAD.unpack_from(content)
    if len(content) != IDX_HEAD.size + block_count * IDX_BLOCK.itemsize:
        raise SegmentFormatError("the footer's size is not the sum of its fields", size_bytes=len(content))
    blocks = np.frombuffer(content, IDX_BLOCK, block_count, IDX_HEAD.size)
    if int(blocks["entry_count"].sum()) != entry_count or (page_count == 0) != (entry_count == 0):
        raise SegmentFormatError("the footer's counts do not add up", entry_count=entry_count)
    return KeyIndexFooter(
        segment_id=SegmentId(epoch, sequence),
        entry_count=entry_count,
        bloom=BloomShape(page_bytes=page_bytes, page_count=page_count),
        blocks=blocks,
        decode_block=decode_key_index_block,
    )


KEY_INDEX: PartKind[KeyIndexFooter] = PartKind(
    name="key index", magic=IDX_MAGIC, version=1, decoders={1: _decode_footer_1}
)


def decode_key_index_block(stored: bytes | memoryview, *, entry_count: int) -> tuple[Hashes, Hashes]:
    """Hashes and ordinals of one block. FrameChecksumError when it is damaged."""
    content = decompress(stored, raw_bytes=8 * entry_count)
    hashes = np.cumsum(from_planes(content, "<u4", entry_count, 0), dtype=np.uint32)
    return hashes, from_planes(content, "<u4", entry_count, 4 * entry_count).astype(np.uint32, copy=False)
