"""The layout that the parts of a cold segment share, and the footer of `.log`. Specification: docs/cold-format.md.

A segment holds, for one topic, one gapless run of queue offsets of each of its queues, in three parts: `.log` (the
records), `.cq` (their sizes, places and tags, `queue_columns.py`) and `.idx` (their keys, `key_index.py`). A part is an
object of its own or a range of one; every position in it counts from the part's first byte.

    8 bytes   magic of the part
    body      .log: zstd frames end to end
    footer    one zstd frame; its content is below
    trailer   TRAILER: finds and checks the footer

Numbers are little-endian, save inside records, which are the commit log's own bytes and big-endian.

Footer of .log
    LOG_HEAD, topic (UTF-8), RUN x run_count, FRAME x frame_count
Invariants
  - Runs are in order of queue id, each queue once. The frames of run i are [frame_start, frame_end), end to end.
  - A frame holds whole records of one queue, in order, end to end; cut before the record that would pass the target
    size, so that only a frame of one record is larger. Its zstd header carries the content size, its end a checksum.
  - The record at queue offset q of a run carries q, its queue id and its physical offset in its own fields.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.remoting.errors import OffsetOutOfRangeError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.objects import FrameChecksumError, SegmentFormatError, decompress_frame
from thermocline.tiered.segments.part_kind import PartKind

MAGIC_BYTES = 8
LOG_MAGIC = b"THERMLOG"
CQ_MAGIC = b"THERM-CQ"
IDX_MAGIC = b"THERMIDX"

TRAILER = struct.Struct(
    "<Q"  # size of the whole part, bytes
    "I"  # size of the footer as stored, bytes
    "I"  # size of the footer's content, bytes
    "H"  # version of the kind of part (part_kind.py)
    "H"  # zero
    "I"  # CRC-32 of the footer as stored and of the fields above
    "8s"  # magic of the part
)
assert TRAILER.size == 32, "cold format version 1"
TRAILER_CHECKED_BYTES = 20

LOG_HEAD = struct.Struct(
    "<Q"  # epoch of the segment's id
    "Q"  # sequence of the segment's id
    "Q"  # incarnation of the topic
    "Q"  # records
    "Q"  # record bytes
    "I"  # runs
    "I"  # frames
    "H"  # size of the topic's name, bytes
)
assert LOG_HEAD.size == 50, "cold format version 1"

RUN = np.dtype(
    [
        ("queue_id", "<i4"),
        ("frame_start", "<u4"),
        ("frame_end", "<u4"),
        ("start_offset", "<i8"),
        ("end_offset", "<i8"),
        ("min_store_ms", "<i8"),
        ("max_store_ms", "<i8"),
        ("min_physical_offset", "<i8"),
        ("end_physical_offset", "<i8"),
    ]
)
assert RUN.itemsize == 60, "cold format version 1"

FRAME = np.dtype(
    [
        ("position", "<u8"),
        ("stored_bytes", "<u4"),
        ("raw_bytes", "<u4"),
        ("raw_position", "<u8"),
        ("start_offset", "<i8"),
        ("end_offset", "<i8"),
        ("min_store_ms", "<i8"),
        ("max_store_ms", "<i8"),
    ]
)
assert FRAME.itemsize == 56, "cold format version 1"

Footer = TypeVar("Footer")
Table: TypeAlias = npt.NDArray[np.void]
"""Rows of RUN, FRAME or another record type."""

FOOTER_BYTES_MAX = 256 * 1024 * 1024
FRAME_RAW_BYTES_MAX = 1 << 30


class SegmentId(msgspec.Struct, frozen=True, order=True):
    """Names a segment for ever: the writer's epoch, and a number that this writer has not used before."""

    epoch: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> SegmentId:
        """The id that `str()` gave. SegmentFormatError when `text` is none."""
        epoch, dash, sequence = text.partition("-")
        if dash and len(epoch) == len(sequence) == 10 and (epoch + sequence).isascii() and (epoch + sequence).isdigit():
            return cls(int(epoch), int(sequence))
        raise SegmentFormatError("not a segment id", text=text)

    def __str__(self) -> str:
        return f"{self.epoch:010}-{self.sequence:010}"


class QueueRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One queue's share of a segment: offsets [start_offset, end_offset), in frames [frame_start, frame_end)."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    min_store_ms: int
    max_store_ms: int
    frame_start: int
    frame_end: int
    min_physical_offset: PhysicalOffset
    end_physical_offset: PhysicalOffset

    @property
    def record_count(self) -> int:
        """Records in the run."""
        return self.end_offset - self.start_offset


