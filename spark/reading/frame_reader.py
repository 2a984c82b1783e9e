"""FrameReader: the tasks' side of a read; fetches the frames of some slices and gives Arrow batches of their rows.

    frames     those that may hold a wanted row (`frame_choice.py`)
    ranges     wanted frames that lie together, up to `fetch_bytes` a GET; one range is decoded while the next is
               fetched
    batches    frames of one slice together, up to `batch_rows_max` rows

A frame that does not decompress or decode is fetched once more by itself; then it fails the read, with object, frame
and offsets named, or is skipped. Where a body does not decompress, its message alone fails the read or is skipped.
`losses.py` handles what is skipped, and missing objects. Frames and messages that are fetched, decoded, returned and
left out are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np
import pyarrow as pa

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.remoting.records.record_heads import RecordHeads, read_heads
from thermocline.spark.access.blocking_store import BlockingStore, blocking_store
from thermocline.spark.access.counted_store import CountedStore
from thermocline.spark.access.request_counts import RequestCounts
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.decoding.arrow_decoder import ArrowDecoder, BadBodyError, BodiesTooLargeError
from thermocline.spark.decoding.message_columns import choose_columns
from thermocline.spark.metrics.task_counts import TaskCounts
from thermocline.spark.reading.frame_buffer import FrameBuffer
from thermocline.spark.reading.frame_choice import FrameChoice
from thermocline.spark.reading.losses import Losses
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.source_options import ReadOptions
from thermocline.spark.reading.wanted_frame import WantedFrame, narrowed_to, with_names

BATCH_BYTES_MAX = 8 << 20
RANGES_AHEAD = 2
# Fetching this much between two wanted frames is cheaper than another request.
GAP_BYTES_MAX = 128 << 10


class FrameReader:
    """Reads the slices of one task; `open_store` gives the store of a URL.

    `holds_objects`: the caller holds the objects with frames, and no others; nothing is fetched or counted as fetched.
    """

    def __init__(
        self,
        options: ReadOptions,
        *,
        open_store: Callable[[str, StoreOptions], BlockingStore] = blocking_store,
        holds_objects: bool = False,
    ) -> None:
        self._options = options
        self._open_store = open_store
        self._requests = None if holds_objects else RequestCounts()
        self._counts = TaskCounts()
        self._stores: dict[str, BlockingStore] = {}
        self._losses = Losses(options, counts=self._counts, store_of=self._store)
        self._choice = FrameChoice(
            self._store, losses=self._losses, counts=self._counts, reads_tags_codes=not holds_objects
        )
        self._columns = choose_columns(options.columns, include_properties=options.include_properties)
        self._decoders: dict[str, ArrowDecoder] = {}

    @property
    def counts(self) -> TaskCounts:
        """What this reader has done so far."""
        if self._requests is not None:
            self._counts.gets = self._requests.gets
            self._counts.retries = self._requests.retries
            self._counts.fetched_bytes = self._requests.fetched_bytes
        return self._counts

    def wanted_frames(self, slices: Sequence[SegmentSlice]) -> Iterator[WantedFrame]:
        """The frames that are fetched for these slices."""
        return self._choice.frames(slices)

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

    # -- their bytes -----------------------------------------------------------------------------------------------

    def _fetch(self, frames: Iterable[WantedFrame]) -> Iterator[tuple[WantedFrame, memoryview]]:
        """The stored bytes of each frame, ranges being fetched ahead of their use."""
        ranges = fetch_ranges(frames, fetch_bytes=self._options.fetch_bytes)
        ahead: deque[tuple[list[WantedFrame], Future[bytes]]] = deque()
        try:
            for group in ranges:
                ahead.append((group, self._submit(group)))
                if len(ahead) >= RANGES_AHEAD:
                    yield from self._fetched_frames(*ahead.popleft())
            while ahead:
                yield from self._fetched_frames(*ahead.popleft())
        finally:
            for _, fetch in ahead:
                fetch.cancel()

    def _fetched_frames(
        self, group: list[WantedFrame], fetch: Future[bytes]
    ) -> Iterator[tuple[WantedFrame, memoryview]]:
        try:
            data = memoryview(fetch.result())
        except ObjectNotFoundError as error:
            self._lose(group, error)
            return
        except CorruptDataError as error:
            yield from self._take_singly(group, error)
            return
        except ObjectStoreUnavailableError as error:
            raise with_names(error, *narrowed_to(group)) from error
        start = group[0].start
        for frame in group:
            yield frame, data[frame.start - start : frame.end - start]

    def _take_singly(
        self, group: list[WantedFrame], error: CorruptDataError
    ) -> Iterator[tuple[WantedFrame, memoryview]]:
        """The frames of a range that ends behind its object: those that the object holds."""
        for frame in group:
            if len(group) > 1:
                yield from self._fetched_frames([frame], self._submit([frame]))
            else:
                self._losses.frame_damaged(frame, error)

    def _lose(self, group: Sequence[WantedFrame], error: ObjectNotFoundError) -> None:
        """Report a range whose object is gone: each slice loses its frames in the range."""
        for part in narrowed_to(group):
            self._losses.object_gone(part, error)

    def _submit(self, group: Sequence[WantedFrame]) -> Future[bytes]:
        """Begin to fetch the range of these frames."""
        store, key = self._store(group[0].part), group[0].part.log.key
        return store.submit(store.store.get_range(key, start=group[0].start, end=group[-1].end))

    # -- their rows ------------------------------------------------------------------------------------------------

    def _open_frame(self, buffer: FrameBuffer, frame: WantedFrame, stored: memoryview) -> bool:
        """Decompress a frame into the buffer; False when it is damaged and to be skipped."""
        try:
            buffer.add(stored, raw_bytes=frame.info.raw_bytes)
            return True
        except CorruptDataError:
            # A second GET: bytes that a network or a proxy has damaged may be whole then.
            try:
                buffer.add(self._submit([frame]).result(), raw_bytes=frame.info.raw_bytes)
                return True
            except CorruptDataError as error:
                self._losses.frame_damaged(frame, error)
            except ObjectNotFoundError as error:
                self._lose([frame], error)
            except ObjectStoreUnavailableError as error:
                raise with_names(error, *narrowed_to([frame])) from error
            return False

    def _decode(self, frames: Sequence[WantedFrame], buffer: FrameBuffer) -> Iterator[pa.RecordBatch]:
        """Rows of frames of one slice; frame by frame when together they do not decode, or are too large."""
        batches: Iterable[pa.RecordBatch]
        try:
            batches = [self._batch(frames, buffer.records)]
        except (CorruptDataError, BodiesTooLargeError):
            batches = self._decode_singly(frames, buffer)
        for batch in batches:
            self._counts.rows += batch.num_rows
            for start in range(0, batch.num_rows, self._options.batch_rows_max):
                yield batch.slice(start, self._options.batch_rows_max)

    def _decode_singly(self, frames: Sequence[WantedFrame], buffer: FrameBuffer) -> Iterator[pa.RecordBatch]:
        """The same frame by frame, to name or skip the damaged one, or single messages; bodies that are too large in
        several batches."""
        for index, frame in enumerate(frames):
            records = buffer.records_of(index)
            try:
                decoder = self._decoder(frame.part.source.broker_name)
                on_bad_body = partial(self._losses.body_damaged, frame)
                yield from decoder.decode_parts(_heads([frame], records), frame.part.selection, on_bad_body=on_bad_body)
            except BadBodyError:
                raise
            except CorruptDataError as error:
                self._losses.frame_damaged(frame, error)
            else:
                self._count([frame], records)

    def _batch(self, frames: Sequence[WantedFrame], records: memoryview) -> pa.RecordBatch:
        """The wanted rows of frames; CorruptDataError if their records are not those of the footer."""
        part = frames[0].part
        batch = self._decoder(part.source.broker_name).decode_heads(_heads(frames, records), part.selection)
        self._count(frames, records)
        return batch

    def _count(self, frames: Sequence[WantedFrame], records: memoryview) -> None:
        self._counts.frames_read += len(frames)
        self._counts.decoded_bytes += len(records)

    def _decoder(self, broker_name: str) -> ArrowDecoder:
        if broker_name not in self._decoders:
            self._decoders[broker_name] = ArrowDecoder(
                self._columns, broker_name=broker_name, decompress_body=self._options.decompress_body
            )
        return self._decoders[broker_name]

    def _store(self, part: SegmentSlice) -> BlockingStore:
        url = part.source.url
        if url not in self._stores:
            store = self._open_store(url, self._options.store)
            self._stores[url] = store if self._requests is None else CountedStore(store, self._requests)
        return self._stores[url]


def _heads(frames: Sequence[WantedFrame], records: memoryview) -> RecordHeads:
    """The heads of the records of frames; CorruptDataError if they are not those of the footer."""
    heads = read_heads(records)
    expected = np.concatenate([np.arange(frame.info.start_offset, frame.info.end_offset) for frame in frames])
    if not np.array_equal(heads.integers("queue_offset"), expected):
        raise CorruptDataError("the frame's records are not those of the footer", records=len(heads))
    return heads


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


def _place(part: SegmentSlice) -> tuple[str, str]:
    return part.source.url, part.log.key
