"""FrameReader: the tasks' side of a read; fetches the frames of some slices and gives Arrow batches of their rows.

    footers of the segments          one GET each, all at once; kept for the next task of this worker
    tags codes (only with `tags`)    from `.cq`: one GET for its footer and one for the blocks of the range
    frames                           those whose offsets, store times and tags codes may hold a wanted row
    ranges                           wanted frames that lie together, up to `fetch_bytes` a GET; one range is decoded
                                     while the next is fetched
    batches                          frames of one slice together, up to `batch_rows_max` rows

A frame that does not decompress or decode is fetched once more by itself; then it fails the read, with object, frame
and offsets named, or is skipped (`skip_corrupt_frames`). An object that is gone fails the read or is left out with a
warning (`fail_on_data_loss`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.remoting.record_heads import Mask, read_heads
from thermocline.remoting.string_hash import tags_code
from thermocline.spark.access.blocking_store import BlockingStore, blocking_store
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.decoding.arrow_decoder import ArrowDecoder
from thermocline.spark.decoding.message_columns import choose_columns
from thermocline.spark.reading.frame_buffer import FrameBuffer
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.source_options import ReadOptions
from thermocline.tiered.errors import SegmentFormatError
from thermocline.tiered.queue_columns import decode_columns_block, decode_columns_footer
from thermocline.tiered.segment_entry import PartLocator
from thermocline.tiered.segment_format import FrameInfo, LogFooter, decode_log_footer

logger = logging.getLogger(__name__)

FOOTERS_KEPT_MAX = 64
FOOTER_FETCHES_MAX = 16
BATCH_BYTES_MAX = 8 << 20
RANGES_AHEAD = 2
# Fetching this much that nobody asked for is cheaper than another request.
GAP_BYTES_MAX = 128 << 10
# Its consume queue entries carry the time of delivery where others carry the hash of the tag.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

Answer = TypeVar("Answer")
FooterName: TypeAlias = tuple[str, str, int, int]

_footers: OrderedDict[FooterName, LogFooter] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFrame:
    """A frame that may hold rows of a slice."""

    part: SegmentSlice
    info: FrameInfo

    @property
    def start(self) -> int:
        """Where it starts in its object."""
        return self.part.log.start + self.info.position

    @property
    def end(self) -> int:
        """Where it ends in its object."""
        return self.start + self.info.stored_bytes

    def names(self) -> dict[str, object]:
        """What an error says of it."""
        return part_names(self.part) | {
            "frame": self.info.index,
            "offsets": f"[{self.info.start_offset}, {self.info.end_offset})",
        }


class FrameReader:
    """Reads the slices of one task; `open_store` gives the store of a URL."""

    def __init__(
        self, options: ReadOptions, *, open_store: Callable[[str, StoreOptions], BlockingStore] = blocking_store
    ) -> None:
        self._options = options
        self._open_store = open_store
        self._columns = choose_columns(options.columns, include_properties=options.include_properties)
        self._decoders: dict[str, ArrowDecoder] = {}

    def read(self, slices: Sequence[SegmentSlice]) -> Iterator[pa.RecordBatch]:
        """Batches of the wanted rows, slice by slice, offsets rising within each.

        Raises:
            CorruptDataError: A frame is damaged.
            ObjectNotFoundError: An object of the plan is gone.
            UnavailableError: The store gave no answer, or refused.
        """
        buffer = FrameBuffer()
        frames: list[WantedFrame] = []
        rows = 0
        for frame, stored in self._fetch(self.wanted_frames(slices)):
            frame_rows = frame.info.end_offset - frame.info.start_offset
            is_full = rows + frame_rows > self._options.batch_rows_max
            is_full |= buffer.size_bytes + frame.info.raw_bytes > BATCH_BYTES_MAX
            if frames and (is_full or frames[0].part is not frame.part):
                yield from self._decode(frames, buffer)
                buffer.clear()
                frames, rows = [], 0
            if self._open_frame(buffer, frame, stored):
                frames.append(frame)
                rows += frame_rows
        if frames:
            yield from self._decode(frames, buffer)

    # -- which frames ----------------------------------------------------------------------------------------------

    def wanted_frames(self, slices: Sequence[SegmentSlice]) -> Iterator[WantedFrame]:
        """The frames that are fetched for these slices."""
        stores = {part.source.url: self._store(part) for part in slices}
        footers = _fetch_footers(stores, slices)
        for part in slices:
            footer = footers[_footer_name(part)]
            if isinstance(footer, ObjectNotFoundError):
                self._lose(part, footer)
                continue
            frames = list(_frames_of_slice(part, footer))
            if frames and part.selection.tags is not None and part.topic != SCHEDULE_TOPIC:
                try:
                    frames = self._frames_with_tags(part, frames)
                except ObjectNotFoundError as error:
                    self._lose(part, error)
                    continue
            for info in frames:
                yield WantedFrame(part=part, info=info)

    def _frames_with_tags(self, part: SegmentSlice, frames: Sequence[FrameInfo]) -> list[FrameInfo]:
        """The frames that hold a record with the code of a wanted tag."""
        assert part.selection.tags is not None
        store = self._store(part)
        start, end = frames[0].start_offset, frames[-1].end_offset
        tail = store.run(_get_footer(store, part.cq))
        blocks = decode_columns_footer(tail).blocks_of(part.queue_id, start_offset=start, end_offset=end)
        first = int(blocks[0]["position"])
        last = int(blocks[-1]["position"]) + int(blocks[-1]["stored_bytes"])
        stored = store.run(_get_part(store, part.cq, first, last))
        codes = [tags_code(tag) for tag in part.selection.tags]
        hits_before = [0]
        base = int(blocks[0]["start_offset"])
        for block in blocks:
            position = int(block["position"]) - first
            columns = decode_columns_block(stored[position : position + int(block["stored_bytes"])], block)
            wanted: Mask = np.isin(columns.tags_codes, codes)
            hits_before.extend((np.cumsum(wanted) + hits_before[-1]).tolist())
        return [info for info in frames if hits_before[info.end_offset - base] > hits_before[info.start_offset - base]]

    # -- their bytes -----------------------------------------------------------------------------------------------

    def _fetch(self, frames: Iterable[WantedFrame]) -> Iterator[tuple[WantedFrame, memoryview]]:
        """The stored bytes of each frame, ranges being fetched ahead of their use."""
        ranges = fetch_ranges(frames, fetch_bytes=self._options.fetch_bytes)
        ahead: deque[tuple[list[WantedFrame], Future[bytes]]] = deque()
        try:
            for group in ranges:
                store = self._store(group[0].part)
                call = store.store.get_range(group[0].part.log.key, start=group[0].start, end=group[-1].end)
                ahead.append((group, store.submit(call)))
                if len(ahead) >= RANGES_AHEAD:
                    yield from self._take(*ahead.popleft())
            while ahead:
                yield from self._take(*ahead.popleft())
        finally:
            for _, fetch in ahead:
                fetch.cancel()

    def _take(self, group: list[WantedFrame], fetch: Future[bytes]) -> Iterator[tuple[WantedFrame, memoryview]]:
        try:
            data = memoryview(fetch.result())
        except ObjectNotFoundError as error:
            self._lose(group[0].part, error)
            return
        except ObjectStoreUnavailableError as error:
            raise _with_names(error, group[0].part) from error
        start = group[0].start
        for frame in group:
            yield frame, data[frame.start - start : frame.end - start]

    def _lose(self, part: SegmentSlice, error: ObjectNotFoundError) -> None:
        """Go on without an object of the plan, or fail."""
        if self._options.fail_on_data_loss:
            raise ObjectNotFoundError(
                "an object that this read is planned on is gone: its messages have expired or were merged into "
                "another since; load again, or set failOnDataLoss=false to leave them out",
                **part_names(part),
                offsets=f"[{part.start_offset}, {part.end_offset})",
            ) from error
        logger.warning(
            "messages left out, their object is gone object=%s topic=%s queue_id=%d start_offset=%d end_offset=%d",
            *(part.log.key, part.topic, part.queue_id, part.start_offset, part.end_offset),
        )

    # -- their rows ------------------------------------------------------------------------------------------------

    def _open_frame(self, buffer: FrameBuffer, frame: WantedFrame, stored: memoryview) -> bool:
        """Decompress a frame into the buffer; False when it is damaged and to be skipped."""
        try:
            buffer.add(stored, raw_bytes=frame.info.raw_bytes)
            return True
        except CorruptDataError:
            # Once more: what a network or a proxy has damaged is whole the second time.
            store = self._store(frame.part)
            call = store.store.get_range(frame.part.log.key, start=frame.start, end=frame.end)
            try:
                buffer.add(store.run(call), raw_bytes=frame.info.raw_bytes)
                return True
            except CorruptDataError as error:
                self._refuse(frame, error)
                return False

    def _decode(self, frames: Sequence[WantedFrame], buffer: FrameBuffer) -> Iterator[pa.RecordBatch]:
        """Rows of frames of one slice; frame by frame when together they do not decode, to name or skip the bad one."""
        try:
            batches = [self._batch(frames, buffer.records)]
        except CorruptDataError:
            batches = []
            for index, frame in enumerate(frames):
                try:
                    batches.append(self._batch([frame], buffer.records_of(index)))
                except CorruptDataError as error:
                    self._refuse(frame, error)
        for batch in batches:
            for start in range(0, batch.num_rows, self._options.batch_rows_max):
                yield batch.slice(start, self._options.batch_rows_max)

    def _batch(self, frames: Sequence[WantedFrame], records: memoryview) -> pa.RecordBatch:
        """The wanted rows of frames whose records are those that the footer speaks of."""
        part = frames[0].part
        heads = read_heads(records)
        expected = np.concatenate([np.arange(frame.info.start_offset, frame.info.end_offset) for frame in frames])
        if not np.array_equal(heads.integers("queue_offset"), expected):
            raise CorruptDataError("the frame's records are not those of the footer", records=len(heads))
        return self._decoder(part.source.broker_name).decode_heads(heads, part.selection)

    def _refuse(self, frame: WantedFrame, error: CorruptDataError) -> None:
        """Go on without a damaged frame, or fail."""
        if not self._options.skip_corrupt_frames:
            raise CorruptDataError(
                "a frame of the cold tier is damaged; onCorruptFrame=skip leaves its messages out",
                **frame.names(),
                reason=str(error),
            ) from error
        logger.warning(
            "damaged frame skipped object=%s frame=%d topic=%s queue_id=%d start_offset=%d end_offset=%d reason=%s",
            *(frame.part.log.key, frame.info.index, frame.part.topic, frame.part.queue_id),
            *(frame.info.start_offset, frame.info.end_offset, error),
        )

    def _decoder(self, broker_name: str) -> ArrowDecoder:
        if broker_name not in self._decoders:
            self._decoders[broker_name] = ArrowDecoder(
                self._columns, broker_name=broker_name, decompress_body=self._options.decompress_body
            )
        return self._decoders[broker_name]

    def _store(self, part: SegmentSlice) -> BlockingStore:
        return self._open_store(part.source.url, self._options.store)


def fetch_ranges(frames: Iterable[WantedFrame], *, fetch_bytes: int) -> Iterator[list[WantedFrame]]:
    """Frames grouped into one GET each: they lie in one object, nearly end to end, in at most `fetch_bytes`."""
    group: list[WantedFrame] = []
    for frame in frames:
        if group:
            same_object = _place(frame.part) == _place(group[0].part)
            near = 0 <= frame.start - group[-1].end <= GAP_BYTES_MAX
            if not (same_object and near and frame.end - group[0].start <= fetch_bytes):
                yield group
                group = []
        group.append(frame)
    if group:
        yield group


def part_names(part: SegmentSlice) -> dict[str, object]:
    """What an error says of a slice."""
    return {
        "object": part.log.key,
        "topic": part.topic,
        "queue": f"{part.source.broker_name}:{part.queue_id}",
        "version": part.source.version,
    }


def _frames_of_slice(part: SegmentSlice, footer: LogFooter) -> Iterator[FrameInfo]:
    """The frames that the slice owns and whose store times may be wanted."""
    run = footer.run(part.queue_id)
    selection = part.selection
    for info in footer.frames_of(run, start_offset=part.start_offset, end_offset=part.end_offset):
        owned = part.start_offset <= max(info.start_offset, selection.start_offset) < part.end_offset
        if owned and info.min_store_ms < selection.end_ms and info.max_store_ms >= selection.start_ms:
            yield info


def _fetch_footers(
    stores: dict[str, BlockingStore], slices: Sequence[SegmentSlice]
) -> dict[FooterName, LogFooter | ObjectNotFoundError]:
    """The footer of every segment in `slices`, from what this process keeps or from the store."""
    parts = {_footer_name(part): part for part in slices}
    found: dict[FooterName, LogFooter | ObjectNotFoundError] = {
        name: _footers[name] for name in parts if name in _footers
    }
    missing = {name: part for name, part in parts.items() if name not in found}
    for url, store in stores.items():
        names = [name for name, part in missing.items() if part.source.url == url]
        calls = [_get_footer(store, missing[name].log) for name in names]
        try:
            tails = store.run(_gather(calls))
        except ObjectStoreUnavailableError as error:
            raise _with_names(error, missing[names[0]]) from error
        for name, tail in zip(names, tails, strict=True):
            if isinstance(tail, ObjectNotFoundError):
                found[name] = tail
                continue
            found[name] = _footers[name] = _decode_footer(missing[name], tail)
    while len(_footers) > FOOTERS_KEPT_MAX:
        _footers.popitem(last=False)
    return found


def _decode_footer(part: SegmentSlice, tail: bytes) -> LogFooter:
    try:
        footer = decode_log_footer(tail)
        if str(footer.segment_id) != part.segment_id:
            raise SegmentFormatError("another segment lies here", found=str(footer.segment_id))
    except CorruptDataError as error:
        raise CorruptDataError(
            "the footer of a cold segment is damaged", **part_names(part), reason=str(error)
        ) from error
    return footer


def _with_names(error: ObjectStoreUnavailableError, part: SegmentSlice) -> ObjectStoreUnavailableError:
    """The same error with what was being read."""
    offsets = f"[{part.start_offset}, {part.end_offset})"
    return type(error)(error.message, **(error.context | part_names(part) | {"offsets": offsets}))


async def _gather(calls: Sequence[Coroutine[Any, Any, Answer]]) -> list[Answer | ObjectNotFoundError]:
    """The answers of all calls, a bounded number at a time; what is not found is an answer too."""
    slots = asyncio.Semaphore(FOOTER_FETCHES_MAX)

    async def answer(call: Coroutine[Any, Any, Answer]) -> Answer | ObjectNotFoundError:
        async with slots:
            try:
                return await call
            except ObjectNotFoundError as error:
                return error

    return await asyncio.gather(*map(answer, calls))


def _get_footer(store: BlockingStore, locator: PartLocator) -> Coroutine[Any, Any, bytes]:
    return store.store.get_range(locator.key, start=locator.footer_start, end=locator.end)


def _get_part(store: BlockingStore, locator: PartLocator, start: int, end: int) -> Coroutine[Any, Any, bytes]:
    """Bytes of a part by positions within it."""
    return store.store.get_range(locator.key, start=locator.start + start, end=locator.start + end)


def _place(part: SegmentSlice) -> tuple[str, str]:
    return part.source.url, part.log.key


def _footer_name(part: SegmentSlice) -> FooterName:
    """Segments are immutable and their names never used twice, so place and checksum name a footer for ever."""
    return part.source.url, part.log.key, part.log.start, part.log.crc32
