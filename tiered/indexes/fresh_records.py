"""FreshRecords: keys and places of one segment or pack that no index object covers yet, as arrays in memory.

    runs      incarnation, queue, first of consecutive offsets; their records are rows, one run after another
    places    rising, each with its row
    keys      hashes as index objects have them, rising, those of one hash newest first, each with its row

8 bytes a record and 8 a key; places 4 GiB apart take 4 more a record. So an absent key or place costs no request, and a
present one only the request for its record. Made from `.cq` and `.idx` parts, as index objects are, of records that no
object covers (earlier rows are omitted); identifies records by queue offsets, which no merge changes. Immutable, for
any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.tiered.index_format import IndexedPlace, Life, QueuePlace, index_hash, salt_of, salted
from thermocline.tiered.indexes.indexed_parts import PartBytes, columns_footer_of, decode_all_keys

RECORD_BYTES = 24
"""The approximate memory of a record with two keys."""
READ_BYTES = 110
"""While it is made of stored parts."""
_LIFE_BYTES = 150
_NARROW = 1 << 32

Places = npt.NDArray[np.uint32] | npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]


class FreshRecords(msgspec.Struct, frozen=True, kw_only=True):
    """See the module's header. Does not contain records below the place `start`."""

    start: PhysicalOffset
    incarnations: Sequence[Life]
    run_incarnations: Words
    run_queues: Words
    run_offsets: Longs
    run_rows: Longs
    first_place: PhysicalOffset
    places: Places
    place_rows: Words
    hashes: Words
    key_rows: Words

    @classmethod
    def of_stored(cls, stored: Iterable[PartBytes], *, start: PhysicalOffset) -> FreshRecords:
        """The records at or behind `start` in stored parts, perhaps none. CorruptDataError when damaged."""
        parts = [_Part.of(each) for each in stored if each.entry.end_physical_offset > start]
        return _joined(parts or [_Part.empty()], start)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of the columns."""
        columns = (
            self.run_incarnations,
            self.run_queues,
            self.run_offsets,
            self.run_rows,
            self.places,
            self.place_rows,
            self.hashes,
            self.key_rows,
        )
        return sum(column.nbytes + 100 for column in columns) + _LIFE_BYTES * len(self.incarnations)

    def find_key(self, life: Life, key: str) -> list[QueuePlace]:
        """Queue and offset of each record of this incarnation of a topic that may have the key, newest first; records
        with another key are rare."""
        rows, runs = self._rows_of(life, key)
        offsets = self.run_offsets[runs] + rows - self.run_rows[runs]
        return list(zip(self.run_queues[runs].tolist(), offsets.tolist(), strict=True))

    def has_key(self, life: Life, key: str) -> bool:
        """Whether `find_key` would find any."""
        return len(self._rows_of(life, key)[0]) > 0

    def _rows_of(self, life: Life, key: str) -> tuple[Words, Longs]:
        """The rows of a key, and the run of each: at once, as all records may have it."""
        wanted = np.uint32(index_hash(*life, key))
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        rows = self.key_rows[first:last]
        runs: Longs = np.searchsorted(self.run_rows, rows, "right") - 1
        numbers = self.run_incarnations[runs]
        is_own = np.isin(numbers, [each for each in np.unique(numbers).tolist() if self.incarnations[each] == life])
        return rows[is_own], runs[is_own]

    def find_place(self, place: PhysicalOffset) -> IndexedPlace | None:
        """The record stored at a place."""
        step = place - self.first_place
        if not len(self.places) or not 0 <= step <= int(self.places[-1]):
            return None
        at = int(np.searchsorted(self.places, self.places.dtype.type(step)))
        if int(self.places[at]) != step:
            return None
        return IndexedPlace(*self._record(int(self.place_rows[at])))

    def _record(self, row: int) -> tuple[Life, int, QueueOffset]:
        run = int(np.searchsorted(self.run_rows, row, "right")) - 1
        offset = QueueOffset(self.run_offsets[run]) + row - int(self.run_rows[run])
        return self.incarnations[int(self.run_incarnations[run])], int(self.run_queues[run]), offset


class _Part(msgspec.Struct, frozen=True):
    """Columns of one segment: runs, the place of each row, and keys."""

    life: Life
    run_queues: Words
    run_offsets: Longs
    run_rows: Longs
    places: Longs
    hashes: Words
    key_rows: Longs

    @classmethod
    def empty(cls) -> _Part:
        longs, words = np.empty(0, np.int64), np.empty(0, np.uint32)
        return cls(("", 0), words, longs, longs, longs, words, longs)

    @classmethod
    def of(cls, part: PartBytes) -> _Part:
        entry, footer = part.entry, columns_footer_of(part)
        blocks = footer.blocks
        ends = np.cumsum(blocks["end_offset"] - blocks["start_offset"])
        places = np.empty(footer.record_count, np.int64)
        for block, end in zip(blocks, ends.tolist(), strict=True):
            position = int(block["position"])
            found = footer.decode_block(part.cq[position : position + int(block["stored_bytes"])], block)
            places[end - len(found.sizes) : end] = found.physical_offsets
        hashes, rows = decode_all_keys(part.idx, entry)
        return cls(
            life=(entry.topic, entry.incarnation),
            run_queues=blocks["queue_id"].astype(np.uint32),
            run_offsets=blocks["start_offset"].astype(np.int64),
            run_rows=np.concatenate((np.zeros(1, np.int64), ends[:-1])),
            places=places,
            hashes=salted(hashes, salt_of(entry.topic, entry.incarnation)),
            key_rows=rows,
        )


def _joined(parts: Sequence[_Part], start: PhysicalOffset) -> FreshRecords:
    incarnations: dict[Life, int] = {}
    numbers = [incarnations.setdefault(part.life, len(incarnations)) for part in parts]
    bases = np.cumsum([0, *(len(part.places) for part in parts[:-1])])
    places = np.concatenate([part.places for part in parts])
    hashes = np.concatenate([part.hashes for part in parts])
    key_rows = _shifted([part.key_rows for part in parts], bases).astype(np.uint32)
    is_fresh = places >= start
    if not is_fresh.all():
        hashes, key_rows = hashes[is_fresh[key_rows]], key_rows[is_fresh[key_rows]]
    by_hash = np.lexsort((-places[key_rows], hashes))
    hashes, key_rows = hashes[by_hash], key_rows[by_hash]
    keep = np.ones(len(key_rows), np.bool_)
    # A key that a record names twice counts once.
    keep[1:] = (hashes[1:] != hashes[:-1]) | (key_rows[1:] != key_rows[:-1])
    fresh_rows = np.flatnonzero(is_fresh)
    place_rows: Words = fresh_rows[np.argsort(places[fresh_rows], kind="stable")].astype(np.uint32)
    steps = places[place_rows]
    first_place = PhysicalOffset(steps[0]) if len(steps) else LOG_START
    steps -= first_place
    narrow: Places = steps if len(steps) and int(steps[-1]) >= _NARROW else steps.astype(np.uint32)
    return FreshRecords(
        start=start,
        incarnations=tuple(incarnations),
        run_incarnations=np.repeat(np.array(numbers, np.uint32), [len(part.run_rows) for part in parts]),
        run_queues=np.concatenate([part.run_queues for part in parts]),
        run_offsets=np.concatenate([part.run_offsets for part in parts]),
        run_rows=_shifted([part.run_rows for part in parts], bases),
        first_place=first_place,
        places=narrow,
        place_rows=place_rows,
        hashes=hashes[keep],
        key_rows=key_rows[keep],
    )


def _shifted(rows: Sequence[Longs], bases: Longs) -> Longs:
    """Rows of each part, counted through all of them."""
    shifted: Longs = np.concatenate([each + base for each, base in zip(rows, bases.tolist(), strict=True)])
    return shifted
