"""Plans for static topics: which broker gets which mapping when a topic is created, extended or moved."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.client.admin.static_topic_plan import (
    StaticTopicPlan,
    block_after,
    check,
    mapping_of,
    plan_growth,
    plan_move,
)
from thermocline.remoting.bodies import LogicQueueMappingItem, TopicConfigAndMapping
from thermocline.remoting.errors import InvalidRequestError, ObjectNotFoundError

NOW = 1_700_000_000_000


def grown(
    count: int, targets: str, present: dict[str, TopicConfigAndMapping] | None = None, *, cluster: str = "ab"
) -> StaticTopicPlan:
    return plan_growth(
        "T", present or {}, targets=list(targets), cluster_brokers=list(cluster), queue_count=count, now_ms=NOW
    )


def moved(present: dict[str, TopicConfigAndMapping], targets: str, *, cluster: str = "abc") -> StaticTopicPlan:
    return plan_move("T", present, targets=list(targets), cluster_brokers=list(cluster), now_ms=NOW)


def leaders_of(plan: StaticTopicPlan) -> Counter[str | None]:
    leaders: Counter[str | None] = Counter()
    for name, config in plan.broker_config_map.items():
        for items in mapping_of(config).hosted_queues.values():
            if items[-1].broker_name == name:
                leaders[name] += 1
    return leaders


def decide(plan: StaticTopicPlan, offset: int) -> dict[str, TopicConfigAndMapping]:
    """What brokers know once the plan is applied."""
    for config in plan.broker_config_map.values():
        for items in mapping_of(config).hosted_queues.values():
            if items[-1].logic_offset < 0:
                items[-1] = LogicQueueMappingItem(
                    gen=items[-1].gen,
                    broker_name=items[-1].broker_name,
                    queue_id=items[-1].queue_id,
                    logic_offset=offset,
                )
    return plan.broker_config_map


def test_a_new_topics_queues_are_spread_and_every_broker_hears_of_it() -> None:
    plan = grown(5, "ab", cluster="abc")
    assert sorted(leaders_of(plan).values()) == [2, 3]
    assert set(plan.broker_config_map) == {"a", "b", "c"}
    assert plan.broker_config_map["c"].write_queue_nums == 0
    assert {mapping_of(config).epoch for config in plan.broker_config_map.values()} == {NOW}
    for name, config in plan.broker_config_map.items():
        places = [item.queue_id for items in mapping_of(config).hosted_queues.values() for item in items]
        assert sorted(places) == list(range(config.write_queue_nums)), name
    assert check("T", plan.broker_config_map)[0] == NOW


def test_growth_keeps_existing_queues_and_raises_the_epoch() -> None:
    before = grown(2, "a").broker_config_map
    after = grown(4, "ab", before)
    assert leaders_of(after) == {"a": 2, "b": 2}
    old = mapping_of(before["a"]).hosted_queues
    assert mapping_of(after.broker_config_map["a"]).hosted_queues == old
    assert after.epoch == NOW + 1_000
    assert mapping_of(before["a"]).epoch == NOW, "the brokers' own answers stay as they are"


def test_new_queues_go_to_the_targets_alone() -> None:
    before = grown(2, "a").broker_config_map
    assert leaders_of(grown(4, "a", before)) == {"a": 4}


def test_a_topic_does_not_shrink_nor_stay() -> None:
    before = grown(2, "ab").broker_config_map
    for count in (1, 2):
        with pytest.raises(InvalidRequestError, match="only grows"):
            grown(count, "ab", before)


def test_a_move_appends_an_undecided_item_that_both_brokers_know() -> None:
    plan = moved(grown(2, "a").broker_config_map, "b")
    assert (plan.broker_to_map_in, plan.broker_to_map_out) == (["b"], ["a"])
    assert leaders_of(plan) == {"b": 2}
    for name in "ab":
        for items in mapping_of(plan.broker_config_map[name]).hosted_queues.values():
            assert [(item.gen, item.broker_name, item.logic_offset) for item in items] == [(0, "a", 0), (1, "b", -1)]
    assert sorted(plan.moved) == [0, 1]


def test_a_move_that_changes_nothing_moves_nothing() -> None:
    plan = moved(grown(2, "a").broker_config_map, "a")
    assert (plan.broker_to_map_in, plan.moved) == ([], {})


@given(st.integers(1, 20), st.lists(st.sets(st.sampled_from("abcde"), min_size=1), min_size=1, max_size=5))
def test_moves_share_evenly_use_every_physical_queue_once_and_move_no_more_than_that_takes(
    count: int, rounds: list[set[str]]
) -> None:
    present = grown(count, "abc", cluster="abcde").broker_config_map
    offset = 0
    for targets in rounds:
        _, before = check("T", present)
        plan = moved(present, "".join(sorted(targets)), cluster="abcde")
        shares = leaders_of(plan)
        assert max(shares.values()) - min(shares.get(name, 0) for name in targets) <= 1
        assert set(shares) <= targets
        assert not set(plan.broker_to_map_in) & set(plan.broker_to_map_out)
        led = Counter(items[-1].broker_name for items in before.values())
        least = sum(max(0, number - (shares[name] if name in targets else 0)) for name, number in led.items())
        assert len(plan.moved) == least
        offset += 10_000
        present = decide(plan, offset)
        check("T", present)


def test_mappings_of_the_brokers_must_agree() -> None:
    present = grown(2, "ab").broker_config_map
    mapping_of(present["a"]).epoch += 1
    with pytest.raises(InvalidRequestError, match="has not reached every broker"):
        moved(present, "a")
    with pytest.raises(InvalidRequestError, match="half way"):
        moved(moved(grown(2, "a").broker_config_map, "b").broker_config_map, "a")
    with pytest.raises(InvalidRequestError, match="ordinary"):
        grown(2, "a", {"a": TopicConfigAndMapping(topic_name="T")})
    with pytest.raises(ObjectNotFoundError):
        moved({}, "a")


@pytest.mark.parametrize(
    ("end", "begin"),
    [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (10_000, 20_000), (14_999, 20_000), (15_000, 30_000)],
)
def test_a_moved_queue_goes_on_at_least_half_a_block_later(end: int, begin: int) -> None:
    """As RocketMQ's tool rounds."""
    assert block_after(end) == begin


def test_a_plan_reads_back() -> None:
    plan = moved(grown(3, "a").broker_config_map, "ab")
    assert StaticTopicPlan.decode(plan.encode()) == plan
