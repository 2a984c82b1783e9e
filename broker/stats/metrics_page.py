"""MetricsPage: the text behind GET /metrics of one broker, made on request.

Counters of the hot path are read where they are counted anyway, so nothing is counted twice; consumer lag is computed
in slices, with the loop free between two of them. If only the tier process has a queue's first message, it is
queried, MINIMUMS_ASKED_MAX times a page; beyond that a lag may count expired messages of one segment. The tier process
supplies its own families; while it does not answer they are missing. Bounded: `metricsTopicsMax` topics have a
label (labelled_topics.py), and GROUPS_PER_TOPIC_MAX consumer groups of each. Belongs to the hot process's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.broker.cold import DroppedRange
from thermocline.broker.helpers import TIER_ROLE, HelperHub, HelperRequestCode, HelperStatus, decode_body
from thermocline.broker.metrics import FAMILIES, LabelledTopics, TierFigures, TierFiguresRequest, show_tier
from thermocline.broker.queues import RemainingMessages
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats.broker_stats import BrokerStats
from thermocline.broker.tables import ConsumerOffsets, TopicTable
from thermocline.remoting.bodies import HARuntimeInfo
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import UnavailableError, UnsupportedRequestError
from thermocline.remoting.health import Exposition, show_refusals
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue

TIER_TIMEOUT_MS = 3_000
ENTRIES_PER_SLICE = 200
GROUPS_PER_TOPIC_MAX = 50
MINIMUMS_ASKED_MAX = 64


class ControlledFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A broker under a controller. `in_sync_count`: of a master."""

    master_epoch: int
    in_sync_count: int | None
    confirm_offset: PhysicalOffset
    has_role_failed: bool


