"""First message: whether a queue's very first message, offset 0, is near enough to the end of the log to be in memory.

A group that starts at "last" then begins with it, so that it gets the messages sent just before its first member
connected. Messages that only the cold tier holds are not in memory: otherwise a new group that wants only new messages
would read years of history.
Source: MessageStore.checkInMemByConsumeOffset, Apache RocketMQ 5.3.
"""

from thermocline.broker.process import total_memory_bytes
from thermocline.broker.queues.queue_lookup import QueueLookup
from thermocline.broker.queues.visible_queues import VisibleQueues
from thermocline.broker.settings import CurrentConfig
from thermocline.remoting.offsets import QUEUE_START
from thermocline.store.log import CommitLog


class FirstMessages:
    """The first messages of this broker's queues."""

    def __init__(self, *, settings: CurrentConfig, log: CommitLog, visible: VisibleQueues, lookup: QueueLookup) -> None:
        self._settings = settings
        self._log = log
        self._visible = visible
        self._lookup = lookup
        self._memory_bytes = total_memory_bytes()

    def is_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether the queue's first message ever is still here, visible, and in memory."""
        queue = self._lookup.find(topic, queue_id)
        if queue is None or queue.next_offset == 0 or self._visible.hot_start(queue) > 0:
            return False
        unit = queue.unit(QUEUE_START)
        if unit.is_empty:
            return False
        behind_bytes = self._log.append_offset - unit.physical_offset
        return behind_bytes <= self._memory_bytes * self._settings.broker.memory_percent // 100
