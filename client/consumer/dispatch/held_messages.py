"""HeldMessages: how many messages a queue holds, counted for the queue and for all queues of its consumer at once.

Belongs to the consumer's loop.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HeldMessages", "HeldTotal"]


class HeldMessages:
    """What one queue holds; counted for a flow control, too, while that counts the queue."""

    __slots__ = ("cached_bytes", "cached_count", "total")

    def __init__(self) -> None:
        self.cached_count = 0
        """Messages held."""
        self.cached_bytes = 0
        """Their size."""
        self.total: HeldTotal | None = None

    def count_in(self, count: int, size_bytes: int) -> None:
        """It holds so many messages and bytes more; less, where they are negative."""
        self.cached_count += count
        self.cached_bytes += size_bytes
        if self.total is not None:
            self.total.count += count
            self.total.size_bytes += size_bytes


@dataclass(slots=True)
class HeldTotal:
    """Messages that some queues hold together, and their size."""

    count: int = 0
    size_bytes: int = 0
