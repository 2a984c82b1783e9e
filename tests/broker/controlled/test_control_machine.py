"""Control machine: step by step against a controller's tables, and many brokers with lost and late answers.

Covers `broker/controlled/control_machine.py`, `broker/controlled/questions.py`, `broker/controlled/wire_questions.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import pytest

from tests.broker.controlled.controller_tables import NAMES, SILENCE_MS, ControllerTables
from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.power_cut import seed_shown
from thermocline.broker.controlled.control_machine import (
    COLLISION_MS_MAX,
    MASTER_ID,
    NOTICE_MS,
    RETRY_MS_MAX,
    ControlMachine,
    Phase,
)
from thermocline.broker.controlled.identity_files import IdentityFiles
from thermocline.broker.controlled.questions import Answer, Ask, Question
from thermocline.remoting.response_code import ResponseCode
from thermocline.replication.replica_role import ReplicaRole

FOLDER, PATH = "/store", "/store/brokerIdentity"
ASK_MS = 1_000


class Broker:
    """One store, and the processes that open it one after another."""

    def __init__(self, number: int, clock: Clock, tables: ControllerTables) -> None:
        self.clock = clock
        self.tables = tables
        self.address = f"127.0.0.1:{10_000 + number}"
        self.disk = SimulatedDisk()
        self.disk.make_directory(FOLDER)
        self.epoch = 0
        """The log's last."""
        self.roles: list[ReplicaRole] = []
        self.led: list[int] = []
        """Epochs that it was the master of, over all starts."""
        self.start(Random(number))

    def start(self, random: Random) -> None:
        """A new life."""
        self.life = object()
        self.roles = []
        self.machine = ControlMachine(
            IdentityFiles(self.disk, PATH, NAMES),
            address=self.address,
            last_epoch=lambda: self.epoch,
            ask_interval_ms=lambda: ASK_MS,
            wall_clock=self.clock,
            random=random,
        )

    @property
    def role(self) -> ReplicaRole | None:
        return self.machine.role

    def beat(self) -> None:
        """A heartbeat, if it sends any."""
        broker_id = self.machine.files.broker_id
        if self.machine.sends_heartbeats and broker_id is not None:
            self.tables.beat(broker_id, address=self.address, now_ms=self.clock(), owner=self.life, epoch=self.epoch)

    def ask(self, *, stale: ControllerTables | None = None) -> tuple[Question, Answer] | None:
        """The next question, if one is due, and the controller's answer, not given to the broker yet. `stale`: the
        tables of a controller that does not lead any more, and does not know it."""
        question = self.machine.question(self.clock())
        if question is None:
            return None
        if question.ask is Ask.ELECT:
            self.beat()
        tables = self.tables if stale is None or question.ask is not Ask.REPLICA_INFO else stale
        return question, tables.ask(question, address=self.address, now_ms=self.clock())

    def change_role(self) -> None:
        """Do what the machine wants."""
        change = self.machine.wanted
        if change is None:
            return
        role = change.role
        if role.broker_id == MASTER_ID:
            assert role.master_epoch > self.epoch, "the log has this epoch already"
            self.led.append(role.master_epoch)
        self.epoch = max(self.epoch, role.master_epoch) if role.master_broker_id is not None else self.epoch
        self.roles.append(role)
        self.machine.role_taken(change)

    def step(self) -> Ask | None:
        """Ask what is due, hear the answer, change the role; what was asked."""
        asked = self.ask()
        if asked is not None:
            self.machine.answered(*asked, self.clock())
        self.change_role()
        return None if asked is None else asked[0].ask

    def steps(self) -> list[Ask]:
        """Steps until nothing is due."""
        asked = []
        while (ask := self.step()) is not None:
            asked.append(ask)
        return asked


class Site:
    """A controller and brokers."""

    def __init__(self, count: int) -> None:
        self.clock = Clock(1_000_000)
        self.tables = ControllerTables()
        self.brokers = [Broker(number, self.clock, self.tables) for number in range(1, count + 1)]

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.tables.replace_dead_masters(self.clock())


