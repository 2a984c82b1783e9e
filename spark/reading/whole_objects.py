"""DecodeObjects: the tasks' side of `engine="s3a"`: whole objects in, as the JVM fetched them, rows of slices out.

Runs in `mapInArrow` over `binaryFile` rows (path, content), one an object. The slices that the plan has in an object
are read by the same FrameReader as in the data source, over the bytes at hand.
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
    """The function of `mapInArrow`; pickled into every task. `slices`: those of each object, by its path."""

    options: ReadOptions
    slices: Mapping[str, tuple[SegmentSlice, ...]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of the wanted rows; raises as FrameReader.read does."""
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
    """A store that holds one object, and is only read."""

    __slots__ = ("_content", "_key")

    def __init__(self, key: str, content: memoryview) -> None:
        self._key = key
        self._content = content

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return bytes(self._held(key))

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore; a view instead of bytes, which saves a copy."""
        content = self._held(key)
        if end > len(content):
            raise SegmentSizeError("the object ends before the range", key=key, start=start, end=end)
        return content[start:end]  # type: ignore[return-value]

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        content = self._held(key)
        return ObjectSuffix(data=bytes(content[-size_bytes:]), size_bytes=len(content))

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        return ObjectInfo(key=key, size_bytes=len(self._held(key)), etag="", modified_ms=0)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        if self._key.startswith(prefix) and self._key > start_after:
            yield await self.head(self._key)

    async def put(self, key: str, data: Data) -> None:
        """Never."""
        self._refuse(key)

    async def create_if_absent(self, key: str, data: Data) -> None:
        """Never."""
        self._refuse(key)

    async def delete(self, key: str) -> None:
        """Never."""
        self._refuse(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        """Never."""
        self._refuse(" ".join(keys))

    async def remove_incomplete(self, prefix: str) -> int:
        """Never."""
        self._refuse(prefix)

    async def close(self) -> None:
        """Nothing is open."""

    def _held(self, key: str) -> memoryview:
        if key != self._key:
            raise ObjectNotFoundError("only the objects with frames are at hand", key=key)
        return self._content

    def _refuse(self, key: str) -> NoReturn:
        raise UnsupportedRequestError("an object at hand is only read", key=key)
