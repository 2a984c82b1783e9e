"""PropertyColumns: tag, keys, unique id and the property map of many records, parsed all at once.

Text of one record: `name 0x01 value 0x02` repeated; the last 0x02 may be missing. As RocketMQ decodes it
  - a pair without a name, without a value or without 0x01 is ignored,
  - a second 0x01 belongs to the value,
  - of two pairs of one name the last counts.

The common path gathers the text of all rows into one buffer with one spare byte each, which closes a row that does
not end in 0x02. Then the bytes below 3 are just the ends of names and values in turn, for all rows together. Where
they do not alternate, hold a zero byte, or the text is not UTF-8, the rows are parsed one by one instead.
Source: store.md 4.2 of the record format; MessageDecoder.string2messageProperties, Apache RocketMQ 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.records.record_heads import Bytes, Integers, Mask, RecordHeads, find_bytes
from thermocline.spark.decoding.arrow_gather import gather_pairs, gather_pieces, load_words

NAME_END = 0x01
VALUE_END = 0x02
FILLER = 0x03  # the spare byte of a row that needs no closing
WORD_BYTES = 8
PAIRS_COMPARED_MAX = 64
"""Names of a row are compared each with each, for all rows at once. A row of more pairs is searched by itself: it may
have 8000, and all other rows would be compared as often."""
_LOW_BYTES = np.array([(1 << (8 * length)) - 1 for length in range(WORD_BYTES + 1)], np.uint64)
_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class PropertyColumns(Protocol):
    """What the decoder asks of the properties of n records."""

    def column(self, name: str) -> pa.Array:
        """The values of one property as strings, null where a record has none."""

    def maps(self) -> pa.Array:
        """All properties as map<string,string>, in stored order; empty where a record has none."""


def read_properties(heads: RecordHeads) -> PropertyColumns:
    """Parse the properties of all rows, together when they are regular."""
    count = len(heads)
    lengths = heads.properties_bytes
    # The spare byte behind a row is the next record's first; behind the last record there is none, so one is added.
    data = heads.data
    if count and int(heads.properties_starts[-1] + lengths[-1]) == len(data):
        tail = data[heads.properties_starts[-1] :]
        spare = np.zeros(1, np.uint8)
        parts = [_joined_text(data, heads.properties_starts[:-1], lengths[:-1] + 1), tail, spare]
    else:
        parts = [_joined_text(data, heads.properties_starts, lengths + 1)]
    text = np.concatenate([*parts, np.zeros(WORD_BYTES, np.uint8)])
    row_starts = np.zeros(count + 1, np.int64)
    np.cumsum(lengths + 1, out=row_starts[1:])
    spares = row_starts[1:] - 1
    last = text[np.maximum(spares - 1, 0)]
    text[spares] = np.where((lengths > 0) & (last != VALUE_END), VALUE_END, FILLER)
    used = text[: row_starts[-1]]
    pairs = _find_pairs(used, row_starts)
    if pairs is None or not _is_utf8(used):
        return _RowProperties([bytes(text[row_starts[row] : spares[row]]) for row in range(count)])
    return _PairProperties(text=text, row_starts=row_starts, pairs=pairs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """Places of all pairs in the joined text, in order, and the row of each."""

    key_starts: Integers
    key_ends: Integers
    value_ends: Integers
    rows: Integers

    def select(self, keep: Mask) -> _Pairs:
        return _Pairs(
            key_starts=self.key_starts[keep],
            key_ends=self.key_ends[keep],
            value_ends=self.value_ends[keep],
            rows=self.rows[keep],
        )


class _PairProperties:
    """The common path: every pair known by its place in the joined text."""

    __slots__ = ("_pairs", "_row_starts", "_text", "_words")

    def __init__(self, *, text: Bytes, row_starts: Integers, pairs: _Pairs) -> None:
        self._text = text
        self._row_starts = row_starts
        self._pairs = pairs
        lengths = pairs.key_ends - pairs.key_starts
        self._words: npt.NDArray[np.uint64] = load_words(text, pairs.key_starts)
        self._words &= _LOW_BYTES[np.minimum(lengths, WORD_BYTES)]

    def column(self, name: str) -> pa.Array:
        encoded = name.encode()
        pairs = self._pairs
        word = np.uint64(int.from_bytes(encoded[:WORD_BYTES], "little"))
        hits = np.flatnonzero((self._words == word) & (pairs.key_ends - pairs.key_starts == len(encoded)))
        if len(encoded) > WORD_BYTES:
            keys = gather_pieces(
                self._text, pairs.key_starts[hits], (pairs.key_ends - pairs.key_starts)[hits], pa.string()
            )
            hits = hits[pc.equal(keys, name).to_numpy(zero_copy_only=False)]
        count = len(self._row_starts) - 1
        pair_of_row = np.full(count, -1, np.int64)
        pair_of_row[pairs.rows[hits]] = hits  # of equal rows the last assignment stays
        present: Mask = pair_of_row >= 0
        if not len(pairs.rows):
            return pa.nulls(count, pa.string())
        starts = pairs.key_ends[pair_of_row] + 1
        lengths = pairs.value_ends[pair_of_row] - starts
        return gather_pieces(self._text, starts, lengths, pa.string(), present=present)

    def maps(self) -> pa.Array:
        pairs = self._pairs
        repeated = self._repeated_pairs()
        if len(repeated):
            keep = np.ones(len(pairs.rows), np.bool_)
            keep[repeated] = False
            pairs = pairs.select(keep)
        keys, values = gather_pairs(self._text, pairs.key_starts, pairs.key_ends, pairs.key_ends + 1, pairs.value_ends)
        offsets = np.zeros(len(self._row_starts), np.int32)
        np.cumsum(np.bincount(pairs.rows, minlength=len(self._row_starts) - 1), out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values)

    def _repeated_pairs(self) -> Integers:
        """Pairs whose name comes again later in the same row."""
        pairs = self._pairs
        count = len(pairs.rows)
        lengths = pairs.key_ends - pairs.key_starts
        prints = self._words ^ (lengths.astype(np.uint64) * _LENGTH_FACTOR)
        earlier: list[Integers] = []
        per_row = np.bincount(pairs.rows) if count else np.zeros(1, np.int64)
        for distance in range(1, min(int(per_row.max()), PAIRS_COMPARED_MAX)):
            same = prints[:-distance] == prints[distance:]
            if not bool(same.any()):
                continue
            candidates = np.flatnonzero(same & (pairs.rows[:-distance] == pairs.rows[distance:]))
            if not len(candidates):
                continue
            first, second = (
                gather_pieces(self._text, pairs.key_starts[rows], lengths[rows], pa.string())
                for rows in (candidates, candidates + distance)
            )
            earlier.append(candidates[pc.equal(first, second).to_numpy(zero_copy_only=False)])
        earlier.extend(map(self._repeated_pairs_of, np.flatnonzero(per_row > PAIRS_COMPARED_MAX).tolist()))
        return np.unique(np.concatenate(earlier)) if earlier else np.empty(0, np.int64)

    def _repeated_pairs_of(self, row: int) -> Integers:
        """The same of one row, name by name."""
        pairs, last = self._pairs, dict[bytes, int]()
        repeated: list[int] = []
        for place in range(*np.searchsorted(pairs.rows, (row, row + 1)).tolist()):
            name = self._text[pairs.key_starts[place] : pairs.key_ends[place]].tobytes()
            if name in last:
                repeated.append(last[name])
            last[name] = place
        return np.array(repeated, np.int64)


class _RowProperties:
    """The slow path: one dictionary per record."""

    __slots__ = ("_rows",)

    def __init__(self, texts: list[bytes]) -> None:
        self._rows = [decode_properties(text) for text in texts]

    def column(self, name: str) -> pa.Array:
        return pa.array([row.get(name) for row in self._rows], pa.string())

    def maps(self) -> pa.Array:
        return pa.array([list(row.items()) for row in self._rows], pa.map_(pa.string(), pa.string()))


def _joined_text(data: Bytes, starts: Integers, lengths: Integers) -> Bytes:
    joined = gather_pieces(data, starts, lengths, pa.binary())
    return np.frombuffer(joined.buffers()[2] or b"", np.uint8)[: int(lengths.sum())]


def _find_pairs(text: Bytes, row_starts: Integers) -> _Pairs | None:
    """The pairs of all rows, without empty names and values; None when the text is not regular."""
    marks = find_bytes(text, lambda block: block < FILLER)
    name_ends, value_ends = marks[0::2], marks[1::2]
    if len(name_ends) != len(value_ends):
        return None
    if not (bool((text[name_ends] == NAME_END).all()) and bool((text[value_ends] == VALUE_END).all())):
        return None
    # Every row with text ends in 0x02, so a name starts right behind a value's end or with its row.
    ends_before_row = np.searchsorted(value_ends, row_starts)
    counts = np.diff(ends_before_row)
    key_starts = np.empty(len(name_ends), np.int64)
    key_starts[1:] = value_ends[:-1] + 1
    first_pairs = ends_before_row[:-1][counts > 0]
    key_starts[first_pairs] = row_starts[:-1][counts > 0]
    pairs = _Pairs(
        key_starts=key_starts,
        key_ends=name_ends,
        value_ends=value_ends,
        rows=np.repeat(np.arange(len(row_starts) - 1), counts),
    )
    keep = (pairs.key_ends > pairs.key_starts) & (pairs.value_ends > pairs.key_ends + 1)
    return pairs if bool(keep.all()) else pairs.select(keep)


def _is_utf8(text: Bytes) -> bool:
    """Whether all names and values are UTF-8: they are cut at single-byte marks, so the whole text tells."""
    whole = text.tobytes()
    if whole.isascii():
        return True
    try:
        whole.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
