"""SendResult: the broker's answer about one message that it has stored.

Four answers mean "taken": OK, and three weaker ones under synchronous flush or replication (remoting.md 3.1). A weaker
one is not an error: the message has its place in the log, but the flush or replication has not ended yet.
"""

from __future__ import annotations

import enum

import msgspec

from thermocline.client.message_queue import MessageQueue

__all__ = ["SendResult", "SendStatus"]


class SendStatus(enum.Enum):
    """How durable the message was when the broker answered. Names as in the official clients."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message's place in the log. (A msgspec struct: one is made for each of 300 000 messages a second.)"""

    status: SendStatus
    message_id: str
    """The unique id made by the producer; look a message up by it with `AdminClient.query_by_unique_key`."""
    offset_message_id: str
    """The id made by the broker: its address and the physical offset."""
    queue: MessageQueue
    queue_offset: int
    """-1 while a static topic's queue is on its way to another broker and where it goes on is not decided."""
    transaction_id: str | None = None
    recall_handle: str | None = None
    """For a message that waits for its time: what `Producer.recall` takes it back by."""
    region: str = ""
    """The broker's region, by its setting."""
    is_traced: bool = True
    """Whether the broker wants traces of its messages."""
