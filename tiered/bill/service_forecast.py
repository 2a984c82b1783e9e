"""The forecast for a running tier service, from its topics, their recorded traffic, waiting and stored bytes.

requests    those of sealing, merging, indexing, state, expiry and garbage (bill_forecast.py), and the requests counted
            beyond that under the settings in force: reads, lookups
storage     in the steady state: of a topic with a time to live the bytes received within that and the grace period; of
            others the stored and waiting bytes, and the growth per hour
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from thermocline.tiered.bill.bill_forecast import (
    GETS_PER_STATE,
    BillForecast,
    ForecastSettings,
    Requests,
    forecast_bill,
)
from thermocline.tiered.bill.seal_forecast import SealRules, TopicLoad
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog, stored_by_topic
from thermocline.tiered.cost import HOUR_MS, Purpose, Recent, RequestKind, requests_by_kind
from thermocline.tiered.garbage import COLLECTIONS_PER_GRACE
from thermocline.tiered.ledger import FencingMode
from thermocline.tiered.sealing import TrafficWindow
from thermocline.tiered.service import TierService
from thermocline.tiered.stores import put_requests_of

_BESIDES = (
    (Purpose.SEGMENTS, RequestKind.GET),
    (Purpose.PACKS, RequestKind.GET),
    (Purpose.INDEX, RequestKind.GET),
    *((Purpose.STATE, kind) for kind in RequestKind),
)
"""What consumers and administrators cause, too: reads, lookups, and state that changes while no message comes."""


class StorageForecast(msgspec.Struct, frozen=True, kw_only=True):
    """`stored_bytes` once expiry has set in, and what is added to it every hour for ever."""

    stored_bytes: float
    growth_bytes_per_hour: float


def loads_of(
    service: TierService, window: TrafficWindow, *, now_ms: int, ttls_ms: Mapping[str, int | None]
) -> list[TopicLoad]:
    """The topics of a service that something came of, by name: each plays the same random times in every forecast.
    `ttls_ms`: of those that would have another time to live than they have; None: for ever."""
    loads: list[TopicLoad] = []
    for traffic in sorted(window.topics, key=lambda each: each.topic):
        progress = service.backlog.topics.get(traffic.topic)
        if progress is not None and not progress.tiered:
            continue
        first_ms = progress.first_waiting_ms if progress is not None else None
        loads.append(
            TopicLoad(
                traffic=traffic,
                ttl_ms=ttls_ms[traffic.topic] if traffic.topic in ttls_ms else service.ttl_ms(traffic.topic),
                waiting_bytes=progress.waiting_bytes if progress is not None and first_ms is not None else 0,
                waited_ms=max(0, now_ms - first_ms) if first_ms is not None else 0,
            )
        )
    return loads


def forecast_requests(
    loads: list[TopicLoad], config: TierConfig, *, catalog: Catalog, cycle_ms: int, besides: Requests | None = None
) -> BillForecast:
    """The requests of an hour of such traffic under these settings; `besides`: the result of `requests_besides`, which
    is added."""
    settings = ForecastSettings(
        rules=SealRules(
            segment_bytes=config.segment_bytes,
            age_ms=config.seal_age_ms,
            pack_bytes=config.pack_bytes,
            round_ms=config.account_interval_ms,
            upload_budget_bytes=config.upload_budget_bytes,
            put_requests=put_requests_of(config.cold_url),
            stored_part=_stored_part(catalog),
        ),
        fan_in=config.merge_fan_in if config.merge_bytes_per_second else None,
        sweep_ms=config.sweep_interval_ms,
        grace_ms=config.grace_ms,
        collect_ms=config.grace_ms // COLLECTIONS_PER_GRACE,
        is_ballots=config.fencing_mode is FencingMode.BALLOTS,
        state_interval_ms=config.state_interval_ms,
        segment_count=catalog.segment_count,
    )
    forecast = forecast_bill(loads, settings, cycle_ms=cycle_ms)
    return forecast if besides is None else forecast.plus(besides)


def requests_besides(
    loads: list[TopicLoad], config: TierConfig, *, catalog: Catalog, cycle_ms: int, recent: Recent
) -> Requests:
    """The hourly requests counted beyond the forecast for this traffic under the settings in force: reads, lookups, and
    state changes without messages."""
    expected = forecast_requests(loads, config, catalog=catalog, cycle_ms=cycle_ms).requests_per_hour
    hours = recent.elapsed_ms / HOUR_MS
    counts = {purpose: requests_by_kind(account.requests) for purpose, account in recent.by_purpose.items()}
    requests: Requests = {
        (purpose, kind): max(0.0, counts[purpose][kind] / hours - expected.get((purpose, kind), 0.0))
        for purpose, kind in _BESIDES
    }
    requests[Purpose.LEDGER, RequestKind.GET] = GETS_PER_STATE * requests[Purpose.STATE, RequestKind.PUT]
    return requests


def forecast_storage(
    loads: list[TopicLoad], *, catalog: Catalog, cycle_ms: int, grace_ms: int, ttls_ms: Mapping[str, int | None]
) -> StorageForecast:
    """See the module's header. `ttls_ms` as for `loads_of`, here also for topics that nothing came of: what they hold
    expires, or stays."""
    stored, part = stored_by_topic(catalog), _stored_part(catalog)
    ttls_ms = {load.topic: load.ttl_ms for load in loads} | dict(ttls_ms)
    stored_bytes = growth_bytes = 0.0
    for load in loads:
        per_hour = int(load.traffic.raw_bytes.sum()) * part * HOUR_MS / cycle_ms
        if load.ttl_ms is None:
            growth_bytes += per_hour
            stored_bytes += load.waiting_bytes * part
        else:
            stored_bytes += per_hour * (load.ttl_ms + grace_ms) / HOUR_MS
    for topic, each in stored.items():
        if (ttls_ms[topic] if topic in ttls_ms else catalog.ttl_ms(topic)) is None:
            stored_bytes += each.stored_bytes
    return StorageForecast(stored_bytes=stored_bytes, growth_bytes_per_hour=growth_bytes)


def _stored_part(catalog: Catalog) -> float:
    """Stored bytes of a raw one."""
    stored = stored_by_topic(catalog)
    raw_bytes = sum(each.raw_bytes for each in stored.values())
    return sum(each.stored_bytes for each in stored.values()) / raw_bytes if raw_bytes else 1.0
