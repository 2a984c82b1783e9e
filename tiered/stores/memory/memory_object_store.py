"""MemoryObjectStore: a dictionary with the promises of `object_store.py`.

Every call yields to the loop once before it acts and acts in one step after, so racing tasks interleave as requests do.
Stores opened by one name share their objects for the life of the process, as two clients of one bucket would.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterable

import msgspec

from thermocline.remoting.errors import ObjectNotFoundError, SegmentSizeError
from thermocline.tiered.objects import AlreadyExistsError, Data, ObjectInfo, ObjectSuffix, SegmentOffset, check_key

LIST_PAGE_COUNT = 1000


class _Stored(msgspec.Struct, frozen=True):
    data: bytes
    etag: str
    modified_ms: int


_named: dict[str, dict[str, _Stored]] = {}


class MemoryObjectStore:
    """Belongs to one event loop. `modified_ms` counts writes, so that it rises without a clock."""

    def __init__(self, name: str | None = None) -> None:
        self._objects: dict[str, _Stored] = {} if name is None else _named.setdefault(name, {})
        self._writes_count = 0

    @property
    def objects(self) -> dict[str, bytes]:
        """A copy of everything stored, by key in order."""
        return {key: self._objects[key].data for key in sorted(self._objects)}

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        await asyncio.sleep(0)
        return self._stored(key).data

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore."""
        assert 0 <= start < end
        await asyncio.sleep(0)
        data = self._stored(key).data
        if end > len(data):
            raise SegmentSizeError("the object ends before the range", key=key, end=end, size_bytes=len(data))
        return data[start:end]

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        assert size_bytes > 0
        await asyncio.sleep(0)
        data = self._stored(key).data
        return ObjectSuffix(data=data[-size_bytes:], size_bytes=len(data))

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        await asyncio.sleep(0)
        return self._info(key, self._stored(key))

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        check_key(key)
        await asyncio.sleep(0)
        self._store(key, data)

    async def create_if_absent(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        check_key(key)
        await asyncio.sleep(0)
        if key in self._objects:
            raise AlreadyExistsError(key=key)
        self._store(key, data)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        last = start_after
        while True:
            await asyncio.sleep(0)
            keys = sorted((key for key in self._objects if key.startswith(prefix)), key=str.encode)
            page = [key for key in keys if key.encode() > last.encode()][:LIST_PAGE_COUNT]
            for info in [self._info(key, self._objects[key]) for key in page]:
                yield info
            if len(page) < LIST_PAGE_COUNT:
                return
            last = page[-1]

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        await asyncio.sleep(0)
        self._objects.pop(key, None)

    async def delete_many(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        for key in keys:
            await self.delete(key)

    async def remove_incomplete(self, prefix: str) -> int:
        """See ObjectStore; nothing is ever incomplete here."""
        await asyncio.sleep(0)
        return 0

    async def close(self) -> None:
        """See ObjectStore."""

    def _stored(self, key: str) -> _Stored:
        stored = self._objects.get(key)
        if stored is None:
            raise ObjectNotFoundError("there is no such object", key=key)
        return stored

    def _store(self, key: str, data: Data) -> None:
        self._writes_count += 1
        content = bytes(data)
        self._objects[key] = _Stored(content, f"{zlib.crc32(content):08x}-{len(content)}", self._writes_count)

    @staticmethod
    def _info(key: str, stored: _Stored) -> ObjectInfo:
        return ObjectInfo(key=key, size_bytes=len(stored.data), etag=stored.etag, modified_ms=stored.modified_ms)
