"""Merge forecast, level by level: merges, cuts into ranges, segments, and expired messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thermocline.tiered.bill.merge_forecast import MergeForecast, _own_pieces, forecast_merges
from thermocline.tiered.bill.seal_forecast import ForecastMoment, ForecastSeal, ForecastSeals, SealRules, TopicLoad
from thermocline.tiered.sealing import TopicTraffic

RULES = SealRules(segment_bytes=10_000, age_ms=60_000, pack_bytes=1_000, round_ms=1_000, upload_budget_bytes=1 << 30)
MOMENTS = 64
HOUR_MS = 3_600_000
GETS = 4 * (2 + 1)
"""Of a merge of four packs: footer and columns, and one for the records of each."""


def load(topic: str, ttl_ms: int | None = None) -> TopicLoad:
    ones = np.ones(1, np.int64)
    return TopicLoad(traffic=TopicTraffic(topic=topic, messages=ones, raw_bytes=ones), ttl_ms=ttl_ms)


def merged(
    bytes_of: dict[str, float], *, ttl_ms: int | None = None, fan_in: int | None = 4, hours: float = 1.0, **fields: Any
) -> MergeForecast:
    """Of topics that are packed at each moment."""
    seals = ForecastSeals(
        moments=[ForecastMoment(number, 1, 1) for number in range(MOMENTS)],
        segments=fields.pop("segments", {topic: [] for topic in bytes_of}),
        packed_bytes=bytes_of,
        packed_counts=dict.fromkeys(bytes_of, MOMENTS),
    )
    return forecast_merges([load(topic, ttl_ms) for topic in bytes_of], seals, RULES, fan_in=fan_in, hours=hours)


def test_levels_until_a_topic_goes_by_itself() -> None:
    """100 bytes a moment: 16 merges of 400 bytes, 4 of 1 600, 2 of 3 200 that are cut once; then it has 6 400."""
    found = merged({"orders": 6_400})
    merges = 16 + 4 + 2
    assert found == MergeForecast(merges=merges, puts=16 + 4, segments=1, gets=merges * GETS)


def test_hours_share_it() -> None:
    assert merged({"orders": 6_400}, hours=1.0).merges == pytest.approx(2 * merged({"orders": 6_400}, hours=2.0).merges)


def test_a_pack_for_each_range_of_topics() -> None:
    """Two topics: from the second level on what comes out is two packs."""
    found = merged({"a": 3_200, "b": 3_200})
    first, second, third = 16, 4, 1 * 2
    last = 1 / 4 * 8  # of four times as much as the third: 12 800 bytes of each topic are two segments
    assert found.merges == first + second + third + last
    assert found.puts == first + second * 2 + third * 2
    assert found.segments == 2 * 2 / 4
    assert found.gets == found.merges * GETS


def test_packs_span_a_part_of_their_time_to_live() -> None:
    """An eighth of an hour has 8 moments: four of them, then two of what comes out."""
    found = merged({"orders": 6_400}, ttl_ms=HOUR_MS)
    assert (found.merges, found.expired) == (16 + 8, 8)
    assert merged({"orders": 6_400}, ttl_ms=HOUR_MS, fan_in=None) == MergeForecast(expired=MOMENTS)
    assert merged({"orders": 6_400}, fan_in=None) == MergeForecast(), "what is kept does not expire"


def test_classes_are_merged_each_by_itself() -> None:
    both = MergeForecast(merges=1, puts=2, segments=3, gets=4, expired=5)
    assert both.plus(both) == MergeForecast(merges=2, puts=4, segments=6, gets=8, expired=10)
    assert merged({}) == MergeForecast()
    assert merged({"orders": 0.0}) == MergeForecast()


def test_pieces_of_a_topic_that_fills_segments_are_joined_by_chance() -> None:
    """As often as all of a merge are half a segment together."""
    full = [ForecastSeal(number, number) for number in range(MOMENTS)]
    joined = [ForecastSeal(number, number, is_joined=True) for number in range(MOMENTS)]
    as_usual = merged({"orders": 6_400})
    assert merged({"orders": 6_400}, segments={"orders": joined}) == as_usual
    assert merged({"orders": 6_400}, segments={"orders": full[1:]}) == as_usual, "not between each two moments"
    assert merged({"orders": 6_400}, segments={"orders": full}).segments != as_usual.segments
    sure = _own_pieces(1_000, part=1.0, pack_count=4, own_bytes=1)
    assert sure == pytest.approx(4, rel=0.01)
    assert _own_pieces(1_000, part=1.0, pack_count=4, own_bytes=1 << 30) == 0
    assert _own_pieces(1_000, part=0.5, pack_count=4, own_bytes=1) == pytest.approx(2, rel=0.05)
    assert _own_pieces(1_000, part=1.0, pack_count=4, own_bytes=4_000) == pytest.approx(2)
