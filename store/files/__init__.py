"""Files: disks, mapped files, and the places where they are made durable."""

from thermocline.store.files.disk import (
    NO_ROOM,
    TEMPORARY_SUFFIX,
    Buffer,
    Disk,
    DiskFile,
    RealDisk,
    make_durable_directory,
    parent_of,
    read_with_backup,
    replace_file,
)
from thermocline.store.files.file_allocator import FileAllocator, make_allocator_executor
from thermocline.store.files.mapped_file import MappedFile, base_offset_of, file_name
from thermocline.store.files.mapped_file_queue import MappedFileQueue
from thermocline.store.files.private_files import (
    OTHERS,
    Readers,
    apply_modes,
    close_to_others,
    keep_private,
    modes_like,
)
from thermocline.store.files.sync_site import SyncSite

__all__ = [
    "NO_ROOM",
    "OTHERS",
    "TEMPORARY_SUFFIX",
    "Buffer",
    "Disk",
    "DiskFile",
    "FileAllocator",
    "MappedFile",
    "MappedFileQueue",
    "Readers",
    "RealDisk",
    "SyncSite",
    "apply_modes",
    "base_offset_of",
    "close_to_others",
    "file_name",
    "keep_private",
    "make_allocator_executor",
    "make_durable_directory",
    "modes_like",
    "parent_of",
    "read_with_backup",
    "replace_file",
]
