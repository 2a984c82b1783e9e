"""PieceGroups: the positions of the frames of a pack's large pieces, small enough for the ledger.

A piece whose `.log` part is read whole for one record (`piece_logs.py`) needs none. For any other the ledger has
groups of consecutive frames of a run, about a MiB each: so one of its records, too, is one request. One zstd
frame around columns, each as byte planes (plane k: byte k, the lowest first, of every number), end to end:

    of p pieces   4 planes   which piece of the pack, u32       4 planes   groups, u32
    of g groups   4 planes   stored bytes, u32                  4 planes   records, u32

Groups are in the order of the part, the first behind its magic, end to end; no group has records of two queues.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.objects import (
    LedgerCorruptError,
    ObjectStore,
    SegmentFormatError,
    SegmentOffset,
    decompress_frame,
)
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.packs.piece_logs import PART_BYTES_MAX, piece_log_starts
from thermocline.tiered.packs.piece_table import PieceExtent
from thermocline.tiered.segments import MAGIC_BYTES, SegmentEntry, body_end, decode_next_frame, from_planes, to_planes

GROUP_BYTES = 1024 * 1024
"""Frames are put together up to about so many stored bytes; one that is larger is a group of its own."""
GROUPS_BYTES_MAX = 64 << 20
CACHED = 64

Longs = npt.NDArray[np.int64]


class FrameGroup(msgspec.Struct, frozen=True):
    """Bytes [start, end) of the pack, the first record at `start_offset`."""

    start: SegmentOffset
    end: SegmentOffset
    start_offset: QueueOffset


class PieceGroups:
    """The decoded columns. Made by `piece_groups_of`."""

    __slots__ = ("_bounds", "_ends", "_pieces", "_record_ends")

    def __init__(self, pieces: Longs, counts: Longs, stored: Longs, records: Longs) -> None:
        self._pieces = pieces
        self._bounds: Longs = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        self._ends: Longs = np.concatenate((np.zeros(1, np.int64), np.cumsum(stored)))
        self._record_ends: Longs = np.concatenate((np.zeros(1, np.int64), np.cumsum(records)))

    def rows(self) -> dict[int, list[tuple[int, int]]]:
        """By piece: stored bytes and records of its groups."""
        stored, records = np.diff(self._ends).tolist(), np.diff(self._record_ends).tolist()
        groups = list(zip(stored, records, strict=True))
        bounds = self._bounds.tolist()
        return {index: groups[bounds[at] : bounds[at + 1]] for at, index in enumerate(self._pieces.tolist())}

    def find(self, index: int, ordinal: int) -> tuple[int, int, int] | None:
        """Of the group with record number `ordinal` of piece `index`: where it begins and ends behind the magic of the
        piece's part, and the number of its first record. None when the piece is not large."""
        at = int(np.searchsorted(self._pieces, index))
        if at == len(self._pieces) or int(self._pieces[at]) != index:
            return None
        first, last = int(self._bounds[at]), int(self._bounds[at + 1])
        base = int(self._record_ends[first])
        group = int(np.searchsorted(self._record_ends[first : last + 1], base + ordinal, "right")) - 1 + first
        if not first <= group < last:
            raise LedgerCorruptError("a piece has fewer records in groups than in queues", piece=index)
        start = int(self._ends[first])
        return int(self._ends[group]) - start, int(self._ends[group + 1]) - start, int(self._record_ends[group]) - base


def encode_piece_groups(entries: Sequence[SegmentEntry]) -> bytes:
    """The bytes that the ledger holds; none when no piece is large."""
    pieces: list[int] = []
    counts: list[int] = []
    groups: list[tuple[int, int]] = []
    for index, entry in enumerate(entries):
        if entry.log.size_bytes > PART_BYTES_MAX:
            mine = frame_groups(entry)
            pieces.append(index)
            counts.append(len(mine))
            groups += mine
    if not pieces:
        return b""
    columns = (pieces, counts, [stored for stored, _ in groups], [records for _, records in groups])
    content = b"".join(to_planes(np.array(column, "<u4")) for column in columns)
    head = len(pieces).to_bytes(4, "little")
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(head + content)


