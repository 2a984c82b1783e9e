"""Mapped file: one file of a log, written through its descriptor and read through a map.

The name is the offset of the first byte, 20 digits. Writing goes by `pwrite` into blocks that are allocated: a write
never faults and a full disk is an error, not a signal. Reading goes through one read-only map of the whole file, made
when first needed; slices of it stay valid after the file is closed and deleted.
"""

from __future__ import annotations

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.files.disk import Buffer, Disk, DiskFile

FILE_NAME_DIGITS = 20


def file_name(base_offset: int) -> str:
    """The name of the file that starts at this offset."""
    return f"{base_offset:0{FILE_NAME_DIGITS}d}"


def base_offset_of(name: str) -> int | None:
    """The offset that a file name stands for; None when it is no such name."""
    return int(name) if len(name) == FILE_NAME_DIGITS and name.isdecimal() else None


class MappedFile:
    """Bytes [base_offset, end_offset) of a log."""

    __slots__ = ("_view", "base_offset", "end_offset", "file")

    def __init__(self, file: DiskFile, *, base_offset: PhysicalOffset, size_bytes: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.end_offset = base_offset + size_bytes
        self._view: memoryview | None = None

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: PhysicalOffset, *, size_bytes: int) -> MappedFile:
        """Open an existing file.

        Raises:
            CorruptDataError: It has another length.
            FileNotFoundError: It is gone.
        """
        file = disk.open(f"{directory}/{file_name(base_offset)}")
        if file.size_bytes != size_bytes:
            file_bytes = file.size_bytes
            file.close()
            raise CorruptDataError(
                "wrong file length", path=file.path, size_bytes=file_bytes, expected_bytes=size_bytes
            )
        return cls(file, base_offset=base_offset, size_bytes=size_bytes)

    @property
    def name(self) -> str:
        """The file's name in its folder."""
        return file_name(self.base_offset)

    @property
    def view(self) -> memoryview:
        """The whole file, read-only; follows later writes."""
        if self._view is None:
            self._view = self.file.view()
        return self._view

    def write(self, data: Buffer, offset: PhysicalOffset) -> None:
        """Write at an offset of the log; DiskFullError when there is no room."""
        assert self.base_offset <= offset
        assert offset + len(data) <= self.end_offset
        self.file.write_at(data, offset - self.base_offset)

    def close(self) -> None:
        """Close the descriptor. The map goes when the last slice of it does."""
        self._view = None
        self.file.close()
