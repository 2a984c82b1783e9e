"""PackWriter: puts finished segments together into one pack; and a segment's three parts into one object.

Memory: the `.cq` and `.idx` parts, a few bytes a record. The `.log` parts go to an unnamed temporary file when a folder
is given. One thread; nothing is durable here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec

from thermocline.tiered.objects import SegmentOffset, Spool
from thermocline.tiered.packs.pack_entry import PackEntry, topic_key
from thermocline.tiered.packs.pack_format import PACK, PACK_MAGIC, encode_sections, encode_trailer
from thermocline.tiered.packs.piece_groups import encode_piece_groups
from thermocline.tiered.packs.piece_logs import encode_piece_logs
from thermocline.tiered.packs.piece_table import PieceExtent, QueueRange, encode_piece_table
from thermocline.tiered.packs.piece_times import encode_piece_times
from thermocline.tiered.segments import CoarseRows, FinishedSegment, PartLocator, SegmentEntry, SegmentId, coarse_frames

RECORD_MEMORY_BYTES = 30
"""What a record takes in a pack that is written: its share of the `.cq` and `.idx` parts."""


class FinishedObject(msgspec.Struct, eq=False):
    """The bytes of one object, complete; `close` frees them."""

    data: memoryview
    spool: Spool

    def close(self) -> None:
        """Free the temporary file; idempotent."""
        self.data.release()
        self.spool.close()

    def __enter__(self) -> FinishedObject:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Piece(msgspec.Struct):
    entry: SegmentEntry
    cq: bytes
    idx: bytes


class PackWriter:
    """Writes one pack; `add` in the order of `topic_key`, then `finish`."""

    def __init__(self, *, pack_id: SegmentId, key: str, ttl_class: str, folder: Path | None = None) -> None:
        self.pack_id = pack_id
        self.key = key
        self._ttl_class = ttl_class
        self._spool = Spool(folder)
        self._spool.write(PACK_MAGIC)
        self._pieces: list[_Piece] = []

    @property
    def piece_count(self) -> int:
        """Pieces so far."""
        return len(self._pieces)

    @property
    def stored_bytes(self) -> int:
        """About the size of the object if it were finished now."""
        return self._spool.size_bytes + sum(len(piece.cq) + len(piece.idx) for piece in self._pieces)

    @property
    def last_topic(self) -> str:
        """The topic of the last piece; empty before the first."""
        return self._pieces[-1].entry.topic if self._pieces else ""

    def columns(self) -> list[tuple[SegmentEntry, bytes, bytes]]:
        """Entry, `.cq` and `.idx` part of each piece of a pack that is finished."""
        return [(piece.entry, piece.cq, piece.idx) for piece in self._pieces]

    def add(self, finished: FinishedSegment, *, created_ms: int) -> None:
        """Add a segment; it may be closed afterwards."""
        assert not self._pieces or topic_key(self.last_topic) <= topic_key(finished.footer.topic), "out of order"
        entry = finished.entry(log_key=self.key, cq_key=self.key, idx_key=self.key, created_ms=created_ms)
        position = self._spool.size_bytes
        self._spool.write(finished.log)
        # In a pack's footer, not in the ledger: so every frame is noted, and a lookup needs no footer of the piece.
        coarse = CoarseRows.of(coarse_frames(finished.footer, every=1))
        entry = msgspec.structs.replace(entry, log=_moved(entry.log, position), coarse=coarse)
        self._pieces.append(_Piece(entry, finished.cq, finished.idx))

    def finish(self, *, level: int, depth: int, created_ms: int) -> tuple[PackEntry, FinishedObject]:
        """Complete the pack, which has at least one piece: its entry, and its bytes."""
        assert self._pieces
        spool, pieces = self._spool, self._pieces
        columns_start = SegmentOffset(spool.size_bytes)
        for piece in pieces:
            position = spool.size_bytes
            spool.write(piece.cq)
            piece.entry = msgspec.structs.replace(piece.entry, cq=_moved(piece.entry.cq, position))
        for piece in pieces:
            position = spool.size_bytes
            spool.write(piece.idx)
            piece.entry = msgspec.structs.replace(piece.entry, idx=_moved(piece.entry.idx, position))
        entries = [piece.entry for piece in pieces]
        footer_start = SegmentOffset(spool.size_bytes)
        sections = encode_sections(entries)
        section_ends: list[SegmentOffset] = []
        for section in sections:
            spool.write(section)
            section_ends.append(SegmentOffset(spool.size_bytes))
        spool.write(encode_trailer(sections, body_end=footer_start))
        pack = PackEntry(
            pack_id=str(self.pack_id),
            ttl_class=self._ttl_class,
            key=self.key,
            object_bytes=spool.size_bytes,
            footer_start=footer_start,
            section_ends=tuple(section_ends),
            crc32=spool.crc32,
            topics=tuple(entry.topic for entry in entries),
            pieces=encode_piece_table([extent_of(entry) for entry in entries]),
            record_count=sum(entry.record_count for entry in entries),
            raw_bytes=sum(entry.raw_bytes for entry in entries),
            min_store_ms=min(entry.min_store_ms for entry in entries),
            max_store_ms=max(entry.max_store_ms for entry in entries),
            min_physical_offset=min(entry.min_physical_offset for entry in entries),
            end_physical_offset=max(entry.end_physical_offset for entry in entries),
            created_ms=created_ms,
            level=level,
            depth=depth,
            times=encode_piece_times(entries),
            columns_start=columns_start,
            logs=encode_piece_logs(entries),
            groups=encode_piece_groups(entries),
            format_version=PACK.version,
        )
        return pack, FinishedObject(spool.finish(), spool)

    def close(self) -> None:
        """Give up a pack that was not finished; idempotent."""
        self._spool.close()


def extent_of(entry: SegmentEntry) -> PieceExtent:
    """The ledger's description of a piece."""
    return PieceExtent(
        incarnation=entry.incarnation,
        raw_bytes=entry.raw_bytes,
        stored_bytes=entry.stored_bytes,
        queues=tuple(QueueRange(run.queue_id, run.start_offset, run.end_offset) for run in entry.runs),
    )


@dataclass(slots=True)
class JoinedSegment:
    """The parts of one finished segment as one object, and its entry."""

    entry: SegmentEntry
    object: FinishedObject
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.entry.log.key


def join_parts(finished: FinishedSegment, *, key: str, created_ms: int, folder: Path | None) -> JoinedSegment:
    """Put a segment's parts end to end. DiskFullError when there is no room."""
    spool = Spool(folder)
    try:
        spool.write(finished.log)
        cq_start = spool.size_bytes
        spool.write(finished.cq)
        idx_start = spool.size_bytes
        spool.write(finished.idx)
        data = spool.finish()
    except BaseException:
        spool.close()
        raise
    entry = finished.entry(log_key=key, cq_key=key, idx_key=key, created_ms=created_ms)
    entry = msgspec.structs.replace(entry, cq=_moved(entry.cq, cq_start), idx=_moved(entry.idx, idx_start))
    assert entry.cq.crc32 == zlib.crc32(finished.cq)
    return JoinedSegment(entry, FinishedObject(data, spool))


def _moved(locator: PartLocator, by: int) -> PartLocator:
    """The locator of a part, moved by `by` bytes."""
    return msgspec.structs.replace(
        locator, start=locator.start + by, end=locator.end + by, footer_start=locator.footer_start + by
    )
