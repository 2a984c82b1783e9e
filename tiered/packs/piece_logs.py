"""PieceLogs: the size of the `.log` part of each piece of a pack, small enough for the ledger.

One zstd frame around 8 byte planes (plane k: byte k, the lowest first) of the stored sizes. The parts are stored end to
end behind the pack's magic, so the sizes also give their positions: a record of a small piece is read with its part, by
one request, without the piece's entry in the pack's footer. About 2 bytes a piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.remoting.errors import OffsetOutOfRangeError
from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.objects import (
    FrameChecksumError,
    LedgerCorruptError,
    ObjectStore,
    SegmentFormatError,
    SegmentOffset,
)
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.segments import (
    MAGIC_BYTES,
    SegmentEntry,
    decode_frame,
    decode_log_footer,
    decompress,
    from_planes,
    to_planes,
)

PART_BYTES_MAX = 8 * 1024 * 1024
"""A `.log` part up to this size is read whole for one record of it."""
CACHED = 64

Longs = npt.NDArray[np.int64]


def encode_piece_logs(entries: Sequence[SegmentEntry]) -> bytes:
    """The bytes that the ledger holds."""
    sizes = np.array([entry.log.size_bytes for entry in entries], "<u8")
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(to_planes(sizes))


@lru_cache(maxsize=CACHED)
def piece_log_starts(logs: bytes, piece_count: int) -> Longs:
    """The start of each `.log` part, and the end of the last one. LedgerCorruptError when the bytes are damaged."""
    try:
        content = decompress(logs, raw_bytes=8 * piece_count)
    except FrameChecksumError as error:
        raise LedgerCorruptError("the sizes of a pack's pieces are damaged", size_bytes=len(logs)) from error
    sizes = from_planes(content, "<u8", piece_count, 0).astype(np.int64)
    starts: Longs = MAGIC_BYTES + np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    return starts


def small_part(pack: PackEntry, index: int) -> tuple[SegmentOffset, SegmentOffset] | None:
    """[start, end) of a piece's `.log` part in the pack; None when it is large, or not in the ledger."""
    if not pack.logs:
        return None
    starts = piece_log_starts(pack.logs, len(pack.topics))
    start, end = SegmentOffset(starts[index]), SegmentOffset(starts[index + 1])
    return (start, end) if end - start <= PART_BYTES_MAX else None


async def record_in_part(
    store: ObjectStore,
    pack: PackEntry,
    part: tuple[SegmentOffset, SegmentOffset],
    *,
    topic: str,
    queue_id: int,
    queue_offset: QueueOffset,
) -> memoryview:
    """A record of a piece, by one request for its `.log` part.

    Raises the store's errors, and SegmentFormatError when the part does not belong to the piece in the ledger.
    """
    data = memoryview(await store.get_range(pack.key, start=part[0], end=part[1]))
    footer = decode_log_footer(data)
    try:
        run = footer.run(queue_id)
    except OffsetOutOfRangeError as error:
        raise SegmentFormatError("the piece has no such queue", key=pack.key, queue_id=queue_id) from error
    if footer.topic != topic or not run.start_offset <= queue_offset < run.end_offset:
        raise SegmentFormatError("another piece is stored here", key=pack.key, expected=topic, found=footer.topic)
    info = footer.frame_of(run, queue_offset)
    frame = decode_frame(data[info.position : info.end_position], info)
    return frame.slice(queue_offset, queue_offset + 1)
