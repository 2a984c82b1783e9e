"""Settlement: op messages for committed messages that a crash has left without one.

A committed message decides its transaction, but its op message is written up to some seconds later. A process that dies
between the two leaves a half message that looks open, and whose producers would commit it once more. Every such message
is above the offset from which recovery reads the log, as that is promised only after all notes were written
(`MessageStore.before_promise`); so recovery reports the committed messages that it met, without further reads.

To be called between recovery and its promise (`MessageStore.open`, `settle`): a second crash then finds the op
messages, or reads the same records again.

A record counts as a transaction's commit when it has the commit bits, and the half message that it names has its real
topic, its queue and its id: a consumer's retry of a committed message keeps the bits.
"""

from __future__ import annotations

import logging

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.topic_validation import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC
from thermocline.store.message_store import MessageStore
from thermocline.transactions.half_message import HALF_QUEUE_ID, HalfMessage
from thermocline.transactions.op_message import OpBuffer, decode_op_body, op_draft
from thermocline.transactions.queue_records import find_record, read_record, records_from
from thermocline.transactions.transaction_config import TransactionConfig

logger = logging.getLogger(__name__)


def settle_commits(store: MessageStore) -> None:
    """Write the op messages that are missing. Raises as MessageStore.put."""
    committed_offsets = store.recovery_report.committed_offsets
    if not committed_offsets:
        return
    noted = _noted_since(store, PhysicalOffset(committed_offsets[0]))
    buffer = OpBuffer()
    now_ms = store.clock.now_ms()
    for physical_offset in map(PhysicalOffset, committed_offsets):
        half_offset = _half_offset_of(store, physical_offset)
        if half_offset is not None and half_offset not in noted:
            buffer.add(half_offset, now_ms)
    for _, body in buffer.bodies(bytes_max=TransactionConfig().op_bytes_max):
        store.put(op_draft(body, now_ms=now_ms, host=store.store_host))
    logger.info("commits found at the log's end count=%d without_op=%d", len(committed_offsets), len(buffer))


def _half_offset_of(store: MessageStore, physical_offset: PhysicalOffset) -> QueueOffset | None:
    """The half queue offset of the transaction that a record has committed; None when it is no commit."""
    record = read_record(store, physical_offset)
    half_record = None if record is None else find_record(store, record.prepared_transaction_offset)
    if record is None or half_record is None or half_record.topic != TRANSACTION_HALF_TOPIC:
        return None
    half = HalfMessage.read(half_record)
    if half is None:
        return None
    of_half = (half.real_topic, half.real_queue_id, half.transaction_id)
    is_its_commit = of_half == (record.topic, record.queue_id, record.unique_key)
    return half_record.queue_offset if is_its_commit else None


def _noted_since(store: MessageStore, physical_offset: PhysicalOffset) -> set[QueueOffset]:
    """The half queue offsets that op messages behind a place in the log name."""
    queue = store.queues.find(TRANSACTION_OP_HALF_TOPIC, HALF_QUEUE_ID)
    if queue is None:
        return set()
    start = queue.first_at_or_behind(physical_offset, start=queue.min_offset)
    return {half_offset for record in records_from(store, queue, start) for half_offset in decode_op_body(record.body)}
