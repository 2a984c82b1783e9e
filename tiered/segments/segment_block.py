"""SegmentBlock: up to some hundred segments as columns of numbers, most of them compressed; a segment becomes a
SegmentEntry only on access.

A segment of eight queues takes 2.7 KiB of memory as objects, and about 0.35 KiB in a block.

    columns     the values queried of all segments: ids, store times, places, sizes; a row of numbers for each
    queues      the offset bounds of each queue of the block
    packed      all other values: one zstd frame around the columns of segments, runs and coarse frames, as byte planes.
                A column holds differences from predicted values, most of them zero or small: a run starts where the
                queue's last one ended, a coarse frame where its run does. All arithmetic is modulo 2**64: exact.

A name of an object is kept once for all segments whose id it contains. Nothing of this is ever stored: in the bucket
segments are JSON (`checkpoint.py`). Immutable; blocks may be shared by catalogs and read by any thread.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from thermocline.tiered.objects import NUMBER_BYTES, decompress_frame
from thermocline.tiered.segments.object_keys import escape_name
from thermocline.tiered.segments.queue_columns import from_planes, to_planes
from thermocline.tiered.segments.segment_entry import CoarseRows, PartLocator, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import SegmentId

Longs: TypeAlias = npt.NDArray[np.int64]
"""Columns and matrices of numbers."""

DECODED_BLOCKS_MAX = 64
"""So many blocks that were looked into last are kept as objects, too: at most 64 times 128 segments."""

EPOCH, SEQUENCE, MIN_STORE_MS, MAX_STORE_MS, START, END, RECORDS, STORED_BYTES, RAW_BYTES = range(9)
"""The columns of a block. START and END are places in the log."""
COLUMN_COUNT = 9
ID_MARK = "\0"
"""In a name of an object: the segment's id."""
_ORDINAL_STEP = np.int64(1 << 33)
_KEPT_COUNT = 23
_ID_BYTES = 21
_ID_DIGITS = [*range(10), *range(11, 21)]
_POWERS = 10 ** np.arange(9, -1, -1, dtype=np.int64)
_PARTS = ("log", "cq", "idx")
_SCALARS = ("record_count", "raw_bytes", "key_count", "bloom_page_bytes", "bloom_page_count", "created_ms")
_FIELDS = ("segment_id", "topic", "incarnation", *_PARTS, "runs", "coarse", *_SCALARS)
assert SegmentEntry.__struct_fields__ == _FIELDS, "JSON has the fields in this order"
_RUN_BYTES, _COARSE_BYTES = RunRows.WIDTH * NUMBER_BYTES, CoarseRows.WIDTH * NUMBER_BYTES


class SegmentColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Segments before they are packed, each field by itself. `keys` and `places`: of `.log`, `.cq` and `.idx`, the name
    of the object, and the other numbers of PartLocator; `scalars`: a row for each field of _SCALARS; `runs` and
    `coarse`: rows of numbers, and how many of them are each segment's."""

    ids: Sequence[str]
    topics: Sequence[str]
    incarnations: Sequence[int]
    keys: tuple[Sequence[str], ...]
    places: Longs
    scalars: Longs
    runs: Longs
    run_counts: Longs
    coarse: Longs
    coarse_counts: Longs

    @classmethod
    def of(cls, entries: Sequence[SegmentEntry]) -> SegmentColumns:
        """Entries as they are in memory. ValueError when a number has more than 64 bits."""
        runs, run_counts = _joined([entry.runs.data for entry in entries], RunRows.WIDTH)
        coarse, coarse_counts = _joined([entry.coarse.data for entry in entries], CoarseRows.WIDTH)
        parts = [[getattr(entry, name) for entry in entries] for name in _PARTS]
        places = [(part.start, part.end, part.footer_start, part.crc32) for each in parts for part in each]
        return cls(
            ids=[entry.segment_id for entry in entries],
            topics=[entry.topic for entry in entries],
            incarnations=[entry.incarnation for entry in entries],
            keys=tuple([part.key for part in each] for each in parts),
            places=_longs(itertools.chain.from_iterable(places)).reshape(len(_PARTS), -1, 4),
            scalars=_longs(getattr(entry, name) for name in _SCALARS for entry in entries).reshape(len(_SCALARS), -1),
            runs=runs,
            run_counts=run_counts,
            coarse=coarse,
            coarse_counts=coarse_counts,
        )

    @classmethod
    def of_json(cls, values: Sequence[Any]) -> SegmentColumns:
        """Entries as JSON has them, decoded into plain values. ValueError when one of them is none."""
        try:
            ids, topics = [value["segment_id"] for value in values], [value["topic"] for value in values]
            parts = [[value[name] for value in values] for name in _PARTS]
            keys = tuple([part[0] for part in each] for each in parts)
            if not set(map(type, itertools.chain(ids, topics, *keys))) <= {str}:
                raise ValueError("a name is no text")
            places = itertools.chain.from_iterable(part[1:5] for each in parts for part in each)
            runs, run_counts = _rows_of_json([value["runs"] for value in values], RunRows.WIDTH)
            coarse, coarse_counts = _rows_of_json([value["coarse"] for value in values], CoarseRows.WIDTH)
            return cls(
                ids=ids,
                topics=topics,
                incarnations=[value["incarnation"] for value in values],
                keys=keys,
                places=_longs(places).reshape(len(_PARTS), len(values), 4),
                scalars=_longs(value[name] for name in _SCALARS for value in values).reshape(len(_SCALARS), -1),
                runs=runs,
                run_counts=run_counts,
                coarse=coarse,
                coarse_counts=coarse_counts,
            )
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"not a segment: {error!r}") from error


