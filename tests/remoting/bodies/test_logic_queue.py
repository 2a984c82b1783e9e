"""Offsets of logic queues, from their items."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail, TopicQueueMappingInfo
from thermocline.remoting.bodies.logic_queue import (
    NO_BROKER,
    find_item,
    is_virtual_broker,
    item_after,
    leaders,
    led_queues,
    mapping_info,
    newest_decided,
    physical_queue_offset,
    static_end,
    static_offset,
    static_offset_if_decided,
    virtual_broker_name,
)

GLOBAL = "__syslo__global__"


def item(gen: int, broker: str, logic_offset: int, *, queue_id: int = 0, end_offset: int = -1) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(
        gen=gen, broker_name=broker, queue_id=queue_id, logic_offset=logic_offset, end_offset=end_offset
    )


MOVED_TWICE = [item(0, "a", 0, queue_id=3), item(1, "b", 10_000), item(2, "a", 20_000, queue_id=4)]
MOVING = [item(0, "a", 0), item(1, "b", -1)]


@pytest.mark.parametrize(
    ("offset", "gen"), [(0, 0), (9_999, 0), (10_000, 1), (19_999, 1), (20_000, 2), (1 << 40, 2), (-1, 0)]
)
def test_an_offset_belongs_to_the_newest_item_that_begins_at_or_before_it(offset: int, gen: int) -> None:
    found = find_item(MOVED_TWICE, offset)
    assert found is not None
    assert found.gen == gen


def test_an_offset_below_the_first_remaining_item_belongs_to_it() -> None:
    assert find_item(MOVED_TWICE[1:], 0) is MOVED_TWICE[1]


def test_readers_stay_in_front_of_an_item_that_is_not_decided() -> None:
    assert find_item(MOVING, 1 << 40) is MOVING[0]
    assert newest_decided(MOVING) is MOVING[0]
    assert item_after(MOVING, MOVING[0]) is None
    assert find_item(MOVING[1:], 0) is None


def test_items_follow_each_other() -> None:
    assert item_after(MOVED_TWICE, MOVED_TWICE[0]) is MOVED_TWICE[1]
    assert item_after(MOVED_TWICE, MOVED_TWICE[1]) is MOVED_TWICE[2]
    assert item_after(MOVED_TWICE, MOVED_TWICE[2]) is None


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_offsets_convert_back(logic_offset: int, start_offset: int, count: int) -> None:
    at = LogicQueueMappingItem(gen=0, broker_name="a", logic_offset=logic_offset, start_offset=start_offset)
    assert static_offset(at, start_offset + count) == logic_offset + count
    assert physical_queue_offset(at, logic_offset + count) == start_offset + count


def test_an_offset_before_an_item_maps_to_its_first_offset() -> None:
    at = LogicQueueMappingItem(gen=0, broker_name="a", logic_offset=100, start_offset=5)
    assert static_offset(at, 3) == 100


def test_an_undecided_item_has_no_offsets_for_senders() -> None:
    assert static_offset_if_decided(MOVING[1], 7) == -1
    assert static_offset_if_decided(MOVING[0], 7) == 7


def test_an_item_that_names_its_end_has_none_behind_it() -> None:
    ended = item(0, "a", 100, end_offset=10)
    assert static_offset_if_decided(ended, 12) == 110
    assert static_end(ended) == 110
    assert static_end(item(0, "a", 100)) == 100


def test_a_broker_registers_the_queues_that_it_leads() -> None:
    detail = TopicQueueMappingDetail(
        topic="T",
        broker_name="a",
        epoch=7,
        total_queues=3,
        hosted_queues={0: MOVED_TWICE, 1: MOVING, 2: [item(0, "a", 0, queue_id=1)]},
    )
    assert led_queues(detail) == {0: 4, 2: 1}
    info = mapping_info(detail)
    assert (info.broker_name, info.epoch, info.total_queues, info.curr_id_map) == ("a", 7, 3, {0: 4, 2: 1})


def infos(*those: tuple[str, int, int, dict[int, int]]) -> dict[str, TopicQueueMappingInfo]:
    return {
        name: TopicQueueMappingInfo(broker_name=name, epoch=epoch, total_queues=total, curr_id_map=ids)
        for name, epoch, total, ids in those
    }


def test_the_newest_epoch_says_who_leads() -> None:
    found = leaders(infos(("a", 1, 2, {0: 0, 1: 1}), ("b", 2, 2, {0: 0})))
    assert found == {(GLOBAL, 0): "b", (GLOBAL, 1): "a"}


def test_queues_without_a_leader_are_listed_without_one() -> None:
    found = leaders(infos(("a", 2, 3, {0: 0}), ("b", 1, 9, {8: 8})))
    assert found == {(GLOBAL, 0): "a", (GLOBAL, 1): NO_BROKER, (GLOBAL, 2): NO_BROKER}


def test_virtual_brokers_are_named_after_their_scope() -> None:
    assert virtual_broker_name("__global__") == GLOBAL
    assert virtual_broker_name("mine") == "__syslo__mine"
    assert is_virtual_broker(GLOBAL)
    assert not is_virtual_broker("broker-a")
