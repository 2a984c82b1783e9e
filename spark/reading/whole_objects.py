"""DecodeObjects: the part of `engine="s3a"` that runs in the Spark tasks. It decodes whole objects to message rows.

The JVM fetches the objects: a `binaryFile` row (path, content) is one object. `mapInArrow` calls DecodeObjects with
these rows. It reads the plan's slices of each object with FrameReader, as the data source does, but from memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from thermocline.remoting.errors import ObjectNotFoundError, SegmentSizeError, UnsupportedRequestError
from thermocline.spark.access.blocking_store import BlockingStore, loop_of_process
from thermocline.spark.metrics.sending import task_reported
from thermocline.spark.metrics.task_counts import TaskCounts
from thermocline.spark.plain_errors import plain_errors
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.reading.source_options import ReadOptions
from thermocline.tiered.objects import Data, ObjectInfo, ObjectSuffix, SegmentOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeObjects:
    """The function for `mapInArrow`, pickled into every task. `slices` maps an object's path to its slices."""

    options: ReadOptions
    slices: Mapping[str, tuple[SegmentSlice, ...]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the plan's rows in these objects. Raises the errors of FrameReader.read."""
        counts = TaskCounts()
        with plain_errors(), task_reported(self.options.metrics_address, lambda: counts, engine="s3a"):
            for batch in batches:
                for path, content in zip(batch.column(0), batch.column(1), strict=True):
                    yield from self._rows(path.as_py(), memoryview(content.as_buffer()), counts)

    def _rows(self, path: str, content: memoryview, counts: TaskCounts) -> Iterator[pa.RecordBatch]:
        slices = self.slices[path]
        store = BlockingStore(_OneObject(slices[0].log.key, content), loop_of_process())
        reader = FrameReader(self.options, open_store=lambda _url, _options: store, holds_objects=True)
        try:
            yield from reader.read(slices)
        finally:
            counts.add(reader.counts)
            counts.gets += 1
            counts.fetched_bytes += len(content)


class _OneObject:
    """A read-only store with one object, in memory."""

    __slots__ = ("_content", "_key")

    def __init__(self, key: str, content: memoryview) -> None:
        self._key = key
        self._content = content

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return bytes(self._content_of(key))

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore. Returns a view instead of bytes, to save a copy."""
        content = self._content_of(key)
        if end > len(content):
            raise SegmentSizeError("the object ends before the range", key=key, start=start, end=end)
        return content[start:end]  # type: ignore[return-value]

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        content = self._content_of(key)
        return ObjectSuffix(data=bytes(content[-size_bytes:]), size_bytes=len(content))

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        return ObjectInfo(key=key, size_bytes=len(self._content_of(key)), etag="", modified_ms=0)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        if self._key.startswith(prefix) and self._key > start_after:
            yield await self.head(self._key)

    async def put(self, key: str, data: Data) -> None:
        """Raise: the store is read-only."""
        self._refuse(key)

    async def create_if_absent(self, key: str, data: Data) -> None:
        """Raise: the store is read-only."""
        self._refuse(key)

    async def delete(self, key: str) -> None:
        """Raise: the store is read-only."""
        self._refuse(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        """Raise: the store is read-only."""
        self._refuse(" ".join(keys))

    async def remove_incomplete(self, prefix: str) -> int:
        """Raise: the store is read-only."""
        self._refuse(prefix)

    async def close(self) -> None:
        """Do nothing: the store has no connection."""

    def _content_of(self, key: str) -> memoryview:
        if key != self._key:
            raise ObjectNotFoundError("a task has only its objects with frames", key=key)
        return self._content

    def _refuse(self, key: str) -> NoReturn:
        raise UnsupportedRequestError("the objects of a task are read-only", key=key)
