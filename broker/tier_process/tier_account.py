"""Tier account: what the cold tier of this broker costs, and would cost under other settings; the answer to TIER_COST.

Counts are of this tier process, since it began: another one begins anew. The caller, which has the price table,
computes money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from thermocline.broker.helpers import CostAccount, CostForecast, CostReply, CostRequest, CostTopic, RequestBudgetState
from thermocline.broker.metrics import OTHER, PurposeFigures, TopicFigures, TopicRequestFigures
from thermocline.remoting.errors import BrokerBusyError
from thermocline.tiered.bill import (
    ERRORS,
    RECEIVED,
    SENT,
    TopicRow,
    TopicShares,
    forecast_requests,
    forecast_storage,
    loads_of,
    requests_besides,
)
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog, stored_by_topic
from thermocline.tiered.cost import (
    HOUR_MS,
    CostMeter,
    RequestBudget,
    RequestKind,
    counted_requests,
    requests_by_kind,
    state_requests_per_hour,
)
from thermocline.tiered.sealing import SealAdmission, TrafficRecord
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.service import TierService
from thermocline.tiered.wrappers import OutageWatch, StoreCounters

FORECASTS_WAITING_MAX = 4


class TierAccount:
    """Meter, traffic record, request budget and outage watch of one tier process. Belongs to its loop."""

    def __init__(
        self,
        keys: BrokerKeys,
        config: TierConfig,
        *,
        seal_age_ms_max: int,
        clock: Callable[[], int],
        on_outage: Callable[[OutageWatch], None] | None = None,
    ) -> None:
        """`seal_age_ms_max`: how long local files are kept, up to which a budget may widen the seal age. `on_outage`:
        called when an outage of the object store begins, and when it ends."""
        self._config = config
        self._clock = clock
        self.meter = CostMeter(keys, clock)
        self.shares = TopicShares(self.meter)
        self.traffic = TrafficRecord(clock)
        self.outage = OutageWatch(clock, on_change=on_outage)
        self._forecasting = asyncio.Lock()
        self._forecast_count = 0
        self.admission: SealAdmission | None = None
        if config.requests_per_hour:
            budget = RequestBudget(
                requests_per_hour=config.requests_per_hour,
                spent=lambda: counted_requests(self.meter.totals),
                clock=clock,
                state_per_hour=state_requests_per_hour(config.state_interval_ms),
            )
            self.admission = SealAdmission(
                budget, age_ms=config.seal_age_ms, age_ms_max=max(config.seal_age_ms, seal_age_ms_max)
            )

    @property
    def outage_ms(self) -> int:
        """How long the object store has not answered; 0 while it does."""
        since_ms = self.outage.since_ms
        return 0 if since_ms is None else max(1, self._clock() - since_ms)

    @property
    def topics_waiting_for_budget(self) -> list[str]:
        """Topics that are due, and wait for the request budget."""
        return sorted(self.admission.waiting) if self.admission is not None else []

    @property
    def requests(self) -> RequestBudget | None:
        """The request budget, if there is one."""
        return self.admission.budget if self.admission is not None else None

    def budget_state(self) -> RequestBudgetState | None:
        """The request budget; None when there is none."""
        if self.admission is None:
            return None
        return RequestBudgetState(
            requests_per_hour=self.admission.budget.requests_per_hour,
            available=int(self.admission.budget.available),
            is_widened=self.admission.is_widened,
            waiting_topics=len(self.admission.waiting),
            yielded_requests=self.admission.yielded_requests,
            is_yielding=self.admission.is_yielding,
        )

    def topic_figures(self, service: TierService, *, now_ms: int) -> list[TopicFigures]:
        """Waiting and stored messages, of each topic that has either."""
        stored = stored_by_topic(service.catalog)
        figures: list[TopicFigures] = []
        for name in sorted(stored.keys() | service.backlog.topics.keys()):
            progress = service.backlog.topics.get(name)
            first_ms = progress.first_waiting_ms if progress is not None and progress.tiered else None
            stored_bytes = stored[name].stored_bytes if name in stored else 0
            if first_ms is None and not stored_bytes:
                continue
            figures.append(
                TopicFigures(
                    topic=name,
                    waiting_bytes=progress.waiting_bytes if progress is not None and first_ms is not None else 0,
                    waiting_ms=0 if first_ms is None else max(0, now_ms - first_ms),
                    stored_bytes=stored_bytes,
                )
            )
        return figures

    def purpose_figures(self) -> list[PurposeFigures]:
        """Requests to the object store."""
        return [
            PurposeFigures(
                purpose=purpose.value,
                requests=_by_kind(counters),
                errors=counters.errors.total(),
                sent_bytes=counters.sent_bytes,
                received_bytes=counters.received_bytes,
            )
            for purpose, counters in self.meter.by_purpose.items()
        ]

    def topic_request_figures(self, catalog: Catalog, topics: Sequence[str]) -> list[TopicRequestFigures]:
        """Requests of each of these topics, its share of shared ones with them, and of all else."""
        self.shares.settle(catalog, {})
        others = self.shares.total()
        figures: list[TopicRequestFigures] = []
        for topic in topics:
            amounts = self.shares.of(topic)
            others = {name: count - amounts[name] for name, count in others.items()}
            figures.append(_topic_requests(topic, amounts))
        return [*figures, _topic_requests(OTHER, others)]

    async def answer(self, service: TierService, request: CostRequest) -> CostReply:
        """The answer to TIER_COST.

        Raises:
            InvalidParameterError: It would take too long to forecast.
            BrokerBusyError: Too many forecasts wait.
        """
        forecast = await self._forecast_alone(service, request) if request.is_forecast else None
        meter, recent, now_ms = self.meter, self.meter.recent(), self._clock()
        catalog = service.catalog
        stored = {name: each.stored_bytes for name, each in stored_by_topic(catalog).items()}
        named = stored.keys() | {name for name, each in service.backlog.topics.items() if each.tiered}
        self.shares.settle(catalog, {})
        topics = [
            _cost_topic(row, stored_bytes=stored.get(row.topic, 0))
            for row in self.shares.rows(sorted(named))
            if request.topic in (None, row.topic)
        ]
        return CostReply(
            started_ms=meter.started_ms,
            now_ms=now_ms,
            recent_ms=recent.elapsed_ms,
            accounts=[
                CostAccount(
                    purpose=purpose.value,
                    requests=_by_kind(counters),
                    errors=counters.errors.total(),
                    sent_bytes=counters.sent_bytes,
                    received_bytes=counters.received_bytes,
                    recent_requests=_by_kind(recent.by_purpose[purpose]),
                    recent_sent_bytes=recent.by_purpose[purpose].sent_bytes,
                    recent_received_bytes=recent.by_purpose[purpose].received_bytes,
                )
                for purpose, counters in meter.by_purpose.items()
            ],
            topics=topics,
            stored_bytes=sum(stored.values()) + sum(index.object_bytes for index in catalog.indexes.values()),
            removed_bytes=sum(segment.stored_bytes for segment in catalog.removed),
            budget=self.budget_state(),
            forecast=forecast,
        )

    async def _forecast_alone(self, service: TierService, request: CostRequest) -> CostForecast:
        """One at a time: sealing, too, has its work done in the process's few threads."""
        if self._forecast_count > FORECASTS_WAITING_MAX:
            raise BrokerBusyError("too many forecasts wait", count_max=FORECASTS_WAITING_MAX)
        self._forecast_count += 1
        try:
            async with self._forecasting:
                return await self._forecast(service, request)
        finally:
            self._forecast_count -= 1

    async def _forecast(self, service: TierService, request: CostRequest) -> CostForecast:
        """Worked out in a thread: with many topics it takes seconds."""
        window, catalog, recent = self.traffic.window(), service.catalog, self.meter.recent()
        own = self._config
        config = replace(
            own,
            segment_bytes=own.segment_bytes if request.segment_bytes is None else request.segment_bytes,
            seal_age_ms=own.seal_age_ms if request.seal_age_ms is None else request.seal_age_ms,
        )
        ttls_ms: dict[str, int | None] = {}
        if request.ttl_ms is not None:
            names = [request.topic] if request.topic is not None else list(service.backlog.topics)
            ttls_ms = dict.fromkeys(names, request.ttl_ms or None)
        loads = loads_of(service, window, now_ms=self._clock(), ttls_ms=ttls_ms)
        own_loads = loads_of(service, window, now_ms=self._clock(), ttls_ms={})
        cycle_ms = window.elapsed_ms

        def work() -> CostForecast:
            besides = requests_besides(own_loads, own, catalog=catalog, cycle_ms=cycle_ms, recent=recent)
            bill = forecast_requests(loads, config, catalog=catalog, cycle_ms=cycle_ms, besides=besides)
            storage = forecast_storage(
                loads, catalog=catalog, cycle_ms=cycle_ms, grace_ms=config.grace_ms, ttls_ms=ttls_ms
            )
            by_purpose: dict[str, dict[str, float]] = {}
            for (purpose, kind), count in sorted(bill.requests_per_hour.items()):
                if count:
                    by_purpose.setdefault(purpose.value, {})[kind.value] = count
            return CostForecast(
                recorded_ms=cycle_ms,
                raw_bytes_per_hour=window.raw_bytes * HOUR_MS / cycle_ms,
                segment_bytes=config.segment_bytes,
                seal_age_ms=config.seal_age_ms,
                requests_per_hour=by_purpose,
                segments_per_hour=bill.segments_per_hour,
                packs_per_hour=bill.packs_per_hour,
                commits_per_hour=bill.commits_per_hour,
                stored_bytes=storage.stored_bytes,
                growth_bytes_per_hour=storage.growth_bytes_per_hour,
            )

        return await asyncio.to_thread(work)


def _cost_topic(row: TopicRow, *, stored_bytes: int) -> CostTopic:
    return CostTopic(
        topic=row.topic,
        requests={kind.value: row.own[kind] for kind in RequestKind},
        sent_bytes=row.own[SENT],
        received_bytes=row.own[RECEIVED],
        stored_bytes=stored_bytes,
        shared_requests={kind.value: row.shared[kind] for kind in RequestKind},
        shared_sent_bytes=row.shared[SENT],
        shared_received_bytes=row.shared[RECEIVED],
    )


def _topic_requests(topic: str, amounts: Mapping[str, float]) -> TopicRequestFigures:
    """Rounded to what a float tells apart, so that no sum falls by an error of rounding."""
    return TopicRequestFigures(
        topic=topic,
        requests={kind.value: round(max(0.0, amounts[kind]), 6) for kind in RequestKind},
        errors=round(max(0.0, amounts[ERRORS]), 6),
    )


def _by_kind(counters: StoreCounters) -> dict[str, int]:
    return {kind.value: count for kind, count in requests_by_kind(counters.requests).items()}