def _longs(numbers: Iterable[int]) -> Longs:
    """ValueError when one is no whole number of 64 bits."""
    values = tuple(numbers)
    try:
        return np.frombuffer(struct.pack(f"={len(values)}q", *values), np.int64)
    except struct.error as error:
        raise ValueError("not a whole number of 64 bits") from error


def _rows_of_json(values: Sequence[Sequence[Sequence[int]]], width: int) -> tuple[Longs, Longs]:
    """Rows of numbers of several segments; what a row has beyond its width is of a later version, and ignored."""
    rows = list(itertools.chain.from_iterable(values))
    sizes = set(map(len, rows))
    if sizes - {width}:
        if min(sizes) < width:
            raise ValueError("a row has too few numbers")
        rows = [row[:width] for row in rows]
    numbers = _longs(itertools.chain.from_iterable(rows))
    return numbers.reshape(-1, width), np.array(list(map(len, values)), np.int64)


class PackedSegments:
    """What a block is made of, and shared by its parts. Hashed by identity."""

    __slots__ = ("columns", "frame", "odd_keys")

    def __init__(self, columns: Longs, frame: bytes, odd_keys: frozenset[str]) -> None:
        """`odd_keys`: names of objects that are not those of their topic and segment."""
        self.columns = columns
        self.frame = frame
        self.odd_keys = odd_keys


