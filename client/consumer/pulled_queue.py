"""PulledQueue: one queue of a pull consumer, with the messages fetched ahead, and its position and committable offset.

    committable <= position <= next_pull_offset        in the order in which a message passes them, backwards

The next pull starts at `next_pull_offset`; messages wait in the buffer until `hand_out` returns them and moves
`position`; they count as consumed, so `committable` follows, when the application polls again or commits.
Belongs to the consumer's loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from thermocline.client.consumer.dispatch.held_messages import HeldMessages
from thermocline.client.consumer.options import MIB
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.remoting.bodies import ProcessQueueInfo
from thermocline.remoting.offsets import QueueOffset

__all__ = ["PulledQueue"]


class PulledQueue:
    """See the module."""

    __slots__ = (
        "_buffer",
        "committable",
        "dropped",
        "generation",
        "held",
        "is_paused",
        "next_pull_offset",
        "queue",
    )

    def __init__(self, queue: MessageQueue, *, start_offset: int) -> None:
        self.queue = queue
        self.next_pull_offset = start_offset
        self.committable = start_offset
        self.dropped = False
        self.is_paused = False
        self.generation = 0
        """Rises with every seek: the answers of earlier pulls are dropped."""
        self.held = HeldMessages()
        self._buffer: deque[ReceivedMessage] = deque()

    @property
    def position(self) -> int:
        """The offset of the next message that `hand_out` returns, as far as the buffer and the last answer show."""
        return self._buffer[0].queue_offset if self._buffer else self.next_pull_offset

    @property
    def span(self) -> int:
        """How far the newest waiting message is ahead of the oldest."""
        return self._buffer[-1].queue_offset - self._buffer[0].queue_offset if self._buffer else 0

    def put(self, messages: Sequence[ReceivedMessage], *, next_offset: int) -> None:
        """Take in one pull's messages."""
        self._buffer.extend(messages)
        self.held.count_in(len(messages), sum(message.record.size_bytes for message in messages))
        self.next_pull_offset = next_offset

    def hand_out(self, count_max: int) -> list[ReceivedMessage]:
        """Hand out up to `count_max` waiting messages."""
        taken: list[ReceivedMessage] = []
        while self._buffer and len(taken) < count_max:
            taken.append(self._buffer.popleft())
        self.held.count_in(-len(taken), -sum(message.record.size_bytes for message in taken))
        return taken

    def take_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand these out again, the last ones that were handed out; nothing where the queue has moved back since."""
        if messages[-1].queue_offset < self.position:
            self._buffer.extendleft(reversed(messages))
            self.held.count_in(len(messages), sum(message.record.size_bytes for message in messages))
            self.committable = min(self.committable, messages[0].queue_offset)

    def mark_consumed(self) -> None:
        """What was handed out is consumed."""
        self.committable = self.position

    def seek(self, offset: int) -> None:
        """Go on at `offset`; what waits is forgotten, and the place counts as consumed up to there."""
        self._buffer.clear()
        self.held.count_in(-self.held.cached_count, -self.held.cached_bytes)
        self.next_pull_offset = offset
        self.committable = offset
        self.generation += 1

    def skip_to(self, offset: int) -> None:
        """Pull from `offset` on; what waits is handed out all the same."""
        assert offset >= self.next_pull_offset
        self.next_pull_offset = offset

    def cut(self, end: int) -> None:
        """The queue ends at `end` now: forget what waits from there on; none of it counts as consumed.

        Other messages will have these offsets.
        """
        while self._buffer and self._buffer[-1].queue_offset >= end:
            message = self._buffer.pop()
            self.held.count_in(-1, -message.record.size_bytes)
        self.next_pull_offset = end
        self.committable = min(self.committable, end)

    def info(self) -> ProcessQueueInfo:
        """How it is, for operators."""
        return ProcessQueueInfo(
            commit_offset=QueueOffset(self.committable),
            cached_msg_min_offset=QueueOffset(self.position),
            cached_msg_max_offset=QueueOffset(self.next_pull_offset),
            cached_msg_count=self.held.cached_count,
            cached_msg_size_in_mib=self.held.cached_bytes // MIB,
            droped=self.dropped,
        )
