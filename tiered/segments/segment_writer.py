"""SegmentWriter: turns records of one topic, queue by queue, into the three parts of a cold segment.

Rules
  - Queues come in order of queue id, each once, its records without a gap. All but the tags code is read from them.
  - Memory: one frame, one column block, 16 bytes for each key and the compressed `.cq`. The compressed `.log` goes to
    an unnamed temporary file when a folder is given (it vanishes with the process), else it is kept in memory too.
  - One thread; the parts are complete when `finish` returns, nothing is durable here.
Layout: `segment_format.py`, `queue_columns.py`, `key_index.py`; specification: docs/cold-format.md.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import NO_PHYSICAL_OFFSET, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MAGIC_V1, MAGIC_V2
from thermocline.remoting.records.properties import PropertyName, find_property
from thermocline.remoting.records.record_heads import RecordHeads, read_heads_at
from thermocline.tiered.objects import OBJECT_START, SegmentOffset, Spool
from thermocline.tiered.segments.key_index import encode_key_index, mix_checksums
from thermocline.tiered.segments.known_frames import GROUP_BYTES_MAX
from thermocline.tiered.segments.queue_columns import ColumnsWriter, QueueColumns
from thermocline.tiered.segments.segment_entry import CoarseFrame, CoarseRows, PartLocator, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import (
    FRAME,
    LOG_MAGIC,
    LogFooter,
    QueueRun,
    SegmentId,
    decode_trailer,
    encode_log_footer,
)

FRAME_BYTES = 1024 * 1024
COMPRESSION_LEVEL = 3
COARSE_FRAMES = 8

_UNIQUE_KEY = PropertyName.UNIQUE_KEY.encode()
_KEYS = PropertyName.KEYS.encode()


class SegmentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`frame_bytes`: records in one frame. `coarse_frames`: every how many frames the catalog notes one."""

    frame_bytes: int = FRAME_BYTES
    compression_level: int = COMPRESSION_LEVEL
    coarse_frames: int = COARSE_FRAMES


