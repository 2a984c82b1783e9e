"""Transaction recovery: the table of open transactions, from the half queue, the op queue and the progress in both.

    1. Half messages at or behind the half progress are open, unless an op message at or behind the op progress names
       them.
    2. The records from the first of those on are read: of several copies of one transaction only the last one may be
       open. A copy of RocketMQ's does not name the first one: it has the same id, and was asked about once more.
    3. What cannot be read is left out.
    4. Those whose committed message is in the log have ended: their op messages are written soon.

On a store that was never a slave's, committed messages have an op message by now (settlement.py). Copies are noted
before they can be decided, so a decided copy has no open one before it.
Progress behind the queues' ends (a power cut took messages back) counts as their ends: the caller saves that
before anything is put, or the next messages at these offsets would count as finished.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import msgspec

from thermocline.remoting.offsets import QUEUE_START, QueueOffset, offset_range
from thermocline.remoting.topic_validation import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue
from thermocline.transactions.half_message import HALF_QUEUE_ID, HalfMessage
from thermocline.transactions.op_message import decode_op_body
from thermocline.transactions.queue_records import record_at, records_from
from thermocline.transactions.transaction_table import TransactionState, TransactionTable
from thermocline.transactions.unnoted_commits import find_unnoted_commits

logger = logging.getLogger(__name__)


class RecoveredTransactions(msgspec.Struct, frozen=True, kw_only=True):
    """The transactions found at a start."""

    table: TransactionTable
    open_counts: dict[str, int]
    """Open transactions of each topic."""


def recover_transactions(
    store: MessageStore,
    *,
    half_offset: QueueOffset | None,
    op_offset: QueueOffset | None,
    now_ms: int,
    note_late_ms_max: int,
) -> RecoveredTransactions:
    """Read what the progress leaves; None: from the queue's start. `note_late_ms_max`: see find_unnoted_commits."""
    half_queue = store.queues.find(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
    op_queue = store.queues.find(TRANSACTION_OP_HALF_TOPIC, HALF_QUEUE_ID)
    table = TransactionTable(
        half_offset=_within(half_queue, half_offset, "half"), op_offset=_within(op_queue, op_offset, "op")
    )
    counts: Counter[str] = Counter()
    if half_queue is not None:
        table.extend(half_queue.next_offset)
        if op_queue is not None:
            for record in records_from(store, op_queue, table.op_offset):
                half_offsets = decode_op_body(record.body)
                table.mark_ended(half_offsets)
                table.note_op(record.queue_offset, half_offsets)
        _read_open(store, half_queue, table, counts, now_ms=now_ms)
        for half in find_unnoted_commits(store, _open(store, half_queue, table), late_ms_max=note_late_ms_max):
            logger.info("transaction committed without op message half_offset=%d", half.record.queue_offset)
            table.finish(half.record.queue_offset, TransactionState.COMMITTED, now_ms=now_ms)
            counts[half.real_topic] -= 1
        table.advance()
        if table.open_count:
            logger.info("transactions open count=%d of=%d", table.open_count, table.end - table.base)
    return RecoveredTransactions(table=table, open_counts=dict(+counts))


def _read_open(
    store: MessageStore, queue: ConsumeQueue, table: TransactionTable, counts: Counter[str], *, now_ms: int
) -> None:
    transaction_ids: dict[QueueOffset, str | None] = {}  # by origin, of what is open
    unnamed = _UnnamedCopies()
    for half_offset in _from_first_open(table):
        is_open = table.state(half_offset) is TransactionState.OPEN
        record = record_at(store, queue, half_offset)
        half = None if record is None else HalfMessage.read(record)
        if half is None:
            if is_open:
                table.finish(half_offset, TransactionState.MISSING, now_ms=now_ms)
            continue
        assert half.origin is not None
        first = unnamed.origin_of(half)
        if first is not None:
            table.move(first, half_offset, now_ms=now_ms)
            if is_open:
                unnamed.add(half, first)
            else:
                counts[half.real_topic] -= 1
            continue
        if not is_open:
            continue
        unnamed.add(half, half.origin)
        is_copy = half.origin != half_offset
        is_known = half.origin in transaction_ids
        if is_copy and is_known and transaction_ids[half.origin] != half.transaction_id:
            # Not written by us: a client's own property. It stands for itself.
            logger.warning("half message names another as its origin half_offset=%d", half_offset)
            is_known = False
        elif is_copy:
            table.move(half.origin, half_offset, now_ms=now_ms)
        transaction_ids[half.origin] = half.transaction_id
        if not is_known:
            counts[half.real_topic] += 1


def _from_first_open(table: TransactionTable) -> Iterator[QueueOffset]:
    """The offsets from the first open half message on: what has ended may be the copy of an open one."""
    first = table.next_open(table.base, table.end)
    if first is not None:
        yield from offset_range(first, table.end)


class _UnnamedCopies:
    """Open half messages by what their next copy has, where the copy does not name them."""

    def __init__(self) -> None:
        self._origins: dict[tuple[str, str, int, int], QueueOffset] = {}

    def add(self, half: HalfMessage, origin: QueueOffset) -> None:
        """One that is open, and may have a copy."""
        if half.transaction_id is not None:
            key = half.transaction_id, half.real_topic, half.real_queue_id, half.check_times + 1
            self._origins.setdefault(key, origin)

    def origin_of(self, half: HalfMessage) -> QueueOffset | None:
        """The first one of the open half message of which this one is the copy; None if it is of none."""
        if half.transaction_id is None or not half.check_times or half.origin != half.record.queue_offset:
            return None
        return self._origins.pop((half.transaction_id, half.real_topic, half.real_queue_id, half.check_times), None)


def _open(store: MessageStore, queue: ConsumeQueue, table: TransactionTable) -> Iterator[HalfMessage]:
    """The half messages that are open."""
    half_offset = table.next_open(table.base, table.end)
    while half_offset is not None:
        record = record_at(store, queue, half_offset)
        half = None if record is None else HalfMessage.read(record)
        if half is not None:
            yield half
        half_offset = table.next_open(half_offset + 1, table.end)


def _within(queue: ConsumeQueue | None, offset: QueueOffset | None, name: str) -> QueueOffset:
    """The offset, corrected to what the queue holds."""
    if queue is None:
        return QUEUE_START
    corrected = min(max(queue.min_offset if offset is None else offset, queue.min_offset), queue.next_offset)
    if offset is not None and corrected != offset:
        logger.warning("progress in the %s queue corrected from=%d to=%d", name, offset, corrected)
    return corrected
