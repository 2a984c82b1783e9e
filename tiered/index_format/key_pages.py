"""Key pages of an index object: from the hash of a topic's key to the queues and offsets of its records.

    hash         = mix(h xor mix(CRC-32 of "topic NUL incarnation")), h the hash that the `.idx` part has of the key
    page         = hash * page_count >> 32
    bloom page   `page_bytes` bytes; bits (m + i * b) mod (8 * page_bytes), i = 0..5, of m = mix(hash xor 0x9E3779B9),
                 b = m >> 16 | 1; bit n is bit n & 7 of byte n >> 3: about 9 bits a key, 1.3 % false
    frames       of a page: zstd frames of up to FRAME_ENTRIES entries, by hash; those of one hash newest first

Content of a frame of n entries, byte planes: 4 planes of differences to the hash before (the first: its own hash), u32;
4 planes of queue ids, u32; 8 planes of queue offsets, u64. Different keys may share a hash: who looks up compares the
keys of the records found.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.tiered.objects import FrameChecksumError, SegmentFormatError
from thermocline.tiered.segments import (
    PROBE_SEED,
    Hashes,
    decompress,
    from_planes,
    key_hash,
    mix,
    mix_checksums,
    to_planes,
)

BLOOM_BITS_PER_KEY = 9
BLOOM_PROBES = 6
PAGE_BYTES_MIN = 64
PAGE_BYTES_MAX = 4096
FRAME_ENTRIES = 8192
ENTRY_BYTES = 16
FRAMES_OF_PAGE_MAX = 0xFFFF

Longs = npt.NDArray[np.int64]


class KeyEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of entries, one row an entry."""

    hashes: Hashes
    queue_ids: npt.NDArray[np.uint32]
    offsets: Longs

    def __len__(self) -> int:
        return len(self.hashes)

    def rows(self, which: npt.NDArray[np.generic] | slice) -> KeyEntries:
        """Some of them."""
        return KeyEntries(hashes=self.hashes[which], queue_ids=self.queue_ids[which], offsets=self.offsets[which])

    @classmethod
    def empty(cls) -> KeyEntries:
        """No entries."""
        return cls(hashes=np.empty(0, np.uint32), queue_ids=np.empty(0, np.uint32), offsets=np.empty(0, np.int64))

    @classmethod
    def joined(cls, parts: list[KeyEntries]) -> KeyEntries:
        """All of several."""
        return cls(
            hashes=np.concatenate([part.hashes for part in parts]),
            queue_ids=np.concatenate([part.queue_ids for part in parts]),
            offsets=np.concatenate([part.offsets for part in parts]),
        )


@lru_cache(maxsize=4096)
def salt_of(topic: str, incarnation: int) -> int:
    """What tells one life of a topic from others in a hash."""
    return mix(zlib.crc32(b"%s\0%d" % (topic.encode(), incarnation)))


def salted(hashes: Hashes, salt: int) -> Hashes:
    """Hashes of a topic's keys, from what its `.idx` parts have."""
    return mix_checksums(hashes ^ np.uint32(salt))


def index_hash(topic: str, incarnation: int, key: str) -> int:
    """The hash of one key of one life of a topic."""
    return mix(key_hash(key.encode()) ^ salt_of(topic, incarnation))


