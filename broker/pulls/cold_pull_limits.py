"""Cold pull limits: how many reads from the cold tier are on the way, in all and for one connection.

A consumer that starts at the first message asks for all its queues at once; without bounds its answers would fill
the hot process's memory and the tier's socket. Beyond the bounds a pull is refused and asked again by the client.
Reads of a client that has left are cancelled. Belongs to the hot process's loop thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from thermocline.remoting.connections import Connection

COLD_PULLS_MAX = 64
COLD_PULLS_CONNECTION_MAX = 16


class ColdPullLimits:
    """The reads from the cold tier under way."""

    def __init__(
        self, *, count_max: int = COLD_PULLS_MAX, connection_count_max: int = COLD_PULLS_CONNECTION_MAX
    ) -> None:
        self._count_max = count_max
        self._connection_count_max = connection_count_max
        self._count = 0
        self._tasks: dict[Connection, set[asyncio.Task[object]]] = {}

    def __len__(self) -> int:
        return self._count

    def has_room(self, connection: Connection) -> bool:
        """Whether one more read may be started for this connection."""
        if self._count >= self._count_max:
            return False
        return len(self._tasks.get(connection, ())) < self._connection_count_max

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        """Count the calling task while it reads; `forget` cancels it."""
        task = asyncio.current_task()
        assert task is not None
        tasks = self._tasks.setdefault(connection, set())
        tasks.add(task)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            tasks.discard(task)
            if not tasks and self._tasks.get(connection) is tasks:
                del self._tasks[connection]

    def forget(self, connection: Connection) -> None:
        """The client has left: cancel what is read for it."""
        for task in self._tasks.pop(connection, ()):
            task.cancel()
