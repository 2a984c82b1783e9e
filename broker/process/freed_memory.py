"""Freed memory: gives it back to the machine, where the C library would keep it for later allocations.

A recovery holds a whole catalog for some seconds; the same process then needs little memory as a broker.
"""

import contextlib
import ctypes
import gc


def give_memory_back() -> None:
    """Give freed memory back; does nothing where the C library has no such call."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
