"""Writes the records of pieces, one after another in the log, as one new segment, byte for byte.

Queue by queue, of each queue piece by piece: so one frame is in memory, and the parts themselves, which are views.
Runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.tiered.objects import SegmentFormatError
from thermocline.tiered.segments import (
    FinishedSegment,
    FrameInfo,
    LogFooter,
    QueueRun,
    SegmentEntry,
    SegmentId,
    SegmentOptions,
    SegmentWriter,
    decode_columns_footer,
    decode_frame,
    decode_log_footer,
)


class PieceBytes(msgspec.Struct):
    """One piece and its parts."""

    entry: SegmentEntry
    log: bytes | memoryview
    cq: bytes | memoryview


def rewrite(
    pieces: Sequence[PieceBytes], *, segment_id: SegmentId, options: SegmentOptions, folder: Path | None, cut_ms: int
) -> FinishedSegment:
    """One segment of all pieces, which are of one topic and leave no gap; see `stretches`.

    Of each queue the records in front of the first one that was stored at or after `cut_ms` are left out. Those behind
    it stay: store times rise along a queue, except where RocketMQ wrote the log while its clock was set back, and a run
    has no gap. At least one record stays.

    Raises:
        CorruptDataError: A piece is not what its entry says.
    """
    first = pieces[0].entry
    opened = [_OpenPiece.of(piece) for piece in pieces]
    writer = SegmentWriter(
        segment_id=segment_id, topic=first.topic, incarnation=first.incarnation, folder=folder, options=options
    )
    try:
        for queue_id in sorted({run.queue_id for piece in pieces for run in piece.entry.runs}):
            has_begun = False
            for piece in opened:
                run = piece.entry.run(queue_id)
                if run is None:
                    continue
                for info, codes in zip(piece.frames(run), piece.codes(run), strict=True):
                    if not has_begun and info.max_store_ms < cut_ms:
                        continue
                    frame = decode_frame(piece.log[info.position : info.end_position], info)
                    start = info.start_offset
                    if not has_begun and info.min_store_ms < cut_ms:
                        while frame.store_timestamp_ms(start) < cut_ms:
                            start += 1
                    has_begun = True
                    records = frame.records(start, info.end_offset)
                    writer.append(queue_id, start, records, codes[start - info.start_offset :])
        return writer.finish()
    except BaseException:
        writer.close()
        raise


def stretches(entries: Iterable[SegmentEntry], *, raw_bytes_max: int) -> Iterator[list[SegmentEntry]]:
    """Entries in the order of the log, cut where a queue has a gap, or before they hold more than `raw_bytes_max`."""
    stretch: list[SegmentEntry] = []
    ends: dict[int, int] = {}
    raw_bytes = 0
    for entry in sorted(entries, key=lambda each: each.min_physical_offset):
        has_gap = any(ends.get(run.queue_id, run.start_offset) != run.start_offset for run in entry.runs)
        if stretch and (has_gap or raw_bytes + entry.raw_bytes > raw_bytes_max):
            yield stretch
            stretch, ends, raw_bytes = [], {}, 0
        stretch.append(entry)
        raw_bytes += entry.raw_bytes
        ends.update({run.queue_id: run.end_offset for run in entry.runs})
    if stretch:
        yield stretch


class _OpenPiece(msgspec.Struct):
    entry: SegmentEntry
    log: memoryview
    cq: memoryview
    footer: LogFooter

    @classmethod
    def of(cls, piece: PieceBytes) -> _OpenPiece:
        log = memoryview(piece.log)
        footer = decode_log_footer(log)
        if str(footer.segment_id) != piece.entry.segment_id or footer.runs != piece.entry.runs:
            raise SegmentFormatError("another segment is stored here", expected=piece.entry.segment_id)
        return cls(piece.entry, log, memoryview(piece.cq), footer)

    def frames(self, run: QueueRun) -> Iterator[FrameInfo]:
        """The frames of a run."""
        return map(self.footer.frame, range(run.frame_start, run.frame_end))

    def codes(self, run: QueueRun) -> Iterator[npt.NDArray[np.int64]]:
        """The tags codes of each frame of a run."""
        columns = decode_columns_footer(self.cq)
        blocks = columns.blocks_of(run.queue_id, start_offset=run.start_offset, end_offset=run.end_offset)
        parts = [
            columns.decode_block(
                self.cq[int(block["position"]) : int(block["position"]) + int(block["stored_bytes"])], block
            ).tags_codes
            for block in blocks
        ]
        codes = np.concatenate(parts) if parts else np.empty(0, np.int64)
        if len(codes) != run.record_count:
            raise SegmentFormatError("the columns do not cover the run", queue_id=run.queue_id)
        for info in self.frames(run):
            yield codes[info.start_offset - run.start_offset : info.end_offset - run.start_offset]
