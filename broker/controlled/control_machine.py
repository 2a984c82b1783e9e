"""Control machine: what a broker asks the controllers, and the role that follows from their answers. No I/O but the
identity files.

    APPLYING      next id -> application durable -> apply -> identity durable          refused: with another number
    REGISTERING   register -> the master, if it is alive
    ELECTING      no living master: heartbeats begin -> this broker has itself elected -> the master
    RUNNING       replica info, every few seconds and after a notice -> a newer epoch: another role
    RESIGNING     the master of an epoch cannot serve: a slave without a master, the set made larger (resignation.py)
                  -> silent, REGISTERING

    question -> the caller asks it -> answered            one question at a time; an answer that comes too late, or not
                                                          at all, counts as none, and the question is asked again
    wanted   -> the caller changes the role -> role_taken, epoch_is_stale

Rules
  - Only a newer epoch changes the role; of the present one the master's address and the SyncStateSet. An answer that is
    overtaken by a newer one changes nothing.
  - A notice says when to ask, never what the answer is: the port that takes it has no other proof of its sender without
    access control.
  - While no controller answers, the broker has the role that it has.
  - A broker that the controllers take for the master of an epoch that its log has already was that master in another
    life of its process. It is silent (no heartbeats) until they have replaced it: see replication/epoch_file.py.
    So is one that has resigned. Where no other may be elected, there is no master then, and it tries again.
  - A set without a master: each of its brokers tries to be elected; one that is refused waits as a slave without a
    master, and tries again. A master goes on until the controllers have answered its own try.
  - Random pauses between tries, so that brokers of a set that start together do not collide for ever.
Belongs to the loop thread, or to a simulation.
Source: broker/controller/ReplicasManager.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from random import Random

import msgspec

from thermocline.broker.controlled.identity_files import Application, IdentityFiles
from thermocline.broker.controlled.questions import Answer, Ask, MasterNews, Members, Question
from thermocline.broker.controlled.resignation import KnownSets, Resignation
from thermocline.remoting.response_code import ResponseCode
from thermocline.replication import ReplicaRole

logger = logging.getLogger(__name__)

RETRY_MS_MIN, RETRY_MS_MAX = 250, 4_000
"""A question without an answer is asked again after half of this to all of it; it doubles."""
COLLISION_MS_MAX = 1_000
"""RocketMQ's pause after another broker got the number."""
SILENT_MS = 1_000
"""How often a silent broker asks."""
NOTICE_MS = 100
"""Notices are followed at most so often."""
SILENT = "silent until the controllers have replaced this broker: it cannot be the master of this epoch"
MASTER_ID = 0


class Phase(Enum):
    """See the module's header."""

    APPLYING = auto()
    REGISTERING = auto()
    ELECTING = auto()
    RUNNING = auto()
    RESIGNING = auto()


class RoleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A role to change to."""

    role: ReplicaRole
    members: Members
    """The SyncStateSet."""
    heirs: Members = frozenset()
    """Of a master: the others that have all that was acknowledged before; empty if not known."""


class ControlMachine:
    """One broker's."""

    def __init__(
        self,
        files: IdentityFiles,
        *,
        address: str,
        last_epoch: Callable[[], int],
        ask_interval_ms: Callable[[], int],
        wall_clock: Callable[[], int],
        random: Random,
    ) -> None:
        """
        `address`: where this broker serves. `last_epoch`: the log's, 0 without one.
        `ask_interval_ms`: time between two questions who the master is. `wall_clock`: ms, for check codes.
        """
        self.files = files
        self.phase = Phase.APPLYING if files.broker_id is None else Phase.REGISTERING
        self.wanted: RoleChange | None = None
        """The role to change to; None: it has the right one."""
        self.role: ReplicaRole | None = None
        """The role that it has; None before the first one."""
        self.sends_heartbeats = False
        self.current_set: MasterNews | None = None
        """For a master: the last answer of its epoch, with the SyncStateSet."""
        self._address = address
        self._last_epoch = last_epoch
        self._ask_interval_ms = ask_interval_ms
        self._wall_clock = wall_clock
        self._random = random
        self._asked: Question | None = None
        self._due_ms = 0
        self._asked_ms = -NOTICE_MS
        self._is_noticed = False
        self._tries_to_be_elected = False
        self._sets = KnownSets()
        self._resignation: Resignation | None = None
        """The last one, from the newest epoch."""
        self._masterless_epoch = 0
        """The newest epoch without a master."""
        self._retry_ms = RETRY_MS_MIN
        self._last_complaint = ""

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int | None:
        """When to call `question` again; None: after an answer."""
        return None if self._asked is not None else self._due_ms

    def question(self, now_ms: int) -> Question | None:
        """What to ask now; it is taken for asked."""
        if self._asked is not None or now_ms < self._due_ms:
            return None
        self._asked_ms = now_ms
        self._asked = self._next_question()
        return self._asked

    def answered(self, question: Question, answer: Answer | None, now_ms: int) -> None:
        """The answer, None if none came in time. An answer to an older question is passed over.

        Raises:
            OSError, DiskFullError: A number could not be made durable; the question will be asked again.
        """
        if question is not self._asked:
            return
        self._asked = None
        if answer is None:
            self._retry(now_ms)
            return
        retry_ms, self._retry_ms = self._retry_ms, RETRY_MS_MIN
        self._due_ms = now_ms
        try:
            _METHODS[question.ask](self, answer, now_ms)
        except Exception:
            self._retry_ms = retry_ms
            self._retry(now_ms)
            raise
        if self._is_noticed:
            self._is_noticed = False
            self._due_ms = min(self._due_ms, max(now_ms, self._asked_ms + NOTICE_MS))

    def noticed(self, master_epoch: int, now_ms: int) -> None:
        """A controller may have another master: ask soon. Only a newer epoch counts."""
        if self.phase is not Phase.RUNNING or (self.role is not None and master_epoch <= self.role.master_epoch):
            return
        if self._asked is not None:
            self._is_noticed = True
        else:
            self._due_ms = min(self._due_ms, max(now_ms, self._asked_ms + NOTICE_MS))

    # -- roles ---------------------------------------------------------------------------------------------------------

    def role_taken(self, change: RoleChange) -> None:
        """The broker has this role."""
        self.role = change.role
        if self.wanted is change:
            self.wanted = None

    def epoch_is_stale(self, change: RoleChange, now_ms: int) -> None:
        """The broker cannot be the master of this epoch: its log has the epoch already."""
        if self.wanted is change:
            self.wanted = None
            self._be_silent(now_ms)

    def resign(self, role: ReplicaRole, *, heirs: Members, now_ms: int) -> None:
        """The broker has failed to be the master of an epoch, and is a slave without a master: have one of `heirs`
        elected, which have all that was acknowledged."""
        assert role.broker_id == MASTER_ID
        logger.warning("the broker resigns, it cannot serve epoch=%d others=%s", role.master_epoch, sorted(heirs))
        news, self.current_set = self.current_set, None
        self._resignation = Resignation(
            self._own_id,
            master_epoch=role.master_epoch,
            set_epoch=role.sync_state_set_epoch if news is None else news.set_epoch,
            members=frozenset({self._own_id}) if news is None else news.members,
            heirs=heirs,
        )
        self._asked = None
        self._advance_resignation(self._resignation, now_ms)

    def ha_address_known(self, role: ReplicaRole, ha_address: str) -> None:
        """The master of this role has named its replication port."""
        if self.role is role and self.wanted is None:
            self.wanted = RoleChange(role=replace(role, master_ha_address=ha_address), members=frozenset())

    # -- the answers ---------------------------------------------------------------------------------------------------

    def _next_question(self) -> Question:
        files = self.files
        match self.phase:
            case Phase.APPLYING:
                if files.application is None:
                    return Question(ask=Ask.NEXT_ID)
                return Question(
                    ask=Ask.APPLY, broker_id=files.application.broker_id, check_code=files.application.check_code
                )
            case Phase.REGISTERING:
                return Question(ask=Ask.REGISTER, broker_id=self._own_id)
            case Phase.ELECTING:
                return Question(ask=Ask.ELECT, broker_id=self._own_id)
            case Phase.RUNNING:
                ask = Ask.ELECT if self._tries_to_be_elected else Ask.REPLICA_INFO
                return Question(ask=ask, broker_id=self._own_id)
            case Phase.RESIGNING:
                assert self._resignation is not None
                return self._resignation.question()

    @property
    def _own_id(self) -> int:
        assert self.files.broker_id is not None
        return self.files.broker_id

    @property
    def _epoch(self) -> int:
        """The newest epoch that it has heard of, and follows or is about to."""
        role = self.role if self.wanted is None else self.wanted.role
        return 0 if role is None else role.master_epoch

    def _next_id_answered(self, answer: Answer, now_ms: int) -> None:
        if not answer.is_granted:
            self._refused("a broker id was not given", answer, now_ms)
            return
        check_code = f"{self._address};{self._wall_clock()}"
        self.files.apply_for(Application(broker_id=answer.next_id, check_code=check_code))

    def _applied(self, answer: Answer, now_ms: int) -> None:
        if answer.is_granted:
            self.files.granted()
            self.phase = Phase.REGISTERING
            logger.info("broker id given by the controllers broker_id=%d", self._own_id)
        elif answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:  # another broker was faster
            self.files.discard_application()
            self._due_ms = now_ms + self._random.randrange(COLLISION_MS_MAX)
        else:
            self._refused("a broker id was refused", answer, now_ms)

    def _registered(self, answer: Answer, now_ms: int) -> None:
        if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self._refused(
                "the controllers have no broker of this id: they are not those that gave it, or have lost it; remove"
                " brokerIdentity to apply for a new one",
                answer,
                now_ms,
            )
            return
        if not answer.is_granted:
            self._refused("not registered at the controllers", answer, now_ms)
            return
        self._last_complaint = ""
        news = answer.news
        if news is None or news.master_id is None:
            self.phase = Phase.ELECTING if self.role is None else Phase.RUNNING
            self.sends_heartbeats = True
        elif self._may_not_lead(news):
            self._be_silent(now_ms)
        else:
            self._learn(news, now_ms)

    def _elected(self, answer: Answer, now_ms: int) -> None:
        self._tries_to_be_elected = False
        if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self.phase = Phase.REGISTERING
            return
        has_master = answer.is_granted or answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        if has_master and answer.news is not None and answer.news.master_id is not None:
            self._learn(answer.news, now_ms)
            return
        logger.info("no master elected remark=%s", answer.remark)
        self._run(now_ms)
        if self.role is None or self.role.master_broker_id is not None:
            self._want(self.waiting_role(), frozenset())

    def _replica_info_answered(self, answer: Answer, now_ms: int) -> None:
        if answer.is_granted and answer.news is not None:
            self._learn(answer.news, now_ms)
        elif answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            self.phase = Phase.REGISTERING
        else:
            self._refused("the controllers do not name the master", answer, now_ms)

    def _altered(self, answer: Answer, now_ms: int) -> None:
        assert self._resignation is not None
        self._resignation.answered(answer)
        self._advance_resignation(self._resignation, now_ms)

    def _advance_resignation(self, resignation: Resignation, now_ms: int) -> None:
        self.phase, self._due_ms = Phase.RESIGNING, now_ms
        if resignation.is_over:
            self._be_silent(now_ms)

    def _learn(self, news: MasterNews, now_ms: int) -> None:
        """The controllers have named the master, or there is none."""
        self._sets.heard(news)
        self._run(now_ms)
        role = self.role if self.wanted is None else self.wanted.role
        if news.master_id is None:
            if role is None or news.master_epoch > role.master_epoch or role.master_broker_id is None:
                # Once for each answer: `_elected` goes back to asking.
                self._tries_to_be_elected = True
                self._masterless_epoch = news.master_epoch
                self._due_ms = now_ms
            return
        if role is not None and news.master_epoch < role.master_epoch:
            return
        is_own = news.master_id == self._own_id
        is_same = role is not None and role.master_epoch == news.master_epoch and role.master_broker_id is not None
        if is_same:
            assert role is not None
            if is_own:
                self.current_set = news
            elif role.master_address != news.master_address:
                self._want(self._role_of(news), news.members)
        elif self._may_not_lead(news):
            self._be_silent(now_ms)
        else:
            heirs = self._sets.heirs(news) if is_own else frozenset()
            self._want(self._role_of(news), news.members, heirs)

    def _run(self, now_ms: int) -> None:
        self.phase = Phase.RUNNING
        self.sends_heartbeats = True
        self._last_complaint = ""
        self._due_ms = now_ms + self._ask_interval_ms()

    def _may_not_lead(self, news: MasterNews) -> bool:
        """Whether it is named as the master of an epoch that another life of it has begun, or that it has resigned."""
        is_master = self.role is not None and self.role.broker_id == MASTER_ID
        has_begun = is_master and self.role is not None and self.role.master_epoch == news.master_epoch
        resigned_epoch = 0 if self._resignation is None else self._resignation.master_epoch
        is_old = news.master_epoch <= max(self._last_epoch(), resigned_epoch)
        return news.master_id == self._own_id and not has_begun and is_old

    def _be_silent(self, now_ms: int) -> None:
        if self._last_complaint != SILENT:
            logger.warning("%s", SILENT)
        self._last_complaint = SILENT
        self.sends_heartbeats = False
        self.phase = Phase.REGISTERING
        self._due_ms = now_ms + SILENT_MS

    def _role_of(self, news: MasterNews) -> ReplicaRole:
        is_own = news.master_id == self._own_id
        return ReplicaRole(
            broker_id=MASTER_ID if is_own else self._own_id,
            master_epoch=news.master_epoch,
            sync_state_set_epoch=news.set_epoch,
            master_broker_id=news.master_id,
            master_address="" if is_own else news.master_address,
            master_ha_address="",
        )

    def waiting_role(self) -> ReplicaRole:
        """A slave's without a master."""
        return ReplicaRole(
            broker_id=self._own_id,
            master_epoch=max(self._epoch, self._masterless_epoch),
            sync_state_set_epoch=0,
            master_broker_id=None,
            master_address="",
            master_ha_address="",
        )

    def _want(self, role: ReplicaRole, members: Members, heirs: Members = frozenset()) -> None:
        self.current_set = None
        self.wanted = RoleChange(role=role, members=members, heirs=heirs)

    def _retry(self, now_ms: int) -> None:
        pause_ms = self._retry_ms
        self._due_ms = now_ms + pause_ms // 2 + self._random.randrange(pause_ms // 2)
        self._retry_ms = min(pause_ms * 2, RETRY_MS_MAX)

    def _refused(self, what: str, answer: Answer, now_ms: int) -> None:
        """Ask again later; log it once."""
        complaint = f"{what} code={answer.code} remark={answer.remark}"
        if complaint != self._last_complaint:
            logger.warning("%s", complaint)
        self._last_complaint = complaint
        self._retry_ms = RETRY_MS_MAX
        self._retry(now_ms)


_METHODS: dict[Ask, Callable[[ControlMachine, Answer, int], None]] = {
    Ask.NEXT_ID: ControlMachine._next_id_answered,
    Ask.APPLY: ControlMachine._applied,
    Ask.REGISTER: ControlMachine._registered,
    Ask.ELECT: ControlMachine._elected,
    Ask.REPLICA_INFO: ControlMachine._replica_info_answered,
    Ask.ALTER: ControlMachine._altered,
}
