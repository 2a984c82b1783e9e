"""IndexEntry: what the ledger says of one index object, which is all that a lookup needs before its first request.

An index object covers one range of places in the log, for the topics of one TTL class (keys), or for all of them
(places: class `PLACES`). It names records by what never changes: topic, incarnation, queue and queue offset. So merges
of packs, heals and purges leave it true.

    topics      one zstd frame around the CRC-32 of their names, rising: 4 byte planes of the differences
    directory   where its frames and chapters lie: `index_directory.py`
    gaps        offsets of the range that were in quarantine when it was made: not in it, whatever became of them since
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from functools import lru_cache

import msgspec
import numpy as np
import zstandard

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.objects import LedgerCorruptError, SegmentOffset, decompress_frame
from thermocline.tiered.segments import SegmentId, from_planes, to_planes

PLACES = "places"
"""In place of a TTL class: an object by which places in the log are found, of all topics."""
TOPICS_BYTES_MAX = 64 << 20
TOPICS_CACHED = 256


class IndexGap(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets [start_offset, end_offset) of a queue that could not be read when the object was made."""

    topic: str
    incarnation: int
    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One index object: places [start, end) of the log. Frames of entries from byte 8 on, bloom pages at
    `blooms_start`, chapters at `chapters_start`, the footer at `footer_start`. `level`: how often it was merged.
    `format_version`: what its trailer says."""

    index_id: str
    ttl_class: str
    key: str
    object_bytes: int
    crc32: int
    start: PhysicalOffset
    end: PhysicalOffset
    topics: bytes
    min_store_ms: int
    max_store_ms: int
    record_count: int
    key_count: int
    page_bytes: int
    page_count: int
    blooms_start: SegmentOffset
    chapters_start: SegmentOffset
    footer_start: SegmentOffset
    directory: bytes
    created_ms: int
    level: int = 0
    gaps: tuple[IndexGap, ...] = ()
    format_version: int = 1

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "ttl_class", sys.intern(self.ttl_class))

    @property
    def id(self) -> SegmentId:
        """The id as numbers."""
        return SegmentId.parse(self.index_id)

    @property
    def is_of_places(self) -> bool:
        """Whether it finds places rather than keys."""
        return self.ttl_class == PLACES

    @property
    def bloom_bytes(self) -> int:
        """All bloom pages together."""
        return self.page_bytes * self.page_count

    def may_hold(self, topic: str) -> bool:
        """False when it holds nothing of the topic."""
        return zlib.crc32(topic.encode()) in self.topic_checksums()

    def topic_checksums(self) -> frozenset[int]:
        """CRC-32 of the names of its topics."""
        return _decode_topics(self.topics)


def encode_topics(names: Iterable[str]) -> bytes:
    """What an entry says of its topics."""
    return encode_checksums(zlib.crc32(name.encode()) for name in names)


def encode_checksums(checksums: Iterable[int]) -> bytes:
    """As `encode_topics`, of CRC-32 values."""
    values = np.unique(np.fromiter(checksums, np.uint32))
    steps = values.copy()
    steps[1:] -= values[:-1]
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(to_planes(steps.astype("<u4")))


@lru_cache(maxsize=TOPICS_CACHED)
def _decode_topics(data: bytes) -> frozenset[int]:
    try:
        size_bytes = zstandard.frame_content_size(data)
        if not 0 <= size_bytes <= TOPICS_BYTES_MAX or size_bytes % 4:
            raise LedgerCorruptError("impossible size of an index object's topics", size_bytes=size_bytes)
        content = decompress_frame(data)
    except zstandard.ZstdError as error:
        raise LedgerCorruptError("an index object's topics do not decompress", size_bytes=len(data)) from error
    steps = from_planes(content, "<u4", len(content) // 4, 0)
    return frozenset(np.cumsum(steps, dtype=np.uint32).tolist())
