"""Long polling: pulls that found nothing wait at their queue until something arrives, or their time is up.

    park(topic, queue id, waiter, deadline)     the pull waits, at its place
    arrived(queues)                             units were appended: each waiter there looks again, in the same tick
    expire(now)                                 to be called every TICK_MS: waiters past their deadline answer, a slice
                                                at a time
    leave(place)                                the waiter there has been answered by other code
    forget(connection)                          the client has disconnected: removes its waiters
    watch(topic, watcher)                       calls other services when a topic grows, and at each tick (`follow`):
                                                POP waits for more than one queue (pop_polling.py)

Rules
  - A waiter is asked (`look_again`) whenever its queue grew and leaves when it says that it has answered. What does not
    match its filter keeps it waiting, as it keeps a client of RocketMQ's broker waiting.
  - Bounds: WAITERS_MAX in all and CONNECTION_WAITERS_MAX a connection; `park` refuses above them, and the pull is
    answered at once.
  - Deadlines are kept in buckets of TICK_MS, so a pull costs no timer of its own; it may answer one tick late.
Belongs to the hot process's loop thread.
Source: PullRequestHoldService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from thermocline.remoting.connections import Connection
from thermocline.store.queues import ConsumeQueue

TICK_MS = 100
WAITERS_MAX = 500_000
CONNECTION_WAITERS_MAX = 50_000
SLICE_MAX = 128
"""How many answer before others are served: after a restart all consumers come, and wait, and go, at the same time."""


class Waiter(Protocol):
    """A pull that waits. Neither method raises: what goes wrong is answered to the client."""

    @property
    def connection(self) -> Connection:
        """The client's connection."""
        ...

    def look_again(self) -> bool:
        """The queue grew; True when the pull is answered now."""
        ...

    def time_is_up(self) -> None:
        """Answer with what there is."""
        ...


TopicWatcher = Callable[[ConsumeQueue], None]
"""Called with a queue of its topic that grew."""


class Place:
    """A waiter's place. `waiter` is None once it has left; its bucket is not searched for it."""

    __slots__ = ("key", "waiter")

    def __init__(self, key: tuple[str, int], waiter: Waiter) -> None:
        self.key = key
        self.waiter: Waiter | None = waiter


class LongPolling:
    """All pulls that wait."""

    def __init__(self, *, waiters_max: int = WAITERS_MAX, connection_waiters_max: int = CONNECTION_WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self._connection_waiters_max = connection_waiters_max
        self._by_queue: dict[tuple[str, int], list[Place]] = {}
        self._by_connection: dict[Connection, set[Place]] = {}
        self._by_deadline: dict[int, list[Place]] = {}
        self._count = 0
        self._expired_bucket = 0
        self._due: deque[Place] = deque()
        self._watchers: dict[str, list[TopicWatcher]] = {}
        self._followers: list[Callable[[int], bool]] = []

    def __len__(self) -> int:
        return self._count

    def park(self, topic: str, queue_id: int, waiter: Waiter, *, deadline_ms: int) -> Place | None:
        """Let `waiter` wait for the queue until the deadline; its place, or None when too many wait already."""
        parked_of_connection = self._by_connection.get(waiter.connection)
        if parked_of_connection is None:
            parked_of_connection = self._by_connection[waiter.connection] = set()
        elif len(parked_of_connection) >= self._connection_waiters_max:
            return None
        if self._count >= self._waiters_max:
            return None
        key = (topic, queue_id)
        parked = Place(key, waiter)
        parked_of_connection.add(parked)
        self._by_queue.setdefault(key, []).append(parked)
        bucket = max(deadline_ms // TICK_MS + 1, self._expired_bucket + 1)
        self._by_deadline.setdefault(bucket, []).append(parked)
        self._count += 1
        return parked

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        """Units were appended to these queues and may be seen; a queue may be named more than once."""
        if not self._count and not self._watchers:
            return
        for queue in dict.fromkeys(queues):
            self._look_again((queue.topic, queue.queue_id))
            if queue.topic in self._watchers:
                for watcher in tuple(self._watchers[queue.topic]):
                    watcher(queue)

    def expire(self, now_ms: int) -> bool:
        """Answer the waiters whose deadline has passed, at most SLICE_MAX at a time; True when there are more."""
        bucket_end = now_ms // TICK_MS
        if bucket_end > self._expired_bucket:
            # After a long sleep most buckets do not exist: go through those that do.
            for bucket in sorted(bucket for bucket in self._by_deadline if bucket <= bucket_end):
                self._due.extend(self._by_deadline.pop(bucket))
            self._expired_bucket = bucket_end
        due = self._due
        answered = 0
        while due and answered < SLICE_MAX:
            parked = due.popleft()
            waiter = parked.waiter
            if waiter is not None:
                self.leave(parked)
                waiter.time_is_up()
                answered += 1
        has_more = bool(due)
        for follower in self._followers:
            has_more |= follower(now_ms)
        return has_more

    def leave(self, parked: Place) -> None:
        """Remove a waiter; one that was removed already is ignored."""
        waiter = parked.waiter
        if waiter is None:
            return  # its answer closed the connection, which forgot it
        parked.waiter = None
        self._count -= 1
        waiting = self._by_queue[parked.key]
        waiting.remove(parked)
        if not waiting:
            del self._by_queue[parked.key]
        parked_of_connection = self._by_connection.get(waiter.connection)
        if parked_of_connection is not None:
            parked_of_connection.discard(parked)
            if not parked_of_connection:
                del self._by_connection[waiter.connection]

    def forget(self, connection: Connection) -> None:
        """The connection is closed: remove its waiters."""
        for parked in self._by_connection.pop(connection, ()):
            self.leave(parked)

    # -- others that wait ----------------------------------------------------------------------------------------------

    def watch(self, topic: str, watcher: TopicWatcher) -> None:
        """Call `watcher` with each queue of a topic that grows, from now on. It must not put or get messages."""
        self._watchers.setdefault(topic, []).append(watcher)

    def unwatch(self, topic: str, watcher: TopicWatcher) -> None:
        """Tell it no longer."""
        watchers = self._watchers[topic]
        watchers.remove(watcher)
        if not watchers:
            del self._watchers[topic]

    def follow(self, expire: Callable[[int], bool]) -> None:
        """Call `expire(now)` whenever this is called itself; it says whether there is more to do."""
        self._followers.append(expire)

    def _look_again(self, key: tuple[str, int]) -> None:
        waiting = self._by_queue.get(key)
        if waiting is None:
            return
        for parked in list(waiting):
            waiter = parked.waiter
            if waiter is not None and waiter.look_again():
                self.leave(parked)
