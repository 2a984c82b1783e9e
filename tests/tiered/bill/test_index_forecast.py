"""Index forecast: packs that become one item, when a range is due, its cost, and expired items."""

from __future__ import annotations

import numpy as np
import pytest

from thermocline.tiered.bill.index_forecast import (
    GETS_PER_INPUT,
    GETS_PER_JOINED_SEGMENT,
    GETS_PER_PACK,
    GETS_PER_SEGMENT,
    IndexForecast,
    _Item,
    _Player,
    forecast_indexes,
)
from thermocline.tiered.bill.seal_forecast import ForecastSeals, SealedStretch, SealEvent, TopicLoad
from thermocline.tiered.index_format import PLACES
from thermocline.tiered.indexes.index_policy import FAN_IN, ITEMS_MIN, SLOTS
from thermocline.tiered.indexes.range_cut import RECORDS_MAX
from thermocline.tiered.packs.ttl_classes import FOREVER, SPAN_OF_TTL, longest_ttl_ms, ttl_class
from thermocline.tiered.sealing import TopicTraffic

HOUR_MS = 3_600_000
CLASS = ttl_class(HOUR_MS)
SPAN_MS = HOUR_MS / SPAN_OF_TTL


def load(topic: str = "orders", ttl_ms: int | None = None) -> TopicLoad:
    ones = np.ones(1, np.int64)
    return TopicLoad(traffic=TopicTraffic(topic=topic, messages=ones, raw_bytes=ones), ttl_ms=ttl_ms)


def player(*loads: TopicLoad, fan_in: int = 2, segments_per_merge: float = 0.0) -> _Player:
    made = _Player(loads or (load(),), fan_in=fan_in, segments_per_merge=segments_per_merge)
    made.is_counted = True
    return made


def pack(start_ms: float, end_ms: float, *, ttl_class: str = FOREVER, records: float = 1.0) -> _Item:
    return _Item("", ttl_class, start_ms, end_ms, records)


def segment(start_ms: float, end_ms: float, *, topic: str = "orders", is_joined: bool = False) -> _Item:
    return _Item(topic, FOREVER, start_ms, end_ms, 1.0, is_joined=is_joined)


def test_merged_packs_are_one_item_from_the_first_to_the_last() -> None:
    one = player()
    for number in range(3):
        one.add(pack(10 * number, 10 * number + 9, records=number + 1))
    assert one._items == [_Item("", FOREVER, 0, 19, 3, 1), pack(20, 29, records=3)]
    one.add(pack(30, 39, records=4))
    assert one._items == [_Item("", FOREVER, 0, 39, 10, 2)]


def test_classes_and_segments_are_not_merged_with_others() -> None:
    one = player()
    items = [pack(0, 9), pack(0, 9, ttl_class=CLASS), segment(0, 9), segment(10, 19)]
    for item in items:
        one.add(item)
    assert one._items == items


def test_merged_packs_span_a_part_of_their_time_to_live() -> None:
    assert longest_ttl_ms(CLASS) == HOUR_MS
    one = player(load(ttl_ms=HOUR_MS), fan_in=3)
    packs = [pack(start_ms, end_ms, ttl_class=CLASS) for start_ms, end_ms in ((0, 1), (2, SPAN_MS), (3, SPAN_MS + 1))]
    for each in packs:
        one.add(each)
    merged = _Item("", CLASS, 0, SPAN_MS, 2, 1)
    assert one._items == [packs[2], merged]
    assert one._recent_packs[CLASS, 0] == [packs[2]], "it waits for more"
    assert one._recent_packs[CLASS, 1] == [merged]


def test_a_pack_that_is_too_old_to_be_merged_is_passed_over() -> None:
    one = player(load(ttl_ms=HOUR_MS))
    packs = [pack(start_ms, start_ms + 1, ttl_class=CLASS) for start_ms in (0, SPAN_MS, SPAN_MS + 2)]
    one.add(packs[0])
    one.add(packs[1])
    assert one._items == packs[:2]
    assert one._recent_packs[CLASS, 0] == [packs[1]]
    one.add(packs[2])
    assert one._items == [packs[0], _Item("", CLASS, SPAN_MS, SPAN_MS + 3, 2, 1)]


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_merge_reads_the_segments_that_it_joins(*, is_counted: bool) -> None:
    one = player(segments_per_merge=3.0)
    one.is_counted = is_counted
    one.add(pack(0, 9))
    one.add(pack(10, 19))
    assert one.forecast.segment_gets == (GETS_PER_JOINED_SEGMENT * 3.0 if is_counted else 0)


def test_packs_that_are_indexed_already_cost_nothing_in_a_merge() -> None:
    one = player(fan_in=3, segments_per_merge=3.0)
    one.add(pack(0, 9))
    one.add(pack(10, 19))
    one._build(20)
    assert one._items == []
    before = one.forecast.segment_gets
    one.add(pack(20, 29))
    assert one.forecast.segment_gets == before + GETS_PER_JOINED_SEGMENT * 3.0 / 3
    assert one._items == [_Item("", FOREVER, 0, 29, 3, 1)]


