"""Seal forecast on arrivals that are known to the byte: 100 bytes in the middle of each minute."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np

from thermocline.tiered.bill.arrivals import Arrivals
from thermocline.tiered.bill.seal_forecast import (
    ForecastMoment,
    ForecastSeal,
    ForecastSeals,
    SealedStretch,
    SealRules,
    TopicLoad,
    forecast_seals,
)
from thermocline.tiered.packs import ttl_class
from thermocline.tiered.packs.ttl_classes import FOREVER
from thermocline.tiered.sealing import TopicTraffic

MINUTE_MS = 60_000
RULES = SealRules(
    segment_bytes=1_000,
    age_ms=3 * MINUTE_MS,
    pack_bytes=10_000,
    round_ms=10_000,
    upload_budget_bytes=1 << 20,
)
FIRST_MS, ROUND_MS = 30_000, 210_000
"""When the first message comes, and the round in which it is due by its age."""


def load(topic: str = "orders", *, minute_bytes: int = 100, **fields: Any) -> TopicLoad:
    traffic = TopicTraffic(topic=topic, messages=np.array([2], np.int64), raw_bytes=np.array([minute_bytes], np.int64))
    return TopicLoad(traffic=traffic, **fields)


def forecast(*loads: TopicLoad, start_ms: int = 0, minutes: int = 10, **rules: Any) -> ForecastSeals:
    arrivals = {
        each.topic: Arrivals(each.traffic, cycle_ms=MINUTE_MS, random=Random(1), points_per_minute=1) for each in loads
    }
    return forecast_seals(
        loads,
        msgspec.structs.replace(RULES, **rules),
        arrivals,
        start_ms=start_ms,
        horizon_ms=minutes * MINUTE_MS,
    )


def test_a_message_is_sealed_with_those_behind_it_when_it_is_due() -> None:
    """Those of minutes 0, 1 and 2; the next moment is as long after the next message."""
    found = forecast(load(), minutes=8)
    assert found.moments == [ForecastMoment(ROUND_MS, 1, 1), ForecastMoment(ROUND_MS + 3 * MINUTE_MS, 1, 1)]
    assert found.packed_bytes == {"orders": 600}
    assert found.packed_counts == {"orders": 2}
    assert found.segments == {"orders": []}
    stretch = SealedStretch("", FOREVER, FIRST_MS, ROUND_MS, 6)
    assert found.events[0].sealed == [stretch]
    assert (found.events[0].round_ms, found.events[0].gate_ms) == (ROUND_MS, ROUND_MS)


def test_rounds_are_at_multiples() -> None:
    found = forecast(load(), age_ms=3 * MINUTE_MS + 1, minutes=4)
    assert [moment.round_ms for moment in found.moments] == [ROUND_MS + RULES.round_ms]


def test_what_waits_now_is_sealed_first() -> None:
    found = forecast(load(waiting_bytes=50, waited_ms=MINUTE_MS), minutes=3)
    assert [moment.round_ms for moment in found.moments] == [2 * MINUTE_MS]
    assert found.packed_bytes == {"orders": 50 + 200}
    assert found.events[0].sealed[0].start_ms == -MINUTE_MS
    overdue = forecast(load(waiting_bytes=50, waited_ms=9 * MINUTE_MS), minutes=1)
    assert [moment.round_ms for moment in overdue.moments] == [0], "at once"


def test_all_topics_go_when_one_is_due() -> None:
    """In a pack of each class of times to live."""
    found = forecast(load("a"), load("b", minute_bytes=10, ttl_ms=MINUTE_MS), minutes=4)
    assert found.moments == [ForecastMoment(ROUND_MS, 2, 2)]
    assert found.packed_bytes == {"a": 300, "b": 30}
    assert {(each.ttl_class, each.records) for each in found.events[0].sealed} == {
        (FOREVER, 6),
        (ttl_class(MINUTE_MS), 6),
    }


def test_from_half_a_segment_on_a_topic_goes_by_itself() -> None:
    for segment_bytes, is_own in ((600, True), (602, False)):
        found = forecast(load(), segment_bytes=segment_bytes, minutes=4)
        assert found.packed_counts == {"orders": 0 if is_own else 1}
        own = [ForecastSeal(ROUND_MS, ROUND_MS, is_joined=True)]
        assert found.segments == {"orders": own if is_own else []}
        assert found.moments == [ForecastMoment(ROUND_MS, *((0, 0) if is_own else (1, 1)))]
        (sealed,) = found.events[0].sealed
        assert (sealed.topic, sealed.is_joined, sealed.records) == ("orders" if is_own else "", is_own, 6)


def test_a_full_segment_is_sealed_before_its_age() -> None:
    """200 bytes are there with the second message; half a record does not fit."""
    found = forecast(load(), segment_bytes=200, minutes=3)
    first = found.segments["orders"][0]
    assert (first.newest_ms, first.round_ms, first.is_joined) == (FIRST_MS + MINUTE_MS, FIRST_MS + MINUTE_MS, False)
    (stretch,) = found.events[0].sealed
    assert stretch == SealedStretch("orders", FOREVER, FIRST_MS, FIRST_MS + MINUTE_MS, 4)
    assert found.events[0].gate_ms <= found.events[0].round_ms


def test_packs_are_bounded_by_their_bytes() -> None:
    found = forecast(load(), pack_bytes=100, minutes=4, put_requests=lambda size: 2 if size >= 100 else 1)
    assert found.moments == [ForecastMoment(ROUND_MS, 3, 6)]
    assert [each.records for each in found.events[0].sealed] == [2, 2, 2]
    found = forecast(
        load(), pack_bytes=100, minutes=4, stored_part=0.5, put_requests=lambda size: 2 if size >= 100 else 1
    )
    assert found.moments == [ForecastMoment(ROUND_MS, 3, 3)], "by their stored bytes"


def test_only_what_is_sealed_in_the_interval_counts() -> None:
    whole, later = forecast(load(), minutes=8), forecast(load(), start_ms=ROUND_MS + 1, minutes=4)
    assert [moment.round_ms for moment in later.moments] == [3 * MINUTE_MS - 1]
    assert (later.packed_bytes, later.packed_counts) == ({"orders": 300}, {"orders": 1})
    assert [event.round_ms for event in later.events] == [event.round_ms for event in whole.events]
    at_start = forecast(load(), start_ms=ROUND_MS, minutes=1)
    assert [moment.round_ms for moment in at_start.moments] == [0]
    assert forecast(load(), minutes=10, start_ms=0).events[-1].round_ms < 10 * MINUTE_MS
    assert forecast().moments == []


def test_segments_have_times_from_the_start_of_the_interval() -> None:
    whole = forecast(load(), segment_bytes=600, minutes=8)
    assert [seal.round_ms for seal in whole.segments["orders"]] == [ROUND_MS, ROUND_MS + 3 * MINUTE_MS]
    later = forecast(load(), segment_bytes=600, start_ms=ROUND_MS + 1, minutes=4)
    assert later.segments == {"orders": [ForecastSeal(3 * MINUTE_MS - 1, 3 * MINUTE_MS - 1, is_joined=True)]}
    at_start = forecast(load(), segment_bytes=600, start_ms=ROUND_MS, minutes=3)
    assert at_start.segments == {"orders": [ForecastSeal(0, 0, is_joined=True)]}, "its end is not of it"


def test_a_topic_fills_segments_again_after_a_moment() -> None:
    """In minutes 0 and 1 50 bytes each come, then 1 000 in one: they are a segment of their own before they are old."""
    raw_bytes = np.array([50, 50, 50, 0, 1_000, 0, 0, 0], np.int64)
    traffic = TopicTraffic(topic="t", messages=np.minimum(raw_bytes, 1), raw_bytes=raw_bytes)
    arrivals = Arrivals(traffic, cycle_ms=8 * MINUTE_MS, random=Random(1), points_per_minute=1)
    found = forecast_seals([TopicLoad(traffic=traffic)], RULES, {"t": arrivals}, start_ms=0, horizon_ms=8 * MINUTE_MS)
    assert found.packed_counts["t"] >= 1
    assert [seal.is_joined for seal in found.segments["t"]] == [False]


def test_the_bytes_of_a_message_are_those_of_the_window_on_average() -> None:
    def record_bytes(messages: int, raw_bytes: int) -> float:
        columns = (np.array([messages, 0], np.int64), np.array([raw_bytes, 0], np.int64))
        return TopicLoad(traffic=TopicTraffic(topic="t", messages=columns[0], raw_bytes=columns[1])).record_bytes

    assert [record_bytes(1, 100), record_bytes(4, 100), record_bytes(0, 0)] == [100, 25, 0]


def test_half_a_record_of_a_full_segment_stays() -> None:
    """Segments of 200 bytes, records of 50: 175 bytes of them go with each, 100 come in a minute."""
    found = forecast(load(), segment_bytes=200, minutes=30, age_ms=20 * MINUTE_MS)
    seals = found.segments["orders"]
    assert len(seals) == 17
    starts = [175 * number // 100 for number in range(len(seals))]
    ends = [(175 * number + 199) // 100 for number in range(len(seals))]
    assert [event.sealed[0].start_ms for event in found.events] == [FIRST_MS + each * MINUTE_MS for each in starts]
    assert [seal.newest_ms for seal in seals] == [FIRST_MS + each * MINUTE_MS for each in ends]
