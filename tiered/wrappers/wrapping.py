"""The shape that all wrappers share: every verb of the inner store passes through one method, `_around`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from enum import StrEnum
from typing import TypeVar

import msgspec

from thermocline.tiered.objects import Data, ObjectInfo, ObjectStore, ObjectSuffix, SegmentOffset

Result = TypeVar("Result")


class Verb(StrEnum):
    """The verbs of ObjectStore."""

    GET = "get"
    GET_RANGE = "get_range"
    GET_SUFFIX = "get_suffix"
    HEAD = "head"
    PUT = "put"
    CREATE_IF_ABSENT = "create_if_absent"
    LIST = "list"
    DELETE = "delete"
    DELETE_MANY = "delete_many"
    REMOVE_INCOMPLETE = "remove_incomplete"


class StoreCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call: it sends `sent_bytes`, and requests `wanted_bytes`, as far as the request shows."""

    verb: Verb
    key: str
    sent_bytes: int = 0
    wanted_bytes: int = 0


class WrappingObjectStore:
    """Forwards everything. A wrapper overrides `_around`, which each call but `list` passes through, and `list`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Carry out `call`; each `attempt()` is one call of the inner store."""
        return await attempt()

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return await self._around(StoreCall(verb=Verb.GET, key=key), lambda: self._inner.get(key))

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore."""
        call = StoreCall(verb=Verb.GET_RANGE, key=key, wanted_bytes=end - start)
        return await self._around(call, lambda: self._inner.get_range(key, start=start, end=end))

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        call = StoreCall(verb=Verb.GET_SUFFIX, key=key, wanted_bytes=size_bytes)
        return await self._around(call, lambda: self._inner.get_suffix(key, size_bytes=size_bytes))

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        return await self._around(StoreCall(verb=Verb.HEAD, key=key), lambda: self._inner.head(key))

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        call = StoreCall(verb=Verb.PUT, key=key, sent_bytes=len(data))
        await self._around(call, lambda: self._inner.put(key, data))

    async def create_if_absent(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        call = StoreCall(verb=Verb.CREATE_IF_ABSENT, key=key, sent_bytes=len(data))
        await self._around(call, lambda: self._inner.create_if_absent(key, data))

    def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        return self._inner.list(prefix, start_after=start_after)

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        await self._around(StoreCall(verb=Verb.DELETE, key=key), lambda: self._inner.delete(key))

    async def delete_many(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        all_keys = tuple(keys)
        if all_keys:
            call = StoreCall(verb=Verb.DELETE_MANY, key=all_keys[0])
            await self._around(call, lambda: self._inner.delete_many(all_keys))

    async def remove_incomplete(self, prefix: str) -> int:
        """See ObjectStore."""
        call = StoreCall(verb=Verb.REMOVE_INCOMPLETE, key=prefix)
        return await self._around(call, lambda: self._inner.remove_incomplete(prefix))

    async def close(self) -> None:
        """See ObjectStore."""
        await self._inner.close()