class SegmentBlock:
    """See the module's header. `columns` is a matrix, a column of each kind after another."""

    __slots__ = ("_packed", "_rows", "columns", "queues")

    def __init__(self, packed: PackedSegments, rows: Longs | None, columns: Longs, queues: Longs) -> None:
        """`rows`: which of the packed segments are here; None for all."""
        self._packed = packed
        self._rows = rows
        self.columns = columns
        self.queues = queues

    @classmethod
    def of(cls, segments: SegmentColumns) -> SegmentBlock:
        """These segments, of which there is at least one.

        Raises:
            ValueError: A segment has no runs.
            SegmentFormatError: An id is none.
        """
        columns = _asked_columns(segments)
        frame, odd_keys = _pack(segments, columns)
        return cls(PackedSegments(columns, frame, odd_keys), None, columns, _queues(segments.runs))

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def memory_bytes(self) -> int:
        """About what it takes, objects that are kept for a while apart."""
        return len(self._packed.frame) + int(self._packed.columns.nbytes) + int(self.queues.nbytes) + 700

    @property
    def odd_keys(self) -> frozenset[str]:
        """Names of objects that are not those of their topic and segment, perhaps of segments that have gone, too."""
        return self._packed.odd_keys

    def entries(self) -> Sequence[SegmentEntry]:
        """The segments as objects."""
        found = _decoded(self._packed)
        return found if self._rows is None else [found[row] for row in self._rows.tolist()]

    def json_values(self) -> list[dict[str, Any]]:
        """The segments as plain values, of which an encoder makes the same JSON: they never become objects."""
        content = _Content(self._packed)
        runs = content.runs()
        run_rows, coarse_rows = runs.tolist(), content.coarse(runs).tolist()
        found = [
            dict(zip(_FIELDS, (*names, *parts, run_rows[of_runs], coarse_rows[of_coarse], *scalars), strict=True))
            for names, parts, of_runs, of_coarse, scalars in content.segments()
        ]
        return found if self._rows is None else [found[row] for row in self._rows.tolist()]

    def run_numbers(self) -> tuple[Longs, Longs]:
        """The runs as rows of numbers, and of which segment of the block each is."""
        content = _Content(self._packed)
        runs, segments = content.runs(), np.repeat(np.arange(len(content.run_counts)), content.run_counts)
        if self._rows is None:
            return runs, segments
        place = np.full(len(content.run_counts), -1, np.int64)
        place[self._rows] = np.arange(len(self._rows))
        is_here = place[segments] >= 0
        return runs[is_here], place[segments][is_here]

    def only(self, wanted: npt.NDArray[np.bool_]) -> SegmentBlock:
        """The segments selected by the mask, at least one; packed again once most packed segments are gone."""
        if int(wanted.sum()) * 2 <= self._packed.columns.shape[1]:
            entries = self.entries()
            return SegmentBlock.of(SegmentColumns.of([entries[row] for row in np.flatnonzero(wanted).tolist()]))
        rows = np.flatnonzero(wanted) if self._rows is None else self._rows[wanted]
        runs, segments = self.run_numbers()
        columns = np.ascontiguousarray(self.columns[:, wanted])
        return SegmentBlock(self._packed, rows, columns, _queues(runs[wanted[segments]]))


class LooseSegments:
    """A few segments as objects, with the same queries as a block; the newest of a topic, before they are packed."""

    __slots__ = ("_columns", "_entries", "_queues")

    def __init__(self, entries: Sequence[SegmentEntry], columns: Longs | None = None) -> None:
        """`columns`: the columns of the first entries, as far as computed."""
        self._entries = entries
        self._columns = columns
        self._queues: Longs | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def columns(self) -> Longs:
        """See SegmentBlock."""
        columns = self._columns
        if columns is None:
            columns = self._columns = columns_of(self._entries)
        elif columns.shape[1] < len(self._entries):
            columns = self._columns = np.concatenate([columns, columns_of(self._entries[columns.shape[1] :])], axis=1)
        return columns

    @property
    def queues(self) -> Longs:
        """See SegmentBlock."""
        if self._queues is None:
            self._queues = _queues(self.run_numbers()[0])
        return self._queues

    @property
    def odd_keys(self) -> frozenset[str]:
        """See SegmentBlock."""
        return frozenset(
            key
            for segment in self._entries
            for key in segment.keys
            if not _is_own(key, segment.topic, segment.segment_id)
        )

    def entries(self) -> Sequence[SegmentEntry]:
        """See SegmentBlock."""
        return self._entries

    def run_numbers(self) -> tuple[Longs, Longs]:
        """See SegmentBlock."""
        runs, counts = _joined([entry.runs.data for entry in self._entries], RunRows.WIDTH)
        return runs, np.repeat(np.arange(len(counts)), counts)

    def joined(self, entries: Sequence[SegmentEntry]) -> LooseSegments:
        """With more behind them."""
        return LooseSegments((*self._entries, *entries), self._columns)

    def only(self, wanted: npt.NDArray[np.bool_]) -> LooseSegments:
        """The segments selected by the mask."""
        columns = np.ascontiguousarray(self.columns[:, wanted])
        return LooseSegments(tuple(itertools.compress(self._entries, wanted.tolist())), columns)


def columns_of(entries: Sequence[SegmentEntry]) -> Longs:
    """The columns of these. Raises as `SegmentBlock.of`, and ValueError when a number has more than 64 bits."""
    return _asked_columns(SegmentColumns.of(entries))


