"""POP polling: POPs that found nothing wait for a group's messages of a topic, in one queue of it or in any.

    place     (topic, group, queue id), -1 for any queue; the group's retry topics of the topic belong to it
    park      the POP waits, up to its deadline
    wake      one waiter of a place looks again, a moment later; it answers, or waits on
    arrived   a watched topic grew: one waiter for that queue and one for any queue look again, of each group

Rules
  - One waiter is woken, not all: the messages can be given out only once. A POP with remaining messages wakes the next.
  - Waking is put off to the next round of the loop, so that a producer's answer goes out before, and many messages of
    one chunk wake once. SLICE_MAX places are woken in a round, so that a topic that thousands of groups pop delays
    nothing else.
  - First come, first served; `newest_first` serves the last one first (NOTIFICATION: one proxy asks again and again).
  - Bounds: `place_max` in one place, `total_max` in all, `connection_max` of one connection; `park` refuses above them,
    and once the deadline is near. `wake_at` remembers one time a place, for an hour at most.
  - Without waiters no topic is watched: a send costs one lookup in an empty dictionary.
Belongs to the hot process's loop thread.
Source: PopLongPollingService.java, Apache RocketMQ 5.3 and 5.5 (retry topics).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import NamedTuple, Protocol

from thermocline.broker.pulls import SLICE_MAX, WAITING_CHARACTERS_MAX, LongPolling
from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.remoting.handles import pop_retry_topic_v1, pop_retry_topic_v2
from thermocline.store.queues import ConsumeQueue

ANY_QUEUE = -1
ANSWER_AHEAD_MS = 50
"""A waiter answers so long before its client gives up."""
RECHECK_MS_MAX = 3_600_000
"""A place is remembered for no longer: a POP that waits that long looks again then, and sets the next time."""
HEAP_SLACK = 1_024


class Place(NamedTuple):
    """What a POP waits for."""

    topic: str
    group: str
    queue_id: int


class Parking(Enum):
    """How `park` ended."""

    PARKED = "parked"
    FULL = "full"
    TOO_LATE = "too late"


class PopWaiter(Protocol):
    """A POP that waits. Neither method raises: what goes wrong is answered to the client."""

    @property
    def connection(self) -> Connection:
        """The client's connection."""
        ...

    def look_again(self) -> bool:
        """There may be something now; True when the POP is answered."""
        ...

    def time_is_up(self) -> None:
        """Answer with what there is."""
        ...


class _Parked:
    """A waiter's place. `waiter` is None once it has left; its deadline stays until it has passed."""

    __slots__ = ("place", "waiter")

    def __init__(self, place: Place, waiter: PopWaiter) -> None:
        self.place = place
        self.waiter: PopWaiter | None = waiter


