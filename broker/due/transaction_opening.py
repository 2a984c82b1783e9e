"""Opens a broker's transactions: what was open when it stopped, see `transactions/`."""

from collections.abc import Callable

from thermocline.broker.due.transaction_counts import TransactionCounts
from thermocline.broker.due.transaction_settings import transaction_config
from thermocline.broker.sends import MessageAppender
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import ConsumerOffsets, consumer_offsets
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.topic_validation import (
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
)
from thermocline.store.message_store import MessageStore
from thermocline.transactions.half_message import HALF_QUEUE_ID
from thermocline.transactions.transaction_coordinator import TransactionCoordinator
from thermocline.transactions.transaction_recovery import RecoveredTransactions, recover_transactions
from thermocline.transactions.transaction_table import TransactionTable

NOTE_MARGIN_MS = 2_000
"""By how much more than its interval the write of a note may be late."""


async def open_transactions(
    settings: BrokerSettings,
    store: MessageStore,
    offsets: ConsumerOffsets,
    persister: ConfigPersister,
    appender: MessageAppender,
    counts: TransactionCounts,
    *,
    clock: Callable[[], int],
) -> TransactionCoordinator:
    """Open the transactions of the last run; the coordinator follows its settings from now on. A slave's has none: they
    are its master's.
    """
    if settings.broker.is_slave:
        return _without_any(store, appender, counts, clock=clock, settings=settings)
    stored = _progress(offsets)
    recovered = recover_open(settings, store, offsets, clock=clock)
    counts.start_with(recovered.open_counts)
    transactions = TransactionCoordinator(
        store,
        recovered.table,
        put=appender.append,
        clock=clock,
        config=transaction_config(settings.broker),
        count_open=counts.add,
    )
    if any(then is not None and now < then for then, now in zip(stored, transactions.progress, strict=True)):
        # A power cut took back what the progress speaks of: the next messages there must not count as finished.
        for topic, offset in zip(
            (TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC), transactions.progress, strict=True
        ):
            offsets.commit(topic, TRANSACTION_GROUP, HALF_QUEUE_ID, offset)
        await persister.save(consumer_offsets.FILE_NAME)

    def follow(_: object) -> None:
        transactions.config = transaction_config(settings.broker)

    settings.add_listener(follow)
    return transactions


def recover_open(
    settings: BrokerSettings, store: MessageStore, offsets: ConsumerOffsets, *, clock: Callable[[], int]
) -> RecoveredTransactions:
    """Read from the log which transactions are open."""
    half_offset, op_offset = _progress(offsets)
    return recover_transactions(
        store,
        half_offset=half_offset,
        op_offset=op_offset,
        now_ms=clock(),
        note_late_ms_max=2 * settings.broker.transaction_op_interval_ms + NOTE_MARGIN_MS,
    )


def _progress(offsets: ConsumerOffsets) -> tuple[QueueOffset | None, QueueOffset | None]:
    """In the half queue and in the op queue."""
    return (
        offsets.query(TRANSACTION_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID),
        offsets.query(TRANSACTION_OP_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID),
    )


def _without_any(
    store: MessageStore,
    appender: MessageAppender,
    counts: TransactionCounts,
    *,
    clock: Callable[[], int],
    settings: BrokerSettings,
) -> TransactionCoordinator:
    return TransactionCoordinator(
        store,
        TransactionTable(half_offset=QUEUE_START, op_offset=QUEUE_START),
        put=appender.append,
        clock=clock,
        config=transaction_config(settings.broker),
        count_open=counts.add,
    )
