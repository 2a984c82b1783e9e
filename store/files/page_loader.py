"""Page loader: a range of a file brought into the page cache, ahead of the writes that will need it there.

    map the range, say that it is read at random (or the kernel loads megabytes around it), populate, unmap

What was allocated and never written costs no read of the disk, only the memory that is found and cleared. One call lets
go of the interpreter's lock once, and the kernel may take the core from it between any two pages.
Source: mmap(2), madvise(2).
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable

MADV_RANDOM, MADV_POPULATE_READ = 1, 22
MAP_FAILED = ctypes.c_void_p(-1).value


def _find_loader() -> Callable[[int, int, int], None]:
    if sys.platform != "linux":
        return lambda _descriptor, _position, _size_bytes: None
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        *(ctypes.c_void_p, ctypes.c_size_t),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    ]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def load(descriptor: int, position: int, size_bytes: int) -> None:
        start = position - position % mmap.PAGESIZE
        length = position + size_bytes - start
        address = library.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
        if address == MAP_FAILED:
            return
        library.madvise(address, length, MADV_RANDOM)
        library.madvise(address, length, MADV_POPULATE_READ)
        library.munmap(address, length)

    return load


load_pages = _find_loader()
"""Descriptor, position, bytes: have the range in memory. Does nothing where it cannot be done; any thread."""
