"""Which brokers an election may choose from, as their master keeps it; and the puts that wait for them.

Covers `replication/sync_state_set.py`, `replication/waiting_puts.py`.
"""

from __future__ import annotations

import pytest

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.sync_state_set import ATTEMPTS_MAX, BEGAN_MAX, SyncStateSet
from thermocline.store.log.message_draft import PutStatus

OK, LATE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT
LAG_MS_MAX = 15_000


class Master:
    """Broker 1, whose log grows to `end`."""

    def __init__(
        self,
        *members: int,
        end: int = 0,
        epoch_start: int = 0,
        confirmed: int = 0,
        needed: int | None = None,
        least: int = 1,
    ) -> None:
        self.end = end
        self.now_ms = 1_000_000
        self.needed = needed
        self.least = least
        self.enough: list[bool] = []
        self.answers: list[tuple[int, PutStatus]] = []
        self.connection_ids: dict[int, int] = {}
        self.set = SyncStateSet(
            1,
            members=frozenset({1, *members}),
            set_epoch=5,
            epoch_start=PhysicalOffset(epoch_start),
            confirm_offset=PhysicalOffset(confirmed),
            log_end=lambda: PhysicalOffset(self.end),
            acks_needed=lambda: self.needed,
            timeout_ms=lambda: 3_000,
            lag_ms_max=lambda: LAG_MS_MAX,
            least_in_sync=lambda: self.least,
            on_enough=self.enough.append,
        )

    def connect(self, slave: int, *, learner: bool = False) -> None:
        self.connection_ids[slave] = self.connection_ids.get(slave, 0) + 1
        self.set.connected(slave, self.connection_ids[slave], is_learner=learner, now_ms=self.now_ms)

    def report(self, slave: int, offset: int, *, connection_id: int | None = None) -> None:
        self.set.reported(
            slave, connection_id or self.connection_ids[slave], PhysicalOffset(offset), now_ms=self.now_ms
        )

    def put(self, size: int = 100) -> None:
        self.end += size
        end = self.end
        self.set.wait(PhysicalOffset(end), lambda status: self.answers.append((end, status)), deadline_ms=9_000_000)

    def wanted(self) -> set[int] | None:
        wanted = self.set.wanted(now_ms=self.now_ms)
        return None if wanted is None else set(wanted)

    def ask(self, *members: int) -> None:
        assert self.wanted() == {1, *members}
        self.set.asked(frozenset({1, *members}))


def test_alone_it_confirms_what_it_has() -> None:
    master = Master()
    master.put()
    assert master.answers == [(100, OK)]
    assert master.set.confirm_offset == 100
    assert master.wanted() is None
    assert master.set.in_sync_count == 1


def test_puts_wait_unless_the_master_alone_is_enough() -> None:
    assert Master().set.puts_wait
    assert Master(needed=2).set.puts_wait
    assert not Master(needed=1).set.puts_wait


def test_a_slave_that_has_caught_up_joins() -> None:
    master = Master(end=100)
    master.connect(2)
    assert master.wanted() is None
    master.report(2, 99)
    assert master.wanted() is None
    master.report(2, 100)
    master.ask(2)
    master.put()
    assert master.answers == []  # the controller may have it in the set already
    assert master.set.in_sync_count == 2
    master.set.adopt(frozenset({1, 2}), 6)
    assert master.answers == []
    master.report(2, 200)
    assert master.answers == [(200, OK)]
    assert master.wanted() is None


def test_a_refused_change_counts_no_more() -> None:
    master = Master(end=100)
    master.connect(2)
    master.report(2, 100)
    master.ask(2)
    master.put()
    # Another request for it may have been granted before.
    master.set.refused(frozenset({1, 2}), 6)
    assert master.answers == []
    master.set.refused(frozenset({1, 2}), 5)
    assert master.answers == [(200, OK)]
    assert master.set.in_sync_count == 1


def test_a_slave_joins_in_the_present_epoch_only() -> None:
    """It may have all that is confirmed, and still another master's tail."""
    master = Master(3, end=300, epoch_start=300, confirmed=100)
    master.connect(2)
    master.connect(3)
    master.report(3, 100)
    master.report(2, 250)
    assert master.wanted() is None
    master.report(2, 300)
    assert master.wanted() == {1, 2, 3}


def test_an_empty_slave_joins_when_its_first_byte_is_confirmed() -> None:
    master = Master(3, end=300, confirmed=100)
    for slave in (2, 3):
        master.connect(slave)
    master.report(3, 150)
    master.set.began_at(2, 1, PhysicalOffset(200))
    master.report(2, 300)
    assert master.wanted() is None
    master.report(3, 200)
    assert master.wanted() == {1, 2, 3}


