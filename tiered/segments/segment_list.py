"""SegmentList: a topic's segments, as a tuple of SegmentEntry would be, in a tenth of its memory.

    blocks   of BLOCK_SEGMENTS segments or so, packed (`segment_block.py`)
    loose    the newest, fewer than LOOSE_MAX, as they came

Immutable, like the catalog that holds it: `with_more` and `without` share all unchanged blocks. Queries of all segments
(expired ones, those between two places, ids, sizes) are arithmetic on columns; only the results become objects. The
most recently used blocks stay decoded for a while, in a cache shared by all lists.

A new segment is packed with the LOOSE_MAX newest, and once more when SMALL_BLOCKS_MAX small blocks become one
large one. A removed one leaves its block unchanged, until half of the block is removed.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.tiered.objects import SegmentFormatError, dec_hook, enc_hook
from thermocline.tiered.segments.segment_block import (
    END,
    EPOCH,
    MAX_STORE_MS,
    MIN_STORE_MS,
    RAW_BYTES,
    RECORDS,
    SEQUENCE,
    START,
    STORED_BYTES,
    Longs,
    LooseSegments,
    SegmentBlock,
    SegmentColumns,
)
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_format import SegmentId

BLOCK_SEGMENTS = 128
LOOSE_MAX = 8
SMALL_BLOCKS_MAX = 16

Part = SegmentBlock | LooseSegments
Value = TypeVar("Value")


class SegmentList(Sequence[SegmentEntry]):
    """See the module's header."""

    __slots__ = ("_parts", "_starts")

    def __init__(self, parts: tuple[Part, ...] = ()) -> None:
        """`parts`: none is empty, and but for the last each is a block. Use `of`."""
        self._parts = parts
        self._starts = list(itertools.accumulate((len(part) for part in parts), initial=0))

    @classmethod
    def of(cls, segments: Iterable[SegmentEntry]) -> SegmentList:
        """These segments, in this order. SegmentFormatError when an id is none."""
        return cls().with_more(tuple(segments))

    @classmethod
    def of_json(cls, values: Any) -> SegmentList:
        """Segments as JSON has them, decoded into plain values. ValueError when they are none."""
        if not isinstance(values, list):
            raise ValueError("segments are an array")
        parts: list[Part] = [
            SegmentBlock.of(SegmentColumns.of_json(portion))
            for portion in _portions(values)
            if len(portion) >= LOOSE_MAX
        ]
        loose_count = len(values) % BLOCK_SEGMENTS
        if 0 < loose_count < LOOSE_MAX:
            loose = msgspec.convert(values[-loose_count:], list[SegmentEntry], dec_hook=dec_hook)
            parts.append(LooseSegments(loose))
        return cls(tuple(parts))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[SegmentEntry]:
        for part in self._parts:
            yield from part.entries()

    @overload
    def __getitem__(self, index: int) -> SegmentEntry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[SegmentEntry, ...]: ...

    def __getitem__(self, index: int | slice) -> SegmentEntry | tuple[SegmentEntry, ...]:
        count = len(self)
        if isinstance(index, slice):
            return tuple(self[row] for row in range(count)[index])
        if not -count <= index < count:
            raise IndexError(index)
        index %= count
        part = bisect_right(self._starts, index) - 1
        return self._parts[part].entries()[index - self._starts[part]]

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if not isinstance(other, (SegmentList, tuple)):
            return NotImplemented
        if isinstance(other, SegmentList) and list(map(id, self._parts)) == list(map(id, other._parts)):
            return True
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SegmentList.of({list(self)!r})"

    @property
    def record_count(self) -> int:
        """Records of all of them."""
        return self._sum(RECORDS)

    @property
    def raw_bytes(self) -> int:
        """Bytes of their records."""
        return self._sum(RAW_BYTES)

    @property
    def stored_bytes(self) -> int:
        """Bytes of their parts."""
        return self._sum(STORED_BYTES)

    @property
    def min_physical_offset(self) -> PhysicalOffset | None:
        """The first place in the log that one of them has; None without any."""
        return min((PhysicalOffset(part.columns[START].min()) for part in self._parts), default=None)

    @property
    def end_physical_offset(self) -> PhysicalOffset:
        """The place behind all of them; 0 without any."""
        return max((PhysicalOffset(part.columns[END].max()) for part in self._parts), default=LOG_START)

    @property
    def newest_store_ms(self) -> int:
        """When the newest record was stored; 0 without any."""
        return max((int(part.columns[MAX_STORE_MS].max()) for part in self._parts), default=0)

    @property
    def first_newest_ms(self) -> int | None:
        """The store time of the newest record of the segment that expires first; None without any."""
        return min((int(part.columns[MAX_STORE_MS].min()) for part in self._parts), default=None)

    @property
    def memory_bytes(self) -> int:
        """About what its blocks take."""
        return sum(part.memory_bytes for part in self._parts if isinstance(part, SegmentBlock))

    def json_values(self) -> list[Any]:
        """What an encoder makes the JSON of them of."""
        parts = (part.json_values() if isinstance(part, SegmentBlock) else part.entries() for part in self._parts)
        return list(itertools.chain.from_iterable(parts))

    def queue_bounds(self) -> dict[int, tuple[QueueOffset, QueueOffset]]:
        """Queue id -> the bounds of its runs' offsets."""
        bounds: dict[int, tuple[QueueOffset, QueueOffset]] = {}
        for part in self._parts:
            for queue_id, start, end in part.queues.tolist():
                before = bounds.get(queue_id)
                bounds[queue_id] = (start, end) if before is None else (min(start, before[0]), max(end, before[1]))
        return bounds

    def run_numbers(self) -> tuple[Longs, Longs]:
        """All runs as rows of numbers in the order of QueueRun's fields, and of which segment each is."""
        found = [part.run_numbers() for part in self._parts]
        if not found:
            return np.empty((0, 9), np.int64), np.empty(0, np.int64)
        segments = [start + rows for start, (_, rows) in zip(self._starts, found, strict=False)]
        return np.concatenate([runs for runs, _ in found]), np.concatenate(segments)

    def runs_near(self, ranges: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        """Queue, start and end of at least those runs that have an offset in one of `ranges`."""
        for part in self._parts:
            bounds = {queue_id: (start, end) for queue_id, start, end in part.queues.tolist()}
            if any(
                queue_id in bounds and start < bounds[queue_id][1] and end > bounds[queue_id][0]
                for queue_id, start, end in ranges
            ):
                yield from map(tuple, part.run_numbers()[0][:, :3].tolist())

    def find(self, segment_id: str) -> SegmentEntry | None:
        """The segment of that id."""
        for part, rows in self._rows_of_id(segment_id):
            return part.entries()[int(np.flatnonzero(rows)[0])]
        return None

    def has(self, segment_id: str) -> bool:
        """Whether there is a segment of that id."""
        return any(True for _ in self._rows_of_id(segment_id))

    def odd_keys(self) -> set[str]:
        """The objects of segments that are not named after the segment's topic and id."""
        found: set[str] = set()
        for part in self._parts:
            if part.odd_keys:
                found.update(key for segment in part.entries() for key in segment.keys if key in part.odd_keys)
        return found

    def between(self, start: PhysicalOffset, end: PhysicalOffset) -> Iterator[SegmentEntry]:
        """Those with places of the log in [start, end)."""
        for part in self._parts:
            yield from _entries(part, (part.columns[START] < end) & (part.columns[END] > start))

    def columns_between(self, start: PhysicalOffset, end: PhysicalOffset) -> tuple[list[SegmentEntry], Longs]:
        """The same at once, with rows of where each begins, where it ends, and how many records it has."""
        found: list[SegmentEntry] = []
        columns = [np.empty((3, 0), np.int64)]
        for part in self._parts:
            wanted = (part.columns[START] < end) & (part.columns[END] > start)
            if wanted.any():
                found += _entries(part, wanted)
                columns.append(part.columns[[START, END, RECORDS]][:, wanted])
        return found, np.concatenate(columns, axis=1)

    def stored_before(self, cut_ms: int) -> Iterator[SegmentEntry]:
        """Those of which every record was stored before a time."""
        for part in self._parts:
            yield from _entries(part, part.columns[MAX_STORE_MS] < cut_ms)

    def ids_stored_before(self, cut_ms: int) -> list[str]:
        """The ids of these; none of them becomes an object."""
        return [
            f"{epoch:010}-{sequence:010}"
            for part in self._parts
            for epoch, sequence in part.columns[[EPOCH, SEQUENCE]][:, part.columns[MAX_STORE_MS] < cut_ms].T.tolist()
        ]

    def stored_around(self, cut_ms: int) -> Iterator[SegmentEntry]:
        """Those with records that were stored before a time, and others that were not."""
        for part in self._parts:
            columns = part.columns
            yield from _entries(part, (columns[MIN_STORE_MS] < cut_ms) & (columns[MAX_STORE_MS] >= cut_ms))

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Id of each, and the bytes of its parts; none of them becomes an object."""
        for part in self._parts:
            for epoch, sequence, stored_bytes in part.columns[[EPOCH, SEQUENCE, STORED_BYTES]].T.tolist():
                yield f"{epoch:010}-{sequence:010}", stored_bytes

    def with_more(self, segments: Sequence[SegmentEntry]) -> SegmentList:
        """With these behind the others."""
        if not segments:
            return self
        parts = list(self._parts)
        loose = parts.pop() if parts and isinstance(parts[-1], LooseSegments) else LooseSegments(())
        assert isinstance(loose, LooseSegments)
        loose = loose.joined(segments)
        if len(loose) < LOOSE_MAX:
            return SegmentList((*parts, loose))
        parts += _blocks(loose.entries())
        small_count = sum(1 for _ in itertools.takewhile(_is_small, reversed(parts)))
        if small_count > SMALL_BLOCKS_MAX:
            small = parts[-small_count:]
            parts[-small_count:] = _blocks([segment for block in small for segment in block.entries()])
        return SegmentList(tuple(parts))

    def without(self, segment_ids: Iterable[str]) -> tuple[SegmentList, list[SegmentEntry]]:
        """Without these; and those of them that were here, as objects."""
        wanted = set(segment_ids)
        parts: list[Part] = []
        gone: list[SegmentEntry] = []
        for part in self._parts:
            rows = _rows_of_ids(part, wanted)
            if not rows.any():
                parts.append(part)
                continue
            gone += _entries(part, rows)
            if not rows.all():
                parts.append(part.only(~rows))
        if not gone:
            return self, gone
        return (SegmentList(tuple(parts)) if parts else NO_SEGMENTS), gone

    def _sum(self, column: int) -> int:
        return sum(int(part.columns[column].sum()) for part in self._parts)

    def _rows_of_id(self, segment_id: str) -> Iterator[tuple[Part, npt.NDArray[np.bool_]]]:
        for part in self._parts:
            rows = _rows_of_ids(part, (segment_id,))
            if rows.any():
                yield part, rows


NO_SEGMENTS = SegmentList()


def _portions(segments: Sequence[Value]) -> Iterator[Sequence[Value]]:
    return (segments[start : start + BLOCK_SEGMENTS] for start in range(0, len(segments), BLOCK_SEGMENTS))


def _blocks(segments: Sequence[SegmentEntry]) -> list[Part]:
    return [SegmentBlock.of(SegmentColumns.of(portion)) for portion in _portions(segments)]


def _is_small(part: Part) -> bool:
    return len(part) < BLOCK_SEGMENTS


def _entries(part: Part, wanted: npt.NDArray[np.bool_]) -> Iterator[SegmentEntry]:
    return itertools.compress(part.entries(), wanted.tolist()) if wanted.any() else iter(())


def _rows_of_ids(part: Part, segment_ids: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which rows of a part have one of the ids."""
    found = np.zeros(len(part), np.bool_)
    for segment_id in segment_ids:
        try:
            wanted = SegmentId.parse(segment_id)
        except SegmentFormatError:
            continue  # no segment's id
        found |= (part.columns[SEQUENCE] == wanted.sequence) & (part.columns[EPOCH] == wanted.epoch)
    return found


def encode_catalog_value(value: object) -> object:
    """For encoders of catalogs: segments as an array of them, rows as arrays of numbers."""
    return value.json_values() if isinstance(value, SegmentList) else enc_hook(value)


def decode_catalog_value(kind: type, value: Any) -> object:
    """For decoders of catalogs: the reverse. ValueError when it is neither."""
    return SegmentList.of_json(value) if kind is SegmentList else dec_hook(kind, value)
