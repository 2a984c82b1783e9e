"""StateSnapshot: a broker's topics, groups and offsets at one moment: `state/{epoch:010}-{sequence:010}.json`.

JSON objects by the names below, with a checksum (checked_json.py); fields at their default may be missing, unknown
fields are ignored. Small types are arrays in the order of their fields. `documents` are RocketMQ's own state files
(`topics.json`, ...) as JSON values, without what only says when they were written. Specification: docs/cold-format.md.

Reservations
    log_offset    every record below it is counted in the queues' ends
    log_ceiling   no record was ever, or will be, put at or behind it, unless the two newest snapshots say a later one

So either of the two kept snapshots is enough: offsets that only the other one reserves were never used.

A record takes at least `record_bytes_min`, so between the two there is room for so many messages, and no queue can have
got further than its end plus that: `queue_ceiling`. This holds without tracking queues. A queue that is not named
began at `new_queue_offset`, after the snapshot.
"""

from __future__ import annotations

from typing import Any

import msgspec

from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.tiered.objects import (
    LedgerCorruptError,
    StateCorruptError,
    StateTooNewError,
    check_json,
    is_sealed,
    seal_json,
)

STATE_FORMAT = 1
KEPT_COUNT = 2
"""How many of the newest are kept; each of them is enough for a recovery."""

TOPICS = "topics.json"
STATIC_TOPICS = "topicQueueMapping.json"
GROUPS = "subscriptionGroup.json"
CONSUMER_OFFSETS = "consumerOffset.json"
DELAY_OFFSETS = "delayOffset.json"
REQUEST_MODES = "messageRequestMode.json"
CONSUMER_FILTERS = "consumerFilter.json"
CONSUMER_ORDERS = "consumerOrderInfo.json"
DEFAULT_TTL = "ttlDefault.json"
SETTINGS = "settings.json"


class QueueEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue's end: the offset behind its last message."""

    queue_id: int
    end_offset: QueueOffset


class TopicState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One topic name's present life: its incarnation, where that began, what of it has expired, its queues."""

    topic: str
    incarnation: int = 0
    start_offset: PhysicalOffset = LOG_START
    deleted: bool = False
    expired_before_ms: int = 0
    ends: tuple[QueueEnd, ...] = ()


class StateSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """See the module's header. Times in ms, offsets of the log in bytes, of queues in messages.

    `previous` is the one before it, which exists as long as this is the newest; None: there was none.
    A recovery's own snapshot records its `lost` messages by topic, the time of the state that it used, and the newer
    snapshots that it `skipped`: an interrupted recovery that starts again needs them.
    """

    format: int
    epoch: int
    sequence: int
    store_uuid: str
    cluster: str
    broker_name: str
    captured_ms: int
    log_offset: PhysicalOffset
    log_ceiling: PhysicalOffset
    record_bytes_min: int
    new_queue_offset: QueueOffset = QUEUE_START
    last_incarnation: int = 0
    topics: tuple[TopicState, ...] = ()
    documents: dict[str, Any] = {}
    lost: dict[str, int] = {}
    lost_since_ms: int = 0
    previous: StateName | None = None
    skipped: tuple[str, ...] = ()

    @property
    def name(self) -> StateName:
        """What its object is called by."""
        return StateName(self.epoch, self.sequence)

    @property
    def unseen_messages_max(self) -> int:
        """How many messages can have been put since, in all queues together."""
        return -(-(self.log_ceiling - self.log_offset) // self.record_bytes_min)

    def queue_ceiling(self, end_offset: QueueOffset) -> QueueOffset:
        """An offset that no message of a queue that ended at `end_offset` has reached."""
        return end_offset + self.unseen_messages_max

    def says_the_same(self, other: StateSnapshot) -> bool:
        """Whether both have the same state, ignoring time, writer and reservations."""
        return self._content == other._content

    @property
    def _content(self) -> tuple[object, ...]:
        return (
            self.store_uuid,
            self.log_offset,
            self.new_queue_offset,
            self.last_incarnation,
            self.topics,
            self.documents,
        )


class StateName(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """Whose snapshot, and which one: of two the greater is the newer."""

    epoch: int
    sequence: int


class _Head(msgspec.Struct):
    format: int


def encode_state(snapshot: StateSnapshot) -> bytes:
    """The snapshot as it is stored."""
    assert 0 <= snapshot.log_offset <= snapshot.log_ceiling, "counted records are below the reservation"
    assert snapshot.record_bytes_min > 0
    return seal_json(msgspec.json.encode(snapshot))


def decode_state(data: bytes, *, name: StateName) -> StateSnapshot:
    """The snapshot that was stored under `name`.

    Raises:
        StateTooNewError: It is of a later format.
        StateCorruptError: It is none, or damaged, or, with `found` in its context, another one.
    """
    try:
        check_json(data, key=f"state {name.epoch}-{name.sequence}")
        head = msgspec.json.decode(data, type=_Head)
        if head.format > STATE_FORMAT and is_sealed(data):
            raise StateTooNewError(
                "a state snapshot of a later format", epoch=name.epoch, sequence=name.sequence, format=head.format
            )
        snapshot = msgspec.json.decode(data, type=StateSnapshot)
    except (msgspec.DecodeError, LedgerCorruptError) as error:
        raise StateCorruptError(
            "a state snapshot cannot be decoded", epoch=name.epoch, sequence=name.sequence
        ) from error
    if snapshot.format > STATE_FORMAT:
        raise StateCorruptError("a state snapshot of no format", epoch=name.epoch, sequence=name.sequence)
    if snapshot.name != name:
        raise StateCorruptError(
            "a state snapshot of another name",
            epoch=name.epoch,
            sequence=name.sequence,
            found=f"{snapshot.epoch}-{snapshot.sequence}",
        )
    if not 0 <= snapshot.log_offset <= snapshot.log_ceiling or snapshot.record_bytes_min <= 0:
        raise StateCorruptError("a state snapshot reserves nothing", epoch=name.epoch, sequence=name.sequence)
    return snapshot
