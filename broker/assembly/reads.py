"""Reads: the visible ranges of queues, hot and cold, and the limits on groups' reads."""

from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.tables import Tables
from thermocline.broker.pulls import ColdReadQuota
from thermocline.broker.queues import FirstMessages, QueueLookup, RemainingMessages, VisibleQueues


class Reads:
    """Nothing to start or close. On the loop."""

    def __init__(self, base: Base, tables: Tables) -> None:
        settings = base.settings
        self.visible = VisibleQueues(base.store, base.cold, expired_before_ms=tables.topics.expired_before)
        self.lookup = QueueLookup(base.store, self.visible, base.cold)
        self.remaining = RemainingMessages(self.visible, base.cold)
        self.cold_quota = ColdReadQuota(config=lambda: settings.broker, clock=base.steady_clock)
        self.first_messages = FirstMessages(
            settings=settings, log=base.store.commit_log, visible=self.visible, lookup=self.lookup
        )