def test_a_range_is_due_with_so_many_whole_items_of_one_topic() -> None:
    one = player(load("orders"), load("others"), fan_in=100)
    for number in range(ITEMS_MIN - 2):
        one.add(segment(number, number + 1))
    one.add(segment(0, 1, topic="others"))
    one.add(pack(0, ITEMS_MIN, records=2.0))
    one.play_round(ITEMS_MIN, ITEMS_MIN)
    assert one.forecast == IndexForecast(), "one is missing"
    one.add(segment(ITEMS_MIN, ITEMS_MIN + 2, is_joined=True))
    one.play_round(ITEMS_MIN + 1, ITEMS_MIN + 1)
    assert one.forecast == IndexForecast(), "it is not whole before the gate"
    one.play_round(ITEMS_MIN + 2, ITEMS_MIN + 2)
    assert one.forecast == IndexForecast(
        segment_gets=GETS_PER_SEGMENT * (ITEMS_MIN - 1) + GETS_PER_JOINED_SEGMENT,
        pack_gets=GETS_PER_PACK,
        index_puts=2,  # of places, and of the class
    )
    assert one._items == []
    one.play_round(ITEMS_MIN + 3, ITEMS_MIN + 3)
    assert one.forecast.index_puts == 2, "nothing is indexed twice"


def test_a_range_ends_at_its_last_record_or_the_gate() -> None:
    one = player(fan_in=100)
    for number in range(ITEMS_MIN):
        one.add(segment(number, number + 1))
    one.add(segment(3, 50))
    one.add(segment(20, 30))  # behind the gate
    one.play_round(60, 20)
    assert one._indexed_ms == 20
    assert one._items == [segment(3, 50), segment(20, 30)], "they have records behind the gate"
    assert one.forecast.segment_gets == GETS_PER_SEGMENT * (ITEMS_MIN + 1)
    one.add(segment(10, 20))
    one.add(pack(20, 31, records=RECORDS_MAX))
    one.play_round(60, 31)
    assert one.forecast.segment_gets == GETS_PER_SEGMENT * (ITEMS_MIN + 1 + 2), "what ends there is indexed already"
    one = player(fan_in=100)
    for number in range(ITEMS_MIN):
        one.add(segment(number, number + 1))
    one.play_round(60, 20)
    assert one._indexed_ms == ITEMS_MIN


def test_a_range_is_due_with_so_many_records_and_has_an_object_for_as_many() -> None:
    one = player(fan_in=100)
    one.add(pack(0, 9, records=RECORDS_MAX - 1))
    one.play_round(10, 10)
    assert one.forecast.index_puts == 0
    one.add(pack(10, 19, records=2))
    one.play_round(20, 20)
    assert one.forecast == IndexForecast(pack_gets=2 * GETS_PER_PACK, index_puts=2 * 2)


def test_so_many_objects_of_one_level_become_one() -> None:
    one = player(fan_in=100)
    for number in range(FAN_IN):
        assert one.forecast.index_gets == 0
        one.add(pack(number, number + 1, records=RECORDS_MAX))
        one.play_round(number + 1, number + 1)
    assert one.forecast.index_gets == 2 * GETS_PER_INPUT * FAN_IN
    assert one.forecast.index_puts == 2 * FAN_IN + 2
    assert {name: [(each.level, each.max_store_ms) for each in objects] for name, objects in one._objects.items()} == {
        FOREVER: [(1, FAN_IN)],
        PLACES: [(1, FAN_IN)],
    }
    assert one._objects[FOREVER][0].object_bytes == FAN_IN


def test_objects_go_when_the_longest_time_to_live_of_their_class_is_over() -> None:
    short_ms = HOUR_MS - 1
    assert ttl_class(short_ms) == CLASS
    one = player(load("orders", HOUR_MS), load("others", short_ms), fan_in=100)
    one.add(pack(0, 9, ttl_class=CLASS, records=RECORDS_MAX))
    one.play_round(10, 10)
    assert {name: len(objects) for name, objects in one._objects.items()} == {CLASS: 1, PLACES: 1}
    one.play_round(9 + HOUR_MS, 9 + HOUR_MS)
    assert one._objects[CLASS]
    one.play_round(10 + HOUR_MS, 10 + HOUR_MS)
    assert (one._objects[CLASS], one._objects[PLACES]) == ([], [])


def test_objects_of_one_slot_become_one_when_it_is_over() -> None:
    one = player(load(ttl_ms=HOUR_MS), fan_in=100)
    slot_ms = HOUR_MS // SLOTS
    for end_ms in (slot_ms - 2, slot_ms - 1, slot_ms):
        one.add(pack(end_ms - 1, end_ms, ttl_class=CLASS, records=RECORDS_MAX))
        one.play_round(end_ms, end_ms)
    for name in (CLASS, PLACES):
        assert [(each.level, each.max_store_ms) for each in one._objects[name]] == [(1, slot_ms - 1), (0, slot_ms)]


def test_a_topic_that_is_kept_keeps_all_places() -> None:
    one = player(load("orders", HOUR_MS), load("others", None), fan_in=100)
    one.add(pack(0, 9, ttl_class=CLASS, records=RECORDS_MAX))
    one.play_round(10, 10)
    one.play_round(10 * HOUR_MS, 10 * HOUR_MS)
    assert (len(one._objects[CLASS]), len(one._objects[PLACES])) == (0, 1)


@pytest.mark.parametrize(("start_ms", "is_counted"), [(20, True), (21, False)])
def test_only_rounds_of_the_interval_are_counted(start_ms: int, *, is_counted: bool) -> None:
    sealed = [SealedStretch("", FOREVER, 0, 9, RECORDS_MAX)]
    seals = ForecastSeals(
        moments=[], segments={}, packed_bytes={}, packed_counts={}, events=[SealEvent(20, 20.0, sealed)]
    )

    def forecast(fan_in: int | None) -> IndexForecast:
        return forecast_indexes([load()], seals, fan_in=fan_in, segments_per_merge=0, start_ms=start_ms)

    assert forecast(8) == (IndexForecast(pack_gets=GETS_PER_PACK, index_puts=2) if is_counted else IndexForecast())
    assert forecast(None) == IndexForecast()
