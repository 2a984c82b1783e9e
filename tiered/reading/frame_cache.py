"""FrameCache: frames of `.log` parts, shared by all readers of cold records in this process.

    missing -> under way (one request for adjacent frames) -> stored bytes -> decoded, at its first use

Rules
  - A frame is fetched once, however many calls wait for it. Fetches belong to the cache: a cancelled call stops
    waiting, but its fetch completes. When a reader is gone (`reader_left`), frames fetched for it alone are dropped at
    once, whether under way or stored unused.
  - Bounded in bytes: the least recently used frame is dropped first. A frame read ahead is kept compressed until its
    first use. The newest frame is kept, however small the cache is: its reader needs its other records next.
  - Reading ahead is refused while `ahead_bytes_max` are under way or stored unused: it is speculative, a demand is not.
  - A frame that does not decode is fetched once more before the error is raised.
  - A cache of a few frames holds only frames in use: no frames are read ahead into it.
Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import partial

import msgspec

from thermocline.tiered.objects import FrameChecksumError
from thermocline.tiered.segments import DecodedFrame, FrameInfo, SegmentReader, decode_frame, plan_fetches

FrameKey = tuple[str, int]
"""Object, and position of the frame in it."""

CACHE_BYTES = 144 * 1024 * 1024
FETCH_BYTES_MAX = 4 * 1024 * 1024
AHEAD_BYTES_MAX = 64 * 1024 * 1024
FORGOTTEN_MAX = 10_000
"""How many forgotten objects are remembered: reads of an object end long before so many others are forgotten."""
AHEAD_CACHE_SHARE = 2
"""Frames read ahead and not used yet take at most one such part of the cache."""
AHEAD_CACHE_FRAMES_MIN = 8
_ENTRY_BYTES = 200


class _Fetch(msgspec.Struct, eq=False):
    """One request under way. `owners`: its readers; "" stands for no particular reader. `keys`: its frames."""

    owners: set[str]
    keys: list[FrameKey]
    task: asyncio.Task[None] | None = None


class _Coming(msgspec.Struct, frozen=True):
    """A frame of a fetch."""

    stored: asyncio.Future[bytes]
    stored_bytes: int
    fetch: _Fetch


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored frame that was not used yet, and its readers."""

    data: bytes
    owners: set[str] = field(default_factory=set)


