"""Handing a consumer group over: private requests with which one is moved to exactly where a bulk reader has stopped.

Codes, headers and which body belongs to which: remoting/private_requests.py.

    prepare on every broker -> apply on every broker             abort, or HOLD_MS, ends what was only prepared

While a group is held, its members' registrations, pulls, POPs and commits are refused with SYSTEM_BUSY: again later.
A receipt is applied once: to prepare or apply it again answers `applied` and moves nothing.
"""

from __future__ import annotations

import msgspec

from thermocline.remoting.bodies.body import Body
from thermocline.remoting.offsets import QUEUE_START, QueueOffset

BEGINNING = QueueOffset(-2)
"""As a queue's offset: wherever the queue begins."""
NO_OFFSET = QueueOffset(-1)
"""As a group's offset: it has none in this queue."""
ERROR_FIELD = "error"
"""The field of a refusal's header that names the error's class."""


class QueueTarget(Body, kw_only=True):
    """Where the group is to go on in a queue.

    `expected`: the offset that it must have now. Without it the group must have none or one of [start, offset], what
    was read: elsewhere it would pass over messages, or get some again. `start` None: that is not looked at either.
    """

    queue_id: int
    offset: QueueOffset
    expected: QueueOffset | None = None
    start: QueueOffset | None = None


class TopicTarget(Body, kw_only=True):
    """`incarnation` None: nothing of the topic had been seen, so any will do. `is_whole`: queues that are not named
    were looked for and not found; the group begins at their beginning."""

    topic: str
    incarnation: int | None = None
    is_whole: bool = True
    queues: list[QueueTarget] = msgspec.field(default_factory=list)


class HandOffBody(Body, kw_only=True):
    """90151. `store_uuid`: of the broker whose history was read; None: not known. `is_forced`: where the group is now,
    expired messages, popped ones and the store are passed over."""

    group: str
    receipt_id: str
    topics: list[TopicTarget]
    is_forced: bool = False
    store_uuid: str | None = None


class MovedQueue(Body, kw_only=True):
    """The group's offset in a queue before, and the new one; and where the queue began."""

    topic: str
    queue_id: int
    before: int
    offset: QueueOffset
    min_offset: QueueOffset = QUEUE_START


class HandOffAnswer(Body, kw_only=True):
    """The answer to 90151 and 90152. `is_applied`: the group has been moved by this receipt, now or earlier."""

    is_applied: bool
    queues: list[MovedQueue] = msgspec.field(default_factory=list)


class QueuePlace(Body, kw_only=True):
    """A queue's visible range [min_offset, max_offset) and where the group is."""

    queue_id: int
    min_offset: QueueOffset
    max_offset: QueueOffset
    offset: QueueOffset


class HandOffPlaces(Body, kw_only=True):
    """The answer to 90150. `store_uuid`: the broker's, which its cold tier carries too; "" from an older broker."""

    incarnation: int
    store_uuid: str = ""
    queues: list[QueuePlace] = msgspec.field(default_factory=list)