class SegmentWriter:
    """Writes one segment; then `finish`. See the module's header."""

    def __init__(
        self,
        *,
        segment_id: SegmentId,
        topic: str,
        incarnation: int,
        folder: Path | None = None,
        options: SegmentOptions | None = None,
    ) -> None:
        self._segment_id = segment_id
        self._topic = topic
        self._incarnation = incarnation
        self._options = options if options is not None else SegmentOptions()
        self._compressor = zstandard.ZstdCompressor(
            level=self._options.compression_level, write_checksum=True, write_content_size=True
        )
        self._spool = Spool(folder)
        self._spool.write(LOG_MAGIC)
        self._columns = ColumnsWriter(segment_id)
        self._runs: list[QueueRun] = []
        self._frames: list[tuple[int, ...]] = []
        self._record_count = 0
        self._raw_bytes = 0
        self._key_checksums = array("I")
        self._key_ordinals = array("I")
        self._key_physical_offsets = array("q")
        self._run: _OpenRun | None = None

    @property
    def raw_bytes(self) -> int:
        """Bytes of all records appended."""
        return self._raw_bytes + (self._run.pending_bytes if self._run else 0)

    @property
    def stored_bytes(self) -> int:
        """Bytes of `.log` as far as it is compressed."""
        return self._spool.size_bytes

    def append(
        self,
        queue_id: int,
        queue_offset: QueueOffset,
        records: Iterable[bytes | memoryview],
        tags_codes: Sequence[int] | npt.NDArray[np.int64],
    ) -> None:
        """Add whole records of consecutive offsets from `queue_offset`, one tags code each.

        The views are used before this call returns or the next frame is full, whichever is later: they stay valid
        until `finish`.

        Raises:
            CorruptDataError: A record is not what the queue should hold there.
        """
        run = self._run
        if run is None or run.queue_id != queue_id:
            self._end_run()
            assert not self._runs or self._runs[-1].queue_id < queue_id, "queues come in order, each once"
            run = self._run = _OpenRun(
                queue_id=queue_id,
                start_offset=queue_offset,
                next_offset=queue_offset,
                frame_start=len(self._frames),
            )
        assert queue_offset == run.next_offset, "a run has no gap"
        frame_bytes, pending, codes = self._options.frame_bytes, run.pending, run.pending_codes
        pending_bytes = run.pending_bytes
        count = 0
        for record, code in zip(records, map(int, tags_codes), strict=True):
            size_bytes = len(record)
            if pending_bytes + size_bytes > frame_bytes and pending:
                run.next_offset, count = run.next_offset + count, 0
                self._write_frame(run)
                pending_bytes = 0
            pending.append(record)
            codes.append(code)
            pending_bytes += size_bytes
            run.pending_bytes = pending_bytes
            count += 1
        run.next_offset += count

    def finish(self) -> FinishedSegment:
        """Complete the three parts. At least one record was appended. Call `close` on the result."""
        self._end_run()
        assert self._runs, "a segment holds at least one record"
        footer = LogFooter(
            segment_id=self._segment_id,
            topic=self._topic,
            incarnation=self._incarnation,
            record_count=self._record_count,
            raw_bytes=self._raw_bytes,
            runs=tuple(self._runs),
            frames=np.array(self._frames, FRAME),
        )
        log_body_end = self._spool.size_bytes
        self._spool.write(encode_log_footer(footer, body_end=log_body_end))
        index = encode_key_index(
            self._segment_id,
            hashes=mix_checksums(np.frombuffer(self._key_checksums, np.uint32)),
            ordinals=np.frombuffer(self._key_ordinals, np.uint32),
            physical_offsets=np.frombuffer(self._key_physical_offsets, np.int64),
        )
        return FinishedSegment(
            footer=footer,
            log=self._spool.finish(),
            cq=self._columns.finish(),
            idx=index.data,
            log_crc32=self._spool.crc32,
            coarse_frames=self._options.coarse_frames,
            key_count=index.entry_count,
            bloom_page_bytes=index.bloom.page_bytes,
            bloom_page_count=index.bloom.page_count,
            spool=self._spool,
        )

    def close(self) -> None:
        """Give up a segment that was not finished; idempotent."""
        self._spool.close()

    def _end_run(self) -> None:
        run = self._run
        if run is None:
            return
        if run.pending:
            self._write_frame(run)
        frames = self._frames[run.frame_start :]
        self._runs.append(
            QueueRun(
                queue_id=run.queue_id,
                start_offset=run.start_offset,
                end_offset=run.next_offset,
                min_store_ms=min(frame[6] for frame in frames),
                max_store_ms=max(frame[7] for frame in frames),
                frame_start=run.frame_start,
                frame_end=len(self._frames),
                min_physical_offset=run.min_physical_offset,
                end_physical_offset=run.end_physical_offset,
            )
        )
        self._run = None

    def _write_frame(self, run: _OpenRun) -> None:
        raw = b"".join(run.pending)
        sizes = np.fromiter(map(len, run.pending), np.int64, len(run.pending))
        codes = np.array(run.pending_codes, np.int64)
        run.pending.clear()
        run.pending_codes.clear()
        run.pending_bytes = 0
        count = len(sizes)
        start_offset, end_offset = run.next_offset - count, run.next_offset
        positions = np.cumsum(sizes) - sizes
        heads = read_heads_at(np.frombuffer(raw, np.uint8), positions, sizes)
        _check_heads(heads, sizes, queue_id=run.queue_id, start_offset=start_offset)
        store_ms = heads.integers("store_timestamp_ms")
        physical_offsets = heads.integers("physical_offset")
        self._collect_keys(raw, heads, physical_offsets)
        self._columns.append(
            QueueColumns(
                queue_id=run.queue_id,
                start_offset=start_offset,
                sizes=sizes.astype(np.uint32),
                physical_offsets=physical_offsets,
                tags_codes=codes,
            )
        )
        stored = self._compressor.compress(raw)
        row = (
            self._spool.size_bytes,
            len(stored),
            len(raw),
            self._raw_bytes,
            start_offset,
            end_offset,
            int(store_ms.min()),
            int(store_ms.max()),
        )
        self._frames.append(row)
        self._spool.write(stored)
        run.take_physical_range(
            PhysicalOffset(physical_offsets.min()), PhysicalOffset((physical_offsets + sizes).max())
        )
        self._raw_bytes += len(raw)
        self._record_count += count

    def _collect_keys(self, raw: bytes, heads: RecordHeads, physical_offsets: npt.NDArray[np.int64]) -> None:
        """Note the keys of a frame's records, as RocketMQ's index has them: UNIQ_KEY and each word of KEYS."""
        starts, ends = heads.properties_starts, heads.properties_starts + heads.properties_bytes
        checksum, add_checksum, add_ordinal = zlib.crc32, self._key_checksums.append, self._key_ordinals.append
        rfind, find = raw.rfind, raw.find
        key_counts = [0] * len(heads)
        first_ordinal = self._record_count
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            # The usual case in place: the last piece of the name, not the first of the text, with a value and its end.
            at = rfind(b"\x02UNIQ_KEY\x01", start, end) + 10
            stop = find(b"\x02", at, end) if at > 9 else -1
            key = raw[at:stop] if stop > at else find_property(raw[start:end], _UNIQUE_KEY)
            if key:
                add_checksum(checksum(key))
                add_ordinal(first_ordinal + index)
                key_counts[index] = 1
            at = find(b"KEYS\x01", start, end)
            if at < 0:
                continue
            stop = find(b"\x02", at, end)
            if stop > at + 5 and (at == start or raw[at - 1] == 2) and rfind(b"KEYS\x01", start, end) == at:
                words = raw[at + 5 : stop]
            else:
                words = find_property(raw[start:end], _KEYS) or b""
            for word in words.split(b" "):
                if word:
                    add_checksum(checksum(word))
                    add_ordinal(first_ordinal + index)
                    key_counts[index] += 1
        self._key_physical_offsets.frombytes(np.repeat(physical_offsets, key_counts).tobytes())


