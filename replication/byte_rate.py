"""Byte rate: bytes counted by the second of a clock.

Source: store/ha/FlowMonitor.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

SECOND_MS = 1_000


class ByteRate:
    """Counts what passes in one direction."""

    __slots__ = ("_bytes", "_last_bytes", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._bytes = 0
        self._last_bytes = 0

    def add(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes have passed."""
        self._follow(now_ms)
        self._bytes += size_bytes

    def this_second(self, now_ms: int) -> int:
        """Bytes in the second that has begun."""
        self._follow(now_ms)
        return self._bytes

    def last_second(self, now_ms: int) -> int:
        """Bytes in the last whole second."""
        self._follow(now_ms)
        return self._last_bytes

    def _follow(self, now_ms: int) -> None:
        second = now_ms // SECOND_MS
        if second != self._second:
            self._last_bytes = self._bytes if second == self._second + 1 else 0
            self._bytes = 0
            self._second = second
