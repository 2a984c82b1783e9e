"""Index check: reads every byte of one index object, and compares it with the catalog.

    the object   its size and CRC-32 as the catalog has them
    footer       decodes, and matches the catalog
    contents     every frame and chapter decodes; keys in the order of their hashes, places in that of the log

Whether it names the right records is not checked: it is made from parts that have checks of their own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from thermocline.remoting.errors import CorruptDataError, SegmentSizeError
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.index_format import IndexEntry, IndexObject, decode_index_footer, directory_of
from thermocline.tiered.objects import FormatTooNewError, ObjectStore, SegmentFormatError, SegmentOffset
from thermocline.tiered.scrub.object_check import OtherSegmentError, problem_with
from thermocline.tiered.wrappers import SpooledObject

FRAMES_AT_ONCE = 64


class IndexCheck(msgspec.Struct):
    """Checks one index object once. `read_bytes` counts fetched bytes."""

    store: ObjectStore
    index: IndexEntry
    folder: Path | None = None
    read_bytes: int = 0

    async def run(self) -> list[Finding]:
        """Return at most one finding. ObjectStoreUnavailableError when the store gives no answer."""
        async with await SpooledObject.fetch(self.store, self.index.key, folder=self.folder) as spooled:
            self.read_bytes += spooled.size_bytes
            problem = await problem_with(spooled, self._check_stored)
        return [] if problem is None else [self._finding(*problem)]

    def _finding(self, problem: Problem, detail: str) -> Finding:
        index = self.index
        return Finding(kind=ObjectKind.INDEX, problem=problem, key=index.key, detail=detail, segment_id=index.index_id)

    async def _check_stored(self, spooled: SpooledObject) -> None:
        index = self.index
        owner = await index_lying_in(spooled, index.key)
        if owner is not None and owner != index.key:
            raise OtherSegmentError("another index object is stored here", expected=index.key, found=owner)
        if spooled.size_bytes != index.object_bytes:
            raise SegmentSizeError("another size", size_bytes=spooled.size_bytes, expected=index.object_bytes)
        tail = await spooled.get_range(index.key, start=index.footer_start, end=SegmentOffset(index.object_bytes))
        stated = decode_index_footer(tail)
        if msgspec.structs.replace(stated, object_bytes=index.object_bytes, crc32=index.crc32) != index:
            raise SegmentFormatError("the footer says another thing than the ledger", key=index.key)
        await self._check_contents(IndexObject(spooled, index))
        if spooled.crc32 != index.crc32:
            raise SegmentFormatError("the object's checksum is another", expected=index.crc32, found=spooled.crc32)

    async def _check_contents(self, found: IndexObject) -> None:
        index, directory = self.index, directory_of(self.index)
        key_count, last = 0, -1
        for start in range(0, directory.frame_count, FRAMES_AT_ONCE):
            entries = await found.frames(range(start, min(start + FRAMES_AT_ONCE, directory.frame_count)))
            hashes = entries.hashes.astype(np.int64)
            if int(hashes[0]) < last or not bool(np.all(hashes[1:] >= hashes[:-1])):
                raise SegmentFormatError("keys are not in the order of their hashes", key=index.key)
            key_count, last = key_count + len(entries), int(hashes[-1])
        if key_count != index.key_count or directory.frame_range(range(directory.frame_count))[1] != (
            index.blooms_start
        ):
            raise SegmentFormatError("the frames do not add up", key=index.key, key_count=key_count)
        end = -1
        for number in range(directory.chapter_count):
            rows = await found.chapter(directory.chapter(number, chapters_start=index.chapters_start))
            if int(rows.places[0]) < end:
                raise SegmentFormatError("places are not in the order of the log", key=index.key)
            end = int(rows.places[-1]) + 1
        if directory.chapters_end(chapters_start=index.chapters_start) != index.footer_start:
            raise SegmentFormatError("the chapters do not add up", key=index.key)


async def index_lying_in(store: ObjectStore, key: str) -> str | None:
    """The key under which the index object at `key` was written, by its own footer; None when it is unreadable."""
    try:
        head = await store.head(key)
        data = (await store.get_suffix(key, size_bytes=head.size_bytes)).data
        return decode_index_footer(data).key
    except FormatTooNewError:
        raise
    except CorruptDataError:
        return None