class PageShape(msgspec.Struct, frozen=True, kw_only=True):
    """How many bloom pages of how many bytes there are; pages of entries are as many."""

    page_bytes: int
    page_count: int

    @classmethod
    def for_keys(cls, key_count: int) -> PageShape:
        """Room for so many different keys."""
        needed_bytes = -(-key_count * BLOOM_BITS_PER_KEY // 8)
        page_bytes = PAGE_BYTES_MIN
        while page_bytes < min(needed_bytes, PAGE_BYTES_MAX):
            page_bytes *= 2
        return cls(page_bytes=page_bytes, page_count=-(-needed_bytes // page_bytes))

    def page_of(self, hash_value: int) -> int:
        """The page of a hash."""
        return hash_value * self.page_count >> 32

    def first_hash(self, page: int) -> int:
        """The least hash of a page, or 2^32 behind the last one."""
        return -(-(page << 32) // self.page_count)

    def may_hold(self, blooms: bytes | memoryview, hash_value: int) -> bool:
        """False when no key of this hash is there; `blooms` are all pages."""
        mixed = mix(hash_value ^ PROBE_SEED)
        step, bits = mixed >> 16 | 1, self.page_bytes * 8
        start = self.page_of(hash_value) * self.page_bytes
        places = [(mixed + probe * step) % bits for probe in range(BLOOM_PROBES)]
        return all(blooms[start + (place >> 3)] >> (place & 7) & 1 for place in places)

    def build_blooms(self, hashes: Hashes, *, page_start: int, page_end: int) -> bytes:
        """Bloom pages [page_start, page_end), with `hashes`, all of which fall there, in them."""
        bits = self.page_bytes * 8
        flags = np.zeros((page_end - page_start) * bits, np.bool_)
        pages = (hashes.astype(np.uint64) * np.uint64(self.page_count) >> np.uint64(32)) - np.uint64(page_start)
        mixed = mix_checksums(hashes ^ np.uint32(PROBE_SEED)).astype(np.uint64)
        step = mixed >> np.uint64(16) | np.uint64(1)
        for probe in range(BLOOM_PROBES):
            flags[pages * np.uint64(bits) + (mixed + np.uint64(probe) * step) % np.uint64(bits)] = True
        return np.packbits(flags, bitorder="little").tobytes()


class EncodedPage(msgspec.Struct, frozen=True):
    """The frames of one page, and the first hash of each."""

    frames: list[bytes]
    first_hashes: list[int]


def encode_pages(shape: PageShape, entries: KeyEntries, *, page_start: int, page_end: int) -> Iterator[EncodedPage]:
    """Pages [page_start, page_end) of entries that all fall there, in order."""
    assert not len(entries) or bool(np.all(entries.hashes[1:] >= entries.hashes[:-1])), "sorted by hash"
    bounds = [shape.first_hash(page) for page in range(page_start, page_end + 1)]
    cuts = np.searchsorted(entries.hashes.astype(np.int64), bounds).tolist()
    assert not cuts or (cuts[0] == 0 and cuts[-1] == len(entries))
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    for number in range(page_end - page_start):
        frames, first = [], []
        for start in range(cuts[number], cuts[number + 1], FRAME_ENTRIES):
            part = entries.rows(slice(start, min(start + FRAME_ENTRIES, cuts[number + 1])))
            frames.append(compressor.compress(_encode_frame(part)))
            first.append(int(part.hashes[0]) if start > cuts[number] else 0)
        yield EncodedPage(frames, first)


class PageEncoder:
    """The frames of one page whose entries come in portions, in order: a page with a key of very many records."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._waiting = KeyEntries.empty()
        self._hashes: list[Hashes] = []
        self.first_hashes: list[int] = []
        """Of each frame, as in EncodedPage."""
        self.entry_count = 0

    def add(self, entries: KeyEntries) -> Iterator[bytes]:
        """Add entries that follow those before; gives the frames that are full."""
        self._hashes.append(np.unique(entries.hashes))
        self.entry_count += len(entries)
        entries = KeyEntries.joined([self._waiting, entries])
        end = len(entries) - len(entries) % FRAME_ENTRIES
        for start in range(0, end, FRAME_ENTRIES):
            yield self._frame(entries.rows(slice(start, start + FRAME_ENTRIES)))
        self._waiting = entries.rows(slice(end, None))

    def finish(self) -> Iterator[bytes]:
        """The last frame, if there is any entry left."""
        if len(self._waiting):
            yield self._frame(self._waiting)

    @property
    def hashes(self) -> Hashes:
        """The different hashes of all entries."""
        return np.unique(np.concatenate([np.empty(0, np.uint32), *self._hashes]))

    def _frame(self, entries: KeyEntries) -> bytes:
        self.first_hashes.append(int(entries.hashes[0]) if self.first_hashes else 0)
        return self._compressor.compress(_encode_frame(entries))


def _encode_frame(entries: KeyEntries) -> bytes:
    steps = entries.hashes.astype("<u4")
    steps[1:] -= entries.hashes[:-1]
    return to_planes(steps) + to_planes(entries.queue_ids.astype("<u4")) + to_planes(entries.offsets.astype("<u8"))


def decode_frame(stored: bytes | memoryview) -> KeyEntries:
    """The entries of one frame. FrameChecksumError or SegmentFormatError when it is damaged."""
    try:
        size_bytes = zstandard.frame_content_size(stored)
    except zstandard.ZstdError as error:
        raise FrameChecksumError("a frame of keys is no zstd frame", size_bytes=len(stored)) from error
    count, rest = divmod(size_bytes, ENTRY_BYTES)
    if rest or not 0 < count <= FRAME_ENTRIES:
        raise SegmentFormatError("impossible size of a frame of keys", size_bytes=size_bytes)
    content = decompress(stored, raw_bytes=size_bytes)
    return KeyEntries(
        hashes=np.cumsum(from_planes(content, "<u4", count, 0), dtype=np.uint32),
        queue_ids=from_planes(content, "<u4", count, 4 * count).astype(np.uint32, copy=False),
        offsets=from_planes(content, "<u8", count, 8 * count).astype(np.int64),
    )