def _check_heads(heads: RecordHeads, sizes: npt.NDArray[np.int64], *, queue_id: int, start_offset: QueueOffset) -> None:
    """CorruptDataError unless each record is the whole one that the queue should hold at its offset."""
    head = heads.head
    is_right = (head["size_bytes"] == sizes) & ((head["magic"] == MAGIC_V1) | (head["magic"] == MAGIC_V2))
    is_right &= (head["queue_id"] == queue_id) & (head["queue_offset"] == np.arange(len(heads)) + start_offset)
    if not is_right.all():
        offset = start_offset + int(np.argmin(is_right))
        raise CorruptDataError("not the record that the queue should hold", queue_id=queue_id, queue_offset=offset)


class FinishedSegment(msgspec.Struct, kw_only=True, eq=False):
    """The three parts, complete. `log` is a view that `close` invalidates; `entry` gives the catalog's view of it."""

    footer: LogFooter
    log: memoryview
    cq: bytes
    idx: bytes
    log_crc32: int
    coarse_frames: int
    key_count: int
    bloom_page_bytes: int
    bloom_page_count: int
    spool: Spool

    @property
    def stored_bytes(self) -> int:
        """The parts together."""
        return len(self.log) + len(self.cq) + len(self.idx)

    def entry(self, *, log_key: str, cq_key: str, idx_key: str, created_ms: int) -> SegmentEntry:
        """The catalog's entry when each part is the whole object of that key."""
        footer = self.footer
        return SegmentEntry(
            segment_id=str(footer.segment_id),
            topic=footer.topic,
            incarnation=footer.incarnation,
            log=_locator(log_key, self.log, crc32=self.log_crc32),
            cq=_locator(cq_key, self.cq, crc32=zlib.crc32(self.cq)),
            idx=_locator(idx_key, self.idx, crc32=zlib.crc32(self.idx)),
            runs=RunRows.of(footer.runs),
            coarse=CoarseRows.of(coarse_frames(footer, every=self.coarse_frames)),
            record_count=footer.record_count,
            raw_bytes=footer.raw_bytes,
            key_count=self.key_count,
            bloom_page_bytes=self.bloom_page_bytes,
            bloom_page_count=self.bloom_page_count,
            created_ms=created_ms,
        )

    def close(self) -> None:
        """Free the temporary file; idempotent."""
        self.log.release()
        self.spool.close()

    def __enter__(self) -> FinishedSegment:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def coarse_frames(footer: LogFooter, *, every: int) -> tuple[CoarseFrame, ...]:
    """The first frame of each run, and every so many after it: fewer where they are large (GROUP_BYTES_MAX)."""
    rows: list[CoarseFrame] = []
    for run in footer.runs:
        noted = run.frame_start
        for index in range(run.frame_start, run.frame_end):
            frame = footer.frame(index)
            is_full = bool(rows) and frame.end_position - rows[-1].position > GROUP_BYTES_MAX
            if index > run.frame_start and index - noted < every and not is_full:
                continue
            noted = index
            rows.append(
                CoarseFrame(
                    frame_index=index,
                    start_offset=frame.start_offset,
                    position=frame.position,
                    raw_position=frame.raw_position,
                    min_store_ms=frame.min_store_ms,
                )
            )
    return tuple(rows)


def _locator(key: str, part: bytes | memoryview, *, crc32: int) -> PartLocator:
    magic = bytes(part[-8:])
    footer_start = len(part) - decode_trailer(part, magic=magic).tail_bytes
    return PartLocator(
        key=key, start=OBJECT_START, end=SegmentOffset(len(part)), footer_start=SegmentOffset(footer_start), crc32=crc32
    )


@dataclass(slots=True, kw_only=True)
class _OpenRun:
    """The run that records are appended to."""

    queue_id: int
    start_offset: QueueOffset
    frame_start: int
    next_offset: QueueOffset
    pending: list[bytes | memoryview] = field(default_factory=list)
    pending_codes: list[int] = field(default_factory=list)
    pending_bytes: int = 0
    min_physical_offset: PhysicalOffset = NO_PHYSICAL_OFFSET
    end_physical_offset: PhysicalOffset = NO_PHYSICAL_OFFSET

    def take_physical_range(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Widen the run's range of physical offsets."""
        first = self.min_physical_offset < 0
        self.min_physical_offset = start if first else min(self.min_physical_offset, start)
        self.end_physical_offset = max(self.end_physical_offset, end)
