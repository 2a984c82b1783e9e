"""Order infos: who may get more of a queue, and where a group goes on."""

import dataclasses

import msgspec

from thermocline.pop.order_info import OrderInfo, OrderInfoJson, make_order_info

NOW = 10_000


def order_info(*offsets: int, previous: OrderInfo | None = None, attempt_id: str | None = None) -> OrderInfo:
    return make_order_info(offsets, pop_time_ms=NOW, invisible_ms=1_000, attempt_id=attempt_id, previous=previous)


def acked(info: OrderInfo, offset: int) -> OrderInfo:
    return dataclasses.replace(info, acked_bits=info.acked_bits | 1 << info.offsets.index(offset))


def test_blocked_until_all_is_acknowledged() -> None:
    info = order_info(5, 6, 8)
    assert info.is_blocking(NOW)
    assert info.next_offset == 5
    info = acked(info, 6)
    assert info.next_offset == 5
    info = acked(info, 5)
    assert info.next_offset == 8
    assert info.is_blocking(NOW)
    info = acked(info, 8)
    assert info.next_offset == 9
    assert not info.is_blocking(NOW)
    assert info.free_ms == 0


def test_blocked_until_the_remaining_messages_are_visible_again() -> None:
    info = order_info(5, 6)
    assert info.free_ms == NOW + 1_000
    assert info.is_blocking(NOW + 999)
    assert not info.is_blocking(NOW + 1_000)
    info.visible_ms[5] = NOW + 5_000
    assert info.free_ms == NOW + 5_000
    assert not acked(info, 5).is_blocking(NOW + 1_000)


def test_the_same_attempt_passes_and_counts_once() -> None:
    info = order_info(5, 6, attempt_id="a")
    assert not info.is_blocking(NOW, attempt_id="a")
    assert info.is_blocking(NOW, attempt_id="b")
    assert info.is_blocking(NOW, attempt_id=None)
    again = order_info(5, 6, previous=info, attempt_id="a")
    assert again.counts == {}


def test_redeliveries_are_counted() -> None:
    first = order_info(5, 6)
    assert first.counts == {}
    second = order_info(6, 7, previous=first)
    assert second.counts == {6: 1}
    assert second.count_min == 0
    third = order_info(6, 7, previous=second)
    assert third.counts == {6: 2, 7: 1}
    assert third.count_min == 1


def test_acknowledgements_behind_a_failure_are_kept() -> None:
    first = acked(acked(order_info(5, 6, 7, 8), 6), 8)
    assert first.next_offset == 5
    assert first.acked_from(5) == {6, 8}
    assert first.acked_from(4) == frozenset()  # the group was moved back: they are delivered again
    one = order_info(5, previous=first)
    assert (one.acked_bits, one.acked_behind) == (0, {6, 8})
    one = acked(one, 5)
    assert one.next_offset == 7
    two = order_info(7, 8, 9, previous=one)
    assert two.open_offsets() == [7, 9]
    assert two.acked_behind == frozenset()
    assert order_info(4, 5, 6, previous=first).open_offsets() == [4, 5, 6]


def test_json_form_of_later_acknowledgements() -> None:
    one = order_info(5, previous=acked(acked(order_info(5, 6, 7), 6), 7))
    json = OrderInfoJson.of(one)
    assert json.ab == [6, 7]
    assert json.info() == one
    assert b'"ab"' not in msgspec.json.encode(OrderInfoJson.of(order_info(5)))


def test_json_form() -> None:
    info = order_info(5, 6, 8, previous=order_info(5), attempt_id="a")
    info.visible_ms[6] = 99
    json = OrderInfoJson.of(info)
    assert (json.o, json.oc, json.ot, json.i, json.a, json.pop_time) == ([5, 1, 3], {5: 1}, {6: 99}, 1_000, "a", NOW)
    assert json.info() == info
    assert OrderInfoJson().info() is None
    assert OrderInfoJson(o=list(range(33))).info() is None