def _asked_columns(segments: SegmentColumns) -> Longs:
    runs, run_counts = segments.runs, segments.run_counts
    if not run_counts.all():
        raise ValueError("a segment without runs")
    firsts = np.concatenate([[0], np.cumsum(run_counts)[:-1]])
    columns = np.empty((COLUMN_COUNT, len(segments.ids)), np.int64)
    columns[EPOCH], columns[SEQUENCE] = _id_numbers(segments.ids)
    columns[MIN_STORE_MS] = np.minimum.reduceat(runs[:, 3], firsts)
    columns[MAX_STORE_MS] = np.maximum.reduceat(runs[:, 4], firsts)
    columns[START] = np.minimum.reduceat(runs[:, 7], firsts)
    columns[END] = np.maximum.reduceat(runs[:, 8], firsts)
    columns[RECORDS], columns[RAW_BYTES] = segments.scalars[:2]
    columns[STORED_BYTES] = (segments.places[:, :, 1] - segments.places[:, :, 0]).sum(axis=0)
    return columns


def _id_numbers(ids: Sequence[str]) -> tuple[Longs, Longs]:
    """Epoch and sequence of each. SegmentFormatError when one is no id."""
    text = "".join(ids).encode()
    if len(text) == _ID_BYTES * len(ids):
        letters = np.frombuffer(text, np.uint8).reshape(-1, _ID_BYTES).astype(np.int64)
        digits = letters[:, _ID_DIGITS] - ord("0")
        if (letters[:, 10] == ord("-")).all() and (digits >= 0).all() and (digits <= 9).all():
            return digits[:, :10] @ _POWERS, digits[:, 10:] @ _POWERS
    for segment_id in ids:
        SegmentId.parse(segment_id)
    raise AssertionError("one of them is no id")


def _queues(runs: Longs) -> Longs:
    """Rows of queue id, least start and greatest end."""
    queue_ids, places = np.unique(runs[:, 0], return_inverse=True)
    found = np.empty((len(queue_ids), 3), np.int64)
    found[:, 0] = queue_ids
    found[:, 1] = np.iinfo(np.int64).max
    found[:, 2] = np.iinfo(np.int64).min
    np.minimum.at(found[:, 1], places, runs[:, 1])
    np.maximum.at(found[:, 2], places, runs[:, 2])
    return found


