"""SegmentReader: reads one cold segment by ranges. Footers are kept, and column blocks: the last few, and those that a
scan has yet to come to as they are stored. Records are not kept.

Callers without an event loop (a Spark task that has the bytes) use the pure functions directly: `decode_log_footer`,
`LogFooter.frames_of`, `plan_fetches`, `decode_frame`, `decode_columns_footer`, `ColumnsFooter.decode_block`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator

import msgspec

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.objects import ObjectStore, SegmentFormatError, SegmentOffset
from thermocline.tiered.segments.fetch_plan import FetchUnits, plan_fetches
from thermocline.tiered.segments.frame import DecodedFrame, decode_frame, decode_next_frame
from thermocline.tiered.segments.key_index import KeyIndexFooter, decode_key_index_footer, key_hash
from thermocline.tiered.segments.known_frames import GROUP_BYTES_MAX, group_of, known_frames
from thermocline.tiered.segments.queue_columns import (
    ColumnsFooter,
    QueueColumns,
    decode_columns_footer,
    join_columns,
)
from thermocline.tiered.segments.segment_entry import PartLocator, SegmentEntry
from thermocline.tiered.segments.segment_format import (
    IDX_MAGIC,
    LOG_MAGIC,
    MAGIC_BYTES,
    FrameInfo,
    LogFooter,
    QueueRun,
    SegmentId,
    Table,
    decode_log_footer,
    decode_trailer,
)

FETCH_BYTES_MAX = 8 * 1024 * 1024
SUFFIX_BYTES = 64 * 1024
COLUMN_BLOCKS_KEPT = 2
COLUMN_BYTES_KEPT = 512 * 1024
"""Of column blocks as stored, which a scan reads ahead: 20 KiB each or so."""
WHOLE_PART_BYTES_MAX = 4 * 1024 * 1024
"""Reading records of a piece of a pack up to this size reads it whole: one request, not one a queue."""
WHOLE_COLUMNS_BYTES_MAX = 8 * 1024 * 1024
"""So is a `.cq` part of up to this size: one request, not one for the footer and one for blocks."""
WHOLE_INDEX_BYTES_MAX = 2 * 1024 * 1024
"""So is, for a key, an `.idx` part that is in no index object yet."""


class RecordRun(msgspec.Struct, frozen=True, kw_only=True):
    """Records of offsets [start_offset, end_offset) of one queue, end to end in `data`."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    data: memoryview


