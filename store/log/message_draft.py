"""Arguments and results of the store's put and get: drafts, put results, get results."""

from __future__ import annotations

from enum import Enum

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.socket_address import Host


class PutStatus(Enum):
    """How a put ended; RocketMQ's names. What refuses a put outright is an exception."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """In the log, but not known to be durable in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    """The flush failed: nothing that waited for it counts as stored."""


class GetStatus(Enum):
    """How a get ended; RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """There are messages, but none with the requested tags."""
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    """The log file went away under the read: ask again."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    """The offset is behind the queue's end."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is the queue's end: nothing there yet."""
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    """The offset is below the queue's local minimum."""
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    """There is no such queue."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """Nothing was ever put into the queue."""


class TimeBoundary(Enum):
    """Which of several offsets a search by time wants."""

    LOWER = "lower"
    """The first offset with a store time at or after the requested one; the queue's end when there is none."""
    UPPER = "upper"
    """The last offset with a store time at or before the requested one; the queue's minimum when there is none."""


class MessageDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A message before it has a place: everything in the record that is not for the store to say."""

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties_text: bytes
    born_timestamp_ms: int
    born_host: Host
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: PhysicalOffset = LOG_START
    tags_code: int | None = None
    """The tags code of the queue unit; None: computed from the properties, as recovery does."""


class PutResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message was put. The offset message id is the store host with `physical_offset`."""

    status: PutStatus
    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    size_bytes: int
    store_timestamp_ms: int

    @property
    def end_offset(self) -> PhysicalOffset:
        """The physical offset behind the record: durable when the flush offset has reached it."""
        return self.physical_offset + self.size_bytes


class GetResult(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue as they lie in the log: whole records, adjacent ones as one buffer."""

    status: GetStatus
    next_begin_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    buffers: list[memoryview] = []
    message_count: int = 0
    size_bytes: int = 0
