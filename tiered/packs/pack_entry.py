"""PackEntry: a pack as the ledger describes it, and the catalog's entry for each topic in packs.

A pack holds pieces: segments of many topics. The ledger has the pack's key, the position of its footer, its topics and
the range of offsets of each queue (`piece_table.py`); all other data of a piece is in the footer (`pack_format.py`),
and loaded on demand.

    order of topics in a pack: by CRC-32 of the name, then by the name
    range of a pack: the topics of which the first `depth` bits of the CRC-32 are those of its first topic

So a merge can cut its output into packs of halves, quarters, eighths of the topics, and later cuts subdivide earlier
ones.
"""

from __future__ import annotations

import sys
import zlib
from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.objects import OBJECT_START, SegmentOffset
from thermocline.tiered.packs.piece_table import PieceTable, QueueRange, decode_piece_table
from thermocline.tiered.packs.piece_times import PieceTimes, decode_piece_times
from thermocline.tiered.segments import SegmentId

SECTION_PIECES = 64
"""Pieces in one section of a pack's footer."""

TopicKey = tuple[int, str]


def topic_key(topic: str) -> TopicKey:
    """The sort key of topics in a pack."""
    return zlib.crc32(topic.encode()), topic


class PackEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One pack. `topics` names the topic of each piece; one that has several pieces comes several times.

    `section_ends`: where in the object the footer's sections end; the first begins at `footer_start`. `level`: how
    often what is in it has been merged. `columns_start`: where the `.cq` parts begin, behind the last `.log` part; 0,
    and no `times`, in packs of before these were noted. `logs`: how large each `.log` part is (`piece_logs.py`).
    `groups`: where the frames of large ones are (`piece_groups.py`). `format_version`: what its trailer says.
    """

    pack_id: str
    ttl_class: str
    key: str
    object_bytes: int
    footer_start: SegmentOffset
    section_ends: tuple[SegmentOffset, ...]
    crc32: int
    topics: tuple[str, ...]
    pieces: bytes
    record_count: int
    raw_bytes: int
    min_store_ms: int
    max_store_ms: int
    min_physical_offset: PhysicalOffset
    end_physical_offset: PhysicalOffset
    created_ms: int
    level: int = 0
    depth: int = 0
    times: bytes = b""
    columns_start: SegmentOffset = OBJECT_START
    logs: bytes = b""
    groups: bytes = b""
    format_version: int = 1

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "topics", tuple(map(sys.intern, self.topics)))

    @property
    def id(self) -> SegmentId:
        """The id as numbers."""
        return SegmentId.parse(self.pack_id)

    @property
    def prefix(self) -> int:
        """The first `depth` bits of its topics' CRC-32."""
        return topic_key(self.topics[0])[0] >> (32 - self.depth)

    def table(self) -> PieceTable:
        """The ranges of its pieces."""
        return decode_piece_table(self.pieces, piece_count=len(self.topics), times=self.piece_times())

    def piece_times(self) -> PieceTimes | None:
        """Bounds of each piece's store times; None when the ledger has only the pack's."""
        if not self.times:
            return None
        return decode_piece_times(self.times, piece_count=len(self.topics), min_store_ms=self.min_store_ms)

    def indexes_of(self, topic: str) -> range:
        """The indexes of the topic's pieces."""
        start = bisect_left(self.topics, topic_key(topic), key=topic_key)
        end = start
        while end < len(self.topics) and self.topics[end] == topic:
            end += 1
        return range(start, end)

    def ranges_of(self, topic: str, incarnation: int) -> Iterator[QueueRange]:
        """The offsets that the pieces of one life of a topic hold."""
        indexes = self.indexes_of(topic)
        if not indexes:
            return
        table = decode_piece_table(self.pieces, piece_count=len(self.topics))  # without times, which are another frame
        for index in indexes:
            piece = table.piece(index)
            if piece.incarnation == incarnation:
                yield from piece.queues

    def sections(self) -> list[tuple[SegmentOffset, SegmentOffset]]:
        """[start, end) in the object of each section of the footer."""
        return list(zip((self.footer_start, *self.section_ends[:-1]), self.section_ends, strict=True))


class QueueBounds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The packed offsets of a queue are within [start_offset, end_offset); the end is exact."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset


class PackedTopic(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A topic's share of the packs, under one incarnation: the packs that hold it, in the order of their commits."""

    topic: str
    incarnation: int
    packs: tuple[str, ...]
    queues: tuple[QueueBounds, ...]
    raw_bytes: int
    stored_bytes: int
