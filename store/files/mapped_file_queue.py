"""Mapped file queue: the files of one log, of equal length, without a gap between them.

    offset -> file: (offset - first base offset) // file length

The oldest files go first, so after a crash a gap means that a file was lost, and the log refuses to open: serving
around it would skip messages without a word.
Source: MappedFileQueue.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.files.disk import Disk
from thermocline.store.files.mapped_file import MappedFile, base_offset_of, file_name


class MappedFileQueue:
    """The files, oldest first. Readers in other processes hold one of their own and `refresh` it."""

    def __init__(self, disk: Disk, directory: str, *, file_bytes: int) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self._disk = disk
        self._files: list[MappedFile] = []

    def __iter__(self) -> Iterator[MappedFile]:
        return iter(list(self._files))

    def __len__(self) -> int:
        return len(self._files)

    @property
    def start_offset(self) -> PhysicalOffset:
        """First offset of the oldest file; 0 without files."""
        return self._files[0].base_offset if self._files else LOG_START

    @property
    def end_offset(self) -> PhysicalOffset:
        """Offset behind the newest file; 0 without files."""
        return self._files[-1].end_offset if self._files else LOG_START

    @property
    def last(self) -> MappedFile:
        """The newest file; there must be one."""
        return self._files[-1]

    def load(self) -> None:
        """Open every file of the folder. An empty last file (a crash while it was made) is removed; one of another
        length is kept: the requested length may be wrong.

        Raises:
            CorruptDataError: A file has another length, is misnamed by its offset, or is missing in the middle.
        """
        assert not self._files
        offsets = self._offsets()
        if offsets and self._length(offsets[-1]) == 0:
            self._disk.remove(f"{self.directory}/{file_name(offsets.pop())}")
        for base_offset in offsets:
            if base_offset % self.file_bytes:
                raise CorruptDataError("log file between file borders", path=self.directory, base_offset=base_offset)
            if self._files and base_offset != self.end_offset:
                raise CorruptDataError(
                    "log file is missing", path=self.directory, start_offset=self.end_offset, end_offset=base_offset
                )
            self._files.append(MappedFile.open(self._disk, self.directory, base_offset, size_bytes=self.file_bytes))

    def refresh(self) -> None:
        """Take notice of files that another process has added or removed."""
        held = {file.base_offset: file for file in self._files}
        files = []
        for base_offset in self._offsets():
            file = held.pop(base_offset, None)
            if file is None:
                try:
                    file = MappedFile.open(self._disk, self.directory, base_offset, size_bytes=self.file_bytes)
                except FileNotFoundError:
                    continue
            files.append(file)
        for gone in held.values():
            gone.close()
        self._files = files

    def add(self, file: MappedFile) -> None:
        """Add the newest file."""
        assert not self._files or file.base_offset == self.end_offset
        assert file.end_offset - file.base_offset == self.file_bytes
        self._files.append(file)

    def find(self, offset: PhysicalOffset) -> MappedFile:
        """The file that holds the byte at `offset`; OffsetOutOfRangeError when none does."""
        files = self._files
        if files:
            number = (offset - files[0].base_offset) // self.file_bytes
            if 0 <= number < len(files):
                return files[number]
        raise OffsetOutOfRangeError(offset=offset, start_offset=self.start_offset, end_offset=self.end_offset)

    def between(self, start: PhysicalOffset, end: PhysicalOffset) -> list[MappedFile]:
        """The files that hold bytes of [start, end). Any thread: the loop may take files out meanwhile."""
        return [file for file in tuple(self._files) if file.base_offset < end and start < file.end_offset]

    def take_before(self, offset: PhysicalOffset) -> list[MappedFile]:
        """Take out, oldest first, the files that end at or before `offset`. They are still open and on disk."""
        taken = []
        while self._files and self._files[0].end_offset <= offset:
            taken.append(self._files.pop(0))
        return taken

    def take_after(self, offset: PhysicalOffset) -> list[MappedFile]:
        """Take out, newest first, the files that start at or behind `offset`. They are still open and on disk."""
        taken = []
        while self._files and self._files[-1].base_offset >= offset:
            taken.append(self._files.pop())
        return taken

    def close(self) -> None:
        """Close all files; idempotent."""
        for file in self._files:
            file.close()
        self._files.clear()

    def _offsets(self) -> list[PhysicalOffset]:
        """Base offsets of the files in the folder, ascending."""
        names = self._disk.list_directory(self.directory) if self._disk.exists(self.directory) else []
        return [PhysicalOffset(offset) for offset in map(base_offset_of, names) if offset is not None]

    def _length(self, base_offset: PhysicalOffset) -> int:
        return self._disk.size_bytes(f"{self.directory}/{file_name(base_offset)}")