@pytest.fixture
def site() -> Site:
    return Site(2)


def test_a_new_set_gets_numbers_and_its_first_broker_is_the_master(site: Site) -> None:
    first, second = site.brokers
    assert first.steps() == [Ask.NEXT_ID, Ask.APPLY, Ask.REGISTER, Ask.ELECT]
    assert first.role is not None
    assert (first.role.broker_id, first.role.master_broker_id, first.role.master_epoch) == (MASTER_ID, 1, 1)
    assert first.role.master_address == ""
    assert second.steps() == [Ask.NEXT_ID, Ask.APPLY, Ask.REGISTER]
    assert second.role == ReplicaRole(
        broker_id=2,
        master_epoch=1,
        sync_state_set_epoch=1,
        master_broker_id=1,
        master_address=first.address,
        master_ha_address="",
    )
    assert site.tables.sets.members[NAMES.broker_name].replicas[2].address == second.address


def test_numbers_are_kept_over_restarts(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    for broker, number in ((first, 1), (second, 2)):
        broker.start(Random(9))
        assert broker.machine.phase is Phase.REGISTERING
        assert broker.machine.files.broker_id == number


def test_a_lost_answer_to_an_application_is_repeated_with_the_same_number(site: Site) -> None:
    broker = site.brokers[0]
    broker.step()
    asked = broker.ask()
    assert asked is not None
    assert asked[0].ask is Ask.APPLY
    assert asked[1].is_granted
    broker.start(Random(1))  # killed before it heard the answer
    again = broker.ask()
    assert again is not None
    assert again[0] == asked[0]
    assert again[1].is_granted
    assert site.tables.sets.members[NAMES.broker_name].next_id == 2


def test_a_number_that_another_broker_was_faster_with_is_not_kept(site: Site) -> None:
    first, second = site.brokers
    first.step()
    second.step()  # number 1 is the next one for both
    second.step()
    assert second.machine.files.broker_id == 1
    assert first.step() is Ask.APPLY
    assert first.machine.files.application is None
    site.pass_time(COLLISION_MS_MAX)
    assert first.steps()[:2] == [Ask.NEXT_ID, Ask.APPLY]
    assert first.machine.files.broker_id == 2


def test_an_answer_that_comes_too_late_changes_nothing(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    site.pass_time(ASK_MS)
    late = second.ask()
    assert late is not None
    second.machine.answered(late[0], None, site.clock())
    assert second.machine.question(site.clock()) is None, "a pause comes first"
    site.pass_time(RETRY_MS_MAX)
    newer = second.ask()
    assert newer is not None
    assert newer[0] is not late[0]
    second.machine.answered(late[0], Answer(news=None), site.clock())
    assert second.machine.due_ms is None, "the newer question waits still"


def test_without_controllers_the_role_stays_and_questions_become_rarer(site: Site) -> None:
    first = site.brokers[0]
    first.steps()
    role, asked_ms = first.role, []
    for _ in range(60_000 // 50):
        site.clock.now_ms += 50
        question = first.machine.question(site.clock())
        if question is not None:
            asked_ms.append(site.clock())
            first.machine.answered(question, None, site.clock())
    assert first.role is role
    assert first.machine.wanted is None
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked_ms)]
    assert max(pauses) <= RETRY_MS_MAX + 50
    assert 15 <= len(asked_ms) <= 40


def test_another_master_is_followed_and_the_old_one_becomes_its_slave(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    in_sync(site, {1, 2})
    for _ in range(4):  # the first is frozen
        site.pass_time(SILENCE_MS // 3)
        second.beat()
        second.steps()
    assert second.role is not None
    assert (second.role.broker_id, second.role.master_epoch) == (MASTER_ID, 2)
    assert first.role is not None
    assert first.role.broker_id == MASTER_ID, "it has heard nothing"
    first.beat()
    first.steps()
    assert (first.role.broker_id, first.role.master_address) == (1, second.address)


def test_a_notice_is_no_answer_but_has_the_controllers_asked(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    site.pass_time(NOTICE_MS)
    second.machine.noticed(1, site.clock())
    assert second.ask() is None, "the epoch is not newer"
    second.machine.noticed(1_000_000, site.clock())
    asked = second.ask()
    assert asked is not None
    assert asked[0].ask is Ask.REPLICA_INFO
    second.machine.noticed(1_000_001, site.clock())
    second.machine.answered(*asked, site.clock())
    assert second.machine.wanted is None
    assert second.ask() is None, "notices are followed at most every NOTICE_MS"
    site.pass_time(NOTICE_MS)
    assert second.ask() is not None


def test_a_master_that_starts_again_is_silent_until_it_is_replaced(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    first.beat()
    first.start(Random(3))  # so fast that the controllers have not noticed
    assert first.steps() == [Ask.REGISTER]
    assert not first.machine.sends_heartbeats
    assert first.role is None
    for _ in range(20):
        site.pass_time(500)
        second.beat()
        first.beat()
        first.steps()
    assert first.role is not None
    assert first.role.broker_id == MASTER_ID, "only the first one was in sync"
    assert first.role.master_epoch == 3, "one epoch without a master, then a new one"
    assert first.led == [1, 3]


def test_a_broker_outside_the_set_waits_without_a_master(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    for _ in range(10):
        site.pass_time(SILENCE_MS // 3)
        second.beat()
        second.steps()
    assert second.role is not None
    assert (second.role.broker_id, second.role.master_broker_id, second.role.master_address) == (2, None, "")
    first.start(Random(5))
    first.steps()
    site.pass_time(ASK_MS)
    second.steps()
    assert second.role.master_address == first.address


def test_a_master_that_was_counted_as_dead_is_elected_again_and_does_not_stop(site: Site) -> None:
    first = site.brokers[0]
    first.steps()
    site.pass_time(SILENCE_MS + 1)
    first.beat()
    first.steps()
    assert [(role.broker_id, role.master_epoch) for role in first.roles] == [(MASTER_ID, 1), (MASTER_ID, 3)]


def test_controllers_that_have_lost_the_broker_are_reported(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    first = site.brokers[0]
    first.steps()
    first.tables = ControllerTables()
    first.start(Random(1))
    for _ in range(5):
        first.steps()
        site.pass_time(RETRY_MS_MAX)
    assert first.role is None
    assert [record.message.count("remove brokerIdentity") for record in caplog.records].count(1) == 1


def test_a_master_that_moves_is_followed_to_its_new_address(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    site.tables.live.owner_gone(first.life)
    register = Question(ask=Ask.REGISTER, broker_id=1)
    assert site.tables.ask(register, address="127.0.0.1:777", now_ms=site.clock()).is_granted
    first.beat()
    site.pass_time(ASK_MS)
    second.steps()
    assert second.role is not None
    assert (second.role.master_epoch, second.role.master_address) == (1, "127.0.0.1:777")


def test_the_replication_port_of_a_master_is_a_change_of_its_slaves_role(site: Site) -> None:
    first, second = site.brokers
    first.steps()
    second.steps()
    role = second.role
    assert role is not None
    second.machine.ha_address_known(role, "127.0.0.1:1")
    second.change_role()
    assert second.role is not None
    assert second.role.master_ha_address == "127.0.0.1:1"
    site.pass_time(ASK_MS)
    second.steps()
    assert second.machine.wanted is None
    second.machine.ha_address_known(role, "127.0.0.1:2")
    assert second.machine.wanted is None, "that answered a question of an older role"


def test_an_epoch_that_the_log_has_makes_the_broker_silent(site: Site) -> None:
    first = site.brokers[0]
    while first.machine.wanted is None:
        asked = first.ask()
        assert asked is not None
        first.machine.answered(*asked, site.clock())
    first.machine.epoch_is_stale(first.machine.wanted, site.clock())
    assert first.machine.wanted is None
    assert not first.machine.sends_heartbeats


def test_a_refusal_of_another_kind_keeps_the_application(site: Site) -> None:
    broker = site.brokers[0]
    broker.step()
    question = broker.machine.question(site.clock())
    assert question is not None
    broker.machine.answered(question, Answer(code=ResponseCode.SYSTEM_BUSY), site.clock())
    assert broker.machine.files.application is not None
    site.pass_time(RETRY_MS_MAX)
    assert broker.machine.question(site.clock()) == question


def in_sync(site: Site, members: set[int]) -> None:
    """Have the controller's set changed by its master."""
    sync = site.tables.sets.syncs[NAMES.broker_name]
    assert sync.master_id is not None
    for broker in site.brokers:
        broker.beat()
    alter = Question(
        ask=Ask.ALTER,
        broker_id=sync.master_id,
        master_epoch=sync.master_epoch,
        set_epoch=sync.set_epoch,
        members=frozenset(members),
    )
    answer = site.tables.ask(alter, address="", now_ms=site.clock())
    assert answer.news is not None
    assert answer.news.members == frozenset(members)


def test_brokers_agree_in_the_end_whatever_is_lost(case_count: Callable[..., int]) -> None:
    """Requests and answers are lost, processes are killed at any step, brokers are not heard."""
    for seed in range(case_count(quick=25, full=300, soak=3_000)):
        with seed_shown(seed):
            run(Random(seed))


def run(random: Random) -> None:
    site = Site(3)
    epochs: dict[int, int | None] = {}
    stale = ControllerTables()
    for step in range(600):
        is_faulty = step < 300
        if random.random() < 0.05:
            stale.sets.restore(site.tables.sets.encode())
        site.pass_time(random.randrange(150, 400))
        for broker in site.brokers:
            if is_faulty and random.random() < 0.02:
                if random.random() < 0.5:  # the controllers see the connection close
                    site.tables.live.owner_gone(broker.life)
                broker.start(random)
            if not is_faulty or random.random() < 0.7:
                broker.beat()
            fate = random.random() if is_faulty else 1.0
            if fate < 0.1:  # the request is lost
                question = broker.machine.question(site.clock())
                if question is not None:
                    broker.machine.answered(question, None, site.clock())
            elif fate < 0.25:  # the answer is lost
                asked = broker.ask()
                if asked is not None:
                    broker.machine.answered(asked[0], None, site.clock())
            elif fate < 0.3 and broker.machine.phase is Phase.RUNNING:
                asked = broker.ask(stale=stale)
                if asked is not None:
                    broker.machine.answered(*asked, site.clock())
                broker.change_role()
            else:
                broker.step()
            check(site, broker, epochs)
    sync = site.tables.sets.syncs[NAMES.broker_name]
    assert sync.master_id is not None
    for broker in site.brokers:
        assert broker.role is not None
        assert (broker.role.master_broker_id, broker.role.master_epoch) == (sync.master_id, sync.master_epoch)
    assert sum(broker.role is not None and broker.role.broker_id == MASTER_ID for broker in site.brokers) == 1


def check(site: Site, broker: Broker, epochs: dict[int, int | None]) -> None:
    """What holds at every step."""
    sync = site.tables.sets.syncs.get(NAMES.broker_name)
    if sync is not None:
        assert epochs.setdefault(sync.master_epoch, sync.master_id) == sync.master_id
    numbers = [each.machine.files.broker_id for each in site.brokers if each.machine.files.broker_id is not None]
    assert len(set(numbers)) == len(numbers)
    assert len(set(broker.led)) == len(broker.led), "an epoch is led in one life alone"
    for before, role in itertools.pairwise(broker.roles):
        is_same = role.master_epoch == before.master_epoch and role.master_broker_id == before.master_broker_id
        assert role.master_epoch > before.master_epoch or is_same, "the role goes on, never back"
    for role in broker.roles:
        if role.master_broker_id is not None:
            assert epochs[role.master_epoch] == role.master_broker_id
