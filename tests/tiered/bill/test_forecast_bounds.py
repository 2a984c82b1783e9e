"""Forecasts that take too long are refused: any client may request one, and they are computed beside sealing."""

from __future__ import annotations

import numpy as np
import pytest

from thermocline.remoting.errors import InvalidParameterError
from thermocline.tiered.bill.bill_forecast import ForecastSettings, forecast_bill
from thermocline.tiered.bill.seal_forecast import SealRules, TopicLoad
from thermocline.tiered.sealing import TopicTraffic

MINUTE_MS = 60_000
MIB = 1 << 20


def forecast(*, topic_count: int, age_ms: int, segment_bytes: int = 128 * MIB) -> None:
    minute = np.array([1_000], np.int64)
    rules = SealRules(
        segment_bytes=segment_bytes,
        age_ms=age_ms,
        pack_bytes=128 * MIB,
        round_ms=1_000,
        upload_budget_bytes=256 * MIB,
    )
    forecast_bill(
        [
            TopicLoad(traffic=TopicTraffic(topic=f"t{number}", messages=minute, raw_bytes=minute * 1_000))
            for number in range(topic_count)
        ],
        ForecastSettings(rules=rules, fan_in=4, sweep_ms=MINUTE_MS, grace_ms=60 * MINUTE_MS, collect_ms=MINUTE_MS),
        cycle_ms=MINUTE_MS,
    )


@pytest.mark.parametrize(
    ("topic_count", "age_ms", "segment_bytes"),
    [(1, 2**63 - 1, 128 * MIB), (1, 30 * 24 * 60 * MINUTE_MS, 1 << 10), (10_000, 1_000, 128 * MIB)],
    ids=["seals too far apart", "too many segments", "too many topics in too many rounds"],
)
def test_one_that_takes_too_long_is_refused(topic_count: int, age_ms: int, segment_bytes: int) -> None:
    with pytest.raises(InvalidParameterError, match="too much to forecast"):
        forecast(topic_count=topic_count, age_ms=age_ms, segment_bytes=segment_bytes)


def test_one_of_many_topics_is_made() -> None:
    forecast(topic_count=500, age_ms=10 * MINUTE_MS)