@pytest.mark.parametrize("is_noticed", [True, False], ids=["the end is noticed", "it is not"])
def test_an_empty_slave_that_connects_again_still_lacks_what_is_before_its_first_byte(is_noticed: bool) -> None:
    master = Master(3, end=300, confirmed=100)
    for slave in (2, 3):
        master.connect(slave)
    master.report(3, 150)
    master.set.began_at(2, 1, PhysicalOffset(200))
    for _ in range(2):
        if is_noticed:
            master.set.disconnected(2, master.connection_ids[2])
        master.connect(2)
        master.report(2, 300)
        assert master.wanted() is None
    master.report(3, 200)
    assert master.wanted() == {1, 2, 3}


def test_an_empty_slave_that_connects_again_completes_no_put_that_it_lacks() -> None:
    master = Master(needed=2)
    master.put()
    master.put()
    master.connect(2)
    master.set.began_at(2, 1, PhysicalOffset(150))
    master.report(2, 200)
    master.set.disconnected(2, 1)
    master.connect(2)
    master.report(2, 200)
    assert master.answers == []


def test_of_many_empty_slaves_that_left_some_are_remembered_and_none_completes_a_put_that_it_lacks() -> None:
    master = Master(needed=2)
    master.put()
    master.put()
    slaves = range(2, BEGAN_MAX + 10)
    for slave in slaves:
        master.connect(slave)
        master.set.began_at(slave, 1, PhysicalOffset(150))
        master.report(slave, 200)
        master.set.disconnected(slave, 1)
    assert len(master.set._began) == BEGAN_MAX
    for slave in slaves:
        master.connect(slave)
        master.report(slave, 200)
    assert master.answers == []


def test_an_empty_slave_completes_puts_of_an_epoch_that_begins_behind_its_first_byte() -> None:
    """The store has had other roles before: nothing is known to be confirmed, and its oldest files are deleted."""
    master = Master(end=1_000, epoch_start=1_000, needed=2)
    master.connect(2)
    master.set.began_at(2, 1, PhysicalOffset(500))
    master.put()
    assert master.answers == []
    master.report(2, 1_100)
    assert master.answers == [(1_100, OK)]


def test_a_slave_that_has_lost_what_was_confirmed_leaves_until_it_has_it_again() -> None:
    """A power cut of its machine, before the master has missed it: an election must not choose it."""
    master = Master(2, 3, end=100)
    for slave in (2, 3):
        master.connect(slave)
        master.report(slave, 100)
    assert master.set.confirm_offset == 100
    master.connect(2)
    assert master.wanted() is None, "it has not reported yet"
    master.report(2, 60)
    master.ask(3)
    master.set.adopt(frozenset({1, 3}), 6)
    assert master.wanted() is None
    master.report(2, 100)
    assert master.wanted() == {1, 2, 3}


def test_a_learner_never_joins() -> None:
    master = Master(end=100)
    master.connect(2, learner=True)
    master.report(2, 100)
    assert master.wanted() is None


def test_a_slave_that_has_gone_leaves_and_the_confirm_offset_waits() -> None:
    master = Master(2, 3, end=100)
    for slave in (2, 3):
        master.connect(slave)
        master.report(slave, 100)
    assert master.set.confirm_offset == 100
    master.put()
    master.report(3, 200)
    master.set.disconnected(2, 1)
    assert master.set.confirm_offset == 100
    master.ask(3)
    assert master.answers == []
    assert master.set.in_sync_count == 3
    master.set.adopt(frozenset({1, 3}), 6)
    assert master.answers == [(200, OK)]
    assert master.set.confirm_offset == 200


def test_a_slave_that_connects_again_is_not_taken_to_have_anything() -> None:
    master = Master(2, end=100, confirmed=100)
    master.connect(2)
    master.put()
    assert master.set.confirm_offset == 100
    assert master.answers == []


@pytest.mark.parametrize("grows", [True, False], ids=["the log grows", "the log does not grow"])
def test_a_slave_that_lags_leaves(grows: bool) -> None:
    master = Master(2, end=100)
    master.connect(2)
    master.report(2, 100)
    for _ in range(20):
        master.now_ms += LAG_MS_MAX // 10
        master.end += 10 * grows
        if not grows:
            master.report(2, 100)
        assert master.wanted() in (None, {1})
    assert master.wanted() == ({1} if grows else None)


def test_a_slave_that_is_always_a_little_behind_stays() -> None:
    master = Master(2, end=100)
    master.connect(2)
    for _ in range(30):
        end = master.end
        master.end += 1_000
        master.now_ms += 1_000
        master.report(2, end)
        assert master.wanted() is None


