"""FrameCache: frames of `.log` parts, shared by everybody who reads cold records in this process.

    missing -> under way (one request for adjacent frames) -> stored bytes -> decoded, at its first use

Rules
  - One frame is fetched once, however many wait for it. Fetches belong to the cache: a reader that is cancelled stops
    waiting, what it asked for still lands.
  - Bounded in bytes: what was used longest ago goes first. A frame read ahead is kept compressed until it is used.
  - Reading ahead is refused while `ahead_bytes_max` are under way: it is a guess, a demand is not.
  - A frame that does not decode is fetched once more before the error is raised.
Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Set

from thermocline.tiered.errors import FrameChecksumError
from thermocline.tiered.frame import DecodedFrame, decode_frame
from thermocline.tiered.segment_format import FrameInfo
from thermocline.tiered.segment_reader import SegmentReader, plan_fetches

FrameKey = tuple[str, int]
"""Object, and position of the frame in it."""

CACHE_BYTES = 256 * 1024 * 1024
FETCH_BYTES_MAX = 4 * 1024 * 1024
AHEAD_BYTES_MAX = 64 * 1024 * 1024
FORGOTTEN_MAX = 10_000
"""Objects that are remembered as forgotten: a read of them that is still under way is over long before so many are."""
_ENTRY_BYTES = 200


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
        self._ahead_bytes_max = ahead_bytes_max
        self._entries: OrderedDict[FrameKey, bytes | DecodedFrame] = OrderedDict()
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._under_way: dict[FrameKey, asyncio.Future[bytes]] = {}
        self._fetches: set[asyncio.Task[None]] = set()
        self._under_way_bytes = 0
        self.size_bytes = 0
        self.hit_count = 0
        self.miss_count = 0
        self.fetch_count = 0
        self.fetched_bytes = 0

    def is_ready(self, reader: SegmentReader, info: FrameInfo) -> bool:
        """Whether `get` would answer without waiting."""
        return _key(reader, info) in self._entries

    def is_coming(self, reader: SegmentReader, info: FrameInfo) -> bool:
        """Whether the frame is here or under way."""
        key = _key(reader, info)
        return key in self._entries or key in self._under_way

    async def get(self, reader: SegmentReader, info: FrameInfo, *, ahead: Iterable[FrameInfo] = ()) -> DecodedFrame:
        """The frame. If it must be fetched, adjacent frames of `ahead` come with it.

        Cancelling is safe. Raises what the store raises, and CorruptDataError leaves.
        """
        key = _key(reader, info)
        entry = self._entries.get(key)
        if isinstance(entry, DecodedFrame):
            self._entries.move_to_end(key)
            self.hit_count += 1
            return entry
        if entry is None:
            self.miss_count += 1
            stored = await self._wait(reader, info, ahead)
        else:
            self.hit_count += 1
            stored = entry
        try:
            frame = decode_frame(stored, info)
        except FrameChecksumError:
            self._drop(key)
            stored = await self._wait(reader, info, ())
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

    def read_ahead(self, reader: SegmentReader, infos: Iterable[FrameInfo]) -> None:
        """Begin to fetch those frames that are neither here nor under way; returns at once."""
        if self._under_way_bytes < self._ahead_bytes_max:
            self._fetch_missing(reader, infos)

    def forget(self, keys: Set[str]) -> None:
        """Let go of the frames of these objects, and keep none of them from now on: who waits for one gets it."""
        if keys:
            for key in [key for key in self._entries if key[0] in keys]:
                self._drop(key)
            self._forgotten.update(dict.fromkeys(sorted(keys)))
            while len(self._forgotten) > FORGOTTEN_MAX:
                self._forgotten.popitem(last=False)

    def bytes_of(self, keys: Set[str]) -> int:
        """How much is kept of these objects."""
        return sum(_size(entry) for key, entry in self._entries.items() if key[0] in keys)

    async def close(self) -> None:
        """Give up what is under way, and forget everything."""
        for task in self._fetches:
            task.cancel()
        await asyncio.gather(*self._fetches, return_exceptions=True)
        self._entries.clear()
        self.size_bytes = 0

    async def _wait(self, reader: SegmentReader, info: FrameInfo, ahead: Iterable[FrameInfo]) -> bytes:
        """The stored bytes of a frame that is not here."""
        key = _key(reader, info)
        if key not in self._under_way:
            self._fetch_missing(reader, (info, *ahead))
        # Shielded: several wait for one future, and one that is cancelled must not cancel it for the others.
        return await asyncio.shield(self._under_way[key])

    def _fetch_missing(self, reader: SegmentReader, infos: Iterable[FrameInfo]) -> None:
        missing = [
            info for info in infos if (key := _key(reader, info)) not in self._entries and key not in self._under_way
        ]
        missing.sort(key=lambda info: info.position)
        loop = asyncio.get_running_loop()
        for group in plan_fetches(missing, fetch_bytes_max=self._fetch_bytes_max):
            for info in group:
                self._under_way[_key(reader, info)] = loop.create_future()
                self._under_way_bytes += info.stored_bytes
            task = loop.create_task(self._fetch(reader, group))
            self._fetches.add(task)
            task.add_done_callback(self._fetches.discard)

    async def _fetch(self, reader: SegmentReader, group: list[FrameInfo]) -> None:
        """Fetch adjacent frames and hand them to whoever waits."""
        self.fetch_count += 1
        try:
            views = await reader.fetch(group)
        except BaseException as error:
            for info in group:
                future = self._land(reader, info)
                if isinstance(error, asyncio.CancelledError):
                    future.cancel()
                else:
                    future.set_exception(error)
                    future.exception()  # seen, even if nobody waits for what was read ahead
            if not isinstance(error, Exception):
                raise
            return
        for info, view in zip(group, views, strict=True):
            stored = bytes(view)
            self.fetched_bytes += len(stored)
            self._keep(_key(reader, info), stored)
            self._land(reader, info).set_result(stored)

    def _land(self, reader: SegmentReader, info: FrameInfo) -> asyncio.Future[bytes]:
        self._under_way_bytes -= info.stored_bytes
        return self._under_way.pop(_key(reader, info))

    def _keep(self, key: FrameKey, entry: bytes | DecodedFrame) -> None:
        self._drop(key)
        if key[0] in self._forgotten:
            return
        self._entries[key] = entry
        self.size_bytes += _size(entry)
        while self.size_bytes > self._bytes_max and self._entries:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: FrameKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= _size(entry)
        assert self.size_bytes >= 0


def _key(reader: SegmentReader, info: FrameInfo) -> FrameKey:
    part = reader.entry.log
    return part.key, part.start + info.position


def _size(entry: bytes | DecodedFrame) -> int:
    return _ENTRY_BYTES + (len(entry) if isinstance(entry, bytes) else entry.memory_bytes)
