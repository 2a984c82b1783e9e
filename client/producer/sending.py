"""Sending: one send request on its way, from the call to its outcome. One message, or a batch of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.send_target import Lane
from thermocline.client.send_result import SendResult
from thermocline.remoting.compression import compress
from thermocline.remoting.connection import Connection
from thermocline.remoting.errors import MQError
from thermocline.remoting.sys_flag import with_compression

__all__ = ["Draft", "Outcome", "SendCallback", "Sending", "draft"]

Outcome: TypeAlias = "list[SendResult] | MQError"
"""What became of a request: a result for each of its messages, or an error for all."""

SendCallback: TypeAlias = "Callable[[SendResult | MQError], object]"
"""What is told the outcome of one message."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is checked, and compressed if it is long: the part that needs no loop, so any thread may do it."""

    message: Message
    body: bytes
    sys_flag: int


@dataclass(slots=True, kw_only=True, eq=False)
class Sending:
    """One request's state. Belongs to the producer's loop; `callback` is called exactly once."""

    topic: str
    body: bytes
    sys_flag: int
    properties_text: str
    flag: int
    message_ids: list[str]
    is_batch: bool
    deadline: float
    attempts_left: int
    counted_bytes: int
    """What this request counts for in the producer's bound on bytes under way."""
    callback: Callable[[Outcome], object]
    queue: MessageQueue | None = None
    """The queue that the caller chose; then there is no second attempt elsewhere."""
    choose: Callable[[tuple[MessageQueue, ...]], MessageQueue] | None = None
    """Chooses the queue when the route is known."""
    lane: Lane | None = None
    connection: Connection | None = None
    last_error: MQError | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether only one queue will do."""
        return self.queue is not None or self.choose is not None


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