def _joined(parts: Sequence[bytes], width: int) -> tuple[Longs, Longs]:
    """Rows of several segments one after another, and how many are of each."""
    row_bytes = width * NUMBER_BYTES
    counts = np.array([len(part) // row_bytes for part in parts], np.int64)
    return np.frombuffer(b"".join(parts), np.int64).reshape(-1, width), counts


# -- packing -----------------------------------------------------------------------------------------------------------


def _pack(segments: SegmentColumns, columns: Longs) -> tuple[bytes, frozenset[str]]:
    """The frame, and the names of objects that are not those of their topic and segment."""
    count, runs, coarse = len(segments.ids), segments.runs, segments.coarse
    names = _Names()
    kept = np.empty((_KEPT_COUNT, count), np.int64)
    kept[0], kept[1] = segments.run_counts, segments.coarse_counts
    kept[2] = [names.number_of(topic) for topic in segments.topics]
    kept[3] = _longs(segments.incarnations)
    for part, (keys, places) in enumerate(zip(segments.keys, segments.places, strict=True)):
        first = 4 + 5 * part
        kept[first] = list(map(names.number_of_key, keys, segments.topics, segments.ids))
        kept[first + 1] = places[:, 0]
        kept[first + 2] = places[:, 1] - places[:, 0]
        kept[first + 3] = places[:, 1] - places[:, 2]
        kept[first + 4] = places[:, 3]
    kept[19:22] = segments.scalars[2:5]
    kept[22] = segments.scalars[5] - columns[MAX_STORE_MS]
    rows = np.repeat(np.arange(count), segments.run_counts)
    by_queue = np.argsort(runs[:, 0], kind="stable")
    of_run = _owners(runs, rows, coarse, np.repeat(np.arange(count), segments.coarse_counts))
    numbers = [
        *kept,
        runs[:, 0],
        _gaps(runs[by_queue, 1], runs[by_queue, 2]),
        runs[:, 2] - runs[:, 1],
        runs[:, 3] - columns[MIN_STORE_MS][rows],
        columns[MAX_STORE_MS][rows] - runs[:, 4],
        _gaps(runs[:, 5], runs[:, 6]),
        runs[:, 6] - runs[:, 5],
        runs[:, 7] - columns[START][rows],
        columns[END][rows] - runs[:, 8],
        _steps(coarse[:, 0]),
        coarse[:, 1] - of_run[:, 1],
        _steps(coarse[:, 2]),
        _steps(coarse[:, 3]),
        coarse[:, 4] - of_run[:, 3],
    ]
    planes = b"".join(map(_to_zigzag_planes, numbers))
    content = msgspec.msgpack.encode((count, len(runs), len(coarse), names.texts, planes))
    # The compressor's own bytes keep the room that was set aside for the worst case: a copy has none.
    frame = bytes(memoryview(zstandard.ZstdCompressor(level=1).compress(content)))
    return frame, frozenset(names.odd_keys)


class _Names:
    """The texts of a block, each once; of an object's name what is around its segment's id."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.odd_keys: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._keys: dict[tuple[str, str, str, str], tuple[int, bool]] = {}

    def number_of(self, text: str) -> int:
        """The place of a text."""
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def number_of_key(self, key: str, topic: str, segment_id: str) -> int:
        """The place of an object's name."""
        head, mark, tail = key.partition(segment_id)
        name = (head, mark and ID_MARK, tail, topic)
        entry = self._keys.get(name)
        if entry is None:
            if ID_MARK in key:
                raise ValueError("a name of an object with a zero byte")
            number = self.number_of("".join(name[:3]))
            entry = self._keys[name] = number, not _is_own(key, topic, segment_id)
        if entry[1]:
            self.odd_keys.add(key)
        return entry[0]


def _owners(runs: Longs, run_segments: Longs, coarse: Longs, coarse_segments: Longs) -> Longs:
    """The numbers of the run that each coarse frame belongs to, as far as frame numbers tell."""
    if not len(coarse):
        return runs[:0]
    run_places = run_segments * _ORDINAL_STEP + runs[:, 5]
    order = np.argsort(run_places, kind="stable")
    wanted = coarse_segments * _ORDINAL_STEP + coarse[:, 0]
    rows = order[np.maximum(np.searchsorted(run_places[order], wanted, side="right") - 1, 0)]
    return runs[rows]


def _is_own(key: str, topic: str, segment_id: str) -> bool:
    """Whether an object is named after its topic and segment."""
    return f"/{_folder_of(topic)}/{segment_id}." in key


_folder_of = lru_cache(maxsize=1_024)(escape_name)


def _steps(column: Longs) -> Longs:
    steps = column.copy()
    steps[1:] -= column[:-1]
    return steps


def _gaps(starts: Longs, ends: Longs) -> Longs:
    """How far each start is behind the end before it."""
    gaps = starts.copy()
    gaps[1:] -= ends[:-1]
    return gaps


def _chain(gaps: Longs, sizes: Longs) -> Longs:
    """The starts of which `_gaps` were made."""
    starts = np.cumsum(gaps)
    starts[1:] += np.cumsum(sizes)[:-1]
    return starts


def _to_zigzag_planes(column: Longs) -> bytes:
    folded = (column << 1) ^ (column >> 63)
    return to_planes(np.ascontiguousarray(folded).view(np.uint64))


class _Content:
    """A block's frame, decompressed; its columns are taken out one after another, or by place."""

    def __init__(self, packed: PackedSegments) -> None:
        content = decompress_frame(packed.frame)
        self._columns = packed.columns
        self._segment_count, self._run_count, self._coarse_count, self.names, self._planes = msgspec.msgpack.decode(
            content, type=tuple[int, int, int, list[str], bytes]
        )
        self.run_counts = self.kept(0)

    def kept(self, number: int) -> Longs:
        """A column of segments."""
        return self._column(number * self._segment_count, self._segment_count)

    def runs(self) -> Longs:
        """The runs."""
        count, columns = self._run_count, self._columns
        start = _KEPT_COUNT * self._segment_count
        queue_ids, gaps, sizes, min_ms, max_ms, frame_gaps, frame_counts, min_places, end_places = (
            self._column(start + number * count, count) for number in range(9)
        )
        segments = np.repeat(np.arange(self._segment_count), self.run_counts)
        runs = np.empty((count, RunRows.WIDTH), np.int64)
        by_queue = np.argsort(queue_ids, kind="stable")
        runs[:, 0] = queue_ids
        runs[by_queue, 1] = _chain(gaps, sizes[by_queue])
        runs[:, 2] = runs[:, 1] + sizes
        runs[:, 3] = columns[MIN_STORE_MS][segments] + min_ms
        runs[:, 4] = columns[MAX_STORE_MS][segments] - max_ms
        runs[:, 5] = _chain(frame_gaps, frame_counts)
        runs[:, 6] = runs[:, 5] + frame_counts
        runs[:, 7] = columns[START][segments] + min_places
        runs[:, 8] = columns[END][segments] - end_places
        return runs

    def coarse(self, runs: Longs) -> Longs:
        """The coarse frames."""
        count = self._coarse_count
        start = _KEPT_COUNT * self._segment_count + 9 * self._run_count
        steps, offsets, positions, raw_positions, times = (
            self._column(start + number * count, count) for number in range(5)
        )
        coarse = np.empty((count, CoarseRows.WIDTH), np.int64)
        coarse[:, 0] = np.cumsum(steps)
        segments = np.arange(self._segment_count)
        of_run = _owners(runs, np.repeat(segments, self.run_counts), coarse, np.repeat(segments, self.kept(1)))
        coarse[:, 1] = of_run[:, 1] + offsets
        coarse[:, 2] = np.cumsum(positions)
        coarse[:, 3] = np.cumsum(raw_positions)
        coarse[:, 4] = of_run[:, 3] + times
        return coarse

    def segments(self) -> Iterator[tuple[tuple[str, str, int], list[tuple[Any, ...]], slice, slice, tuple[int, ...]]]:
        """Of each: id, topic and incarnation; the numbers of its parts in the order of PartLocator's fields; which runs
        and coarse frames are its own; and the rest, in the order of _SCALARS."""
        kept = [self.kept(number) for number in range(_KEPT_COUNT)]
        for part in range(len(_PARTS)):
            first = 4 + 5 * part
            kept[first + 2] = kept[first + 1] + kept[first + 2]
            kept[first + 3] = kept[first + 2] - kept[first + 3]
        kept[22] = kept[22] + self._columns[MAX_STORE_MS]
        names, run_end, coarse_end = self.names, 0, 0
        for row in zip(*(column.tolist() for column in (*self._columns, *kept)), strict=True):
            segment_id, own = str(SegmentId(row[EPOCH], row[SEQUENCE])), row[COLUMN_COUNT:]
            run_start, run_end = run_end, run_end + own[0]
            coarse_start, coarse_end = coarse_end, coarse_end + own[1]
            parts = [(names[own[at]].replace(ID_MARK, segment_id), *own[at + 1 : at + 5]) for at in (4, 9, 14)]
            yield (
                (segment_id, names[own[2]], own[3]),
                parts,
                slice(run_start, run_end),
                slice(coarse_start, coarse_end),
                (row[RECORDS], row[RAW_BYTES], *own[19:23]),
            )

    def _column(self, start: int, count: int) -> Longs:
        folded = from_planes(self._planes, "<u8", count, start * NUMBER_BYTES)
        column: Longs = (folded >> np.uint64(1)).astype(np.int64) ^ -(folded & np.uint64(1)).astype(np.int64)
        return column


@lru_cache(maxsize=DECODED_BLOCKS_MAX)
def _decoded(packed: PackedSegments) -> tuple[SegmentEntry, ...]:
    content = _Content(packed)
    runs = content.runs()
    run_rows, coarse_rows = runs.tobytes(), content.coarse(runs).tobytes()
    found: list[SegmentEntry] = []
    for (segment_id, topic, incarnation), parts, of_runs, of_coarse, scalars in content.segments():
        log, cq, idx = (PartLocator(*part) for part in parts)
        record_count, raw_bytes, key_count, bloom_page_bytes, bloom_page_count, created_ms = scalars
        entry = SegmentEntry(
            segment_id=segment_id,
            topic=topic,
            incarnation=incarnation,
            log=log,
            cq=cq,
            idx=idx,
            runs=RunRows(run_rows[of_runs.start * _RUN_BYTES : of_runs.stop * _RUN_BYTES]),
            coarse=CoarseRows(coarse_rows[of_coarse.start * _COARSE_BYTES : of_coarse.stop * _COARSE_BYTES]),
            record_count=record_count,
            raw_bytes=raw_bytes,
            key_count=key_count,
            bloom_page_bytes=bloom_page_bytes,
            bloom_page_count=bloom_page_count,
            created_ms=created_ms,
        )
        found.append(entry)
    return tuple(found)