def frame_groups(entry: SegmentEntry) -> list[tuple[int, int]]:
    """Stored bytes and records of each group of a piece, of which every frame is noted."""
    groups: list[tuple[int, int]] = []
    coarse = tuple(entry.coarse)
    ends = [*(each.position for each in coarse[1:]), body_end(entry)]
    for run in entry.runs:
        frames = range(run.frame_start, run.frame_end)
        starts = [coarse[number].start_offset for number in frames]
        sizes = [ends[number] - coarse[number].position for number in frames]
        stored = records = 0
        for size, (start, end) in zip(sizes, itertools.pairwise([*starts, run.end_offset]), strict=True):
            if stored and stored + size > GROUP_BYTES:
                groups.append((stored, records))
                stored = records = 0
            stored, records = stored + size, records + end - start
        groups.append((stored, records))
    return groups


@lru_cache(maxsize=CACHED)
def piece_groups_of(data: bytes) -> PieceGroups:
    """Decode the ledger's bytes for a pack. LedgerCorruptError when they are damaged."""
    try:
        size_bytes = zstandard.frame_content_size(data)
        if not 4 <= size_bytes <= GROUPS_BYTES_MAX:
            raise LedgerCorruptError("impossible size of a pack's groups", size_bytes=size_bytes)
        content = decompress_frame(data)
    except zstandard.ZstdError as error:
        raise LedgerCorruptError("a pack's groups do not decompress", size_bytes=len(data)) from error
    piece_count = int.from_bytes(content[:4], "little")
    group_count, rest = divmod(len(content) - 4 - 8 * piece_count, 8)
    if rest or group_count < 0:
        raise LedgerCorruptError("a pack's groups are not the sum of their columns", size_bytes=len(content))
    columns: list[Longs] = []
    position = 4
    for count in (piece_count, piece_count, group_count, group_count):
        columns.append(from_planes(content, "<u4", count, position).astype(np.int64))
        position += 4 * count
    if int(columns[1].sum()) != group_count:
        raise LedgerCorruptError("a pack's groups do not add up", group_count=group_count)
    return PieceGroups(*columns)


def group_in_pack(
    pack: PackEntry, index: int, piece: PieceExtent, *, queue_id: int, offset: QueueOffset
) -> FrameGroup | None:
    """The group of frames that holds a record of piece `index`; None when the ledger has none."""
    if not pack.groups or not pack.logs:
        return None
    ordinal = 0
    for queue in piece.queues:
        if queue.queue_id == queue_id:
            break
        ordinal += queue.end_offset - queue.start_offset
    else:
        return None
    assert queue.start_offset <= offset < queue.end_offset
    found = piece_groups_of(pack.groups).find(index, ordinal + offset - queue.start_offset)
    if found is None:
        return None
    start, end, first = found
    base = SegmentOffset(piece_log_starts(pack.logs, len(pack.topics))[index]) + MAGIC_BYTES
    return FrameGroup(base + start, base + end, queue.start_offset + first - ordinal)


async def record_in_group(
    store: ObjectStore, pack: PackEntry, group: FrameGroup, *, topic: str, queue_id: int, queue_offset: QueueOffset
) -> memoryview:
    """A record of a piece, by one request for its group.

    Raises the store's errors, and CorruptDataError when the group is damaged, or not the piece's.
    """
    stored = memoryview(await store.get_range(pack.key, start=group.start, end=group.end))
    start_offset = group.start_offset
    while len(stored):
        frame, size_bytes = decode_next_frame(stored, start_offset=start_offset)
        if queue_offset < frame.end_offset:
            record = frame.slice(queue_offset, queue_offset + 1)
            head = decode_record(record, check_crc=False)
            if (head.topic, head.queue_id) == (topic, queue_id):
                return record
            raise SegmentFormatError("another piece is stored here", key=pack.key, expected=topic, found=head.topic)
        start_offset, stored = frame.end_offset, stored[size_bytes:]
    raise SegmentFormatError("a group of frames ends early", key=pack.key, queue_offset=queue_offset)
