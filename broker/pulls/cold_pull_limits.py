"""Cold pull limits: how many reads from the cold tier are on the way, in all and for one connection.

A consumer that starts at the first message asks for all its queues at once; without bounds its answers would fill
the hot process's memory and the tier's socket. Beyond the bounds a pull is refused and asked again by the client.
Reads of a client that has left are cancelled, and the cold tier fetches nothing more for it.

    reading          counts a read in both bounds
    while_waiting    a read waits for something else first (its group's quota): it counts for its connection alone
                     meanwhile, so that groups that are held back keep no other group from reading. It goes on in turn,
                     as soon as there is room among all.

Belongs to the hot process's loop thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from thermocline.remoting.connections import Connection

COLD_PULLS_MAX = 64
COLD_PULLS_CONNECTION_MAX = 16


class ColdPullLimits:
    """The reads from the cold tier under way."""

    def __init__(
        self,
        *,
        count_max: int = COLD_PULLS_MAX,
        connection_count_max: int = COLD_PULLS_CONNECTION_MAX,
        on_reader_left: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_reader_left`: called with the address of each client that has read and has left; see ColdReads."""
        self._count_max = count_max
        self._connection_count_max = connection_count_max
        self._on_reader_left = on_reader_left
        self._readers: set[Connection] = set()
        """Open connections that have read."""
        self._count = 0
        self._tasks: dict[Connection, set[asyncio.Task[object]]] = {}
        self._waiting: set[asyncio.Task[object]] = set()
        """Those that have no place among all."""
        self._returning: deque[asyncio.Future[None]] = deque()
        """Of these, those that have waited and want to go on."""

    def __len__(self) -> int:
        return self._count

    def has_room(self, connection: Connection) -> bool:
        """Whether one more read may be started for this connection."""
        if self._count >= self._count_max:
            return False
        return len(self._tasks.get(connection, ())) < self._connection_count_max

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        """Count the calling task while it reads; `forget` cancels it. The connection is open."""
        self._readers.add(connection)
        task = asyncio.current_task()
        assert task is not None
        tasks = self._tasks.setdefault(connection, set())
        tasks.add(task)
        self._count += 1
        try:
            yield
        finally:
            if task in self._waiting:
                self._waiting.discard(task)
            else:
                self._give_up_place()
            tasks.discard(task)
            if not tasks and self._tasks.get(connection) is tasks:
                del self._tasks[connection]

    async def while_waiting(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Await `wait()` on behalf of a read that is counted, without its place among all. Cancelling is safe."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        self._give_up_place()
        await wait()
        if self._count < self._count_max:
            self._count += 1
        else:
            await self._next_place()
        self._waiting.discard(task)

    def forget(self, connection: Connection) -> None:
        """The client has left: cancel what is read for it."""
        for task in self._tasks.pop(connection, ()):
            task.cancel()
        if connection in self._readers:
            self._readers.discard(connection)
            self._on_reader_left(connection.remote_address)

    async def _next_place(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._returning.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._give_up_place()  # it was given one in the same moment
            raise

    def _give_up_place(self) -> None:
        while self._returning:
            place = self._returning.popleft()
            if not place.done():
                place.set_result(None)  # the place is that read's now
                return
        self._count -= 1
