"""Puts that wait for slaves are answered by reports, in order, and by time alone when reports do not come."""

from __future__ import annotations

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.confirmations import Confirmations
from thermocline.store.log.message_draft import PutStatus

OK, LATE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT


class Puts:
    """The answers of puts, in order."""

    def __init__(self, *, slaves_needed: int = 1) -> None:
        self.answers: list[tuple[int, PutStatus]] = []
        self.gate = Confirmations(slaves_needed=slaves_needed, timeout_ms=lambda: 3_000)

    def wait(self, offset: int, *, deadline_ms: int = 3_000) -> None:
        self.gate.wait(
            PhysicalOffset(offset), lambda status: self.answers.append((offset, status)), deadline_ms=deadline_ms
        )

    def report(self, connection_id: int, offset: int) -> None:
        self.gate.reported(connection_id, PhysicalOffset(offset))


def test_a_report_completes_what_it_covers() -> None:
    puts = Puts()
    puts.gate.connected(1, "a")
    for offset in (100, 200, 300):
        puts.wait(offset)
    puts.report(1, 250)
    assert puts.answers == [(100, OK), (200, OK)]
    puts.wait(250)
    assert puts.answers[-1] == (250, OK)
    puts.report(1, 300)
    assert puts.answers[-1] == (300, OK)
    assert puts.gate.waiting_count == 0


def test_as_many_slaves_as_are_needed() -> None:
    puts = Puts(slaves_needed=2)
    for connection_id, host in ((1, "a"), (2, "b"), (3, "c")):
        puts.gate.connected(connection_id, host)
    puts.wait(100)
    puts.report(1, 200)
    assert puts.answers == []
    puts.report(2, 150)
    assert puts.answers == [(100, OK)]
    assert puts.gate.confirmed_offset == 150
    puts.report(3, 180)
    assert puts.gate.confirmed_offset == 180


def test_what_was_confirmed_stays_so_without_slaves() -> None:
    puts = Puts()
    puts.gate.connected(1, "a")
    puts.report(1, 100)
    puts.gate.disconnected(1)
    puts.gate.disconnected(1)
    puts.wait(100)
    puts.wait(101)
    assert puts.answers == [(100, OK)]
    assert puts.gate.confirmed_offset == 100


def test_a_dead_connection_of_a_slave_that_came_back_does_not_count() -> None:
    """Two slaves are needed, one is there: by its new connection, and by one that has not ended yet."""
    puts = Puts(slaves_needed=2)
    puts.gate.connected(1, "a")
    puts.report(1, 100)
    puts.wait(100)
    puts.gate.connected(2, "a")
    puts.report(2, 100)
    assert puts.answers == []
    # It is another slave after all, on the same host: it reports again.
    puts.report(1, 100)
    assert puts.answers == [(100, OK)]


def test_a_put_that_comes_to_wait_behind_a_later_one() -> None:
    """A flush lets the earlier one pass a moment after the later one."""
    puts = Puts()
    puts.gate.connected(1, "a")
    for offset in (300, 100, 200):
        puts.wait(offset)
    puts.report(1, 150)
    assert puts.answers == [(100, OK)]
    puts.report(1, 300)
    assert puts.answers == [(100, OK), (200, OK), (300, OK)]


def test_an_empty_slave_confirms_nothing_before_its_first_file() -> None:
    puts = Puts()
    puts.gate.connected(1, "a")
    puts.report(1, 100)
    puts.gate.disconnected(1)
    for offset in (150, 200, 250):
        puts.wait(offset)
    puts.gate.connected(2, "b")
    puts.gate.began_at(PhysicalOffset(200))
    puts.report(2, 220)
    assert puts.answers == []
    puts.report(2, 250)
    assert puts.answers == [(250, OK)]
    puts.wait(200)
    puts.wait(100)
    assert puts.answers == [(250, OK), (100, OK)]
    puts.gate.expire(3_000)
    assert puts.answers[2:] == [(150, LATE), (200, LATE), (200, LATE)]


def test_those_that_waited_too_long_are_told_so() -> None:
    puts = Puts()
    puts.wait(100, deadline_ms=1_000)
    puts.wait(200, deadline_ms=2_000)
    puts.gate.expire(999)
    assert puts.answers == []
    puts.gate.expire(1_000)
    assert puts.answers == [(100, LATE)]
    puts.gate.connected(1, "a")
    puts.report(1, 200)
    assert puts.answers == [(100, LATE), (200, OK)]
