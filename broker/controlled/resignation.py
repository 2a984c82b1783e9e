"""Resignation: a broker that was elected and cannot serve has the others that may be elected put into the set. No I/O.

An election leaves the new master alone in the SyncStateSet. If it only stopped its heartbeats, the controllers would
have no other to elect, although the others of the set before have all that was acknowledged: the new master has
served nothing.

    for each of them    ALTER: the set with one more        granted: it stays in
                                                            refused: it is not alive, and stays out
    then                the broker is silent: another one is elected

Rules
  - Only a broker that has not served in its epoch resigns so.
  - The set before counts only if it is known for sure: it had the epoch right before the present set's.
  - The set may have another epoch than expected, because an answer was lost or another request came first: then no
    more is asked.
Belongs to the loop thread, or to a simulation.
"""

from __future__ import annotations

from thermocline.broker.controlled.questions import Answer, Ask, MasterNews, Members, Question
from thermocline.remoting.response_code import ResponseCode

SKIPPED = (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, ResponseCode.CONTROLLER_INVALID_REPLICAS)


class KnownSets:
    """The newest SyncStateSet that a broker has heard of, and the one before it."""

    def __init__(self) -> None:
        self._newest: MasterNews | None = None
        self._before: MasterNews | None = None

    def heard(self, news: MasterNews) -> None:
        """A controller has named a set."""
        newest = self._newest
        if newest is not None and news.master_epoch < newest.master_epoch:
            # Overtaken; or an operator had the controllers forget the set, and its epochs begin anew.
            self._before = self._newest = None
            return
        if not news.members or (newest is not None and news.set_epoch <= newest.set_epoch):
            return
        self._before, self._newest = self._newest, news

    def heirs(self, elected: MasterNews) -> Members:
        """The other brokers that have all that was acknowledged when a master was elected; empty if not known."""
        before = self._before if self._newest is not None and self._newest.set_epoch == elected.set_epoch else None
        if before is None or before.set_epoch != elected.set_epoch - 1 or elected.master_id is None:
            return frozenset()
        return before.members - {elected.master_id}


class Resignation:
    """One broker's from one epoch."""

    def __init__(self, own_id: int, *, master_epoch: int, set_epoch: int, members: Members, heirs: Members) -> None:
        """`set_epoch`, `members`: of the present set. `heirs`: who may be elected."""
        self.master_epoch = master_epoch
        self._own_id = own_id
        self._set_epoch = set_epoch
        self._members = members
        self._heirs = sorted(heirs - members)

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be asked any more."""
        return not self._heirs

    def question(self) -> Question:
        """What to ask next."""
        return Question(
            ask=Ask.ALTER,
            broker_id=self._own_id,
            master_epoch=self.master_epoch,
            set_epoch=self._set_epoch,
            members=self._members | {self._heirs[0]},
        )

    def answered(self, answer: Answer) -> None:
        """The answer to the last question."""
        heir = self._heirs.pop(0)
        if answer.is_granted and answer.news is not None:
            self._members |= {heir}
            self._set_epoch = answer.news.set_epoch
        elif answer.code not in SKIPPED:
            self._heirs = []
