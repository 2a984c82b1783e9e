"""What a forecast starts from: the topics of a running tier service, their recorded traffic, and what waits of them."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.tiered.cost.bill_forecast import BillForecast, ForecastSettings, forecast_bill
from thermocline.tiered.cost.seal_forecast import SealRules, TopicLoad
from thermocline.tiered.cost.traffic_record import TrafficWindow
from thermocline.tiered.fencing import FencingMode
from thermocline.tiered.tier_config import TierConfig
from thermocline.tiered.tier_service import COLLECTIONS_PER_GRACE, TierService


def forecast_service(
    service: TierService, window: TrafficWindow, config: TierConfig, *, now_ms: int, ttls_ms: Mapping[str, int | None]
) -> BillForecast:
    """What a service would ask for in an hour of such traffic, under other settings. `ttls_ms`: of topics that would
    have another time to live than they have; None: for ever."""
    catalog, progress_of = service.catalog, service.backlog.topics
    loads: list[TopicLoad] = []
    for traffic in window.topics:
        progress = progress_of.get(traffic.topic)
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
    settings = ForecastSettings(
        rules=SealRules(
            segment_bytes=config.segment_bytes, age_ms=config.seal_age_ms, round_ms=config.account_interval_ms
        ),
        sweep_ms=config.sweep_interval_ms,
        grace_ms=config.grace_ms,
        collect_ms=config.grace_ms // COLLECTIONS_PER_GRACE,
        is_ballots=config.fencing_mode is FencingMode.BALLOTS,
        segment_count=catalog.segment_count,
    )
    return forecast_bill(loads, settings, cycle_ms=window.elapsed_ms)