def test_changes_without_an_answer_are_asked_for_again() -> None:
    master = Master(end=100)
    for slave in range(2, 2 + ATTEMPTS_MAX + 1):
        master.connect(slave)
        master.report(slave, 100)
        if slave < 2 + ATTEMPTS_MAX:
            master.ask(*range(2, slave + 1))
    assert master.wanted() == {1, 2}
    assert master.set.in_sync_count == 1 + ATTEMPTS_MAX
    master.put()
    for slave in range(2, 2 + ATTEMPTS_MAX):
        assert master.answers == []
        master.report(slave, 200)
    assert master.answers == [(200, OK)]
    master.set.adopt(frozenset({1, 2, 3}), 6)
    assert master.set.in_sync_count == 3


def test_a_change_back_is_not_asked_for_while_the_change_may_be_in_force() -> None:
    master = Master(end=100)
    master.connect(2)
    master.report(2, 100)
    master.ask(2)
    master.set.disconnected(2, 1)
    assert master.wanted() == {1, 2}
    master.set.refused(frozenset({1, 2}), 5)
    assert master.wanted() is None


def test_an_older_answer_changes_nothing() -> None:
    master = Master(2, end=100)
    master.set.adopt(frozenset({1}), 4)
    master.set.adopt(frozenset({1, 2, 3}), 5)
    assert master.set.members == {1, 2}


def test_puts_do_not_wait_for_a_broker_that_the_controllers_have_forgotten() -> None:
    """CLEAN_BROKER_DATA takes it out of the set, and leaves the epoch of the set as it is."""
    master = Master(2, 3, end=100)
    for slave in (2, 3):
        master.connect(slave)
        master.report(slave, 100)
    master.put()
    master.report(2, 200)
    assert not master.answers
    master.set.adopt(frozenset({1, 2}), 5)
    assert master.answers == [(200, OK)]
    assert master.set.members == {1, 2}


def test_reports_of_a_connection_that_was_given_up_do_not_count() -> None:
    master = Master(2, end=100)
    master.connect(2)
    master.connect(2)
    master.report(2, 100, connection_id=1)
    assert master.set.confirm_offset == 0
    master.set.disconnected(2, 1)
    master.report(2, 100)
    assert master.set.confirm_offset == 100


def test_a_number_of_brokers_instead_of_all() -> None:
    """inSyncReplicas without allAckInSyncStateSet: as many as that, learners not."""
    master = Master(2, 3, needed=2)
    for slave in (2, 3, 4):
        master.connect(slave, learner=slave == 4)
    master.put()
    master.report(4, 100)
    assert master.answers == []
    master.report(3, 100)
    assert master.answers == [(100, OK)]
    assert (master.set.confirmed_offset, master.set.confirm_offset) == (100, 0)
    master.needed = 3
    master.put()
    master.report(3, 200)
    assert len(master.answers) == 1
    master.report(2, 200)
    assert master.answers[1:] == [(200, OK)]


def test_an_empty_slave_confirms_no_put_before_its_first_byte() -> None:
    master = Master(2, needed=2)
    master.connect(2)
    master.connect(3)
    master.put()
    master.put()
    master.set.began_at(3, 1, PhysicalOffset(150))
    master.report(3, 200)
    assert master.answers == []
    master.report(2, 150)
    assert master.answers == [(100, OK)]
    master.report(3, 200)
    assert master.answers == [(100, OK), (200, OK)]


def test_puts_that_wait_too_long_or_for_a_master_that_is_none_any_more() -> None:
    master = Master(2)
    master.connect(2)
    answers: list[PutStatus] = []
    master.set.wait(PhysicalOffset(50), answers.append, deadline_ms=1_000)
    master.set.expire(999)
    assert answers == []
    master.set.expire(1_000)
    assert answers == [LATE]
    master.put()
    master.set.close()
    assert master.answers == [(100, LATE)]


def test_with_too_few_in_sync_puts_wait_until_there_are_enough() -> None:
    master = Master(2, least=2)
    master.connect(2)
    master.report(2, 0)
    master.put()
    assert master.answers == []
    master.set.disconnected(2, master.connection_ids[2])
    master.ask()
    master.set.adopt(frozenset({1}), 6)
    assert master.set.confirm_offset == 100, "an election can choose no other broker"
    assert master.enough == [False]
    assert master.answers == [], "one broker alone keeps no promise of two"
    master.connect(2)
    master.report(2, 100)
    master.ask(2)
    assert master.answers == []
    master.set.adopt(frozenset({1, 2}), 7)
    assert master.enough == [False, True]
    assert master.answers == [(100, OK)]


def test_a_set_that_begins_with_too_few_says_so() -> None:
    master = Master(least=2)
    assert master.enough == [False]
    master.least = 1  # the setting was changed
    assert master.wanted() is None
    assert master.enough == [False, True]
