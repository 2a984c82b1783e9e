"""Transaction coordinator: decides each transaction once, and writes notes of the decisions into the log.

    half message -> END_TRANSACTION -> commit: message into its real topic, then a note; roll back: a note
    notes        -> op messages, batched (op_message.py)
    no decision  -> a check round puts the half message again and asks its producers (check_round.py)

A decision takes effect when it is in the log: a commit with the committed message, a rollback with its op message. From
then on the table has the transaction as decided, whatever offsets a later decision names: a message is committed once.
After a crash
  - Recovery finds committed messages that no op message names, since it reads the end of the log, and writes their op
    messages first (settlement.py). For this the store waits for all notes to be written before it records where
    recovery begins (`before_promise`).
  - A rollback whose op message was not written was not answered: the broker asks the producers again. If the sender
    waits for an answer, the op message is written at once.
The progress in the half queue and the op queue is stored as the consumer offsets of the group CID_RMQ_SYS_TRANS, as in
Apache RocketMQ, so that both brokers can continue with the same store. It is committed only once the log is durable up
to the op messages that it depends on. Until then local deletion keeps the log files from the first unfinished half
message on (`held_offset`).

A full disk pauses the log. Decisions and notes are still appended: they end accepted transactions, so that log files
can be deleted. So are copies of open half messages, if only these keep log files (`release_below`).

A request names a place in the log. What is there counts only if its queue has it at that place: a body may hold what
looks like a half message, with the offset of another's transaction.

Deleted topics: a half message whose topic was deleted after it was sent is dropped when it is decided or checked, even
if the topic exists again.
Owner: the hot process's event loop.
Source: TransactionalMessageServiceImpl.java, EndTransactionProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import msgspec

from thermocline.remoting.errors import (
    IllegalOperationError,
    InvalidRequestError,
    MQError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.topic_validation import TRANSACTION_CHECK_MAX_TIME_TOPIC, TRANSACTION_HALF_TOPIC
from thermocline.store.log import MessageDraft, PutResult
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue
from thermocline.store.retention import DISK_NEARLY_FULL
from thermocline.transactions.half_message import HALF_QUEUE_ID, HalfMessage
from thermocline.transactions.op_message import op_draft
from thermocline.transactions.queue_records import find_record, record_at
from thermocline.transactions.transaction_config import TransactionConfig
from thermocline.transactions.transaction_table import TransactionState, TransactionTable

logger = logging.getLogger(__name__)


class Decision(IntEnum):
    """How a producer ends a transaction, as END_TRANSACTION says it."""

    COMMIT = sys_flags.TRANSACTION_COMMIT
    ROLL_BACK = sys_flags.TRANSACTION_ROLLBACK


STATES = {Decision.COMMIT: TransactionState.COMMITTED, Decision.ROLL_BACK: TransactionState.ROLLED_BACK}


class EndRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's decision about a half message."""

    decision: Decision
    producer_group: str
    half_offset: QueueOffset
    """Queue offset of the half message."""
    physical_offset: PhysicalOffset
    """Place of the half message in the log."""
    is_checked: bool
    """True for the answer to a check."""
    waits: bool
    """True if a client waits for the answer: a rollback is then in the log before `end` returns."""


