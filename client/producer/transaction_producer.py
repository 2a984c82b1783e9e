"""TransactionProducer: the blocking half of `AsyncTransactionProducer`; see there and `transactions.py`.

    class Listener:
        def execute_local_transaction(self, message, transaction_id, argument):
            with database.begin() as transaction:            # the id goes into the same transaction
                transaction.execute(..., transaction_id)
            return LocalTransactionState.COMMIT_MESSAGE

        def check_local_transaction(self, message, transaction_id):
            found = database.find(transaction_id)
            return LocalTransactionState.COMMIT_MESSAGE if found else LocalTransactionState.ROLLBACK_MESSAGE

    producer = TransactionProducer(group="orders", namesrv="127.0.0.1:9876")
    producer.register_transaction_listener(Listener())
    with producer:
        producer.send_message_in_transaction(Message("orders", b"..."))

Local transactions run in the thread that sends, checks in up to `check_threads` threads of the producer's.
"""

from __future__ import annotations

import logging

from thermocline.client.consumer.dispatch.listener_runner import ThreadRunner
from thermocline.client.message import Message
from thermocline.client.options import option_values
from thermocline.client.producer.async_transaction_producer import AsyncTransactionProducer, checked_state
from thermocline.client.producer.producer import Producer
from thermocline.client.producer.transactions import (
    LocalTransactionState,
    TransactionListener,
    TransactionProducerOptions,
    TransactionSendResult,
)
from thermocline.client.send_result import SendStatus

__all__ = ["TransactionProducer"]

logger = logging.getLogger(__name__)


class _ThreadedTransactionProducer(AsyncTransactionProducer):
    """The asyncio half with a blocking listener."""

    async def start(self) -> None:
        """Begin to work."""
        await self.start_checking_with(
            ThreadRunner(count_max=self.check_threads, name=f"thermocline check {self.group}")
        )


class TransactionProducer(TransactionProducerOptions, Producer):
    """See the module. Any number of threads may share one."""

    def __post_init__(self) -> None:
        self._transactions = _ThreadedTransactionProducer(**option_values(self))
        self._listener: TransactionListener | None = None
        super().__post_init__()

    def _make_inner(self) -> AsyncTransactionProducer:
        return self._transactions

    def register_transaction_listener(self, listener: TransactionListener) -> None:
        """Run and look up local transactions by this listener.

        Raises:
            ClosedError: The producer has started.
        """
        self._transactions.set_transaction_listener(listener)
        self._listener = listener

    def send_message_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Send a half message, run the local transaction, and tell the broker how that ended.

        `argument` is for the listener, which runs in this thread. `timeout_ms` bounds the send of the half message.

        Raises:
            InvalidRequestError: The message or its topic is impossible, or it is to be delayed.
            UnavailableError: No broker took the half message; the local transaction was not run.
            ClosedError: The producer is not started, or closed.
        """
        half = self._loop.run(self._transactions.send_half(message, timeout_ms=timeout_ms))
        # Stored less safely than asked: the half message may be lost, so nothing is done locally.
        state = LocalTransactionState.ROLLBACK_MESSAGE
        if half.status is SendStatus.SEND_OK:
            assert self._listener is not None
            transaction_id = half.transaction_id or half.message_id
            try:
                state = checked_state(self._listener.execute_local_transaction(message, transaction_id, argument))
            except Exception:
                logger.exception("local transaction failed, the broker will ask transaction_id=%s", transaction_id)
                state = LocalTransactionState.UNKNOWN
        return self._loop.run(self._transactions.end_transaction(half, state))
