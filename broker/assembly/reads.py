"""Reads: the visible ranges of queues, hot and cold, and the limits on groups' reads."""

from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.tables import Tables
from thermocline.broker.pulls import ColdReadQuota
from thermocline.broker.queues import FirstMessages, QueueLookup, RemainingMessages, VisibleQueues
from thermocline.remoting.bodies import TopicConfig


class Reads:
    """Nothing to start or close. On the loop."""

    def __init__(self, base: Base, tables: Tables) -> None:
        settings = base.settings
        self.visible = VisibleQueues(base.store, base.cold, expired_before_ms=tables.topics.expired_before)
        self._queues = base.store.queues
        tables.topics.add_listener(self._topic_changed)
        self.lookup = QueueLookup(base.store, self.visible, base.cold)
        self.remaining = RemainingMessages(self.visible, base.cold)
        self.cold_quota = ColdReadQuota(config=lambda: settings.broker, clock=base.steady_clock)
        self.first_messages = FirstMessages(
            settings=settings, log=base.store.commit_log, visible=self.visible, lookup=self.lookup
        )

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if config is None:
            for queue in self._queues.of_topic(topic).values():
                self.visible.forget(queue)
