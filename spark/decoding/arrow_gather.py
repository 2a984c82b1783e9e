"""Arrow columns of variable length cut out of one buffer, without Python per value.

The trick: one Binary array over the whole buffer whose offsets run gap start, piece start, piece end, ... so that
gaps and pieces alternate as its elements; taking the odd elements is the gather, at the speed of Arrow's own copy.
It needs pieces that rise and do not overlap, and a buffer below 2 GiB, as frames and properties are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thermocline.remoting.records.record_heads import Bytes, Integers, Mask

BUFFER_BYTES_MAX = 2**31 - 1


def gather_pieces(
    data: Bytes, starts: Integers, lengths: Integers, arrow_type: pa.DataType, *, present: Mask | None = None
) -> pa.Array:
    """One value per piece, as pa.binary() or pa.string(); null where `present` is False (its start is ignored).

    Text is not checked: the caller must pass valid UTF-8.
    """
    assert len(data) <= BUFFER_BYTES_MAX
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    ends = starts + lengths
    if present is not None:
        # An absent piece becomes an empty one where the last piece ended, so that offsets keep rising.
        ends = np.maximum.accumulate(np.where(present, ends, 0))
        starts = np.where(present, starts, ends)
    offsets[1::2] = starts
    offsets[2::2] = ends
    pieces = pa.Array.from_buffers(arrow_type, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    odd = np.arange(1, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(odd, mask=None if present is None else ~present))


def gather_pairs(
    data: Bytes, key_starts: Integers, key_ends: Integers, value_starts: Integers, value_ends: Integers
) -> tuple[pa.Array, pa.Array]:
    """Keys and values of pairs in rising order, as two string arrays."""
    assert len(data) <= BUFFER_BYTES_MAX
    count = len(key_starts)
    offsets = np.empty(4 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::4] = key_starts
    offsets[2::4] = key_ends
    offsets[3::4] = value_starts
    offsets[4::4] = value_ends
    pieces = pa.Array.from_buffers(pa.string(), 4 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    keys = pieces.take(pa.array(np.arange(1, 4 * count, 4, dtype=np.int32)))
    values = pieces.take(pa.array(np.arange(3, 4 * count, 4, dtype=np.int32)))
    return keys, values


def load_words(data: Bytes, starts: Integers) -> npt.NDArray[np.uint64]:
    """The eight bytes at each start as one little-endian word; the caller has padded `data` by eight bytes."""
    windows: npt.NDArray[Any] = np.ndarray((len(data) - 7,), np.dtype("V8"), buffer=data.data, strides=(1,))
    words: npt.NDArray[np.uint64] = windows[starts].view("<u8")
    return words