class TransactionCoordinator:
    """See the module. The only writer of the half queue and the op queue, except for new half messages: their sender
    puts them and calls `prepared`."""

    def __init__(
        self,
        store: MessageStore,
        table: TransactionTable,
        *,
        put: Callable[[MessageDraft], PutResult],
        clock: Callable[[], int],
        config: TransactionConfig,
        count_open: Callable[[str, int], None],
    ) -> None:
        """`table`: as recovery left it. `put` appends, counts and wakes waiting pulls. `count_open(topic, change)`:
        called when transactions begin and end."""
        self.config = config
        self.table = table
        self.on_notes_waiting: Callable[[], None] = _ignore_notes
        """Called when the first note is added, and when the notes fill an op message."""
        self._store = store
        self._put = put
        self._clock = clock
        self._count_open = count_open
        self._has_unwritten_move = bool(table.buffer)  # recovery moved transactions to copies whose notes were lost
        self._unflushed: deque[tuple[PhysicalOffset, QueueOffset, QueueOffset]] = deque()
        self._wanted_offset = LOG_START
        self._is_closed = False
        self.progress = (table.base, table.op_offset)
        """Half queue offset below which all half messages have ended, durably; and the op queue offset of the same."""
        store.before_promise = self._write_before_promise

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def half_queue(self) -> ConsumeQueue | None:
        """The queue of half messages; None before the first one was sent."""
        return self._store.queues.find(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)

    @property
    def held_offset(self) -> PhysicalOffset | None:
        """Physical offset of the first half message that is still needed; None if there is none."""
        queue = self.half_queue
        if queue is None:
            return None
        first = queue.skip_empty(max(self.progress[0], queue.min_offset))
        return queue.unit(first).physical_offset if first < queue.next_offset else None

    @property
    def is_release_wanted(self) -> bool:
        """Whether retention would delete log files if no open half message were in them."""
        held_offset = self.held_offset
        return held_offset is not None and self.is_wanted(held_offset)

    def is_wanted(self, physical_offset: PhysicalOffset) -> bool:
        """Whether retention would delete the log file that contains this offset, except for open half messages."""
        return physical_offset < self._wanted_offset

    def release_below(self, physical_offset: PhysicalOffset) -> None:
        """Set the offset below which retention would delete the log now, except for open half messages. Call this in
        every round of retention."""
        self._wanted_offset = physical_offset

    def catch_up(self) -> QueueOffset:
        """Add half messages that were put since the last call to the table. Return the end of the half queue."""
        queue = self.half_queue
        if queue is not None:
            self.table.extend(queue.next_offset)
        return self.table.end

    def advance_progress(self) -> bool:
        """Move `progress` up to what the durable log contains; return True if it moved. Call it about once a second."""
        flush_offset = self._store.commit_log.flush_offset
        before = self.progress
        while self._unflushed and self._unflushed[0][0] <= flush_offset:
            _, half_offset, op_offset = self._unflushed.popleft()
            self.progress = (half_offset, op_offset)
        return self.progress != before

    # -- half messages -------------------------------------------------------------------------------------------------

    def prepared(self, real_topic: str) -> None:
        """Count a new half message for `real_topic`. Call this after the message was put."""
        self._count_open(real_topic, 1)

    def end(self, request: EndRequest) -> None:
        """Carry out a decision. A repeated decision changes nothing, and succeeds while the first one is remembered.

        Raises:
            InvalidRequestError: There is no half message at these offsets, or its group is another one.
            IllegalOperationError: The decision comes after the half message's own immunity time and does not answer a
                check; or the transaction has ended with the other decision, or so long ago that it was forgotten.
            TopicNotFoundError: The message's topic was deleted; the transaction has ended.
            MQError: The message could not be put, as MessageStore.put. The transaction is still open.
        """
        half = self._named(request)
        assert half.origin is not None
        self.catch_up()
        last = self.table.last_copy(half.origin)
        state = self.table.state(last)
        if state is not TransactionState.OPEN:
            if state is not STATES[request.decision]:
                raise IllegalOperationError("the transaction was ended before", state=state.name)
        else:
            self._decide(half if last == request.half_offset else self._read_open(last), request.decision)
        if request.waits and request.decision is Decision.ROLL_BACK:
            self.write_ops()

    def resume(self, record: MessageRecord) -> None:
        """Reopen a parked transaction, or restart the checks of an open one, with its count of checks at 0.

        Raises:
            InvalidRequestError: The record is no half message and no parked one.
            IllegalOperationError: The transaction is decided.
            TopicNotFoundError: The message's topic was deleted.
            MQError: It could not be put: as MessageStore.put.
        """
        half = HalfMessage.read(record)
        if half is None or record.topic not in (TRANSACTION_HALF_TOPIC, TRANSACTION_CHECK_MAX_TIME_TOPIC):
            raise InvalidRequestError("the message is of no transaction", topic=record.topic)
        if record.physical_offset >= self._store.commit_log.min_offset and not self._is_queued(record):
            raise InvalidRequestError("the message is not in its queue", topic=record.topic)
        self.catch_up()
        state = TransactionState.PARKED
        if half.origin is not None and half.origin < self.table.end:
            state = self.table.state(self.table.last_copy(half.origin))
        is_open = state is TransactionState.OPEN
        is_parked = record.topic == TRANSACTION_CHECK_MAX_TIME_TOPIC
        # A parked message of long ago is not in the table: its end is the parking.
        if not is_open and not (is_parked and state in (TransactionState.PARKED, TransactionState.ENDED)):
            raise IllegalOperationError("the transaction was ended before", state=state.name)
        if not self.is_live(half):
            raise TopicNotFoundError("the message's topic was deleted", topic=half.real_topic)
        self.put_copy(half, check_times=0)
        if not is_open:
            self._count_open(half.real_topic, 1)
        self.write_ops()

    def put_copy(self, half: HalfMessage, *, check_times: int) -> PutResult:
        """Put a copy of a half message, which replaces it in the table. Raises as MessageStore.put.

        Call `write_ops` before the next decision.
        """
        with self._passing(if_wanted=True):
            result = self._put(half.copy(check_times=check_times))
        self.table.extend(result.queue_offset + 1)
        if half.origin is not None:
            self._has_unwritten_move = True
            self.table.move(half.origin, result.queue_offset, now_ms=self._clock())
        return result

    def park(self, half: HalfMessage) -> None:
        """Stop the checks of a half message and move it to the parking topic. Raises as MessageStore.put."""
        with self._passing(if_wanted=True):
            self._put(half.parked())
        self.finish(half, TransactionState.PARKED)

    def finish(self, half: HalfMessage, state: TransactionState) -> None:
        """Record in the table how an open half message ended, and add a note."""
        had_notes = bool(self.table.buffer)
        self.table.finish(half.record.queue_offset, state, now_ms=self._clock())
        self._count_open(half.real_topic, -1)
        if not had_notes or self.table.buffer.size_bytes >= self.config.op_bytes_max:
            self.on_notes_waiting()

    def is_live(self, half: HalfMessage) -> bool:
        """Whether the message's topic was not deleted since the message was sent."""
        return self._store.incarnations.is_live(half.real_topic, half.record.physical_offset)

    def read_half(self, half_offset: QueueOffset) -> HalfMessage | None:
        """The half message at a queue offset; None when there is no readable one."""
        queue = self.half_queue
        assert queue is not None
        record = record_at(self._store, queue, half_offset)
        return None if record is None else HalfMessage.read(record)

    # -- notes ---------------------------------------------------------------------------------------------------------

    def write_ops(self) -> None:
        """Put all notes into the log, as op messages. Raises as MessageStore.put; the remaining notes are kept."""
        buffer = self.table.buffer
        host = self._store.store_host
        for half_offsets, body in buffer.bodies(bytes_max=self.config.op_bytes_max):
            with self._passing():
                result = self._put(op_draft(body, now_ms=self._clock(), host=host))
            buffer.written(len(half_offsets))
            self.table.note_op(result.queue_offset, half_offsets)
        self._has_unwritten_move = False
        before = self.table.base, self.table.op_offset
        after = self.table.advance()
        if after != before:
            self._unflushed.append((self._store.commit_log.append_offset, *after))

    def close(self) -> None:
        """Write the remaining notes. Call this after the last decision. A failure is logged: the store then does not
        stop cleanly, and recovery finds the committed messages without a note."""
        if self._is_closed:
            return
        try:
            self.write_ops()
        except MQError as error:
            logger.error("notes of ended transactions not written notes=%d error=%s", len(self.table.buffer), error)
        self.advance_progress()
        self._is_closed = True

    def _write_before_promise(self) -> None:
        """Write all notes before the store records that recovery begins at the present end of the log."""
        if not self.table.buffer:
            return
        if self._is_closed:
            raise ServiceUnavailableError("ended transactions are not written down")
        self.write_ops()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _named(self, request: EndRequest) -> HalfMessage:
        """The half message that a decision names."""
        record = find_record(self._store, request.physical_offset)
        half = None if record is None else HalfMessage.read(record)
        if half is None or half.record.topic != TRANSACTION_HALF_TOPIC:
            raise InvalidRequestError("Find prepared transaction message failed")
        if not request.is_checked and half.is_too_late(self._clock(), self.config.timeout_ms):
            raise IllegalOperationError("the decision is late: it has to come by a check")
        if half.producer_group != request.producer_group:
            raise InvalidRequestError("The producer group wrong")
        if half.record.queue_offset != request.half_offset:
            raise InvalidRequestError("The transaction state table offset wrong")
        if not self._is_queued(half.record):
            raise InvalidRequestError("The commit log offset wrong")
        return half

    def _is_queued(self, record: MessageRecord) -> bool:
        """Whether the queue that a record names has it, at its place."""
        queue = self._store.queues.find(record.topic, record.queue_id)
        if queue is None or not queue.min_offset <= record.queue_offset < queue.next_offset:
            return False
        return queue.unit(record.queue_offset).physical_offset == record.physical_offset

    def _read_open(self, half_offset: QueueOffset) -> HalfMessage:
        half = self.read_half(half_offset)
        if half is None:
            raise InvalidRequestError("Find prepared transaction message failed")
        return half

    def _decide(self, half: HalfMessage, decision: Decision) -> None:
        if not self.is_live(half):
            self.finish(half, TransactionState.ROLLED_BACK)
            logger.info("half message of a deleted topic dropped topic=%s", half.real_topic)
            raise TopicNotFoundError("the message's topic was deleted", topic=half.real_topic)
        if decision is Decision.COMMIT:
            if self._has_unwritten_move:
                # Recovery would take the commit as the end of this copy alone, and the broker would check the one
                # before it again.
                self.write_ops()
            with self._passing():
                self._put(half.committed())
        self.finish(half, STATES[decision])

    def _passing(self, *, if_wanted: bool = False) -> contextlib.AbstractContextManager[None]:
        """Allow puts in this block although the log is paused for a full disk."""
        if if_wanted and not self.is_release_wanted:
            return contextlib.nullcontext()
        return self._store.commit_log.let_through(DISK_NEARLY_FULL)


def _ignore_notes() -> None:
    """Default of `on_notes_waiting`: the caller runs `write_ops` itself."""
