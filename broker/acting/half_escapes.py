"""Half escapes: open transactions of a dead master go to other masters, which ask the producers about them.

    begin            the slave stands in
    deliver_slice    from `transactionCheckInterval` after that on, as RocketMQ's check rounds begin: each half message
                     that is open in the copy of the log, from the master's progress on, is sent, as a half message of
                     its topic, to another master of that topic; the progress in the half queue moves behind it

That master asks the producers as about any half message of its own. Decisions are refused at the slave, as RocketMQ's
slave refuses them: END_TRANSACTION names a place in one log.

Rules
  - They go in order; those up to the first that failed count as sent. RocketMQ passes one over that failed ten times;
    here it waits, and those behind it.
  - One whose committed message is in the log has ended, also without an op message.
  - One whose topic was deleted since is passed over, as its master would drop it.
  - What the master had decided and had not copied yet is asked about again: a message may be committed twice.
Owner: the hot process's event loop.
Source: transaction/queue/TransactionalMessageServiceImpl.java (check), TransactionalMessageBridge.java (escapeMessage),
processor/EndTransactionProcessor.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from thermocline.broker.acting.due_escapes import SLICE_MAX, Failures
from thermocline.broker.acting.escape_bridge import EscapeBridge
from thermocline.broker.tables import ConsumerOffsets
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.topic_validation import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC
from thermocline.store.log import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.transactions.half_message import HALF_QUEUE_ID, HalfMessage
from thermocline.transactions.queue_records import record_at
from thermocline.transactions.transaction_table import TransactionTable

logger = logging.getLogger(__name__)

REST_MS = 1_000
"""A slave's log does not grow while it stands in."""


class HalfEscapes:
    """See the module's header."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        bridge: EscapeBridge,
        *,
        recover: Callable[[], TransactionTable],
        wait_ms: Callable[[], int],
        clock: Callable[[], int],
    ) -> None:
        """`recover`: reads from the log which half messages are open. `wait_ms`: after the beginning. `clock`:
        steady, in ms."""
        self._wait_ms = wait_ms
        self._clock = clock
        self._start_ms = 0
        self._store = store
        self._offsets = offsets
        self._bridge = bridge
        self._recover = recover
        self._table: TransactionTable | None = None
        self._next = QueueOffset(0)
        self._failures = Failures("open transactions")

    def begin(self) -> None:
        """The time until the first slice begins."""
        self._start_ms = self._clock() + self._wait_ms()

    def end(self) -> None:
        """Forget them. Idempotent."""
        self._table = None

    async def deliver_slice(self) -> int | None:
        """Send the next ones, up to a slice; how long to rest afterwards, in ms; None: one could not be sent. The first
        time it reads what is open, as long as a master's start takes for that."""
        if self._clock() < self._start_ms:
            return min(self._start_ms - self._clock(), REST_MS)
        table = self._table
        if table is None:
            self._table = table = self._recover()
            self._next = table.base
            if table.open_count:
                logger.info("open transactions go to other masters count=%d", table.open_count)
        found: list[QueueOffset] = []
        half_offset = table.next_open(self._next, table.end)
        while half_offset is not None and len(found) < SLICE_MAX:
            found.append(half_offset)
            half_offset = table.next_open(QueueOffset(half_offset + 1), table.end)
        count = await self._failures.sent_count([self._send(each) for each in found])
        end = table.end if half_offset is None else half_offset
        reached = found[count] if count < len(found) else end
        if reached > self._next:
            self._next = reached
            self._offsets.commit(TRANSACTION_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID, reached)
        if count < len(found):
            return None
        return REST_MS if half_offset is None else 0

    async def _send(self, half_offset: QueueOffset) -> None:
        draft = self._draft(half_offset)
        if draft is not None:
            await self._bridge.send(draft, is_half=True)

    def _draft(self, half_offset: QueueOffset) -> MessageDraft | None:
        """The half message as its producer sent it; None when nothing is to be asked about it."""
        queue = self._store.queues.find(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
        assert queue is not None
        record = record_at(self._store, queue, half_offset)
        half = None if record is None else HalfMessage.read(record)
        if half is None or not self._store.incarnations.is_live(half.real_topic, half.record.physical_offset):
            return None
        return half.as_sent()
