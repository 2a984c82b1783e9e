"""PieceTimes: between which store times the records of each piece of a pack lie, small enough for the ledger.

One zstd frame around two columns of 8 byte planes each (plane k: byte k, the lowest first, of every number): the least
store time of each piece less the pack's, then the greatest less the piece's least. About 6 bytes a piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.tiered.objects import FrameChecksumError, LedgerCorruptError
from thermocline.tiered.segments import SegmentEntry, decompress, from_planes, to_planes

_BYTES = 16


class PieceTimes:
    """`of(index)` gives the least and the greatest store time of a piece."""

    __slots__ = ("_greatest", "_least")

    def __init__(self, least: npt.NDArray[np.int64], greatest: npt.NDArray[np.int64]) -> None:
        self._least = least
        self._greatest = greatest

    def of(self, index: int) -> tuple[int, int]:
        """Both of one piece, ms."""
        return int(self._least[index]), int(self._greatest[index])

    @property
    def memory_bytes(self) -> int:
        """About what keeping it costs."""
        return 16 * len(self._least) + 300


def encode_piece_times(entries: Sequence[SegmentEntry]) -> bytes:
    """The bytes that the ledger holds."""
    least = np.array([entry.min_store_ms for entry in entries], np.int64)
    spans = np.array([entry.max_store_ms for entry in entries], np.int64) - least
    content = to_planes((least - least.min()).astype("<u8")) + to_planes(spans.astype("<u8"))
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(content)


def decode_piece_times(data: bytes, *, piece_count: int, min_store_ms: int) -> PieceTimes:
    """The times of a pack of so many pieces, whose least one is known. LedgerCorruptError when they are none."""
    try:
        content = decompress(data, raw_bytes=_BYTES * piece_count)
    except FrameChecksumError as error:
        raise LedgerCorruptError("the times of a pack's pieces are damaged", size_bytes=len(data)) from error
    least = from_planes(content, "<u8", piece_count, 0).astype(np.int64) + min_store_ms
    return PieceTimes(least, least + from_planes(content, "<u8", piece_count, 8 * piece_count).astype(np.int64))
