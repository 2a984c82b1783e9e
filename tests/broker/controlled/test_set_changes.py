"""Set changes: a master's SyncStateSet and a controller's tables, with lost answers and changes that are made late.

Covers `broker/controlled/set_changes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.broker.controlled.controller_tables import NAMES, ControllerTables
from tests.store.power_cut import seed_shown
from thermocline.broker.controlled.questions import Answer, Ask, MasterNews, Question
from thermocline.broker.controlled.set_changes import RETRY_MS, SETTLED_MS, SetChanges
from thermocline.controller.state import Proposal
from thermocline.controller.state.events import CleanBrokerData
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.response_code import ResponseCode
from thermocline.replication.sync_state_set import SyncStateSet

END = PhysicalOffset(10_000)
LAG_MS_MAX = 1_000
MASTER, SLAVE, THIRD = 1, 2, 3


class Master:
    """Number 1 of three brokers, all alive at the controller, and the connections of its slaves."""

    def __init__(self, random: Random | None = None) -> None:
        self.now_ms = 1_000_000
        self.tables = ControllerTables()
        for number in (MASTER, SLAVE, THIRD):
            assert self.ask(Question(ask=Ask.APPLY, broker_id=number, check_code=f"127.0.0.1:{number};1")).is_granted
            self.beat(number)
        assert self.ask(Question(ask=Ask.ELECT, broker_id=MASTER)).is_granted
        self.sync_state_set = SyncStateSet(
            MASTER,
            members=frozenset({MASTER}),
            set_epoch=1,
            epoch_start=LOG_START,
            confirm_offset=LOG_START,
            log_end=lambda: END,
            acks_needed=lambda: None,
            timeout_ms=lambda: 3_000,
            lag_ms_max=lambda: LAG_MS_MAX,
        )
        self.changes = SetChanges(self.sync_state_set, master_epoch=1, random=random or Random(0), now_ms=self.now_ms)

    @property
    def members(self) -> frozenset[int]:
        """As the controller has them."""
        return frozenset(self.tables.sets.syncs[NAMES.broker_name].set)

    def beat(self, number: int) -> None:
        self.tables.beat(number, address=f"127.0.0.1:{number}", now_ms=self.now_ms, owner=number)

    def ask(self, question: Question) -> Answer:
        return self.tables.ask(question, address="127.0.0.1:1", now_ms=self.now_ms)

    def follows(self, number: int) -> None:
        """A slave that has everything."""
        self.sync_state_set.connected(number, number, is_learner=False, now_ms=self.now_ms)
        self.sync_state_set.reported(number, number, END, now_ms=self.now_ms)

    def step(self) -> Question | None:
        """Ask, and hear the answer."""
        question = self.changes.question(self.now_ms)
        if question is not None:
            self.changes.answered(question, self.ask(question), self.now_ms)
        return question

    def lose(self, *, is_heard: bool) -> Question:
        """Ask; the answer does not come."""
        question = self.changes.question(self.now_ms)
        assert question is not None
        if is_heard:
            self.ask(question)
        self.changes.answered(question, None, self.now_ms)
        return question


def test_a_slave_that_follows_joins_and_one_that_is_gone_leaves() -> None:
    master = Master()
    assert master.step() is None
    master.follows(SLAVE)
    assert master.step() is not None
    assert master.sync_state_set.members == master.members == {MASTER, SLAVE}
    assert master.step() is None
    master.sync_state_set.disconnected(SLAVE, SLAVE)
    master.step()
    assert master.sync_state_set.members == master.members == {MASTER}
    assert master.sync_state_set.set_epoch == 3


def test_a_change_whose_answer_was_lost_is_found_to_be_made() -> None:
    master = Master()
    master.follows(SLAVE)
    assert master.lose(is_heard=True).ask is Ask.ALTER
    assert master.step() is None, "a pause comes first"
    assert master.sync_state_set.in_sync_count == 2, "it counts from the question on"
    master.now_ms += RETRY_MS
    question = master.step()
    assert question is not None
    assert question.ask is Ask.ALTER, "the controller refuses: its set is that one already"
    question = master.step()
    assert question is not None
    assert question.ask is Ask.REPLICA_INFO
    assert master.sync_state_set.members == master.members == {MASTER, SLAVE}


def test_a_refused_change_is_given_up_and_asked_for_again() -> None:
    master = Master()
    master.tables.live.owner_gone(SLAVE)
    master.follows(SLAVE)
    assert master.step() is not None
    assert master.sync_state_set.in_sync_count == 2
    assert master.step() is not None
    assert master.sync_state_set.in_sync_count == 1
    master.beat(SLAVE)
    assert master.step() is None
    master.now_ms += RETRY_MS
    master.step()
    assert master.members == {MASTER, SLAVE}


def test_a_refusal_after_a_lost_answer_gives_nothing_up_before_it_is_settled() -> None:
    master = Master()
    master.follows(SLAVE)
    master.lose(is_heard=False)
    master.sync_state_set.disconnected(SLAVE, SLAVE)
    master.tables.live.owner_gone(SLAVE)
    lost_ms = master.now_ms
    while master.now_ms < lost_ms + SETTLED_MS:
        assert master.sync_state_set.in_sync_count == 2
        master.step()
        master.now_ms += 100
    for _ in range(40):
        master.step()
        master.now_ms += 100
    assert master.sync_state_set.in_sync_count == 1
    assert master.changes.question(master.now_ms) is None


@pytest.mark.parametrize("is_registered", [False, True], ids=["not registered", "not heard"])
def test_a_slave_that_the_controllers_do_not_take_keeps_no_other_from_joining_or_leaving(is_registered: bool) -> None:
    """One whose number was cleaned while it ran, or whose heartbeats name another cluster."""
    master = Master()
    stray, slave = (SLAVE, THIRD) if is_registered else (9, SLAVE)
    master.tables.live.owner_gone(stray)

    def go_on() -> None:
        for _ in range(30):
            for number in {MASTER, SLAVE, THIRD} - {stray}:
                master.beat(number)
            master.follows(stray)
            master.step()
            master.now_ms += 200

    master.follows(slave)
    go_on()
    assert master.sync_state_set.members == master.members == {MASTER, slave}
    master.sync_state_set.disconnected(slave, slave)
    go_on()
    assert master.sync_state_set.members == master.members == {MASTER}
    if is_registered:
        for _ in range(10):
            master.beat(stray)
            master.step()
            master.now_ms += 200
        assert master.members == {MASTER, stray}


def test_brokers_that_are_refused_are_requested_one_after_another() -> None:
    master = Master()
    for number in (SLAVE, THIRD, 7, 8, 9):
        master.follows(number)
    for _ in range(60):
        for number in (MASTER, SLAVE, THIRD):
            master.beat(number)
        for number in (7, 8, 9, SLAVE, THIRD):
            master.follows(number)
        master.step()
        master.now_ms += 200
    assert master.sync_state_set.members == master.members == {MASTER, SLAVE, THIRD}


def test_a_broker_that_an_operator_has_forgotten_leaves_the_set() -> None:
    master = Master()
    for number in (SLAVE, THIRD):
        master.follows(number)
    master.step()
    assert master.members == {MASTER, SLAVE, THIRD}
    master.tables.sets.apply(
        Proposal(
            after=master.tables.sets.revision,
            event=CleanBrokerData(broker_name=NAMES.broker_name, broker_ids=(THIRD,)),
        )
    )
    news = master.ask(Question(ask=Ask.REPLICA_INFO, broker_id=MASTER)).news
    assert news is not None
    master.changes.adopt(news)
    assert master.sync_state_set.members == master.members == {MASTER, SLAVE}


@pytest.mark.parametrize("code", [ResponseCode.CONTROLLER_INVALID_MASTER, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH])
def test_another_master_is_noticed(code: int) -> None:
    master = Master()
    master.follows(SLAVE)
    question = master.changes.question(master.now_ms)
    assert question is not None
    master.changes.answered(question, Answer(code=code), master.now_ms)
    assert master.changes.is_replaced
    assert master.sync_state_set.in_sync_count == 2


def test_a_set_that_another_question_has_brought_is_adopted() -> None:
    master = Master()
    news = MasterNews(
        master_id=MASTER, master_address="a", master_epoch=1, set_epoch=5, members=frozenset({MASTER, THIRD})
    )
    for other in ({"master_epoch": 2}, {"master_id": SLAVE}, {"members": frozenset({SLAVE})}):
        master.changes.adopt(MasterNews(**{name: getattr(news, name) for name in news.__struct_fields__} | other))
        assert master.sync_state_set.set_epoch == 1
    master.changes.adopt(news)
    assert (master.sync_state_set.members, master.sync_state_set.set_epoch) == (news.members, 5)


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    master = Master()
    master.follows(SLAVE)
    question = master.lose(is_heard=False)
    master.changes.answered(question, master.ask(question), master.now_ms)
    assert master.sync_state_set.set_epoch == 1


def test_members_that_the_controllers_may_elect_always_count(case_count: Callable[..., int]) -> None:
    """Questions and answers are lost, questions reach the controller seconds later, slaves come and go."""
    for seed in range(case_count(quick=60, full=600, soak=5_000)):
        with seed_shown(seed):
            run(Random(seed))


def run(random: Random) -> None:
    master = Master(random)
    delayed: list[tuple[int, Question]] = []
    for step in range(400):
        master.now_ms += random.randrange(50, 400)
        is_faulty = step < 250
        for number in (SLAVE, THIRD):
            if not is_faulty or random.random() < 0.2:
                master.follows(number)
            elif random.random() < 0.1:
                master.sync_state_set.disconnected(number, number)
        for number in (MASTER, SLAVE, THIRD):
            if not is_faulty or random.random() < 0.7:
                master.beat(number)
            elif random.random() < 0.3:
                master.tables.live.owner_gone(number)
        for due in [each for each in delayed if each[0] <= master.now_ms]:
            delayed.remove(due)
            master.ask(due[1])
        question = master.changes.question(master.now_ms)
        if question is not None:
            fate = random.random() if is_faulty else 1.0
            if fate < 0.15:  # it reaches the controller when no answer is waited for any more
                delayed.append((master.now_ms + random.randrange(SETTLED_MS - 1_000), question))
                master.changes.answered(question, None, master.now_ms)
            elif fate < 0.3:
                master.ask(question)
                master.changes.answered(question, None, master.now_ms)
            else:
                master.changes.answered(question, master.ask(question), master.now_ms)
        counted = {MASTER, *master.sync_state_set._possible_members()}
        assert master.members <= counted, "puts wait for each broker that could be elected"
    assert master.sync_state_set.members == master.members == {MASTER, SLAVE, THIRD}
