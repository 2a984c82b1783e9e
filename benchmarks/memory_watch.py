"""MemoryWatch: the greatest memory of this process, from when it is entered on, resident and the anonymous part of it.

Mapped files are resident and not anonymous: the machine takes those back when it needs memory.
"""

from __future__ import annotations

import threading
from pathlib import Path


class MemoryWatch:
    """Looks every tenth of a second, in a thread of its own."""

    def __init__(self) -> None:
        self.anonymous_kib = 0
        self.resident_kib = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.anonymous_kib = max(self.anonymous_kib, int(line.split()[1]))
                elif line.startswith("VmRSS:"):
                    self.resident_kib = max(self.resident_kib, int(line.split()[1]))
