"""The file of order infos."""

import pytest

from thermocline.pop.order_info import make_order_info
from thermocline.pop.order_table import IDLE_MS_MAX, OrderTable
from thermocline.remoting.errors import CorruptDataError

JAVA = (
    b'{"table":{"topic@group":{0:{"a":"attempt","cm":1,"i":60000,"l":1700,"o":[10,1,2],"oc":{11:2},"ot":{12:1800},'
    b'"popTime":1700},2:{"cm":0,"i":1,"l":2,"o":[7],"popTime":2}}}}'
)


def test_a_file_of_rocketmq_is_taken_over() -> None:
    table = OrderTable()
    table.load(JAVA)
    assert table.log_offset is None
    info = table.find("topic", "group", 0)
    assert info is not None
    assert (info.offsets, info.acked_bits, info.counts, info.visible_ms) == ((10, 11, 12), 1, {11: 2}, {12: 1800})
    assert info.open_offsets() == [11, 12]
    assert table.find("topic", "group", 2) is not None
    assert table.find("topic", "group", 1) is None


def test_a_written_table_is_read_back() -> None:
    table = OrderTable()
    table.load(JAVA)
    data = table.encode(log_offset=4_711)
    assert data.startswith(b'{"popLogOffset":4711,\n"table":{\n"topic@group":{0:{"a":"attempt","cm":1,')
    again = OrderTable()
    again.load(data)
    assert list(again.items()) == list(table.items())
    assert again.log_offset == 4_711


def test_changes_reach_the_next_file() -> None:
    table = OrderTable()
    info = make_order_info((3,), pop_time_ms=1, invisible_ms=1, attempt_id=None, previous=None)
    table.put("t", "g", 0, info)
    assert table.changes.is_unsaved
    table.changes.begin_save()
    assert b'"o":[3]' in table.encode(log_offset=0)
    assert table.changes.is_unsaved
    table.changes.end_save()
    assert not table.changes.is_unsaved
    table.remove("t", "g", 0)
    table.changes.begin_save()
    assert b"t@g" not in table.encode(log_offset=0)
    table.changes.end_save()
    assert len(table) == 0
    table.remove("t", "g", 0)
    assert not table.changes.is_unsaved


def test_entries_of_deleted_topics_and_groups_are_dropped() -> None:
    table = OrderTable()
    table.load(JAVA)
    table.remove_if(lambda topic, group, queue_id, info: queue_id == 0)
    assert [queue_id for _, _, queue_id, _ in table.items()] == [2]


def clean(table: OrderTable, *queues: tuple[str, str, int], now_ms: int = 1_800) -> list[tuple[str, str, int]]:
    """What is left when only these queues are there."""
    for _ in table.clean(lambda *place: place in queues, now_ms=now_ms):
        pass
    return [(topic, group, queue_id) for topic, group, queue_id, _ in table.items()]


def test_what_is_gone_is_dropped() -> None:
    table = OrderTable()
    table.load(JAVA)
    assert clean(table, ("topic", "group", 0), ("topic", "group", 2)) == [("topic", "group", 0), ("topic", "group", 2)]
    assert clean(table, ("topic", "group", 2)) == [("topic", "group", 2)]
    assert table.changes.is_unsaved
    assert clean(table) == []


def test_what_was_idle_for_a_day_is_dropped_but_for_acknowledgements_behind_others() -> None:
    queues = [("t", "g", queue_id) for queue_id in range(4)]
    table = OrderTable()
    infos = [
        make_order_info((3, 4), pop_time_ms=1_000, invisible_ms=500, attempt_id=None, previous=None) for _ in queues
    ]
    infos[1].acked_bits = 0b11
    infos[2].acked_bits = 0b10
    infos[3].visible_ms[3] = 9_000
    for place, info in zip(queues, infos, strict=True):
        table.put(*place, info)
    assert len(clean(table, *queues, now_ms=IDLE_MS_MAX + 1_000)) == 4
    assert clean(table, *queues, now_ms=IDLE_MS_MAX + 1_501) == [("t", "g", 2), ("t", "g", 3)]
    assert clean(table, *queues, now_ms=10 * IDLE_MS_MAX) == [("t", "g", 2)]


def test_what_is_popped_anew_while_the_table_is_cleaned_stays() -> None:
    table = OrderTable()
    old = make_order_info((3,), pop_time_ms=1_000, invisible_ms=500, attempt_id=None, previous=None)
    table.put("t", "g", 0, old)
    steps = table.clean(lambda *_: True, now_ms=10 * IDLE_MS_MAX)
    next(steps)
    table.put("t", "g", 0, make_order_info((3,), pop_time_ms=2_000, invisible_ms=5, attempt_id=None, previous=old))
    assert list(steps) == []
    assert len(table) == 1


def test_damage_is_an_error() -> None:
    with pytest.raises(CorruptDataError):
        OrderTable().load(b'{"table":7}')
    table = OrderTable()
    table.load(None)
    table.load(b'{"table":{"without a group":{0:{"o":[1]}}}}')
    assert len(table) == 0
