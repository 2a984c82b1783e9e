"""Index entries: what the index files of many records, worked out for all of them together.

Records of one application look alike: the same properties in the same order, of the same lengths, with other values.
So records whose topics and properties are equally long are laid under each other as the rows of an array; one of them
is read, and where its keys are, there are the keys of every row that has the same names and marks at the same places.
The keys are hashed as columns: a microsecond a record instead of three. Rows that look like no other are collected
one by one (index_keys.py). Entries come in the order of the records and, within a record, in that of `KeyCollector`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.records.message_record import SHORT
from thermocline.remoting.records.properties import KEY_SEPARATOR, NAME_END, VALUE_END, PropertyName
from thermocline.remoting.records.record_heads import Bytes, Integers, RecordHeads, gather
from thermocline.remoting.records.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from thermocline.store.index.index_keys import KEY_MARK, TAG_MARK, Hashes, KeyCollector, hash_rows, positive_hashes

ROWS_MIN = 8
"""Fewer rows than this are not worth an array."""
PATTERNS_MAX = 4
"""How many looks the rows of one length may have, until the rest is read one by one."""
ROWS_BYTES_MAX = 1 << 18
"""Of rows laid under each other at once: what a processor's cache holds, several times over."""

_EVERY_BIT = 0xFF
_NOT_ASCII = 0x80
_NAME_END, _VALUE_END, _SEPARATOR = NAME_END.encode(), VALUE_END.encode(), KEY_SEPARATOR.encode()
_UNIQUE_KEY, _KEYS, _TAGS = (name.encode() for name in (PropertyName.UNIQUE_KEY, PropertyName.KEYS, PropertyName.TAGS))


class IndexEntries(msgspec.Struct, frozen=True):
    """Entries of consecutive records, an array for each field."""

    hashes: Hashes
    physical_offsets: Integers
    store_timestamps_ms: Integers

    def __len__(self) -> int:
        return len(self.hashes)

    def only(self, which: slice | npt.NDArray[np.bool_]) -> IndexEntries:
        """Some of them."""
        return IndexEntries(self.hashes[which], self.physical_offsets[which], self.store_timestamps_ms[which])


def entries_of(heads: RecordHeads) -> IndexEntries:
    """All entries of these records; a rolled back record has none."""
    is_kept = heads.sys_flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    found: list[tuple[Integers, Hashes]] = []
    collector = KeyCollector()
    for numbers in _equally_long(heads, np.flatnonzero(is_kept & (heads.properties_bytes > 0))):
        for number in _collect_alike(heads, numbers, found).tolist():
            topic, properties_text = _texts(heads, number)
            collector.add(topic, properties_text, record_number=number)
    found.append((np.array(collector.record_numbers, np.int64), collector.hashes()))
    numbers = np.concatenate([numbers for numbers, _ in found])
    hashes = np.concatenate([hashes for _, hashes in found])
    # All entries of one record were found together and in their order.
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    return IndexEntries(
        hashes[order], heads.integers("physical_offset")[numbers], heads.integers("store_timestamp_ms")[numbers]
    )


class _KeyRange(msgspec.Struct, frozen=True):
    """Bytes [start, end) of a row are a key."""

    start: int
    end: int
    mark: str
    """What stands before it in the text that is hashed, behind the topic."""


