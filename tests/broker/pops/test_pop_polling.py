"""Who waits for what, and in which order they are woken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from thermocline.broker.pops.pop_polling import Parking, Place, PopPolling
from thermocline.broker.pulls.long_polling import SLICE_MAX, LongPolling
from thermocline.remoting.connections import LimitCounts
from thermocline.store.queues.consume_queue import ConsumeQueue

NOW = 10_000
ANY = Place("T", "G", -1)


class Peer:
    remote_address = "10.0.0.1:5"


PEER: Any = Peer()


class Waiter:
    """Answers on request; records each call."""

    def __init__(self, connection: Any = None, *, answers: bool = True) -> None:
        self.connection = connection or PEER
        self.answers = answers
        self.asked = 0
        self.is_over = False

    def look_again(self) -> bool:
        self.asked += 1
        return self.answers

    def time_is_up(self) -> None:
        self.is_over = True


class Parts:
    def __init__(
        self, *, newest_first: bool = False, place_max: int = 10, total_max: int = 100, connection_max: int = 1_000
    ) -> None:
        self.now_ms = NOW
        self.set_back_ms = 0
        self.long_polling = LongPolling()
        self._soon: list[Callable[[], None]] = []
        self.polling = PopPolling(
            self.long_polling,
            clock=lambda: self.now_ms,
            steady_clock=lambda: self.now_ms + self.set_back_ms,
            call_soon=lambda call: self._soon.append(call),
            place_max=lambda: place_max,
            total_max=lambda: total_max,
            connection_max=lambda: connection_max,
            limits=LimitCounts(),
            newest_first=newest_first,
        )

    def park(self, waiter: Waiter, place: Place = ANY, *, deadline_ms: int = NOW + 1_000) -> Parking:
        return self.polling.park(place, waiter, deadline_ms=deadline_ms)

    def turn(self) -> None:
        """The next round of the loop."""
        soon, self._soon = self._soon, []
        for each in soon:
            each()

    @property
    def has_turns(self) -> bool:
        """Whether there is something to do in the next round."""
        return bool(self._soon)

    def arrive(self, topic: str, queue_id: int = 0) -> None:
        files: Any = None
        self.long_polling.arrived([ConsumeQueue(topic, queue_id, files)])
        self.turn()


def test_first_come_first_served() -> None:
    parts = Parts()
    waiters = [Waiter(), Waiter(), Waiter()]
    for waiter in waiters:
        assert parts.park(waiter) is Parking.PARKED
    parts.arrive("T", 3)
    assert [waiter.asked for waiter in waiters] == [1, 0, 0]
    parts.polling.wake(ANY)
    parts.turn()
    assert [waiter.asked for waiter in waiters] == [1, 1, 0]
    assert len(parts.polling) == 1


def test_newest_first_on_demand() -> None:
    parts = Parts(newest_first=True)
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        parts.park(waiter)
    parts.arrive("T")
    assert [waiter.asked for waiter in waiters] == [0, 1]


def test_who_does_not_answer_keeps_its_place() -> None:
    parts = Parts()
    first, second = Waiter(answers=False), Waiter()
    parts.park(first)
    parts.park(second)
    parts.arrive("T")
    parts.arrive("T")
    assert (first.asked, second.asked) == (2, 0)


def test_many_arrivals_of_one_round_wake_once() -> None:
    parts = Parts()
    waiter = Waiter(answers=False)
    parts.park(waiter)
    files: Any = None
    for _ in range(3):
        parts.long_polling.arrived([ConsumeQueue("T", 0, files), ConsumeQueue("T", 1, files)])
    parts.turn()
    assert waiter.asked == 1


def test_the_groups_of_a_topic_are_woken_in_slices() -> None:
    """One message wakes a waiter of each group; the loop serves others in between, and none is left out."""
    parts = Parts(total_max=10_000)
    waiters = [Waiter(answers=False) for _ in range(2 * SLICE_MAX + 5)]
    for number, waiter in enumerate(waiters):
        parts.park(waiter, Place("T", f"G{number}", -1))
    parts.arrive("T")
    asked = [sum(waiter.asked for waiter in waiters)]
    parts.arrive("T")  # those of the first slice again, behind the others
    asked.append(sum(waiter.asked for waiter in waiters))
    while parts.has_turns:
        parts.turn()
        asked.append(sum(waiter.asked for waiter in waiters))
    assert asked == [SLICE_MAX, 2 * SLICE_MAX, 3 * SLICE_MAX, 3 * SLICE_MAX + 5]
    assert sorted(waiter.asked for waiter in waiters) == [1] * (SLICE_MAX + 5) + [2] * SLICE_MAX


@pytest.mark.parametrize("topic", ["T", "%RETRY%G_T", "%RETRY%G+T"])
def test_retry_topics_belong_to_the_place(topic: str) -> None:
    parts = Parts()
    anywhere, here = Waiter(), Waiter()
    parts.park(anywhere)
    parts.park(here, Place("T", "G", 0))
    parts.arrive("%RETRY%other_T")
    parts.arrive("other")
    assert (anywhere.asked, here.asked) == (0, 0)
    parts.arrive(topic)
    assert (anywhere.asked, here.asked) == (1, 1)


def test_one_queue_of_a_topic() -> None:
    parts = Parts()
    waiter = Waiter()
    parts.park(waiter, Place("T", "G", 2))
    parts.arrive("T", 1)
    assert waiter.asked == 0
    parts.arrive("T", 2)
    assert waiter.asked == 1


def test_each_group_is_woken() -> None:
    parts = Parts()
    waiters = [Waiter(), Waiter()]
    parts.park(waiters[0])
    parts.park(waiters[1], Place("T", "H", -1))
    parts.arrive("T")
    assert [waiter.asked for waiter in waiters] == [1, 1]


def test_without_waiting_pops_no_queue_is_watched() -> None:
    parts = Parts()
    connection = object()
    parts.park(Waiter())
    parts.park(Waiter(connection), Place("T", "H", 1))
    assert set(parts.long_polling._watchers) == {"T", "%RETRY%G_T", "%RETRY%G+T", "%RETRY%H_T", "%RETRY%H+T"}
    parts.arrive("T")
    assert len(parts.polling) == 1
    forgotten: Any = connection
    parts.polling.forget(forgotten)
    assert not parts.long_polling._watchers
    assert len(parts.polling) == 0


def test_time_is_up_a_little_before_the_client_gives_up() -> None:
    parts = Parts()
    waiter, other = Waiter(), Waiter()
    parts.park(waiter)
    parts.park(other, deadline_ms=NOW + 5_000)
    assert not parts.long_polling.expire(NOW + 950)
    assert not waiter.is_over
    assert not parts.long_polling.expire(NOW + 951)
    assert (waiter.is_over, other.is_over) == (True, False)
    assert len(parts.polling) == 1


def test_time_is_up_though_the_wall_clock_is_set_back() -> None:
    parts = Parts()
    before, after = Waiter(), Waiter()
    parts.park(before)
    parts.now_ms -= 3_600_000
    parts.set_back_ms = 3_600_000
    parts.park(after, deadline_ms=parts.now_ms + 2_000)
    parts.polling.wake_at(ANY, parts.now_ms + 1_500)
    for later_ms, states in ((950, (False, False)), (951, (True, False)), (1_951, (True, True))):
        parts.long_polling.expire(NOW + later_ms)
        assert (before.is_over, after.is_over) == states
        assert after.asked == 0
        parts.turn()


def test_many_that_expire_together_do_so_in_slices() -> None:
    parts = Parts(place_max=1_000, total_max=1_000)
    waiters = [Waiter() for _ in range(300)]
    for waiter in waiters:
        parts.park(waiter)
    rounds = 1
    while parts.long_polling.expire(NOW + 1_000):
        rounds += 1
    assert rounds == 3
    assert all(waiter.is_over for waiter in waiters)


def test_bounds() -> None:
    parts = Parts(place_max=1, total_max=4)
    assert parts.park(Waiter(), deadline_ms=NOW + 49) is Parking.TOO_LATE
    assert parts.park(Waiter()) is Parking.PARKED
    assert parts.park(Waiter()) is Parking.PARKED  # one more, as in RocketMQ
    assert parts.park(Waiter()) is Parking.FULL
    assert parts.park(Waiter(), Place("T", "G", 1)) is Parking.PARKED
    assert parts.park(Waiter(), Place("T", "G", 2)) is Parking.PARKED
    assert parts.park(Waiter(), Place("T", "G", 3)) is Parking.FULL
    assert parts.polling.count_at(ANY) == 2
    assert parts.polling.count_at(Place("T", "G", 9)) == 0


def test_looking_again_at_a_time() -> None:
    parts = Parts()
    waiter = Waiter(answers=False)
    parts.park(waiter)
    parts.polling.wake_at(ANY, NOW + 500)
    parts.polling.wake_at(ANY, NOW + 800)
    parts.polling.wake_at(ANY, NOW + 300)
    for now_ms, asked in ((NOW + 299, 0), (NOW + 300, 1), (NOW + 900, 1)):
        parts.long_polling.expire(now_ms)
        parts.turn()
        assert waiter.asked == asked


def test_deadlines_of_those_who_left_do_not_pile_up() -> None:
    parts = Parts()
    for _ in range(5_000):
        parts.park(Waiter())
        parts.arrive("T")
    assert len(parts.polling._deadlines) < 1_100


def test_times_that_clients_bring_forward_do_not_pile_up() -> None:
    parts = Parts()
    waiter = Waiter(answers=False)
    parts.park(waiter, deadline_ms=NOW + 60_000)
    for number in range(5_000):
        parts.polling.wake_at(ANY, NOW + 50_000 - number)
    assert len(parts.polling._rechecks) < 1_100
    for now_ms, asked in ((NOW + 45_000, 0), (NOW + 45_001, 1), (NOW + 50_000, 1)):
        parts.long_polling.expire(now_ms)
        parts.turn()
        assert waiter.asked == asked


def test_a_time_far_away_is_not_remembered_for_ever() -> None:
    parts = Parts()
    for number in range(10):
        parts.polling.wake_at(Place("T", "G", number), 1 << 62)
    parts.long_polling.expire(NOW + 3_600_000)
    assert not parts.polling._rechecks
    assert not parts.polling._recheck_ms
