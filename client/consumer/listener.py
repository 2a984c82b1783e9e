"""Listeners: the user's code that consumes messages, with its arguments and its possible answers.

A listener gets a batch (one message unless `consume_message_batch_max_size` says more) and a context, and answers with
a result. `None` counts as SUCCESS. An exception counts as failure: it is logged, and the messages come again. A
message may come more than once in any case (a crash between listener and offset commit), so listeners are to be
idempotent.

Concurrent: batches run side by side in any order; a failed message goes back to the broker and returns after a delay
that grows with each failure, until `max_reconsume_times`, then it goes to the dead-letter topic `%DLQ%group`.
Orderly: one batch of a queue at a time, in order; a failure suspends the queue and tries the same batch again.
Source: client/consumer/listener/*.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage

__all__ = [
    "AsyncConcurrentListener",
    "AsyncOrderlyListener",
    "ConcurrentListener",
    "ConsumeContext",
    "ConsumeResult",
    "OrderlyContext",
    "OrderlyListener",
    "OrderlyResult",
]


class ConsumeResult(enum.Enum):
    """Answer of a concurrent listener."""

    SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class OrderlyResult(enum.Enum):
    """Answer of an orderly listener."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """One call of a concurrent listener. Belongs to the listener until it answers."""

    queue: MessageQueue
    delay_level_when_next_consume: int = 0
    """For RECONSUME_LATER: 0 lets the broker choose, 1 to 18 is a delay level, -1 goes to the dead-letter topic."""
    ack_index: int | None = None
    """For SUCCESS: the last message of the batch that succeeded; those behind it come again. None means all."""


@dataclass(slots=True, kw_only=True)
class OrderlyContext:
    """One call of an orderly listener. Belongs to the listener until it answers."""

    queue: MessageQueue
    suspend_current_queue_ms: int
    """How long the queue rests after SUSPEND_CURRENT_QUEUE_A_MOMENT or an exception."""


ConcurrentListener: TypeAlias = Callable[[Sequence[ReceivedMessage], ConsumeContext], ConsumeResult | None]
OrderlyListener: TypeAlias = Callable[[Sequence[ReceivedMessage], OrderlyContext], OrderlyResult | None]
AsyncConcurrentListener: TypeAlias = Callable[
    [Sequence[ReceivedMessage], ConsumeContext], Awaitable[ConsumeResult | None]
]
AsyncOrderlyListener: TypeAlias = Callable[[Sequence[ReceivedMessage], OrderlyContext], Awaitable[OrderlyResult | None]]
