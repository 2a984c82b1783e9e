"""ObjectStore: the cold tier's interface to S3, a directory, or memory.

Providers are `memory/`, `file/` and `s3/`; `wrappers/` holds retrying, metering, throttling and fault injection, each
of the same shape, stacked where the program is assembled (`object_store_url.py`). One contract suite runs on them all.

Promises that the ledger is built on
  - create_if_absent: of any number of racing writers exactly one succeeds, and its bytes are what is stored.
  - An object that was written is found by the next get, range, suffix and head (read after write). Listings may lag.
  - An object appears whole or not at all, and is durable when the call returns.
  - deletes are done when the call returns; deleting what is not there succeeds.

Rules
  - A key is UTF-8, at most 1024 bytes, its components separated by one slash each; none is empty, `.` or `..`. No key
    is a folder of another key: some stores are directories underneath. `start_after` is right for ASCII keys only.
  - Any call may be cancelled; a write may then have happened or not.
  - UnavailableError means that the outcome of the call is unknown. The same call may be repeated, except that a
    repeated create_if_absent may meet its own first attempt (AlreadyExistsError): a caller that must tell the two apart
    reads the object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol, TypeAlias

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.objects.errors import AlreadyExistsError, ObjectStoreRefusedError
from thermocline.tiered.objects.segment_offset import SegmentOffset

__all__ = [
    "AlreadyExistsError",
    "Data",
    "ObjectInfo",
    "ObjectStore",
    "ObjectStoreRefusedError",
    "ObjectSuffix",
    "check_key",
]

KEY_BYTES_MAX = 1024

Data: TypeAlias = bytes | bytearray | memoryview


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing or a head request tells. `modified_ms` and `etag` are for people; nothing decides by them."""

    key: str
    size_bytes: int
    etag: str
    modified_ms: int


class ObjectSuffix(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an object: `data` is its last bytes, `size_bytes` the size of the whole object."""

    data: bytes
    size_bytes: int

    @property
    def start(self) -> SegmentOffset:
        """Position of `data` in the object."""
        return SegmentOffset(self.size_bytes - len(self.data))


class ObjectStore(Protocol):
    """See the module's header for the promises. Each method may raise ObjectStoreUnavailableError."""

    async def get(self, key: str) -> bytes:
        """Return the whole object. ObjectNotFoundError when there is none."""

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """Return bytes [start, end) of the object, all of them; the range is not empty.

        Raises:
            ObjectNotFoundError: There is no such object.
            SegmentSizeError: The object ends before `end`.
        """

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """Return the last `size_bytes` of the object, or all of a smaller one. ObjectNotFoundError as for get."""

    async def head(self, key: str) -> ObjectInfo:
        """Return the object's size without its content. ObjectNotFoundError when there is none."""

    async def put(self, key: str, data: Data) -> None:
        """Store the object, replacing any of that name; durable on return."""

    async def create_if_absent(self, key: str, data: Data) -> None:
        """Store the object if there is none of that name; durable on return. AlreadyExistsError when there is one."""

    def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Give the objects whose keys start with `prefix` and come after `start_after`, in the keys' UTF-8 order."""

    async def delete(self, key: str) -> None:
        """Remove the object; done on return. Nothing happens when there is none."""

    async def delete_many(self, keys: Iterable[str]) -> None:
        """Remove objects, in any order; when it raises, some may be gone and some not."""

    async def remove_incomplete(self, prefix: str) -> int:
        """Remove what unfinished uploads under `prefix` have left; returns how many.

        Only for the one writer of `prefix`, and while it has no upload under way there.
        """

    async def close(self) -> None:
        """Release connections; idempotent. No call may be under way."""


def check_key(key: str) -> None:
    """InvalidRequestError when `key` breaks the rules of the module's header."""
    if not key or len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX or "\0" in key:
        raise InvalidRequestError("an object key is 1 to 1024 bytes", key=key)
    if any(component in ("", ".", "..") for component in key.split("/")):
        raise InvalidRequestError("an object key has an empty or relative component", key=key)
