"""Replica reads: which broker id an answer names for the client's next pull, and what a slave answers.

`slaveReadEnable` spreads reads over a master and its slaves. A pull is slow if it reads log files so far behind the
log's end that they are hardly in memory (`accessMessageInMemoryMaxRatio`).

    suggested id                     slow reader                         others
    at a master, slaveReadEnable     whichBrokerWhenConsumeSlowly (1)    the group's brokerId (0)
    at a slave, slaveReadEnable      whichBrokerWhenConsumeSlowly (1)    0 while there is a master, else brokerId
    without slaveReadEnable          0                                   0; a slave refuses: SYSTEM_BUSY, unless
                                                                         it stands in for its master

    what a slave has found                    while there is a master             without one
    messages                                  they are sent                       they are sent
    none yet                                  PULL_RETRY_IMMEDIATELY, id 0        the pull waits
    offset above its end: it lags             the same, at the client's offset    the pull waits: its offset stays
    offset below its first message            the same                            PULL_RETRY_IMMEDIATELY, first message

A read of the cold tier is never slow: it costs the master's disk and log nothing, and the slave would read the same
bucket. So with a cold tier a group that catches up from history stays at the master until it reaches local files.
Otherwise than here, RocketMQ's slave gives its own end or first message as the next offset also while its master has
the requested messages, and without a controller it never notices that its master is gone.
Source: PullMessageProcessor.java (rejectRequest, composeResponseHeader), DefaultPullMessageResultHandler.java, Apache
RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.broker.pulls.pull_reply import MASTER_ID, PullAnswer
from thermocline.broker.pulls.pull_request import PullRequest
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import GroupTable
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore

REFUSAL = "[REJECTREQUEST]system busy, start flow control for a while"
"""RocketMQ's words."""


class ReadState(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules depend on besides the pull."""

    slave_read: bool
    is_slave: bool
    has_master: bool
    """At a slave: whether there is one."""


def suggested_broker_id(state: ReadState, group: SubscriptionGroupConfig, *, is_slow: bool) -> int:
    """The broker id for the client's next pull: see the module."""
    if not state.slave_read:
        return MASTER_ID
    if is_slow:
        return group.which_broker_when_consume_slowly
    return MASTER_ID if state.is_slave and state.has_master else group.broker_id


def slave_answer(
    state: ReadState, code: int, *, offset: QueueOffset, next_offset: QueueOffset
) -> tuple[int, QueueOffset]:
    """The code and the next offset of a slave's answer, in place of those of a broker that is alone.

    `offset`: the client's. `next_offset`: where that broker would have it go on.
    """
    if code == ResponseCode.SUCCESS:
        return code, next_offset
    if state.has_master:
        return ResponseCode.PULL_RETRY_IMMEDIATELY, max(offset, next_offset) if _is_skip(code) else offset
    if code != ResponseCode.PULL_OFFSET_MOVED:
        return code, next_offset
    if next_offset < offset:
        return ResponseCode.PULL_NOT_FOUND, offset
    return ResponseCode.PULL_RETRY_IMMEDIATELY, next_offset


def _is_skip(code: int) -> bool:
    """Whether an answer lets the client go on behind messages that it does not want."""
    return code == ResponseCode.PULL_RETRY_IMMEDIATELY


class ReplicaReads:
    """Applies the rules to the pulls of one broker. On the loop."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        groups: GroupTable,
        near_bytes: Callable[[], int],
        is_slave: bool,
        has_master: Callable[[], bool],
        is_taken_for_master: Callable[[], bool] = lambda: False,
    ) -> None:
        """`near_bytes`: how far behind the log's end records are in memory. `has_master`, and `is_taken_for_master`,
        whether clients may take it for the master: asked at a slave only."""
        self._settings = settings
        self._store = store
        self._groups = groups
        self._near_bytes = near_bytes
        self._is_slave = is_slave
        self._has_master = has_master
        self._is_taken_for_master = is_taken_for_master

    @property
    def is_on(self) -> bool:
        """Whether any rule differs from those of a broker that is alone."""
        return self._is_slave or self._settings.broker.slave_read

    def check(self) -> None:
        """Pass a pull.

        Raises:
            BrokerBusyError: This is a slave that is not to be read.
        """
        if self._is_slave and not self._settings.broker.slave_read and not self._is_taken_for_master():
            raise BrokerBusyError(REFUSAL)

    def apply(self, request: PullRequest, answer: PullAnswer) -> None:
        """Give an answer its suggestion, and at a slave its code; before the pull waits or is answered."""
        state = ReadState(
            slave_read=self._settings.broker.slave_read,
            is_slave=self._is_slave,
            has_master=self._is_slave and self._has_master(),
        )
        header = request.header
        group = self._groups.get(header.consumer_group) or SubscriptionGroupConfig()
        is_slow = self._is_slow(header.topic, header.queue_id, answer)
        answer.suggested_broker_id = suggested_broker_id(state, group, is_slow=is_slow)
        if self._is_slave:
            answer.code, answer.next_offset = slave_answer(
                state, answer.code, offset=request.offset, next_offset=answer.next_offset
            )

    def _is_slow(self, topic: str, queue_id: int, answer: PullAnswer) -> bool:
        if not answer.message_count:
            return False
        queue, last = self._store.queues.find(topic, queue_id), answer.next_offset - 1
        if queue is None or not queue.min_offset <= last < queue.next_offset:
            return False
        behind_bytes = self._store.commit_log.append_offset - queue.unit(QueueOffset(last)).physical_offset
        return behind_bytes > self._near_bytes()
