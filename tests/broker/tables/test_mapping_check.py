"""Which mapping of a static topic may take another's place."""

import pytest

from thermocline.broker.tables.mapping_check import check_items, succeed
from thermocline.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail
from thermocline.remoting.errors import InvalidRequestError


def item(gen: int, broker: str, logic_offset: int, **fields: int) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen=gen, broker_name=broker, logic_offset=logic_offset, **fields)


def detail(
    epoch: int, queues: dict[int, list[LogicQueueMappingItem]], scope: str = "__global__"
) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(
        topic="T", broker_name="a", epoch=epoch, total_queues=4, scope=scope, hosted_queues=queues
    )


FIRST = [item(0, "a", 0)]
MOVING = [item(0, "a", 0), item(1, "b", -1)]
MOVED = [item(0, "a", 0), item(1, "b", 10_000)]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([item(0, "a", 0, queue_id=-1)], "negative"),
        ([item(-1, "a", 0)], "negative"),
        ([item(0, "a", 0, start_offset=-1)], "negative"),
        ([item(0, "a", -1), item(1, "b", 5)], "non-latest"),
        ([item(1, "a", 0), item(1, "b", 5)], "gen does not increase"),
        ([item(0, "a", 5), item(1, "b", 5)], "offset does not increase"),
        ([item(0, "a", 0, end_offset=9), item(1, "b", 9)], "offset does not increase"),
        ([item(0, "a", 0, start_offset=4, end_offset=3)], "smaller than the start"),
        ([LogicQueueMappingItem(gen=0, logic_offset=0)], "names its broker"),
    ],
)
def test_items_that_contradict_each_other_are_refused(items: list[LogicQueueMappingItem], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        check_items(items)


@pytest.mark.parametrize("items", [[], FIRST, MOVING, MOVED])
def test_items_as_tools_make_them_pass(items: list[LogicQueueMappingItem]) -> None:
    check_items(items)


def test_a_first_mapping_is_taken_as_it_is() -> None:
    assert succeed(None, detail(1, {0: FIRST}), force=False).hosted_queues == {0: FIRST}


def test_a_remapping_comes_in_two_steps_of_one_epoch() -> None:
    moving = succeed(detail(1, {0: FIRST, 1: FIRST}), detail(2, {0: MOVING}), force=False)
    moved = succeed(moving, detail(2, {0: MOVED, 1: FIRST}), force=False)
    assert moved.hosted_queues == {0: MOVED, 1: FIRST}


def test_lists_that_a_newer_mapping_leaves_out_are_kept() -> None:
    assert succeed(detail(1, {0: FIRST, 1: FIRST}), detail(2, {0: MOVED}), force=False).hosted_queues == {
        0: MOVED,
        1: FIRST,
    }


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (detail(1, {0: MOVED}), "Can't accept data with small epoch 1 < 2"),
        (detail(2, {0: MOVED}, scope="mine"), "unmatched scope mine != __global__"),
        (detail(2, {}), "equal epoch with null data"),
        (detail(2, {0: [item(0, "a", 0), item(2, "c", -1)]}), "leader is different but epoch equal"),
        (detail(3, {0: [item(0, "a", 0), item(1, "b", 9_000)]}), "does not change"),
        (detail(3, {0: [item(0, "a", 0), item(1, "c", 10_000)]}), "does not change"),
        (detail(3, {0: []}), "null or empty"),
    ],
)
def test_a_mapping_that_contradicts_an_earlier_one_is_refused(new: TopicQueueMappingDetail, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        succeed(detail(2, {0: MOVED}), new, force=False)


def test_force_takes_an_older_mapping_and_keeps_queues_that_it_omits() -> None:
    forced = succeed(detail(2, {0: MOVED, 1: FIRST}), detail(1, {0: FIRST}), force=True)
    assert (forced.epoch, forced.hosted_queues) == (1, {0: FIRST, 1: FIRST})


def test_a_removed_item_may_be_registered_again() -> None:
    assert succeed(detail(2, {0: MOVED[1:]}), detail(3, {0: MOVED}), force=False).hosted_queues == {0: MOVED}
