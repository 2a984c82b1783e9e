"""Slave ledger: the hot process's end of the slave process (slave_process.py).

    enrol            whose ledger is followed, from the enrolment's file, later as the master says
    CATALOG_TABLE    cold ranges are served; a queue without any local message goes on where the cold tier ends

An empty slave copies only the end of its master's log, in which most queues may have no message. Their ends are those
of the ledger, as the master's are. A record that comes later and is below such an end is in the bucket. The ledger may
know of a topic, or that it was made again, before this broker does: such ranges wait.

Belongs to the hot process's loop. What waits for its topic is bounded by the catalog.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.broker.helpers import TIER_ROLE, CatalogTable, ColdRange, Enrolled, HelperHub, HelperRequestCode
from thermocline.broker.pulls import LongPolling
from thermocline.broker.tables import TopicTable
from thermocline.broker.tier import TierLink
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.offsets import QUEUE_START
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue


class SlaveLedger:
    """See the module's header."""

    def __init__(self, store: MessageStore, hub: HelperHub, *, master_uuid: str) -> None:
        """`master_uuid`: by the enrolment's file, empty without one."""
        self._store = store
        self._hub = hub
        self._master_uuid = master_uuid
        self._link: TierLink | None = None
        self._topics: TopicTable | None = None
        self._long_polling: LongPolling | None = None
        self._waiting: dict[str, dict[int, ColdRange]] = {}
        """Ranges of queues without a local message, by topic."""

    def make_link(self, *, timeout_ms: int, restart_feed: Callable[[], None]) -> TierLink:
        """The link to the slave process."""

        def connected() -> None:
            restart_feed()
            self._tell()

        self._link = TierLink(
            self._hub,
            incarnation_of=self._incarnation_of,
            timeout_ms=timeout_ms,
            on_connected=connected,
            on_fenced=lambda _: None,
            on_table=self._take_table,
        )
        return self._link

    def start(self, topics: TopicTable, long_polling: LongPolling) -> None:
        """Begin to change queues."""
        self._topics, self._long_polling = topics, long_polling
        topics.add_listener(self._topic_changed)
        self._place(list(self._waiting))

    def enrol(self, master_uuid: str) -> None:
        """Follow the ledger that the store of this id writes."""
        self._master_uuid = master_uuid
        self._tell()

    def _tell(self) -> None:
        if self._master_uuid:
            self._hub.tell(TIER_ROLE, HelperRequestCode.ENROLLED, Enrolled(store_uuid=self._master_uuid))

    def _incarnation_of(self, topic: str) -> int:
        return self._store.incarnations.find(topic).id

    def _take_table(self, table: CatalogTable) -> None:
        assert self._link is not None
        self._link.apply_table(table)
        for each in table.ranges:
            queue = self._store.queues.find(each.topic, each.queue_id)
            is_later = each.incarnation > self._incarnation_of(each.topic)
            if queue is None or queue.next_offset == QUEUE_START or is_later:
                self._waiting.setdefault(each.topic, {})[each.queue_id] = each
        self._place([topic for topic in dict.fromkeys(each.topic for each in table.ranges) if topic in self._waiting])

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if config is not None and topic in self._waiting:
            self._place([topic])

    def _place(self, topics: list[str]) -> None:
        """Have queues of these topics end where the cold tier does, as far as the topics are here."""
        moved: list[ConsumeQueue] = []
        for topic in topics:
            if self._topics is None or topic not in self._topics:
                continue
            incarnation = self._incarnation_of(topic)
            for each in self._waiting.pop(topic).values():
                if each.incarnation > incarnation:  # the master has made the topic again, this broker hears of it later
                    self._waiting.setdefault(topic, {})[each.queue_id] = each
                if each.incarnation != incarnation:
                    continue
                queue = self._store.queues.find_or_create(topic, each.queue_id)
                if queue.next_offset == QUEUE_START and each.end_offset:
                    queue.restart_at(each.end_offset, min_offset=each.end_offset)
                    moved.append(queue)
        if moved and self._long_polling is not None:
            self._long_polling.arrived(moved)
