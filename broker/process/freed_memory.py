"""Freed memory: given back to the machine, where the C library would keep it for what comes.

A recovery holds a whole catalog for some seconds, in the process that is a lean broker ever after.
"""

import contextlib
import ctypes
import gc


def give_memory_back() -> None:
    """Let go of what was freed; nothing where the C library has no such call."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
