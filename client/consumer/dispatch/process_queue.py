"""ProcessQueue: one queue that this consumer works on, from the pull to the commit.

Invariants
  - `commit_offset` is the smallest queue offset that may still have to be consumed: everything below it is done. A
    restart continues there, so nothing is skipped, and what was done above it comes again.
  - It never moves past a message without an outcome; messages that filters dropped count as done.
  - Once `dropped` (the queue went to another member, its offset was reset), no outcome moves its offset any more.
Cached are the messages without an outcome; their count and bytes feed flow control.
Belongs to the consumer's loop. Source: client/impl/consumer/ProcessQueue.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from thermocline.client.consumer.dispatch.held_messages import HeldMessages
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage

__all__ = ["LOCK_TRUSTED_MS", "ProcessQueue"]

LOCK_TRUSTED_MS = 30_000
"""How long after its last renewal a queue lock is trusted; the broker keeps it twice as long."""


class ProcessQueue:
    """The messages of one queue that are pulled and not yet done, and the offsets around them."""

    __slots__ = (
        "_done",
        "_in_flight",
        "_offsets",
        "_ready",
        "_taken",
        "dropped",
        "held",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "locked",
        "next_pull_offset",
        "queue",
    )

    def __init__(self, queue: MessageQueue, *, start_offset: int, now_ms: int) -> None:
        self.queue = queue
        self.next_pull_offset = start_offset
        self.dropped = False
        self.locked = False
        self.last_lock_ms = now_ms
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.held = HeldMessages()
        self._in_flight: dict[int, ReceivedMessage] = {}
        self._offsets: deque[int] = deque()  # of all in flight, and of those done behind one that is not
        self._done: set[int] = set()
        self._ready: deque[ReceivedMessage] = deque()  # orderly: not handed to the listener yet
        self._taken: list[ReceivedMessage] = []  # orderly: with the listener

    @property
    def commit_offset(self) -> int:
        """Everything below is done."""
        return self._offsets[0] if self._offsets else self.next_pull_offset

    @property
    def span(self) -> int:
        """How far the newest pulled message is ahead of the oldest without an outcome."""
        return self._offsets[-1] - self._offsets[0] if self._offsets else 0

    @property
    def cached_offsets(self) -> tuple[int, int]:
        """The least and the greatest queue offset in flight, (0, 0) when there is none."""
        return (min(self._in_flight), max(self._in_flight)) if self._in_flight else (0, 0)

    @property
    def taken_offsets(self) -> tuple[int, int]:
        """The least and the greatest queue offset with the orderly listener, (0, 0) when there is none."""
        return (self._taken[0].queue_offset, self._taken[-1].queue_offset) if self._taken else (0, 0)

    @property
    def taken_count(self) -> int:
        """How many messages are with the orderly listener."""
        return len(self._taken)

    def is_lock_trusted(self, now_ms: int) -> bool:
        """Whether this member may consume the queue in order now; not so after a clock that was set back."""
        return self.locked and 0 <= now_ms - self.last_lock_ms <= LOCK_TRUSTED_MS

    def put(self, messages: Sequence[ReceivedMessage], *, next_offset: int) -> None:
        """Take in one pull's messages (rising queue offsets, at or above the last `next_offset`)."""
        for message in messages:
            offset = message.record.queue_offset
            assert not self._offsets or offset > self._offsets[-1]
            self._in_flight[offset] = message
            self._offsets.append(offset)
        self.held.count_in(len(messages), sum(message.record.size_bytes for message in messages))
        self.next_pull_offset = next_offset
        assert not messages or next_offset > messages[-1].record.queue_offset

    def contains(self, message: ReceivedMessage) -> bool:
        """Whether the message is in flight, as this very object."""
        return self._in_flight.get(message.record.queue_offset) is message

    def finish(self, messages: Sequence[ReceivedMessage]) -> None:
        """Mark messages as done; those that are not in flight (any more) are passed over."""
        for message in messages:
            offset = message.record.queue_offset
            if self._in_flight.pop(offset, None) is None:
                continue
            self._done.add(offset)
            self.held.count_in(-1, -message.record.size_bytes)
        while self._offsets and self._offsets[0] in self._done:
            self._done.remove(self._offsets.popleft())
        assert self.held.cached_count == len(self._in_flight)
        assert len(self._offsets) == len(self._in_flight) + len(self._done)

    def oldest(self) -> ReceivedMessage | None:
        """The in-flight message that holds back the commit offset."""
        return self._in_flight[self._offsets[0]] if self._offsets else None

    # -- orderly consumption -----------------------------------------------------------------------------------------

    def queue_up(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put pulled messages in line for the orderly listener."""
        self._ready.extend(messages)

    def take_batch(self, count_max: int) -> list[ReceivedMessage]:
        """Hand the next messages to the listener; they stay taken until `commit_taken` or `return_taken`."""
        assert not self._taken, "one batch of a queue at a time"
        while self._ready and len(self._taken) < count_max:
            self._taken.append(self._ready.popleft())
        return list(self._taken)

    def commit_taken(self) -> None:
        """The taken messages are done."""
        taken, self._taken = self._taken, []
        self.finish(taken)

    def return_taken(self) -> None:
        """The taken messages are next in line again."""
        taken, self._taken = self._taken, []
        self._ready.extendleft(reversed(taken))
