"""Set changes: has the controllers change the SyncStateSet of one master's epoch. No I/O.

    the set wants other members -> ALTER        -> granted: adopted
                                                -> refused: REPLICA_INFO -> adopted, or the change is given up
                                                -> no answer: asked again

Rules
  - A change counts from the question on (replication/sync_state_set.py).
  - A refusal gives a change up only with a later answer that the set is as it was; and, where an answer to the same
    question was lost, only SETTLED_MS after it: a controller may still be about to make that change. One that leads
    makes what it has taken in, or stops to lead, within a few seconds.
  - A refusal for a broker that the controllers do not have, or do not hear, tells that others are to be requested
    without it.
  - Another master, or a newer epoch, is no business of this one: `is_replaced`.
Belongs to the loop thread, or to a simulation.
Source: broker/controller/ReplicasManager.java (doReportSyncStateSetChanged), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging
from random import Random

from thermocline.broker.controlled.questions import Answer, Ask, MasterNews, Members, Question
from thermocline.remoting.response_code import ResponseCode
from thermocline.replication import SyncStateSet

logger = logging.getLogger(__name__)

LOOK_MS = 200
"""How often the set is compared with its slaves."""
RETRY_MS = 1_000
"""A change that was refused or not answered is repeated after half of this to all of it."""
SETTLED_MS = 10_000
NOT_TAKEN = (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, ResponseCode.CONTROLLER_INVALID_REPLICAS)
REPLACED = (ResponseCode.CONTROLLER_INVALID_MASTER, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH)


class SetChanges:
    """One SyncStateSet's, and so one epoch's."""

    def __init__(self, sync_state_set: SyncStateSet, *, master_epoch: int, random: Random, now_ms: int) -> None:
        self.sync_state_set = sync_state_set
        self.is_replaced = False
        """Whether the controllers have another master: who it is has to be asked."""
        self._master_epoch = master_epoch
        self._random = random
        self._due_ms = now_ms
        self._asked: Question | None = None
        self._refused: Members | None = None
        """Refused, and not yet known to be given up."""
        self._lost_ms: dict[Members, int] = {}
        """Changes of the present set whose answer was lost, and when the last one was."""
        self._set_epoch = sync_state_set.set_epoch
        self._foreign_set: Members = frozenset()
        """The last set that lacked its master."""

    def question(self, now_ms: int) -> Question | None:
        """What to ask now; it is taken for asked. Called every LOOK_MS."""
        if self._asked is not None or now_ms < self._due_ms:
            return None
        sync_state_set = self.sync_state_set
        if sync_state_set.set_epoch != self._set_epoch:
            self._set_epoch, self._refused, self._lost_ms = sync_state_set.set_epoch, None, {}
        if self._refused is not None:
            self._asked = Question(ask=Ask.REPLICA_INFO, broker_id=sync_state_set.own_id)
            return self._asked
        members = sync_state_set.wanted(now_ms=now_ms)
        if members is None:
            return None
        sync_state_set.asked(members)
        self._asked = Question(
            ask=Ask.ALTER,
            broker_id=sync_state_set.own_id,
            master_epoch=self._master_epoch,
            set_epoch=sync_state_set.set_epoch,
            members=members,
        )
        return self._asked

    def answered(self, question: Question, answer: Answer | None, now_ms: int) -> None:
        """The answer, None if none came in time. An answer to an older question is passed over."""
        if question is not self._asked:
            return
        self._asked = None
        if answer is None:
            if question.ask is Ask.ALTER:
                self._lost_ms[question.members] = now_ms
            self._wait(now_ms)
        elif question.ask is Ask.ALTER:
            self._altered(question, answer, now_ms)
        else:
            self._replica_info_answered(answer, now_ms)

    def adopt(self, news: MasterNews) -> None:
        """Take over the controllers' set, which another question has brought, if it is this master's."""
        if news.master_epoch == self._master_epoch and news.master_id == self.sync_state_set.own_id:
            self._adopt(news)

    def _altered(self, question: Question, answer: Answer, now_ms: int) -> None:
        if answer.is_granted and answer.news is not None:
            self._lost_ms.pop(question.members, None)
            self._adopt(answer.news)
            return
        logger.info(
            "change of the SyncStateSet refused members=%s code=%d remark=%s",
            sorted(question.members),
            answer.code,
            answer.remark,
        )
        if answer.code in REPLACED:
            self.is_replaced = True
            self._wait(now_ms)
            return
        if answer.code in NOT_TAKEN:
            self.sync_state_set.not_taken(question.members, now_ms=now_ms)
        self._refused = question.members

    def _replica_info_answered(self, answer: Answer, now_ms: int) -> None:
        refused, news = self._refused, answer.news
        self._wait(now_ms)
        if refused is None or news is None or not answer.is_granted:
            return
        if news.master_epoch != self._master_epoch or news.master_id != self.sync_state_set.own_id:
            self.is_replaced = self.is_replaced or news.master_epoch >= self._master_epoch
            return
        self._refused = None
        self._adopt(news)
        lost_ms = self._lost_ms.get(refused)
        if lost_ms is None or now_ms - lost_ms >= SETTLED_MS:
            self._lost_ms.pop(refused, None)
            self.sync_state_set.refused(refused, news.set_epoch)

    def _adopt(self, news: MasterNews) -> None:
        sync_state_set = self.sync_state_set
        present = sync_state_set.set_epoch
        if news.set_epoch < present or (news.set_epoch == present and news.members == sync_state_set.members):
            return
        if sync_state_set.own_id not in news.members:
            if self._foreign_set == news.members:
                return
            self._foreign_set = news.members
            logger.error("the controllers' SyncStateSet lacks its master members=%s", sorted(news.members))
            return
        logger.info("SyncStateSet members=%s epoch=%d", sorted(news.members), news.set_epoch)
        sync_state_set.adopt(news.members, news.set_epoch)

    def _wait(self, now_ms: int) -> None:
        self._due_ms = now_ms + RETRY_MS // 2 + self._random.randrange(RETRY_MS // 2)
