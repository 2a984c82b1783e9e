"""Sending: one send request on its way, from the call to its outcome. One message, or a batch of them.

(msgspec structs: one of each is made for every message, and a data class takes several times longer to make.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.send_target import Lane
from thermocline.client.send_result import SendResult
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.remoting.records.compression import compress
from thermocline.remoting.records.sys_flag import TRANSACTION_PREPARED, with_compression

__all__ = [
    "BatchCallback",
    "BatchSending",
    "Draft",
    "SendCallback",
    "Sending",
    "SingleSending",
    "call_back",
    "draft",
    "half_draft",
    "settle",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

SendCallback: TypeAlias = "Callable[[SendResult | MQError], object]"
"""Receives the outcome of one message."""

BatchCallback: TypeAlias = "Callable[[list[SendResult] | MQError], object]"
"""Receives the outcome of a batch: a result for each message, or one error for all."""

QueueChooser: TypeAlias = "Callable[[tuple[MessageQueue, ...]], MessageQueue]"


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A message that is checked, and compressed if it is long: the part that needs no loop, so any thread may do it."""

    message: Message
    body: bytes
    sys_flag: int
    added_properties: str = ""
    """Property text behind the message's own: what makes it a half message, or a request."""
    may_repeat: bool = True
    """Whether it is sent again although it may be stored already: not so for half messages."""


class _SendState(msgspec.Struct, kw_only=True, eq=False, gc=False):
    topic: str
    body: bytes
    sys_flag: int
    properties_text: str
    flag: int
    deadline: float
    attempts_left: int
    counted_bytes: int
    """What this request counts for in the producer's bound on bytes under way."""
    queue: MessageQueue | None = None
    """The queue that the caller chose; then there is no second attempt elsewhere."""
    choose: QueueChooser | None = None
    """Chooses the queue when the route is known."""
    may_repeat: bool = True
    """As the draft says."""
    lane: Lane | None = None
    connection: Connection | None = None
    last_error: MQError | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether only one queue will do."""
        return self.queue is not None or self.choose is not None


class SingleSending(_SendState, kw_only=True, eq=False, gc=False):
    """The state of a request with one message. Belongs to the producer's loop; `callback` is called exactly once."""

    message_id: str
    callback: SendCallback

    @property
    def message_count(self) -> int:
        """One."""
        return 1


class BatchSending(_SendState, kw_only=True, eq=False, gc=False):
    """The same for a batch."""

    message_ids: list[str]
    callback: BatchCallback

    @property
    def message_count(self) -> int:
        """How many messages travel in it."""
        return len(self.message_ids)


Sending: TypeAlias = SingleSending | BatchSending


def call_back(callback: SendCallback, outcome: SendResult | MQError) -> None:
    """Call what the application gave; its error must not reach the connection that the answer came on."""
    try:
        callback(outcome)
    except Exception:
        logger.exception("a send callback failed")


def settle(future: asyncio.Future[T], outcome: T | MQError) -> None:
    """Give a future the outcome of a send."""
    if future.done():
        return  # the caller does not wait any more
    if isinstance(outcome, MQError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def draft(message: Message, options: ProducerOptions) -> Draft:
    """Check a message and compress a long body.

    Raises:
        InvalidRequestError: See `Message.check`.
    """
    message.check(message_bytes_max=options.max_message_bytes)
    body = message.body
    if len(body) > options.compress_body_over_bytes:
        compressed = compress(body, options.compress_type, level=options.compress_level)
        return Draft(message, compressed, with_compression(0, options.compress_type))
    return Draft(message, body, 0)


def half_draft(message: Message, options: ProducerOptions) -> Draft:
    """The same for a half message of a transaction.

    Raises:
        InvalidRequestError: See `Message.check`; or it is to be delayed.
    """
    if message.delay_level or message.deliver_at_ms is not None:
        raise InvalidRequestError("a message of a transaction takes no delay", topic=message.topic)
    whole = draft(message, options)
    return Draft(
        message,
        whole.body,
        whole.sys_flag | TRANSACTION_PREPARED,
        added_properties=f"TRAN_MSG\x01true\x02PGROUP\x01{options.group}\x02",
        may_repeat=False,
    )
