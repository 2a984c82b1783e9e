"""SpooledObject: one object fetched once, front to back, to be read many times; everything else is its store's.

A pack holds thousands of small parts; looking at each of them in the bucket would be thousands of requests. The bytes
are in an unnamed file under `folder`, or in memory without one, and gone when it is closed.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from thermocline.remoting.errors import ObjectNotFoundError, SegmentSizeError
from thermocline.tiered.objects import ObjectInfo, ObjectStore, ObjectSuffix, SegmentOffset, Spool
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

FETCH_BYTES = 8 * 1024 * 1024


class SpooledObject(WrappingObjectStore):
    """Made by `fetch`. Reads of `key` are answered from the disk; closing it leaves the store open."""

    def __init__(self, inner: ObjectStore, key: str, spool: Spool, *, is_there: bool) -> None:
        super().__init__(inner)
        self.key = key
        self.is_there = is_there
        self.size_bytes = spool.size_bytes
        self.crc32 = spool.crc32
        self._spool = spool
        self._view = spool.finish() if spool.size_bytes else memoryview(b"")

    @classmethod
    async def fetch(cls, store: ObjectStore, key: str, *, folder: Path | None, found_at: str = "") -> SpooledObject:
        """Fetch the object `key`, whatever its size, or take the one at `found_at` for it.

        Nothing is there when there is no such object. ObjectStoreUnavailableError when the store gives no answer.
        """
        spool = Spool(folder)
        is_there = True
        try:
            size_bytes = (await store.head(found_at or key)).size_bytes
            while spool.size_bytes < size_bytes:
                start = SegmentOffset(spool.size_bytes)
                end = SegmentOffset(min(size_bytes, start + FETCH_BYTES))
                spool.write(await store.get_range(found_at or key, start=start, end=end))
        except (ObjectNotFoundError, SegmentSizeError):
            spool.close()
            spool, is_there = Spool(None), False  # it went, or changed, while it was read
        except BaseException:
            spool.close()
            raise
        return cls(store, key, spool, is_there=is_there)

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return bytes(self._read(0, self.size_bytes)) if key == self.key else await super().get(key)

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore."""
        return bytes(self._read(start, end)) if key == self.key else await super().get_range(key, start=start, end=end)

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        if key != self.key:
            return await super().get_suffix(key, size_bytes=size_bytes)
        start = max(0, self.size_bytes - size_bytes)
        return ObjectSuffix(data=bytes(self._read(start, self.size_bytes)), size_bytes=self.size_bytes)

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        if key != self.key:
            return await super().head(key)
        self._read(0, 0)
        return ObjectInfo(key=key, size_bytes=self.size_bytes, etag="", modified_ms=0)

    async def close(self) -> None:
        """Let go of the bytes; idempotent."""
        self._view.release()
        self._spool.close()

    async def __aenter__(self) -> SpooledObject:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _read(self, start: int, end: int) -> memoryview:
        if not self.is_there:
            raise ObjectNotFoundError("no such object", key=self.key)
        if end > self.size_bytes:
            raise SegmentSizeError(
                "the object ends before the range", key=self.key, end=end, size_bytes=self.size_bytes
            )
        return self._view[start:end]
