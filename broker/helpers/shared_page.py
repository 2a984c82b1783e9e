"""Shared page: how far the log reaches, for the processes beside the hot one.

File: {store}/thermocline/shared-page, 4096 bytes, mapped by every process of a broker. One record of native,
aligned 64-bit words is at its start:

    sequence, boot generation, build id, append offset, flush offset, minimum offset, seal offset, check word

The hot process copies the whole record into the page in one assignment of 64 bytes; a reader copies it out in one slice
and accepts it only when the check word is the CRC of the words before it, mixed with a constant, so that a record torn
between two writes (or a page of zeroes) has no effect. An XOR of the words is not enough: the sequence and an offset
can change by the same bits.

Rules
  - Only the hot process writes. The generation is new at every boot: a helper that sees another one stops.
  - The index, and with it the gate of local deletion, follows the flush offset. Sealing follows the seal offset: the
    flush offset too, but where sends wait for slaves (inSyncReplicas of 2 or more) no further than enough of them have
    confirmed, so that the bucket has nothing that a slave in this broker's place lacks.
"""

import mmap
import os
import struct
from pathlib import Path
from typing import Self

import msgspec

from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.records.crc32 import crc32

PAGE_BYTES = 4096
WORDS = struct.Struct(
    "=Q"  # sequence: number of writes so far
    "Q"  # boot generation
    "Q"  # build id
    "q"  # append offset of the log, bytes
    "q"  # flush offset of the log, bytes
    "q"  # minimum offset of the log, bytes
    "q"  # seal offset: what may be sealed, bytes of the log
)
CHECK = struct.Struct("=Q")
RECORD_BYTES = WORDS.size + CHECK.size
assert RECORD_BYTES == 64, "one cache line, so that a reader meets few torn copies"
CHECK_SALT = 0x5448_4552_4D4F_434C
READ_ATTEMPTS_MAX = 1_000


class Watermarks(msgspec.Struct, frozen=True, kw_only=True):
    """One consistent copy of the page."""

    generation: int
    build_id: int
    append_offset: PhysicalOffset
    flush_offset: PhysicalOffset
    min_offset: PhysicalOffset
    seal_offset: PhysicalOffset


class SharedPage:
    """The mapped page. Belongs to one process; `publish` only to the hot process's loop thread."""

    def __init__(self, mapping: mmap.mmap, *, generation: int, build_id: int) -> None:
        self._mapping = mapping
        self._generation = generation
        self._build_id = build_id
        self._sequence = 0
        self._flush_offset = LOG_START
        self._seal_offset = LOG_START

    @classmethod
    def create(cls, path: Path, *, generation: int, build_id: int) -> Self:
        """Create or take over the page as the hot process; nothing is published yet."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, PAGE_BYTES)
            mapping = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        return cls(mapping, generation=generation, build_id=build_id)

    @classmethod
    def attach(cls, path: Path) -> Self:
        """Map the page for reading; UnavailableError when no hot process has made it yet."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise UnavailableError("the broker has not made its shared page", path=str(path)) from error
        try:
            mapping = mmap.mmap(descriptor, PAGE_BYTES, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        page = cls(mapping, generation=0, build_id=0)
        marks = page.read()
        page._generation, page._build_id = marks.generation, marks.build_id
        return page

    @property
    def generation(self) -> int:
        """Boot generation of the hot process that this page was created or attached under."""
        return self._generation

    @property
    def build_id(self) -> int:
        """Build id of the hot process that this page was created or attached under."""
        return self._build_id

    def publish(
        self,
        *,
        append_offset: PhysicalOffset,
        flush_offset: PhysicalOffset,
        min_offset: PhysicalOffset,
        seal_offset: PhysicalOffset | None = None,
    ) -> None:
        """Write all words at once. `seal_offset`: the flush offset by default."""
        if seal_offset is None:
            seal_offset = flush_offset
        assert min_offset <= append_offset
        assert flush_offset <= append_offset
        assert flush_offset >= self._flush_offset, "helpers have acted upon the last one"
        assert self._seal_offset <= seal_offset <= flush_offset
        self._flush_offset, self._seal_offset = flush_offset, seal_offset
        self._sequence += 1
        words = WORDS.pack(
            self._sequence,
            self._generation,
            self._build_id,
            append_offset,
            flush_offset,
            min_offset,
            seal_offset,
        )
        self._mapping[:RECORD_BYTES] = words + CHECK.pack(CHECK_SALT ^ crc32(words))

    def read(self) -> Watermarks:
        """Return one consistent copy.

        Raises:
            UnavailableError: The page holds no whole record (nothing published yet, or not our page).
        """
        for _ in range(READ_ATTEMPTS_MAX):
            record = self._mapping[:RECORD_BYTES]
            words = record[: WORDS.size]
            (check,) = CHECK.unpack_from(record, WORDS.size)
            sequence, generation, build_id, append_offset, flush_offset, min_offset, seal_offset = WORDS.unpack(words)
            if sequence > 0 and check == CHECK_SALT ^ crc32(words):
                assert flush_offset <= append_offset, "as it was published"
                assert min_offset <= append_offset
                return Watermarks(
                    generation=generation,
                    build_id=build_id,
                    append_offset=append_offset,
                    flush_offset=flush_offset,
                    min_offset=min_offset,
                    seal_offset=seal_offset,
                )
        raise UnavailableError("the shared page holds no whole record")

    def close(self) -> None:
        """Unmap; idempotent."""
        self._mapping.close()
