"""Queue selectors: which queue of a topic one message goes to, when order matters more than balance.

A selector is any callable that takes the topic's writable queues (sorted), the message and the caller's argument, and
returns one of those queues. Messages that went to one queue stay in order. `select_by_hash` agrees with the official
clients on the queue of a key, so producers in several languages keep one order together.
Source: client/producer/selector/*.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.string_hash import java_string_hash

if TYPE_CHECKING:
    from thermocline.client.message import Message

__all__ = ["QueueSelector", "SelectRandomly", "select_by_hash", "select_by_queue_id"]

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class QueueSelector(Protocol):
    """A function from (queues, message, argument) to one of the queues."""

    def __call__(self, queues: Sequence[MessageQueue], message: Message, argument: object, /) -> MessageQueue:
        """Return the queue for `message`; `queues` is never empty."""


def select_by_hash(queues: Sequence[MessageQueue], message: Message, argument: object, /) -> MessageQueue:
    """Return the queue of the argument's hash: equal arguments, equal queue, as long as the queues stay the same.

    Raises:
        InvalidRequestError: The argument is neither `str` nor `int`, so its hash would differ between processes.
    """
    return queues[abs(_java_hash(argument)) % len(queues)]


def select_by_queue_id(queues: Sequence[MessageQueue], message: Message, argument: object, /) -> MessageQueue:
    """Return the first queue with the number `argument`.

    Raises:
        InvalidRequestError: No queue has that number.
    """
    for queue in queues:
        if queue.queue_id == argument:
            return queue
    raise InvalidRequestError("no queue has this id", topic=message.topic, queue_id=argument)


class SelectRandomly:
    """Any queue, each with the same chance; the argument is ignored."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.Random()

    def __call__(self, queues: Sequence[MessageQueue], message: Message, argument: object, /) -> MessageQueue:
        """Return a random queue."""
        return self._random.choice(queues)


def _java_hash(value: object) -> int:
    """Return Java's `hashCode` of the same String, Integer or Long."""
    if isinstance(value, str):
        return java_string_hash(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError("hash a str or an int", argument=repr(value))
    if _INT_MIN <= value <= _INT_MAX:
        return value
    folded = (value ^ (value >> 32)) & 0xFFFFFFFF
    return folded - 2**32 if folded > _INT_MAX else folded