class FrameCache:
    """See the module's header. `hit_count` and `miss_count` count demands, `fetch_count` requests."""

    def __init__(
        self,
        *,
        bytes_max: int = CACHE_BYTES,
        fetch_bytes_max: int = FETCH_BYTES_MAX,
        ahead_bytes_max: int = AHEAD_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._fetch_bytes_max = fetch_bytes_max
        self._ahead_bytes_max = min(ahead_bytes_max, bytes_max // AHEAD_CACHE_SHARE)
        self._entries: OrderedDict[FrameKey, _Stored | DecodedFrame] = OrderedDict()
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._under_way: dict[FrameKey, _Coming] = {}
        self._fetches: set[_Fetch] = set()
        self._under_way_bytes = 0
        self._unused_bytes = 0
        self.size_bytes = 0
        self.hit_count = 0
        self.miss_count = 0
        self.fetch_count = 0
        self.fetched_bytes = 0

    def is_ready(self, reader: SegmentReader, info: FrameInfo) -> bool:
        """Whether `get` would answer without waiting."""
        return _key(reader, info) in self._entries

    def is_coming(self, reader: SegmentReader, info: FrameInfo) -> bool:
        """Whether the frame is cached or under way."""
        key = _key(reader, info)
        return key in self._entries or key in self._under_way

    @property
    def bytes_max(self) -> int:
        """The most decompressed bytes kept."""
        return self._bytes_max

    async def get(
        self, reader: SegmentReader, info: FrameInfo, *, ahead: Iterable[FrameInfo] = (), owner: str = ""
    ) -> DecodedFrame:
        """Return the frame. If it must be fetched, adjacent frames of `ahead` come with it. `owner`: the reader.

        Cancelling is safe. Raises the store's errors and CorruptDataError.
        """
        key = _key(reader, info)
        entry = self._entries.get(key)
        if isinstance(entry, DecodedFrame):
            self._entries.move_to_end(key)
            self.hit_count += 1
            return entry
        if entry is None:
            self.miss_count += 1
            stored = await self._wait(reader, info, ahead, owner)
        else:
            self.hit_count += 1
            stored = entry.data
        try:
            frame = decode_frame(stored, info)
        except FrameChecksumError:
            self._drop(key)
            stored = await self._wait(reader, info, (), owner)
            try:
                frame = decode_frame(stored, info)
            except FrameChecksumError as error:
                self._drop(key)
                raise FrameChecksumError(
                    error.message,
                    key=reader.entry.log.key,
                    frame=info.index,
                    offsets=f"[{info.start_offset}, {info.end_offset})",
                ) from error
        self._keep(key, frame)
        return frame

    def read_ahead(self, reader: SegmentReader, infos: Iterable[FrameInfo], *, owner: str = "") -> None:
        """Start fetching the frames that are neither cached nor under way; returns at once."""
        wanted = list(infos)
        if wanted and self._has_room_ahead(wanted[0]):
            self._fetch_missing(reader, wanted, owner)

    def reader_left(self, owner: str) -> None:
        """The reader is gone: drop frames that are stored or under way for it alone."""
        for fetch in list(self._fetches):
            fetch.owners.discard(owner)
            if not fetch.owners and fetch.task is not None:
                fetch.task.cancel()
                self._give_up(fetch, None)  # now: later calls must not wait for a fetch that ends
        for key, entry in list(self._entries.items()):
            if isinstance(entry, _Stored) and owner in entry.owners:
                entry.owners.discard(owner)
                if not entry.owners:
                    self._drop(key)

    def forget(self, keys: Set[str]) -> None:
        """Drop the frames of these objects, and cache none of them from now on; waiting calls still get theirs."""
        if keys:
            for key in [key for key in self._entries if key[0] in keys]:
                self._drop(key)
            self._forgotten.update(dict.fromkeys(sorted(keys)))
            while len(self._forgotten) > FORGOTTEN_MAX:
                self._forgotten.popitem(last=False)

    def bytes_of(self, keys: Set[str]) -> int:
        """The cached bytes of these objects."""
        return sum(_size(entry) for key, entry in self._entries.items() if key[0] in keys)

    async def close(self) -> None:
        """Cancel all fetches, and drop all frames."""
        tasks = [fetch.task for fetch in self._fetches if fetch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()
        self.size_bytes = self._unused_bytes = 0

    def _has_room_ahead(self, info: FrameInfo) -> bool:
        if self._bytes_max < AHEAD_CACHE_FRAMES_MIN * info.raw_bytes:
            return False
        return self._under_way_bytes + self._unused_bytes < self._ahead_bytes_max

    async def _wait(self, reader: SegmentReader, info: FrameInfo, ahead: Iterable[FrameInfo], owner: str) -> bytes:
        """The stored bytes of a frame that is not cached."""
        key = _key(reader, info)
        coming = self._under_way.get(key)
        if coming is None:
            self._fetch_missing(reader, (info, *(ahead if self._has_room_ahead(info) else ())), owner)
            coming = self._under_way[key]
        coming.fetch.owners.add(owner)
        # Shielded: several wait for one future, and one that is cancelled must not cancel it for the others.
        return await asyncio.shield(coming.stored)

    def _fetch_missing(self, reader: SegmentReader, infos: Iterable[FrameInfo], owner: str) -> None:
        missing = [
            info for info in infos if (key := _key(reader, info)) not in self._entries and key not in self._under_way
        ]
        missing.sort(key=lambda info: info.position)
        loop = asyncio.get_running_loop()
        for group in plan_fetches(missing, fetch_bytes_max=self._fetch_bytes_max):
            fetch = _Fetch({owner}, [_key(reader, info) for info in group])
            for key, info in zip(fetch.keys, group, strict=True):
                self._under_way[key] = _Coming(loop.create_future(), info.stored_bytes, fetch)
                self._under_way_bytes += info.stored_bytes
            self._fetches.add(fetch)
            fetch.task = loop.create_task(self._fetch(reader, group, fetch))
            fetch.task.add_done_callback(partial(self._ended, fetch))

    async def _fetch(self, reader: SegmentReader, group: list[FrameInfo], fetch: _Fetch) -> None:
        """Fetch adjacent frames and hand them to the waiting calls."""
        self.fetch_count += 1
        views = await reader.fetch(group)
        for key, view in zip(fetch.keys, views, strict=True):
            stored = bytes(view)
            self.fetched_bytes += len(stored)
            self._keep(key, _Stored(stored, set(fetch.owners)))
            self._land(key).stored.set_result(stored)

    def _ended(self, fetch: _Fetch, task: asyncio.Task[None]) -> None:
        """A fetch is over; it may have been cancelled before it began."""
        self._fetches.discard(fetch)
        self._give_up(fetch, None if task.cancelled() else task.exception())

    def _give_up(self, fetch: _Fetch, error: BaseException | None) -> None:
        """Fail the calls that wait for frames that the fetch did not return."""
        for key in fetch.keys:
            coming = self._under_way.get(key)
            if coming is None or coming.fetch is not fetch:
                continue
            stored = self._land(key).stored
            if error is None:
                stored.cancel()
            else:
                stored.set_exception(error)
                stored.exception()  # retrieved, even if no call waits for a frame read ahead

    def _land(self, key: FrameKey) -> _Coming:
        coming = self._under_way.pop(key)
        self._under_way_bytes -= coming.stored_bytes
        return coming

    def _keep(self, key: FrameKey, entry: _Stored | DecodedFrame) -> None:
        self._drop(key)
        if key[0] in self._forgotten:
            return
        self._entries[key] = entry
        self.size_bytes += _size(entry)
        if isinstance(entry, _Stored):
            self._unused_bytes += len(entry.data)
        while self.size_bytes > self._bytes_max and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: FrameKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= _size(entry)
            if isinstance(entry, _Stored):
                self._unused_bytes -= len(entry.data)
        assert self.size_bytes >= 0
        assert self._unused_bytes >= 0


def _key(reader: SegmentReader, info: FrameInfo) -> FrameKey:
    part = reader.entry.log
    return part.key, part.start + info.position


def _size(entry: _Stored | DecodedFrame) -> int:
    return _ENTRY_BYTES + (len(entry.data) if isinstance(entry, _Stored) else entry.memory_bytes)
