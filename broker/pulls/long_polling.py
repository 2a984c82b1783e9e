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
  - A waiter is asked (`look_again`) after its queue grew, and leaves when it says that it has answered. What does not
    match its filter keeps it waiting, as it keeps a client of RocketMQ's broker waiting.
  - The first SLICE_MAX are asked in the call, the others in further turns of the loop, SLICE_MAX a turn over all
    queues: a queue with many waiters delays neither sends nor the waiters of other queues. Those of one queue are asked
    in turn, so that none is left out while messages keep coming.
  - Bounds: `waiters_max` in all and `connection_waiters_max` a connection, and WAITING_CHARACTERS_MAX in the texts of
    each; `park` refuses above them, and the pull is answered at once.
  - Deadlines are kept in buckets of TICK_MS, so a pull costs no timer of its own; it may answer one tick late. What has
    left is in none.
  - To park, leave, forget or be asked takes constant time for each waiter, however many wait at its queue.
Belongs to the hot process's loop thread.
Source: PullRequestHoldService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.store.queues import ConsumeQueue

TICK_MS = 100
WAITERS_MAX = 200_000
CONNECTION_WAITERS_MAX = 10_000
"""The settings' defaults."""
WAITING_CHARACTERS_MAX = 8_192
"""Of an expression and other texts of a request, which are kept while it waits."""
SLICE_MAX = 128
"""How many answer before others are served: after a restart all consumers come, and wait, and go, at the same time."""
_PLACES_LEFT_MAX = 64


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
    """A waiter's place. `waiter` is None once it has left; its queue is not searched for it."""

    __slots__ = ("bucket", "looked_at", "queue", "waiter")

    def __init__(self, queue: _Queue, waiter: Waiter, bucket: int) -> None:
        """`bucket`: of its deadline."""
        self.queue = queue
        self.waiter: Waiter | None = waiter
        self.bucket = bucket
        self.looked_at = queue.arrivals


class _Queue:
    """The waiters of one queue. `places`: the one that was asked longest ago first; some may have left."""

    __slots__ = ("arrivals", "is_to_be_asked", "key", "places", "waiter_count")

    def __init__(self, key: tuple[str, int]) -> None:
        self.key = key
        self.places: deque[Place] = deque()
        self.waiter_count = 0
        self.arrivals = 0
        self.is_to_be_asked = False

    def next_to_ask(self) -> Place | None:
        """Remove and return a waiter that was not asked since something arrived; None when all were."""
        places = self.places
        while places:
            place = places[0]
            if place.waiter is not None and place.looked_at == self.arrivals:
                return None
            places.popleft()
            if place.waiter is not None:
                place.looked_at = self.arrivals
                return place
        return None

    def remove_waiter(self) -> None:
        """One of the waiters has left: drop the places of those that did, now and then."""
        self.waiter_count -= 1
        if len(self.places) > 2 * self.waiter_count + _PLACES_LEFT_MAX:
            self.places = deque(place for place in self.places if place.waiter is not None)


class LongPolling:
    """All pulls that wait."""

    def __init__(
        self,
        *,
        waiters_max: Callable[[], int] = lambda: WAITERS_MAX,
        connection_waiters_max: Callable[[], int] = lambda: CONNECTION_WAITERS_MAX,
        limits: LimitCounts | None = None,
    ) -> None:
        """The bounds are read for each waiter; `limits`: where refusals are counted."""
        self._waiters_max = waiters_max
        self._connection_waiters_max = connection_waiters_max
        self._limits = limits or LimitCounts()
        self._by_queue: dict[tuple[str, int], _Queue] = {}
        self._by_connection: dict[Connection, set[Place]] = {}
        self._by_deadline: dict[int, dict[Place, None]] = {}
        self._to_ask: deque[_Queue] = deque()
        self._asks_later = False
        self._count = 0
        self._expired_bucket = 0
        self._due: deque[Place] = deque()
        self._watchers: dict[str, list[TopicWatcher]] = {}
        self._followers: list[Callable[[int], bool]] = []

    def __len__(self) -> int:
        return self._count

    def park(self, topic: str, queue_id: int, waiter: Waiter, *, deadline_ms: int, characters: int = 0) -> Place | None:
        """Let `waiter` wait for the queue until the deadline; its place, or None when too many wait already, or it has
        too many `characters`."""
        connection = waiter.connection
        if characters > WAITING_CHARACTERS_MAX:
            return self._refuse(connection, "longPollsMax")
        parked_of_connection = self._by_connection.get(connection)
        if parked_of_connection is not None and len(parked_of_connection) >= self._connection_waiters_max():
            return self._refuse(connection, "longPollsPerConnectionMax")
        if self._count >= self._waiters_max():
            return self._refuse(connection, "longPollsMax")
        if parked_of_connection is None:
            parked_of_connection = self._by_connection[connection] = set()
        key = (topic, queue_id)
        queue = self._by_queue.get(key)
        if queue is None:
            queue = self._by_queue[key] = _Queue(key)
        bucket = max(deadline_ms // TICK_MS + 1, self._expired_bucket + 1)
        parked = Place(queue, waiter, bucket)
        queue.places.append(parked)
        queue.waiter_count += 1
        parked_of_connection.add(parked)
        self._by_deadline.setdefault(bucket, {})[parked] = None
        self._count += 1
        return parked

    def _refuse(self, connection: Connection, limit: str) -> Place | None:
        self._limits.refused(limit, address=connection.remote_address, detail="a pull is not kept waiting")
        return None

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        """Units were appended to these queues and may be seen; a queue may be named more than once."""
        if not self._count and not self._watchers:
            return
        for queue in dict.fromkeys(queues):
            waiting = self._by_queue.get((queue.topic, queue.queue_id))
            if waiting is not None:
                waiting.arrivals += 1
                if not waiting.is_to_be_asked:
                    waiting.is_to_be_asked = True
                    self._to_ask.append(waiting)
            if queue.topic in self._watchers:
                for watcher in tuple(self._watchers[queue.topic]):
                    watcher(queue)
        if self._to_ask and not self._asks_later:
            self._ask()

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
        # Not kept until its deadline: a client may name one in ten minutes, and be answered at once, time after time.
        of_deadline = self._by_deadline.get(parked.bucket)
        if of_deadline is not None:
            del of_deadline[parked]
            if not of_deadline:
                del self._by_deadline[parked.bucket]
        queue = parked.queue
        queue.remove_waiter()
        if not queue.waiter_count:
            del self._by_queue[queue.key]
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

    def _ask(self) -> None:
        """Ask a slice of the waiters whose queues grew; the others in the next turn of the loop."""
        to_ask = self._to_ask
        asked = 0
        while to_ask and asked < SLICE_MAX:
            queue = to_ask.popleft()
            place = queue.next_to_ask()
            while place is not None:
                waiter = place.waiter
                assert waiter is not None
                is_answered = waiter.look_again()
                if place.waiter is not None:
                    queue.places.append(place)
                    if is_answered:
                        self.leave(place)
                asked += 1
                if asked == SLICE_MAX:
                    break
                place = queue.next_to_ask()
            if place is None:
                queue.is_to_be_asked = False
            else:
                to_ask.append(queue)
        if to_ask:
            self._asks_later = True
            asyncio.get_running_loop().call_soon(self._ask_later)

    def _ask_later(self) -> None:
        self._asks_later = False
        self._ask()
