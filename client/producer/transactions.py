"""Transactions as the application sees them: the listener that it gives a producer, and the states.

    half message stored -> execute_local_transaction -> COMMIT_MESSAGE: consumers see it; ROLLBACK_MESSAGE: never
                                                     -> UNKNOWN, or no answer: the broker asks later, any producer of
                                                        the group: check_local_transaction

So `check_local_transaction` must find the outcome of any transaction of the group, by its id, wherever it ran: in the
database that the local transaction wrote to. If it does not find an id, the transaction never ran: roll back.
Both may be called in any thread, or as coroutines for the asyncio half. An exception, or None, counts as UNKNOWN.
Source: client/producer/TransactionListener.java, LocalTransactionState.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from thermocline.client.message import Message
from thermocline.client.options import require_positive
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.send_result import SendResult
from thermocline.remoting.records.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK

__all__ = [
    "AsyncTransactionListener",
    "LocalTransactionState",
    "TransactionListener",
    "TransactionProducerOptions",
    "TransactionSendResult",
]


class LocalTransactionState(enum.Enum):
    """How a local transaction ended."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"
    """Not ended yet, or not known here: the broker asks again."""


END_FLAGS = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOWN: TRANSACTION_NONE,
}
"""What END_TRANSACTION says for each."""


class TransactionListener(Protocol):
    """The application's part, for the blocking half."""

    def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState | None:
        """The broker has the half message: do it. Store the id along with what is done. In the sender's thread."""

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState | None:
        """The broker does not know how this transaction ended: look it up. In a thread of the producer's."""


class AsyncTransactionListener(Protocol):
    """The application's part, for the asyncio half."""

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState | None:
        """The broker has the half message: do it. Store the id along with what is done. In the sender's task."""

    async def check_local_transaction(
        self, message: ReceivedMessage, transaction_id: str
    ) -> LocalTransactionState | None:
        """The broker does not know how this transaction ended: look it up. In a task of the producer's."""


class TransactionSendResult(SendResult, frozen=True, kw_only=True, gc=False):
    """The half message's place in the log, and how the transaction ended."""

    local_transaction_state: LocalTransactionState
    is_confirmed: bool
    """Whether the broker has confirmed this end. If not, it may not know it, and asks later."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TransactionProducerOptions(ProducerOptions):
    """How a producer of transactions works."""

    topics: tuple[str, ...] = ()
    """Topics whose brokers are to know this producer from its start, to ask it about transactions from before."""
    check_threads: int = 1
    """Most checks at once."""
    check_request_hold_max: int = 2_000
    """Most checks that wait for their turn; a broker asks again about those beyond."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "check_threads", "check_request_hold_max")