class SegmentReader:
    """Belongs to one event loop. Each method may raise what the store raises, and CorruptDataError leaves."""

    def __init__(self, store: ObjectStore, entry: SegmentEntry) -> None:
        self._store = store
        self.entry = entry
        self._log_footer: LogFooter | None = None
        self._body = b""
        """All of a small `.log` part, until its frames have been taken from it."""
        self._known_frames: LogFooter | None = None
        self._knows_frames: bool | None = None
        self._fetch_units: FetchUnits | None = None
        self._columns_footer: ColumnsFooter | None = None
        self._key_index_footer: KeyIndexFooter | None = None
        self._blooms = b""
        """The `.idx` part up to the end of its bloom pages, once it has been read whole."""
        self._column_blocks_kept: OrderedDict[int, QueueColumns] = OrderedDict()
        self._column_bytes_kept: OrderedDict[int, bytes] = OrderedDict()
        """Stored blocks by position."""
        self._opening = asyncio.Lock()  # several readers of one segment open it once

    @property
    def memory_bytes(self) -> int:
        """About what is kept costs."""
        footers = (self._log_footer, self._known_frames, self._columns_footer, self._key_index_footer)
        footer_bytes = sum(footer.memory_bytes for footer in footers if footer is not None)
        return (
            footer_bytes
            + (self._fetch_units.memory_bytes if self._fetch_units is not None else 0)
            + len(self._body)
            + len(self._blooms)
            + sum(20 * len(columns.sizes) + 500 for columns in self._column_blocks_kept.values())
            + sum(map(len, self._column_bytes_kept.values()))
            + 500
        )

    @property
    def is_small(self) -> bool:
        """Whether it is a small piece of a pack, whose records are worth reading all at once."""
        return self.is_piece and self.entry.log.size_bytes <= WHOLE_PART_BYTES_MAX

    @property
    def is_piece(self) -> bool:
        """Whether it is a piece of a pack."""
        return self.entry.log.start > 0

    async def log_footer(self, *, with_body: bool = False) -> LogFooter:
        """The footer of `.log`: one request, the first time. `with_body`: it brings all frames, too, and the next
        `fetch` sends no request."""
        if self._log_footer is None:
            async with self._opening:
                if self._log_footer is None:
                    self._log_footer = await self._open_log(with_body=with_body)
        return self._log_footer

    async def frames_for_records(self) -> LogFooter:
        """The frames' positions, for a caller that will fetch frames: a small part is read whole; the entry of a piece
        of a pack has them, without a request. As `frame_table`."""
        if self.is_small:
            return await self.log_footer(with_body=True)
        return await self.frame_table() if self.is_piece else await self.log_footer()

    async def frame_table(self) -> LogFooter:
        """As `log_footer`, without a request if the catalog entry lists every frame; then the greatest store time of a
        frame may be too great, but at most the least of the next."""
        if self._log_footer is None and self.knows_frames:
            assert self._known_frames is not None
            return self._known_frames
        return await self.log_footer()

    @property
    def knows_frames(self) -> bool:
        """Whether the catalog entry lists every frame."""
        if self._knows_frames is None:
            self._known_frames = known_frames(self.entry)
            self._knows_frames = self._known_frames is not None
        return self._knows_frames

    def fetch_units(self, footer: LogFooter) -> FetchUnits:
        """The units of frames that a sequential reader fetches; a small piece is one unit. `footer`: its frames."""
        if self._fetch_units is None:
            self._fetch_units = FetchUnits.whole(footer) if self.is_small else FetchUnits.of(footer)
        return self._fetch_units

    async def frame_at(self, run: QueueRun, queue_offset: QueueOffset) -> DecodedFrame | None:
        """The frame with a record, by one request and without the footer; None when the catalog tells too little, or
        the footer is here. It comes with the frames around it, several MiB at most, and is not kept."""
        if self._log_footer is not None or self.knows_frames:
            return None
        group = group_of(self.entry, run, queue_offset)
        if group is None or (group.end - group.start > GROUP_BYTES_MAX and group.frame_count > 1):
            return None
        stored = memoryview(await self._read(self.entry.log, group.start, group.end))
        start_offset = group.start_offset
        while start_offset <= queue_offset:
            try:
                frame, size_bytes = decode_next_frame(stored, start_offset=start_offset)
            except CorruptDataError:
                return None  # by the footer and the cache, which fetches a damaged frame once more and names it
            if queue_offset < frame.end_offset:
                return frame
            start_offset, stored = frame.end_offset, stored[size_bytes:]
        return None

    async def columns_footer(self) -> ColumnsFooter:
        """The footer of `.cq`: one request, the first time."""
        if self._columns_footer is None:
            async with self._opening:
                if self._columns_footer is None:
                    footer = decode_columns_footer(await self._tail(self.entry.cq))
                    self._check_id(footer.segment_id)
                    self._columns_footer = footer
        return self._columns_footer

    async def key_index_footer(self) -> KeyIndexFooter:
        """The footer of `.idx`: one request, the first time."""
        if self._key_index_footer is None:
            async with self._opening:
                if self._key_index_footer is None:
                    footer = decode_key_index_footer(await self._tail(self.entry.idx))
                    self._check_id(footer.segment_id)
                    self._key_index_footer = footer
        return self._key_index_footer

    async def fetch(self, frames: list[FrameInfo]) -> list[memoryview]:
        """The stored bytes of adjacent frames, by one request."""
        start, end = frames[0].position, frames[-1].end_position
        if self._body:
            body, self._body = memoryview(self._body), b""
            return [body[frame.position : frame.end_position] for frame in frames]
        data = memoryview(await self._read(self.entry.log, start, end))
        return [data[frame.position - start : frame.end_position - start] for frame in frames]

    async def frame(self, info: FrameInfo) -> DecodedFrame:
        """One frame, by one request."""
        (stored,) = await self.fetch([info])
        return decode_frame(stored, info)

    async def records(
        self,
        queue_id: int,
        *,
        start_offset: QueueOffset,
        end_offset: QueueOffset,
        fetch_bytes_max: int = FETCH_BYTES_MAX,
    ) -> AsyncIterator[RecordRun]:
        """Records [start_offset, end_offset) of a queue, frame by frame; one request runs ahead of what is given.

        Memory: two fetches of `fetch_bytes_max` stored bytes and an eighth, and one frame, or what is in use of the
        frames given.

        Raises:
            OffsetOutOfRangeError: The segment does not hold all of the range.
        """
        run = self.run_of(queue_id, start_offset=start_offset, end_offset=end_offset)
        footer = await self.log_footer()
        frames = footer.frames_of(run, start_offset=start_offset, end_offset=end_offset)
        fetches = plan_fetches(frames, fetch_bytes_max=fetch_bytes_max)
        ahead = asyncio.ensure_future(self.fetch(fetches[0])) if fetches else None
        try:
            for number, infos in enumerate(fetches):
                assert ahead is not None
                stored = await ahead
                ahead = asyncio.ensure_future(self.fetch(fetches[number + 1])) if number + 1 < len(fetches) else None
                for info, data in zip(infos, stored, strict=True):
                    frame = decode_frame(data, info)
                    start, end = max(start_offset, info.start_offset), min(end_offset, info.end_offset)
                    yield RecordRun(queue_id=queue_id, start_offset=start, end_offset=end, data=frame.slice(start, end))
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def columns(
        self,
        queue_id: int,
        *,
        start_offset: QueueOffset,
        end_offset: QueueOffset,
        ahead_offset: QueueOffset | None = None,
    ) -> QueueColumns:
        """Sizes, places and tags codes of [start_offset, end_offset): one request the first time, unless the part is
        large, and at most one from then on. `ahead_offset`: a scan that goes on behind the range reads at most up to
        there; what must be fetched is fetched up to there at once, and kept.

        Raises:
            OffsetOutOfRangeError: The segment does not hold all of the range.
        """
        assert start_offset < end_offset
        self.run_of(queue_id, start_offset=start_offset, end_offset=end_offset)
        whole = await self._whole_columns()
        footer = await self.columns_footer()
        blocks = footer.blocks_of(queue_id, start_offset=start_offset, end_offset=end_offset)
        ahead: Table | None = None
        if ahead_offset is not None:
            assert ahead_offset >= end_offset
            ahead = footer.blocks_of(queue_id, start_offset=start_offset, end_offset=ahead_offset)
        parts = await self._column_blocks(footer, blocks, whole, ahead)
        return join_columns(parts).slice(start_offset, end_offset)

    def has_columns(self, queue_id: int, *, start_offset: QueueOffset, end_offset: QueueOffset) -> bool:
        """Whether `columns` would answer without a request."""
        if self._columns_footer is None:
            return False
        blocks = self._columns_footer.blocks_of(queue_id, start_offset=start_offset, end_offset=end_offset)
        return all(
            position in self._column_blocks_kept or position in self._column_bytes_kept
            for position in blocks["position"].tolist()
        )

    async def find_physical_offset(self, physical_offset: PhysicalOffset) -> tuple[int, QueueOffset] | None:
        """Queue id and queue offset of the record that lay at `physical_offset` in the log, if it is in the segment."""
        whole = await self._whole_columns()
        footer = await self.columns_footer()
        for block in footer.blocks_at(physical_offset):
            row = footer.blocks[footer.blocks["position"] == block["position"]]
            (columns,) = await self._column_blocks(footer, row, whole, None)
            index = int(columns.physical_offsets.searchsorted(physical_offset))
            if index < len(columns.physical_offsets) and int(columns.physical_offsets[index]) == physical_offset:
                return columns.queue_id, columns.start_offset + index
        return None

    async def find_key(self, key: bytes, *, reads_whole: bool = False) -> list[tuple[QueueRun, QueueOffset]]:
        """Run and queue offset of each record that may carry `key`, newest first, each once.

        At most three requests, one for nearly every key that is not there; with `reads_whole`, and a part that is not
        large, one, and none for a key that is not there the next time. Different keys may share a hash: the caller
        compares the keys of the records.
        """
        entry, hash_value = self.entry, key_hash(key)
        bloom = entry.bloom
        if not bloom.page_count:
            return []
        if reads_whole and entry.idx.size_bytes <= WHOLE_INDEX_BYTES_MAX:
            return await self._find_key_in_whole(hash_value)
        page_start = bloom.page_position(hash_value)
        if not bloom.may_hold(await self._read(entry.idx, page_start, page_start + bloom.page_bytes), hash_value):
            return []
        footer = await self.key_index_footer()
        blocks = footer.blocks_of(hash_value)
        if not len(blocks):
            return []
        start = int(blocks["position"][0])
        end = int(blocks["position"][-1]) + int(blocks["stored_bytes"][-1])
        ordinals = footer.find_ordinals(await self._read(entry.idx, start, end), blocks, hash_value)
        return [entry.place_of_ordinal(ordinal) for ordinal in dict.fromkeys(ordinals)]

    async def _find_key_in_whole(self, hash_value: int) -> list[tuple[QueueRun, QueueOffset]]:
        """As `find_key`, by one request for all of the part; its bloom pages stay."""
        entry, bloom = self.entry, self.entry.bloom
        page_start = bloom.page_position(hash_value)
        if self._blooms and not bloom.may_hold(self._blooms[page_start : page_start + bloom.page_bytes], hash_value):
            return []
        data = memoryview(await self._read(entry.idx, 0, entry.idx.size_bytes))
        entry.idx.check(data)
        self._blooms = bytes(data[: MAGIC_BYTES + bloom.size_bytes])
        footer = decode_key_index_footer(data)
        self._check_id(footer.segment_id)
        blocks = footer.blocks_of(hash_value)
        if not len(blocks):
            return []
        ordinals = footer.find_ordinals(data[int(blocks["position"][0]) :], blocks, hash_value)
        return [entry.place_of_ordinal(ordinal) for ordinal in dict.fromkeys(ordinals)]

    def run_of(self, queue_id: int, *, start_offset: QueueOffset, end_offset: QueueOffset) -> QueueRun:
        """The run that holds all of [start_offset, end_offset). OffsetOutOfRangeError when none does."""
        run = self.entry.run(queue_id)
        if run is None or not run.start_offset <= start_offset <= end_offset <= run.end_offset:
            raise OffsetOutOfRangeError(
                "the segment does not hold the range",
                segment_id=self.entry.segment_id,
                queue_id=queue_id,
                start_offset=start_offset,
                end_offset=end_offset,
            )
        return run

    async def _open_log(self, *, with_body: bool) -> LogFooter:
        part = self.entry.log
        if with_body:
            tail = body = await self._store.get_range(part.key, start=part.start, end=part.end)
        else:
            tail, body = await self._tail(part), b""
        footer = decode_log_footer(tail)
        self._check_id(footer.segment_id)
        if footer.runs != self.entry.runs:
            raise SegmentFormatError("footer and catalog speak of different runs", key=self.entry.log.key)
        self._body = body
        return footer

    async def _whole_columns(self) -> memoryview | None:
        """All of the `.cq` part, by one request instead of one for the footer and one for blocks; None once the footer
        is known, or when the part is large."""
        part = self.entry.cq
        if self._columns_footer is None and part.size_bytes <= WHOLE_COLUMNS_BYTES_MAX:
            async with self._opening:
                if self._columns_footer is None:
                    whole = memoryview(await self._read(part, 0, part.size_bytes))
                    footer = decode_columns_footer(whole)
                    self._check_id(footer.segment_id)
                    self._columns_footer = footer
                    return whole
        return None

    async def _column_blocks(
        self, footer: ColumnsFooter, blocks: Table, whole: memoryview | None, ahead: Table | None
    ) -> list[QueueColumns]:
        """The columns of blocks that lie end to end, from the whole part or by one request; the last few are kept.
        `ahead`: these blocks and those behind them that the request brings as well; they are kept as stored."""
        kept = self._column_blocks_kept
        positions: list[int] = blocks["position"].tolist()
        decoded = {position: kept[position] for position in positions if position in kept}
        stored: dict[int, bytes | memoryview] = {}
        for position in positions:
            if position not in decoded and position in self._column_bytes_kept:
                self._column_bytes_kept.move_to_end(position)
                stored[position] = self._column_bytes_kept[position]
        missing = [position for position in positions if position not in decoded and position not in stored]
        if missing:
            wanted = blocks if ahead is None else ahead
            wanted = wanted[wanted["position"] >= missing[0]]
            start, end = missing[0], int(wanted["position"][-1]) + int(wanted["stored_bytes"][-1])
            data = whole[start:end] if whole is not None else memoryview(await self._read(self.entry.cq, start, end))
            for position, size_bytes in zip(wanted["position"].tolist(), wanted["stored_bytes"].tolist(), strict=True):
                stored[position] = data[position - start : position - start + size_bytes]
            if ahead is not None:
                self._keep_column_bytes(stored)
        try:
            parts = [
                decoded[position] if position in decoded else footer.decode_block(stored[position], block)
                for position, block in zip(positions, blocks, strict=True)
            ]
        except CorruptDataError:
            self._column_bytes_kept.clear()  # the damage may be that of one answer: the next call fetches them again
            raise
        for position, columns in list(zip(positions, parts, strict=True))[-COLUMN_BLOCKS_KEPT:]:
            kept[position] = columns
            kept.move_to_end(position)
        while len(kept) > COLUMN_BLOCKS_KEPT:
            kept.popitem(last=False)
        return parts

    def _keep_column_bytes(self, stored: dict[int, bytes | memoryview]) -> None:
        """Keep blocks as stored, up to the bound; those used longest ago are dropped."""
        kept = self._column_bytes_kept
        for position, data in stored.items():
            kept[position] = bytes(data)
            kept.move_to_end(position)
        size_bytes = sum(map(len, kept.values()))
        while size_bytes > COLUMN_BYTES_KEPT and len(kept) > 1:
            size_bytes -= len(kept.popitem(last=False)[1])

    async def _read(self, part: PartLocator, start: int, end: int) -> bytes:
        """Bytes [start, end) of a part."""
        if not 0 <= start < end <= part.size_bytes:
            raise SegmentFormatError("a table points outside the part", key=part.key, start=start, end=end)
        return await self._store.get_range(part.key, start=part.start + start, end=part.start + end)

    async def _tail(self, part: PartLocator) -> bytes:
        """Footer and trailer of a part."""
        return await self._store.get_range(part.key, start=part.footer_start, end=part.end)

    def _check_id(self, found: SegmentId) -> None:
        if str(found) != self.entry.segment_id:
            raise SegmentFormatError("another segment is stored here", expected=self.entry.segment_id, found=str(found))


