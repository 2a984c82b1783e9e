"""Pending tables: queue tables that came before the ledger was open, added up.

An object store may be away for hours while the hot process reports twenty times a second; what is kept of that is
bounded by its topics and queues.
"""

from thermocline.broker.helpers import QueueState, QueueTable, TopicState


class PendingTables:
    """Belongs to the tier process's loop."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicState] = {}
        self._queues: dict[str, dict[int, QueueState]] = {}
        self._last: QueueTable | None = None

    def add(self, table: QueueTable) -> None:
        """Add the next table."""
        for topic in table.topics:
            earlier = self._topics.get(topic.topic)
            if topic.deleted or earlier is None or earlier.incarnation != topic.incarnation:
                self._queues.pop(topic.topic, None)  # those of an earlier incarnation
            self._topics[topic.topic] = topic
        for queue in table.queues:
            self._queues.setdefault(queue.topic, {})[queue.queue_id] = queue
        self._last = table

    def take_merged(self) -> QueueTable | None:
        """Return all added tables merged into one, and forget them; None when none was added."""
        last, self._last = self._last, None
        if last is None:
            return None
        table = QueueTable(
            sequence=last.sequence,
            log_offset=last.log_offset,
            topics=list(self._topics.values()),
            queues=[queue for queues in self._queues.values() for queue in queues.values()],
            pressure=last.pressure,
        )
        self._topics, self._queues = {}, {}
        return table
