"""Zstd frames: decompressed with one context for each thread.

To make a context takes 12 microseconds, 40 times as long as to decompress what the ledger has of a pack, and a read of
history decompresses some of everything. A context takes 160 KB for as long as its thread, and must not be used by two
threads at a time.
"""

from __future__ import annotations

import threading

import zstandard


class _Contexts(threading.local):
    """The calling thread's own."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def decompress_frame(stored: bytes | memoryview) -> bytes:
    """Return the content of one frame whose header has its size; zstandard.ZstdError when it is damaged.

    Check the size by `zstandard.frame_content_size` before: that much memory is allocated.
    """
    return _contexts.decompressor.decompress(stored)