class _Pattern:
    """Where the keys of a row are, and what another row must have where to have its keys there.

    A row: topic, size of the properties, properties.
    """

    def __init__(self, row: Bytes, topic_bytes: int) -> None:
        self.keys: list[_KeyRange] = []
        self._row = row
        self._topic_bytes = topic_bytes
        self._same, self._values, self._ascii, self._words = np.zeros((4, len(row)), np.uint8)
        """Bits that must be the same; where no mark may be; where all must be ASCII, so that bytes are
        what Java hashes; where spaces must be at the same places."""
        self._ascii[:topic_bytes] = _NOT_ASCII
        self._spaces = (row == _SEPARATOR[0]).view(np.uint8)
        self._read()

    def like(self, rows: Bytes) -> npt.NDArray[np.bool_]:
        """Which rows are so."""
        unlike = rows ^ self._row
        unlike &= self._same
        other = (rows <= _VALUE_END[0]).view(np.uint8)
        other &= self._values
        unlike |= other
        np.bitwise_and(rows, self._ascii, out=other)
        unlike |= other
        np.equal(rows, _SEPARATOR[0], out=other.view(np.bool_))
        other ^= self._spaces
        other &= self._words
        unlike |= other
        return np.asarray(np.bitwise_or.reduce(unlike, axis=1) == 0)

    def hashes(self, rows: Bytes) -> Hashes:
        """The keys of rows that are so, one row's behind the other's."""
        topics = hash_rows(rows[:, : self._topic_bytes], np.zeros(len(rows), np.uint32))
        prefixes = {mark: hash_rows(_repeated(mark, len(rows)), topics) for mark in (KEY_MARK, TAG_MARK)}
        values = np.empty((len(rows), len(self.keys)), np.uint32)
        for column, key in enumerate(self.keys):
            values[:, column] = hash_rows(rows[:, key.start : key.end], prefixes[key.mark])
        return positive_hashes(values.reshape(-1))

    def _read(self) -> None:
        start = self._topic_bytes + SHORT.size
        found: dict[bytes, tuple[int, int]] = {}
        for piece in self._row[start:].tobytes().split(_VALUE_END):
            name, _mark, value = piece.partition(_NAME_END)
            end = start + len(piece)
            value_start = end - len(value)
            self._same[start:value_start] = _EVERY_BIT
            self._values[value_start:end] = _EVERY_BIT
            self._same[end : end + 1] = _EVERY_BIT  # the mark behind it, if there is one
            if value:
                found[name] = value_start, end  # of two with one name the later one counts
            start = end + 1
        if _UNIQUE_KEY in found:
            self._add(*found[_UNIQUE_KEY], KEY_MARK)
        if _KEYS in found:
            self._add_words(*found[_KEYS])
        if _TAGS in found:
            self._add(*found[_TAGS], TAG_MARK)

    def _add(self, start: int, end: int, mark: str) -> None:
        self._ascii[start:end] = _NOT_ASCII
        self.keys.append(_KeyRange(start, end, mark))

    def _add_words(self, start: int, end: int) -> None:
        self._words[start:end] = _EVERY_BIT
        for word in self._row[start:end].tobytes().split(_SEPARATOR):
            if word:
                self._add(start, start + len(word), KEY_MARK)
            start += len(word) + 1


def _equally_long(heads: RecordHeads, numbers: Integers) -> Iterator[Integers]:
    """These records, in groups whose topics and properties are equally long; none that is too much for an array."""
    lengths = heads.topic_bytes[numbers] << 16 | heads.properties_bytes[numbers]
    order = np.argsort(lengths, kind="stable")
    borders = np.flatnonzero(np.diff(lengths[order])) + 1
    for group in np.split(numbers[order], borders):
        if len(group):
            step = max(1, ROWS_BYTES_MAX // _row_bytes(heads, int(group[0])))
            for start in range(0, len(group), step):
                yield group[start : start + step]


def _collect_alike(heads: RecordHeads, numbers: Integers, found: list[tuple[Integers, Hashes]]) -> Integers:
    """Add the entries of those of these records that look like others; the rest is returned."""
    if len(numbers) < ROWS_MIN:
        return numbers
    first = int(numbers[0])
    row_bytes = _row_bytes(heads, first)
    rows = gather(heads.data, heads.topic_starts[numbers], row_bytes).view(np.uint8).reshape(-1, row_bytes)
    odd: list[Integers] = []
    for _ in range(PATTERNS_MAX):
        if len(numbers) < ROWS_MIN:
            break
        pattern = _Pattern(rows[0], int(heads.topic_bytes[first]))
        is_like = pattern.like(rows)
        if not is_like[0]:  # it has what no array can have: to be read by itself, whatever the others look like
            odd.append(numbers[:1])
        alike = numbers[is_like]
        found.append((np.repeat(alike, len(pattern.keys)), pattern.hashes(rows[is_like])))
        is_like[0] = True
        numbers, rows = numbers[~is_like], rows[~is_like]
    return np.concatenate([*odd, numbers])


def _row_bytes(heads: RecordHeads, number: int) -> int:
    return int(heads.topic_bytes[number]) + SHORT.size + int(heads.properties_bytes[number])


def _texts(heads: RecordHeads, number: int) -> tuple[bytes, bytes]:
    """Topic and properties of one record."""
    start, topic_bytes = int(heads.topic_starts[number]), int(heads.topic_bytes[number])
    row = heads.data[start : start + _row_bytes(heads, number)].tobytes()
    return row[:topic_bytes], row[topic_bytes + SHORT.size :]


def _repeated(text: str, count: int) -> Bytes:
    """So many rows of one text."""
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (count, len(text)))
