"""PieceStream: the pieces of one pack in order, read from front to back by large requests.

Memory: the footer as stored, one section of it, and one buffer for `.log` and one for `.cq`; a larger part comes alone.
Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from thermocline.tiered.objects import OBJECT_START, ObjectStore, SegmentFormatError, SegmentOffset
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.packs.pack_format import check_footer, decode_section
from thermocline.tiered.segments import PartLocator, SegmentEntry

BUFFER_BYTES = 4 * 1024 * 1024
COLUMNS_BUFFER_BYTES = 512 * 1024


class PiecePlace(msgspec.Struct):
    """A piece, and the stream that its bytes come from."""

    entry: SegmentEntry
    stream: PieceStream

    async def parts(self) -> tuple[memoryview, memoryview]:
        """The whole `.log` and `.cq` parts. Pieces of one stream are asked in their order, each once."""
        return await self.stream.read(self.entry.log), await self.stream.read_columns(self.entry.cq)


class PieceStream:
    """See the module's header."""

    def __init__(self, store: ObjectStore, pack: PackEntry, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.pack = pack
        self._store = store
        self._logs = _ForwardBuffer(store, pack.key, buffer_bytes)
        self._columns = _ForwardBuffer(store, pack.key, COLUMNS_BUFFER_BYTES)
        self._logs_end = OBJECT_START
        self._columns_end = OBJECT_START

    async def pieces(self, is_wanted: Callable[[SegmentEntry], bool]) -> AsyncIterator[PiecePlace]:
        """The wanted pieces in their order. Raises the store's errors and CorruptDataError."""
        pack = self.pack
        tail = memoryview(
            await self._store.get_range(pack.key, start=pack.footer_start, end=SegmentOffset(pack.object_bytes))
        )
        check_footer(tail)
        sections = [tail[start - pack.footer_start : end - pack.footer_start] for start, end in pack.sections()]
        version = pack.format_version
        # The first piece's columns begin where the last piece's log ends.
        first = decode_section(sections[0], version=version)[0]
        last = decode_section(sections[-1], version=version)[-1]
        self._logs_end, self._columns_end = first.cq.start, last.cq.end
        for section in sections:
            for entry in decode_section(section, version=version):
                if is_wanted(entry):
                    yield PiecePlace(entry, self)

    def forget(self) -> None:
        """Free the buffers: what of them is still to be read is fetched again."""
        self._logs.forget()
        self._columns.forget()

    async def read(self, part: PartLocator) -> memoryview:
        """A `.log` part."""
        return await self._logs.read(part.start, part.end, behind=self._logs_end)

    async def read_columns(self, part: PartLocator) -> memoryview:
        """A `.cq` part."""
        return await self._columns.read(part.start, part.end, behind=self._columns_end)


class _ForwardBuffer:
    """Ranges of an object that only go forward, by requests of at least `buffer_bytes`."""

    def __init__(self, store: ObjectStore, key: str, buffer_bytes: int) -> None:
        self._store = store
        self._key = key
        self._buffer_bytes = buffer_bytes
        self._data = memoryview(b"")
        self._start = 0

    def forget(self) -> None:
        """Free the bytes that were fetched ahead."""
        self._data = memoryview(b"")

    async def read(self, start: SegmentOffset, end: SegmentOffset, *, behind: SegmentOffset) -> memoryview:
        """Bytes [start, end); no more is read than up to `behind`."""
        if not self._start <= start <= end <= behind:
            raise SegmentFormatError("the parts of a pack are not in order", key=self._key, start=start, end=end)
        have_end = self._start + len(self._data)
        if end <= have_end:
            found = self._data[start - self._start : end - self._start]
        elif end - start >= self._buffer_bytes:
            # As large as the buffer: it is not kept, and what is kept of it is not worth a copy.
            found = memoryview(await self._store.get_range(self._key, start=start, end=end))
            self._data, self._start = memoryview(b""), end
            return found
        else:
            kept = bytes(self._data[start - self._start :]) if start < have_end else b""
            fetch_start = start + len(kept)
            fetch_end = min(behind, fetch_start + self._buffer_bytes)
            data = memoryview(kept + await self._store.get_range(self._key, start=fetch_start, end=fetch_end))
            self._data, self._start = data, start
            found = data[: end - start]
        self._data, self._start = self._data[end - self._start :], end
        return found
