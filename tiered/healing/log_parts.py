"""Finds the `.log` parts in an object without their positions: in a pack whose footer is lost.

A part ends in a trailer, which is found by its magic and has the part's length; the part's own footer names its
segment. Bounded: one fetch of `FETCH_BYTES` and one footer in memory, some 100 bytes a part afterwards.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.tiered.objects import FormatTooNewError, ObjectStore, SegmentOffset
from thermocline.tiered.segments import LOG_MAGIC, MAGIC_BYTES, TRAILER, LogFooter, decode_log_footer, decode_trailer

FETCH_BYTES = 8 * 1024 * 1024
_MAGIC = re.compile(re.escape(LOG_MAGIC))


class LogPart(msgspec.Struct, frozen=True):
    """A `.log` part: bytes [start, end) of an object; its footer and trailer are its last `tail_bytes`."""

    topic: str
    incarnation: int
    start: SegmentOffset
    end: SegmentOffset
    tail_bytes: int


class LogParts:
    """Each object is searched once; later calls use the result."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._found: dict[str, list[LogPart]] = {}

    async def of(self, key: str, *, size_bytes: int) -> list[LogPart]:
        """The parts found in the first `size_bytes` of an object."""
        if key not in self._found:
            self._found[key] = [part async for part in self._search(key, size_bytes)]
        return self._found[key]

    async def footer(self, key: str, part: LogPart) -> LogFooter:
        """A part's footer. Raises the store's errors and CorruptDataError."""
        return decode_log_footer(await self._store.get_range(key, start=part.end - part.tail_bytes, end=part.end))

    async def _search(self, key: str, size_bytes: int) -> AsyncIterator[LogPart]:
        try:
            for start in map(SegmentOffset, range(0, size_bytes, FETCH_BYTES)):
                end = SegmentOffset(min(size_bytes, start + FETCH_BYTES + MAGIC_BYTES - 1))
                data = await self._store.get_range(key, start=start, end=end)
                for match in _MAGIC.finditer(data):
                    part = await self._part_ending_at(key, start + match.end())
                    if part is not None:
                        yield part
        except FormatTooNewError:
            raise
        except (ObjectNotFoundError, CorruptDataError):
            return

    async def _part_ending_at(self, key: str, end: SegmentOffset) -> LogPart | None:
        """The part whose trailer ends there; None if the magic is at a part's front, or chance, or damaged."""
        if end < TRAILER.size:
            return None
        try:
            trailer = decode_trailer(
                await self._store.get_range(key, start=end - TRAILER.size, end=end), magic=LOG_MAGIC
            )
            if trailer.part_bytes > end:
                return None
            footer = decode_log_footer(await self._store.get_range(key, start=end - trailer.tail_bytes, end=end))
        except FormatTooNewError:
            raise
        except CorruptDataError:
            return None
        return LogPart(footer.topic, footer.incarnation, end - trailer.part_bytes, end, trailer.tail_bytes)