class MetricsPage:
    """See the module's header."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        remaining: RemainingMessages,
        hub: HelperHub,
        helpers: Callable[[], Sequence[HelperStatus]],
        committed_offset: Callable[[], PhysicalOffset | None],
        is_fenced: Callable[[], bool],
        dropped: Callable[[], Sequence[DroppedRange]],
        limits: LimitCounts,
        quotas: QuotaTable,
        denials: Callable[[], Mapping[str, int]] = dict,
        ha_runtime_info: Callable[[], HARuntimeInfo] = HARuntimeInfo,
        controlled: Callable[[], ControlledFigures | None] = lambda: None,
    ) -> None:
        """`committed_offset`: None without a cold tier. `dropped`: ranges dropped because of a full disk. `denials`:
        requests refused by access control, by stage; none when it is off. `controlled`: None without a controller."""
        self._denials = denials
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._stats = stats
        self._remaining = remaining
        self._hub = hub
        self._helpers = helpers
        self._committed_offset = committed_offset
        self._is_fenced = is_fenced
        self._dropped = dropped
        self._limits = limits
        self._quotas = quotas
        self._ha_runtime_info = ha_runtime_info
        self._controlled = controlled
        self._labelled = LabelledTopics(topics_max=settings.broker.metrics_topics_max)
        self._minimums_asked = 0

    async def text(self) -> bytes:
        """The whole page."""
        page = Exposition(FAMILIES)
        self._add_broker(page)
        await self._add_topics(page)
        await self._add_lag(page)
        await self._add_tier(page)
        return page.text()

    def _add_broker(self, page: Exposition) -> None:
        log = self._store.commit_log
        config = self._settings.broker
        page.add("thermocline_broker_info", 1, {"cluster": config.cluster_name, "broker": config.broker_name})
        if not config.is_slave:
            page.add("thermocline_broker_writable", not self._is_fenced() and log.refusal is None)
        page.add("thermocline_broker_fenced", self._is_fenced())
        for helper in self._helpers():
            labels = {"helper": helper.name}
            page.add("thermocline_helper_connected", self._hub.is_connected(helper.name), labels)
            page.add("thermocline_helper_restarts_total", helper.restarts, labels)
        page.add("thermocline_disk_used_ratio", self._store.retention.used_ratio())
        page.add("thermocline_log_append_offset_bytes", log.append_offset)
        page.add("thermocline_log_flush_offset_bytes", log.flush_offset)
        page.add("thermocline_log_min_offset_bytes", log.min_offset)
        committed_offset = self._committed_offset()
        if committed_offset is not None:
            page.add("thermocline_log_committed_offset_bytes", committed_offset)
        page.add("thermocline_dropped_messages", sum(each.message_count for each in self._dropped()))
        self._add_replicas(page)
        show_refusals(page, limits=self._limits.totals, quotas=self._quotas.refusals, denials=self._denials())
        rates = self._stats.rates
        page.add("thermocline_put_failed_total", rates.put_failed_times)
        page.add("thermocline_get_messages_total", rates.transferred_count)
        page.add("thermocline_get_bytes_total", rates.transferred_bytes)

    def _add_replicas(self, page: Exposition) -> None:
        if self._settings.broker.takes_slaves:
            slaves = self._ha_runtime_info().ha_connection_info
            page.add("thermocline_replica_connections", len(slaves))
            for slave in slaves:
                page.add("thermocline_replica_gap_bytes", slave.diff, {"slave": slave.addr})
        controlled = self._controlled()
        if controlled is not None:
            page.add("thermocline_replica_master_epoch", controlled.master_epoch)
            if controlled.in_sync_count is not None:
                page.add("thermocline_replica_in_sync", controlled.in_sync_count)
            page.add("thermocline_replica_confirm_offset_bytes", controlled.confirm_offset)
            page.add("thermocline_replica_role_failed", controlled.has_role_failed)

    async def _add_topics(self, page: Exposition) -> None:
        totals = self._stats.topic_put_totals()
        self._labelled.refresh(
            self._topics,
            exists=lambda topic: topic in self._topics,
            traffic=lambda topic: totals.get(topic, (0, 0))[1],
        )
        sums: dict[str, list[int]] = {}
        for number, (topic, (messages, size_bytes)) in enumerate(totals.items()):
            labelled = sums.setdefault(self._labelled.label_of(topic), [0, 0])
            labelled[0] += messages
            labelled[1] += size_bytes
            if number % ENTRIES_PER_SLICE == ENTRIES_PER_SLICE - 1:
                await asyncio.sleep(0)
        for topic, (messages, size_bytes) in sums.items():
            page.add("thermocline_put_messages_total", messages, {"topic": topic})
            page.add("thermocline_put_bytes_total", size_bytes, {"topic": topic})

    async def _add_lag(self, page: Exposition) -> None:
        """The lag of groups in the topics that have a label. A group with an offset below the local minimum is left out
        while the cold tier has not reported."""
        seen = 0
        self._minimums_asked = 0
        for topic in self._labelled.names:
            for group in sorted(self._offsets.groups_of(topic))[:GROUPS_PER_TOPIC_MAX]:
                lag: int | None = 0
                for queue_id, offset in list(self._offsets.of_group(topic, group).items()):
                    queue = self._store.queues.find(topic, queue_id)
                    if queue is not None and lag is not None:
                        count = await self._remaining_of(queue, offset)
                        lag = None if count is None else lag + count
                    seen += 1
                    if seen % ENTRIES_PER_SLICE == 0:
                        await asyncio.sleep(0)
                if lag is not None:
                    page.add("thermocline_consumer_lag_messages", lag, {"group": group, "topic": topic})

    async def _remaining_of(self, queue: ConsumeQueue, offset: QueueOffset) -> int | None:
        """The messages that a group at `offset` has still to consume; None while the cold tier has not reported."""
        remaining = self._remaining
        content = remaining.near(queue, offset)
        if content is not None and not content.is_exact and self._minimums_asked < MINIMUMS_ASKED_MAX:
            self._minimums_asked += 1
            try:
                content = await remaining.exact(queue, offset)
            except UnavailableError:
                self._minimums_asked = MINIMUMS_ASKED_MAX  # do not wait for it again on this page
        return None if content is None else content.count(offset)

    async def _add_tier(self, page: Exposition) -> None:
        if not self._hub.is_connected(TIER_ROLE):
            return
        request = TierFiguresRequest(topics=self._labelled.names)
        try:
            reply = await self._hub.ask(TIER_ROLE, HelperRequestCode.TIER_METRICS, request, timeout_ms=TIER_TIMEOUT_MS)
        except (UnavailableError, UnsupportedRequestError):  # it is away, or a read-only broker's
            return
        show_tier(page, decode_body(reply.body, TierFigures))