class FrameInfo(msgspec.Struct, frozen=True, gc=False):
    """The position of one frame in the part and in the uncompressed records, and its content."""

    index: int
    position: int
    stored_bytes: int
    raw_position: int
    raw_bytes: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    min_store_ms: int
    max_store_ms: int

    @property
    def end_position(self) -> int:
        """Position after the frame."""
        return self.position + self.stored_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFooter:
    """What the footer of a `.log` part says; the frame table stays packed, 56 bytes a frame."""

    segment_id: SegmentId
    topic: str
    incarnation: int
    record_count: int
    raw_bytes: int
    runs: tuple[QueueRun, ...]
    frames: Table

    def run(self, queue_id: int) -> QueueRun:
        """The run of a queue. OffsetOutOfRangeError when the segment has none."""
        for run in self.runs:
            if run.queue_id == queue_id:
                return run
        raise OffsetOutOfRangeError("the segment has no such queue", topic=self.topic, queue_id=queue_id)

    def frame(self, index: int) -> FrameInfo:
        """Frame number `index`."""
        row = self.frames[index]
        return FrameInfo(
            index=index,
            position=int(row["position"]),
            stored_bytes=int(row["stored_bytes"]),
            raw_position=int(row["raw_position"]),
            raw_bytes=int(row["raw_bytes"]),
            start_offset=QueueOffset(row["start_offset"]),
            end_offset=QueueOffset(row["end_offset"]),
            min_store_ms=int(row["min_store_ms"]),
            max_store_ms=int(row["max_store_ms"]),
        )

    def frame_of(self, run: QueueRun, queue_offset: QueueOffset) -> FrameInfo:
        """The frame of `run` that holds `queue_offset`."""
        assert run.start_offset <= queue_offset < run.end_offset
        ends = self.frames["end_offset"][run.frame_start : run.frame_end]
        return self.frame(run.frame_start + int(np.searchsorted(ends, queue_offset, side="right")))

    def frames_of(self, run: QueueRun, *, start_offset: QueueOffset, end_offset: QueueOffset) -> Iterator[FrameInfo]:
        """The frames of `run` that hold any of offsets [start_offset, end_offset), in order."""
        start, end = max(start_offset, run.start_offset), min(end_offset, run.end_offset)
        if start < end:
            first, last = self.frame_of(run, start).index, self.frame_of(run, end - 1).index
            yield from map(self.frame, range(first, last + 1))

    @property
    def memory_bytes(self) -> int:
        """About what keeping this footer costs."""
        return int(self.frames.nbytes) + 400 * len(self.runs) + 500


def encode_footer(content: bytes, *, kind: PartKind[Footer], body_end: int) -> bytes:
    """Footer and trailer of a part of the version that `kind` writes; magic and body take up `body_end` bytes."""
    assert len(kind.magic) == MAGIC_BYTES <= body_end
    stored = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(content)
    part_bytes = body_end + len(stored) + TRAILER.size
    fields = TRAILER.pack(part_bytes, len(stored), len(content), kind.version, 0, 0, kind.magic)
    checked = fields[:TRAILER_CHECKED_BYTES]
    return b"".join((stored, checked, struct.pack("<I", zlib.crc32(checked, zlib.crc32(stored))), kind.magic))


class Trailer(msgspec.Struct, frozen=True, kw_only=True):
    """What a part's last 32 bytes say."""

    part_bytes: int
    footer_bytes: int
    footer_raw_bytes: int
    version: int
    crc32: int

    @property
    def tail_bytes(self) -> int:
        """Size of footer and trailer."""
        return self.footer_bytes + TRAILER.size


def decode_trailer(tail: bytes | memoryview, *, magic: bytes) -> Trailer:
    """The trailer at the end of `tail`, of any version; its checksum is not looked at, which covers the footer, too.
    SegmentFormatError when it is no trailer of this kind."""
    if len(tail) < TRAILER.size:
        raise SegmentFormatError("the part is too short for a trailer", size_bytes=len(tail))
    fields = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    part_bytes, footer_bytes, footer_raw_bytes, version, _zero, crc32, found = fields
    if found != magic:
        raise SegmentFormatError("no such part ends here", expected=magic, found=found)
    if footer_raw_bytes > FOOTER_BYTES_MAX or part_bytes < MAGIC_BYTES + footer_bytes + TRAILER.size:
        raise SegmentFormatError("impossible sizes in the trailer", part_bytes=part_bytes, footer_bytes=footer_bytes)
    return Trailer(
        part_bytes=part_bytes,
        footer_bytes=footer_bytes,
        footer_raw_bytes=footer_raw_bytes,
        version=version,
        crc32=crc32,
    )


def decode_footer(tail: bytes | memoryview, *, kind: PartKind[Footer]) -> Footer:
    """What the footer in `tail` says, by the decoder of its version; `tail` is the end of a part, and holds at least
    footer and trailer.

    Raises:
        FormatTooNewError: It is whole, and of a version that is not read.
        SegmentFormatError: It is not the end of such a part, or not all of the footer.
        FrameChecksumError: The footer is damaged.
    """
    trailer = decode_trailer(tail, magic=kind.magic)
    start = len(tail) - trailer.tail_bytes
    if start < 0:
        raise SegmentFormatError("the footer is cut off", missing_bytes=-start)
    footer_end = len(tail) - TRAILER.size
    stored = memoryview(tail)[start:footer_end]
    if zlib.crc32(memoryview(tail)[start : footer_end + TRAILER_CHECKED_BYTES]) != trailer.crc32:
        raise FrameChecksumError("the footer's checksum does not match")
    decode = kind.decoder(trailer.version)  # behind the checksum: a flipped bit is damage, no later version
    return decode(decompress(stored, raw_bytes=trailer.footer_raw_bytes))


