"""Huge pages: the heap of this process on pages of 2 MiB, where the kernel offers them.

A send to one of fifty thousand queues touches a dozen objects that lie anywhere in a hundred megabytes. On pages of
4 KiB most of these touches also cost a walk of the page table; on huge ones they do not, and such sends are a tenth
faster. Thread stacks are left out: a stack is mostly
empty, and a huge page is memory in full.
Source: madvise(2); proc_pid_maps(5).
"""

import ctypes
import sys
from collections.abc import Iterable, Iterator

RANGE_BYTES_MIN = 4 << 20
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
PRIVATE_WRITABLE, NO_ACCESS = "rw-p", "---p"
MAPS = "/proc/self/maps"


def advise_heap() -> int:
    """Have every large anonymous range there is now on huge pages; bytes advised, 0 where there is no such advice.

    To be called again as the heap grows, by a helper thread: the kernel copies what is not on huge pages yet.
    """
    if sys.platform != "linux":
        return 0
    with open(MAPS, encoding="utf-8", errors="replace") as maps:
        lines = maps.read().splitlines()
    madvise = ctypes.CDLL(None).madvise
    advised_bytes = 0
    for start, end in heap_ranges(lines):
        address, size_bytes = ctypes.c_void_p(start), ctypes.c_size_t(end - start)
        if madvise(address, size_bytes, MADV_HUGEPAGE) == 0:
            advised_bytes += end - start
            # Not all of it can be, and older kernels do it by themselves only, in minutes.
            madvise(address, size_bytes, MADV_COLLAPSE)
    return advised_bytes


def heap_ranges(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Address ranges [start, end) of the lines of /proc/PID/maps that are large, private and of no file."""
    guard_end = 0
    for line in maps:
        addresses, access, _offset, _device, _inode, *name = line.split(maxsplit=5)
        start, end = (int(address, 16) for address in addresses.split("-"))
        is_stack = start == guard_end
        guard_end = end if access == NO_ACCESS and not name else 0
        is_heap = access == PRIVATE_WRITABLE and (not name or name[0] == "[heap]") and not is_stack
        if is_heap and end - start >= RANGE_BYTES_MIN:
            yield start, end