async def read_segment_id(store: ObjectStore, key: str) -> str:
    """Whose records the object of a segment's own holds: a `.log` part, or all three parts; raises as the next."""
    suffix = await store.get_suffix(key, size_bytes=SUFFIX_BYTES)
    if not suffix.data.endswith(IDX_MAGIC):
        return str((await read_log_footer(store, key)).segment_id)
    data, trailer = suffix.data, decode_trailer(suffix.data, magic=IDX_MAGIC)
    if trailer.tail_bytes > len(data):
        data = (await store.get_suffix(key, size_bytes=trailer.tail_bytes)).data
    return str(decode_key_index_footer(data).segment_id)


async def read_log_footer(store: ObjectStore, key: str) -> LogFooter:
    """The footer of a `.log` part that is a whole object, without a catalog: one suffix request, two if it is large.

    Raises:
        ObjectNotFoundError: There is no such object.
        SegmentFormatError: It is no `.log` part.
    """
    suffix = await store.get_suffix(key, size_bytes=SUFFIX_BYTES)
    trailer = decode_trailer(suffix.data, magic=LOG_MAGIC)
    if trailer.part_bytes != suffix.size_bytes:
        raise SegmentFormatError("the part is not the whole object", key=key, part_bytes=trailer.part_bytes)
    data = suffix.data
    if trailer.tail_bytes > len(data):
        end = SegmentOffset(suffix.size_bytes)
        data = await store.get_range(key, start=end - trailer.tail_bytes, end=end)
    return decode_log_footer(data)