def encode_log_footer(footer: LogFooter, *, body_end: int) -> bytes:
    """Footer and trailer of a `.log` part. What reading checks is checked before it is written, too."""
    _check_log_footer(footer.runs, footer.frames, footer.record_count, footer.raw_bytes)
    topic = footer.topic.encode()
    head = LOG_HEAD.pack(
        footer.segment_id.epoch,
        footer.segment_id.sequence,
        footer.incarnation,
        footer.record_count,
        footer.raw_bytes,
        len(footer.runs),
        len(footer.frames),
        len(topic),
    )
    runs = np.array([tuple(getattr(run, name) for name in RUN.names or ()) for run in footer.runs], RUN)
    assert footer.frames.dtype == FRAME
    content = b"".join((head, topic, runs.tobytes(), footer.frames.tobytes()))
    return encode_footer(content, kind=LOG, body_end=body_end)


def decode_log_footer(tail: bytes | memoryview) -> LogFooter:
    """The footer in `tail`, the end of a `.log` part. Raises as `decode_footer`."""
    return decode_footer(tail, kind=LOG)


def _decode_log_1(content: bytes) -> LogFooter:
    if len(content) < LOG_HEAD.size:
        raise SegmentFormatError("the footer is too short", size_bytes=len(content))
    epoch, sequence, incarnation, records, raw_bytes, run_count, frame_count, topic_bytes = LOG_HEAD.unpack_from(
        content
    )
    runs_start = LOG_HEAD.size + topic_bytes
    frames_start = runs_start + run_count * RUN.itemsize
    if len(content) != frames_start + frame_count * FRAME.itemsize:
        raise SegmentFormatError("the footer's size is not the sum of its fields", size_bytes=len(content))
    rows = np.frombuffer(content, RUN, run_count, runs_start)
    frames = np.frombuffer(content, FRAME, frame_count, frames_start)
    runs = tuple(QueueRun(**dict(zip(rows.dtype.names or (), row, strict=True))) for row in rows.tolist())
    _check_log_footer(runs, frames, records, raw_bytes)
    return LogFooter(
        segment_id=SegmentId(epoch, sequence),
        topic=content[LOG_HEAD.size : runs_start].decode(),
        incarnation=incarnation,
        record_count=records,
        raw_bytes=raw_bytes,
        runs=runs,
        frames=frames,
    )


LOG: PartKind[LogFooter] = PartKind(name="records", magic=LOG_MAGIC, version=1, decoders={1: _decode_log_1})


def _check_log_footer(runs: tuple[QueueRun, ...], frames: Table, record_count: int, raw_bytes: int) -> None:
    """SegmentFormatError when the tables contradict themselves or each other."""
    frame_end, queue_id = 0, -1
    for run in runs:
        if run.frame_start != frame_end or run.frame_end <= run.frame_start or run.queue_id <= queue_id:
            raise SegmentFormatError("runs are out of order", queue_id=run.queue_id)
        frame_end, queue_id = run.frame_end, run.queue_id
        if frame_end > len(frames):
            raise SegmentFormatError("a run names more frames than there are", queue_id=run.queue_id)
        starts = frames["start_offset"][run.frame_start : run.frame_end]
        ends = frames["end_offset"][run.frame_start : run.frame_end]
        gapless = bool((starts[1:] == ends[:-1]).all()) and bool((starts < ends).all())
        if not gapless or starts[0] != run.start_offset or ends[-1] != run.end_offset:
            raise SegmentFormatError("the frames of a run do not cover it", queue_id=run.queue_id)
    if frame_end != len(frames) or record_count != sum(run.record_count for run in runs):
        raise SegmentFormatError("the footer's counts do not add up", record_count=record_count)
    positions = frames["position"].astype(np.int64)
    stored, raw = frames["stored_bytes"].astype(np.int64), frames["raw_bytes"].astype(np.int64)
    if not np.array_equal(positions, MAGIC_BYTES + np.cumsum(stored) - stored):
        raise SegmentFormatError("frames do not lie end to end")
    if not np.array_equal(frames["raw_position"].astype(np.int64), np.cumsum(raw) - raw) or raw.sum() != raw_bytes:
        raise SegmentFormatError("the frames' raw sizes do not add up")


def decompress(stored: bytes | memoryview, *, raw_bytes: int) -> bytes:
    """The content of one zstd frame, whose size is known. FrameChecksumError when it is damaged."""
    if raw_bytes > FRAME_RAW_BYTES_MAX:
        raise SegmentFormatError("impossible frame size", raw_bytes=raw_bytes)
    try:
        if zstandard.frame_content_size(stored) != raw_bytes:
            raise FrameChecksumError("the frame's content size is another", raw_bytes=raw_bytes)
        content = decompress_frame(stored)
    except zstandard.ZstdError as error:
        raise FrameChecksumError("the frame does not decompress", raw_bytes=raw_bytes) from error
    if len(content) != raw_bytes:
        raise FrameChecksumError("the frame's content is cut short", raw_bytes=raw_bytes, found_bytes=len(content))
    return content
