"""FreshRecords: keys and places of one segment or pack that no index object covers yet, as arrays in memory.

    runs      a topic's life, a queue, the first of consecutive offsets; their records are rows, one run after another
    places    rising, each with its row
    keys      hashes as index objects have them, rising, those of one hash newest first, each with its row

8 bytes a record and 8 a key; places that lie 4 GiB apart take 4 more a record. So a key, or a place, that is not there
is known without a request, and one that is there costs those of its record alone. Made from `.cq` and `.idx` parts, as
index objects are; names records by what no merge changes. Immutable, and no thread's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thermocline.tiered.indexes.chapters import Life
from thermocline.tiered.indexes.index_object import IndexedPlace, QueueOffset
from thermocline.tiered.indexes.indexed_parts import IndexedPart, PartBytes, decode_part
from thermocline.tiered.indexes.key_pages import index_hash

END_OF_LOG = 1 << 62
RECORD_BYTES = 24
"""About what a record with two keys takes."""
_LIFE_BYTES = 150
_NARROW = 1 << 32

Places = npt.NDArray[np.uint32] | npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRecords:
    """See the module's header. Records below the place `start` are not in it, whether there are any or not."""

    start: int
    lives: Sequence[Life]
    run_lives: Words
    run_queues: Words
    run_offsets: Longs
    run_rows: Longs
    first_place: int
    places: Places
    place_rows: Words
    hashes: Words
    key_rows: Words

    @classmethod
    def of_stored(cls, stored: Iterable[PartBytes], *, start: int) -> FreshRecords:
        """The records at or behind `start` in stored parts, perhaps none. CorruptDataError leaves when damaged."""
        parts: list[_Part] = []
        for each in stored:
            decoded = decode_part(each, start=start, end=END_OF_LOG)
            if decoded is not None:
                parts.append(_Part.of(decoded))
        return _joined(parts or [_Part.empty()], start)

    @property
    def memory_bytes(self) -> int:
        """About what keeping it costs."""
        columns = (
            self.run_lives,
            self.run_queues,
            self.run_offsets,
            self.run_rows,
            self.places,
            self.place_rows,
            self.hashes,
            self.key_rows,
        )
        return sum(column.nbytes + 100 for column in columns) + _LIFE_BYTES * len(self.lives)

    def find_key(self, life: Life, key: str) -> list[QueueOffset]:
        """Queue and offset of each record of a life of a topic that may have the key, newest first: nobody else's, and
        of others hardly any."""
        wanted = np.uint32(index_hash(*life, key))
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        found = [self._record(int(row)) for row in self.key_rows[first:last]]
        return [(queue_id, offset) for of, queue_id, offset in found if of == life]

    def find_place(self, place: int) -> IndexedPlace | None:
        """The record that lay at a place."""
        step = place - self.first_place
        if not len(self.places) or not 0 <= step <= int(self.places[-1]):
            return None
        at = int(np.searchsorted(self.places, self.places.dtype.type(step)))
        if int(self.places[at]) != step:
            return None
        return IndexedPlace(*self._record(int(self.place_rows[at])))

    def _record(self, row: int) -> tuple[Life, int, int]:
        run = int(np.searchsorted(self.run_rows, row, "right")) - 1
        offset = int(self.run_offsets[run]) + row - int(self.run_rows[run])
        return self.lives[int(self.run_lives[run])], int(self.run_queues[run]), offset


@dataclass(frozen=True, slots=True)
class _Part:
    """A part's columns, as narrow as they stay."""

    life: Life
    places: Longs
    run_starts: Longs
    run_queues: Words
    run_offsets: Longs
    hashes: Words
    key_rows: Longs

    @classmethod
    def empty(cls) -> _Part:
        longs, words = np.empty(0, np.int64), np.empty(0, np.uint32)
        return cls(("", 0), longs, longs, words, longs, words, longs)

    @classmethod
    def of(cls, part: IndexedPart) -> _Part:
        begins = np.ones(len(part.places), np.bool_)
        begins[1:] = (part.queue_ids[1:] != part.queue_ids[:-1]) | (part.offsets[1:] != part.offsets[:-1] + 1)
        return cls(
            life=(part.topic, part.incarnation),
            places=part.places,
            run_starts=np.flatnonzero(begins).astype(np.int64),
            run_queues=part.queue_ids[begins].astype(np.uint32),
            run_offsets=part.offsets[begins],
            hashes=part.key_hashes,
            key_rows=part.key_records,
        )


def _joined(parts: Sequence[_Part], start: int) -> FreshRecords:
    lives: dict[Life, int] = {}
    numbers = [lives.setdefault(part.life, len(lives)) for part in parts]
    counts = [len(part.places) for part in parts]
    bases = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))[:-1].tolist()
    places = np.concatenate([part.places for part in parts])
    order = np.argsort(places, kind="stable").astype(np.uint32)
    first_place = int(places.min(initial=END_OF_LOG))
    steps = places[order] - first_place
    narrow: Places = steps if len(steps) and int(steps[-1]) >= _NARROW else steps.astype(np.uint32)
    hashes = np.concatenate([part.hashes for part in parts])
    rows = np.concatenate([part.key_rows + base for part, base in zip(parts, bases, strict=True)]).astype(np.uint32)
    by_hash = np.lexsort((-places[rows], hashes))
    hashes, rows = hashes[by_hash], rows[by_hash]
    keep = np.ones(len(rows), np.bool_)
    keep[1:] = (hashes[1:] != hashes[:-1]) | (rows[1:] != rows[:-1])  # a key that a record names twice counts once
    return FreshRecords(
        start=start,
        lives=tuple(lives),
        run_lives=np.repeat(np.array(numbers, np.uint32), [len(part.run_starts) for part in parts]),
        run_queues=np.concatenate([part.run_queues for part in parts]),
        run_offsets=np.concatenate([part.run_offsets for part in parts]),
        run_rows=np.concatenate([part.run_starts + base for part, base in zip(parts, bases, strict=True)]),
        first_place=first_place,
        places=narrow,
        place_rows=order,
        hashes=hashes[keep],
        key_rows=rows[keep],
    )