class PopPolling:
    """All POPs that wait."""

    def __init__(
        self,
        long_polling: LongPolling,
        *,
        clock: Callable[[], int],
        steady_clock: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        place_max: Callable[[], int],
        total_max: Callable[[], int],
        connection_max: Callable[[], int],
        limits: LimitCounts,
        newest_first: bool = False,
    ) -> None:
        """`long_polling` tells of what arrives, and of the time, which is the steady clock's. `limits`: where refusals
        are counted."""
        self._long_polling = long_polling
        self._clock = clock
        self._steady_clock = steady_clock
        self._call_soon = call_soon
        self._place_max = place_max
        self._total_max = total_max
        self._connection_max = connection_max
        self._limits = limits
        self._newest_first = newest_first
        self._places: dict[Place, dict[_Parked, None]] = {}
        self._queue_ids: dict[tuple[str, str], set[int]] = {}  # (topic, group) -> queue ids with a place
        self._watched: dict[str, set[tuple[str, str]]] = {}  # name of a topic or retry topic -> (topic, group)
        self._by_connection: dict[Connection, set[_Parked]] = {}
        self._deadlines: list[tuple[int, int, _Parked]] = []
        self._rechecks: list[tuple[int, Place]] = []
        self._recheck_ms: dict[Place, int] = {}
        self._numbers = count()
        self._to_wake: dict[Place, None] = {}
        self._wakes_soon = False
        self._count = 0
        long_polling.follow(self.expire)

    def __len__(self) -> int:
        return self._count

    def count_at(self, place: Place) -> int:
        """How many wait at a place."""
        return len(self._places.get(place, ()))

    def park(self, place: Place, waiter: PopWaiter, *, deadline_ms: int, characters: int = 0) -> Parking:
        """Let a POP wait for something at a place, until the deadline by the wall clock. `characters`: of its texts,
        which are kept."""
        connection = waiter.connection
        if self._count >= self._total_max() or characters > WAITING_CHARACTERS_MAX:
            return self._refuse(connection, "maxPopPollingSize")
        if self._clock() > deadline_ms - ANSWER_AHEAD_MS:
            return Parking.TOO_LATE
        waiting = self._places.get(place)
        if waiting is not None and len(waiting) > self._place_max():
            return self._refuse(connection, "popPollingSize")
        if len(self._by_connection.get(connection, ())) >= self._connection_max():
            return self._refuse(connection, "longPollsPerConnectionMax")
        if waiting is None:
            waiting = self._add_place(place)
        parked = _Parked(place, waiter)
        waiting[parked] = None
        self._by_connection.setdefault(waiter.connection, set()).add(parked)
        heapq.heappush(self._deadlines, (self._steady(deadline_ms) - ANSWER_AHEAD_MS, next(self._numbers), parked))
        self._count += 1
        return Parking.PARKED

    def _refuse(self, connection: Connection, limit: str) -> Parking:
        self._limits.refused(limit, address=connection.remote_address, detail="a POP is not kept waiting")
        return Parking.FULL

    def wake(self, place: Place) -> None:
        """Wake one waiter of a place, a moment later."""
        if place in self._places:
            self._to_wake[place] = None
            self._wake_soon()

    def wake_group(self, topic: str, group: str) -> None:
        """Wake one waiter of each place of a group."""
        for queue_id in self._queue_ids.get((topic, group), ()):
            self.wake(Place(topic, group, queue_id))

    def wake_at(self, place: Place, time_ms: int) -> None:
        """Wake one waiter of a place at a time by the wall clock, one tick later at most; after RECHECK_MS_MAX if that
        is earlier."""
        time_ms = min(self._steady(time_ms), self._steady_clock() + RECHECK_MS_MAX)
        if time_ms < self._recheck_ms.get(place, time_ms + 1):
            self._recheck_ms[place] = time_ms
            heapq.heappush(self._rechecks, (time_ms, place))
            if len(self._rechecks) > 2 * len(self._recheck_ms) + HEAP_SLACK:
                self._rechecks = [(each_ms, each) for each, each_ms in self._recheck_ms.items()]
                heapq.heapify(self._rechecks)

    def arrived(self, queue: ConsumeQueue) -> None:
        """A watched topic grew."""
        for topic, group in self._watched.get(queue.topic, ()):
            if queue.topic == topic:
                self.wake(Place(topic, group, ANY_QUEUE))
                self.wake(Place(topic, group, queue.queue_id))
            else:
                self.wake_group(topic, group)

    def expire(self, now_ms: int) -> bool:
        """Answer the waiters whose deadline has come, at most SLICE_MAX; True when there are more."""
        rechecks = self._rechecks
        while rechecks and rechecks[0][0] <= now_ms:
            time_ms, place = heapq.heappop(rechecks)
            if self._recheck_ms.get(place) == time_ms:
                del self._recheck_ms[place]
                self.wake(place)
        deadlines = self._deadlines
        answered = 0
        while deadlines and deadlines[0][0] < now_ms and answered < SLICE_MAX:
            parked = heapq.heappop(deadlines)[2]
            waiter = parked.waiter
            if waiter is not None:
                self._leave(parked)
                waiter.time_is_up()
                answered += 1
        return answered == SLICE_MAX

    def forget(self, connection: Connection, *, group: str | None = None) -> None:
        """The connection is closed, or its client has left a group: remove the waiters, without an answer."""
        for parked in tuple(self._by_connection.get(connection, ())):
            if group is None or parked.place.group == group:
                self._leave(parked)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _steady(self, wall_ms: int) -> int:
        """A time of the wall clock by the steady clock."""
        return wall_ms + self._steady_clock() - self._clock()

    def _wake_soon(self) -> None:
        if not self._wakes_soon:
            self._wakes_soon = True
            self._call_soon(self._wake_marked)

    def _wake_marked(self) -> None:
        self._wakes_soon = False
        for _ in range(min(len(self._to_wake), SLICE_MAX)):  # a place that is marked meanwhile has its turn later
            place = next(iter(self._to_wake))
            del self._to_wake[place]
            waiting = self._places.get(place)
            if not waiting:
                continue
            parked = next(reversed(waiting)) if self._newest_first else next(iter(waiting))
            waiter = parked.waiter
            assert waiter is not None
            if waiter.look_again():
                self._leave(parked)
        if self._to_wake:
            self._wake_soon()

    def _add_place(self, place: Place) -> dict[_Parked, None]:
        topic, group = key = place.topic, place.group
        queue_ids = self._queue_ids.get(key)
        if queue_ids is None:
            queue_ids = self._queue_ids[key] = set()
            for name in _names_of(topic, group):
                groups = self._watched.get(name)
                if groups is None:
                    groups = self._watched[name] = set()
                    self._long_polling.watch(name, self.arrived)
                groups.add(key)
        queue_ids.add(place.queue_id)
        waiting = self._places[place] = {}
        return waiting

    def _remove_place(self, place: Place) -> None:
        del self._places[place]
        topic, group = key = place.topic, place.group
        queue_ids = self._queue_ids[key]
        queue_ids.discard(place.queue_id)
        if queue_ids:
            return
        del self._queue_ids[key]
        for name in _names_of(topic, group):
            groups = self._watched[name]
            groups.discard(key)
            if not groups:
                del self._watched[name]
                self._long_polling.unwatch(name, self.arrived)

    def _leave(self, parked: _Parked) -> None:
        waiter = parked.waiter
        if waiter is None:
            return  # its answer closed the connection, which forgot it
        parked.waiter = None
        self._count -= 1
        waiting = self._places[parked.place]
        del waiting[parked]
        if not waiting:
            self._remove_place(parked.place)
        of_connection = self._by_connection.get(waiter.connection)
        if of_connection is not None:
            of_connection.discard(parked)
            if not of_connection:
                del self._by_connection[waiter.connection]
        if len(self._deadlines) > 2 * self._count + HEAP_SLACK:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiter is not None]
            heapq.heapify(self._deadlines)


def _names_of(topic: str, group: str) -> tuple[str, str, str]:
    return topic, pop_retry_topic_v1(topic, group), pop_retry_topic_v2(topic, group)
