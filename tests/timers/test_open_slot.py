"""The open slot: order of delivery within a tick."""

from __future__ import annotations

from random import Random

from thermocline.timers.open_slot import OpenSlot, SlotProgress

SLOT_MS = 5_000


def taken(slot: OpenSlot, now_ms: int) -> list[int]:
    positions = []
    while (position := slot.take_due(now_ms)) is not None:
        positions.append(position)
    return positions


def loaded(*units: tuple[int, int]) -> OpenSlot:
    """A slot with these units (position, time), oldest first."""
    slot = OpenSlot(SLOT_MS, precision_ms=1_000, progress=SlotProgress())
    for position, deliver_ms in reversed(units):
        slot.add_older(position, deliver_ms)
    slot.finish_loading()
    return slot


def test_nothing_goes_before_all_is_loaded() -> None:
    slot = OpenSlot(SLOT_MS, precision_ms=1_000, progress=SlotProgress())
    slot.add_older(52, 5_001)
    slot.add(104, 5_001)
    assert slot.take_due(7_000) is None
    assert not slot.is_empty
    slot.finish_loading()
    assert taken(slot, 7_000) == [52, 104]
    assert slot.is_empty


def test_units_go_by_time_and_the_older_first() -> None:
    slot = loaded((0, 5_900), (52, 5_001), (104, 5_020), (156, 5_021), (208, 5_001), (260, 0))
    assert taken(slot, 5_019) == []
    assert taken(slot, 5_020) == [52, 104, 208]
    assert taken(slot, 5_039) == []
    assert taken(slot, 5_040) == [156]
    assert taken(slot, 5_899) == []
    assert taken(slot, 5_900) == [0]
    assert taken(slot, 5_999) == []
    assert taken(slot, 6_000) == [260]
    assert slot.is_empty


def test_it_says_until_when_there_is_nothing_to_take() -> None:
    slot = loaded((0, 5_001), (52, 5_001), (104, 5_900))
    assert slot.next_ms == 5_020
    assert slot.take_due(5_020) == 0
    assert slot.next_ms == 5_020
    assert taken(slot, 5_020) == [52]
    assert slot.next_ms == 5_900
    slot.add(156, 5_500)
    assert slot.next_ms == 5_500
    assert taken(slot, 5_900) == [156, 104]
    assert slot.next_ms == 6_000


def test_a_late_record_is_delivered_with_the_open_slot() -> None:
    slot = loaded((0, 5_001))
    assert taken(slot, 5_500) == [0]
    assert slot.earliest_ms == 5_501
    slot.add(52, 5_501)
    slot.add(104, 5_700)
    slot.add(156, 5_501)
    assert taken(slot, 5_519) == []
    assert taken(slot, 5_520) == [52, 156]
    assert taken(slot, 9_000) == [104]
    assert slot.is_empty
    slot.add(208, slot.earliest_ms)
    assert not slot.is_empty
    assert taken(slot, 9_000) == [208]


def test_records_delivered_before_a_restart_are_not_added() -> None:
    units = {number * 52: SLOT_MS + 1 + number * 37 % 1_000 for number in range(100)}
    before = loaded(*units.items())
    went = []
    for _ in range(40):
        position = before.take_due(6_000)
        assert position is not None
        went.append(position)
        progress = before.progress_at(position)
    after = OpenSlot(SLOT_MS, precision_ms=1_000, progress=progress)
    for position, deliver_ms in reversed(units.items()):
        after.add_older(position, deliver_ms)
    after.finish_loading()
    after.add(5_200, after.earliest_ms)
    again = taken(after, 6_000)
    assert sorted(went + again) == [*units, 5_200]
    assert set(went).isdisjoint(again)


def test_short_ticks_have_fewer_stretches() -> None:
    slot = OpenSlot(SLOT_MS, precision_ms=100, progress=SlotProgress())
    slot.finish_loading()
    slot.add(0, 5_001)
    slot.add(52, 5_100)
    slot.add(104, 0)
    assert taken(slot, 5_020) == [0]
    assert taken(slot, 5_099) == []
    assert taken(slot, 5_100) == [52, 104]


def test_no_unit_goes_early_or_more_than_a_stretch_late_or_is_lost() -> None:
    random = Random(3)
    for _ in range(50):
        times = {number * 52: SLOT_MS + random.randrange(1, 1_001) for number in range(60)}
        before = [position for position in times if random.random() < 0.5]
        slot = loaded(*((position, times[position]) for position in before))
        waiting = sorted(set(times) - set(before))
        went: dict[int, int] = {}
        for now_ms in range(SLOT_MS, SLOT_MS + 1_001):
            if waiting and random.random() < 0.1 and times[waiting[0]] > now_ms:
                position = waiting.pop(0)
                slot.add(position, times[position])
                before.append(position)
            went |= dict.fromkeys(taken(slot, now_ms), now_ms)
        assert sorted(went) == sorted(before)
        assert all(0 <= went_ms - times[position] < 20 for position, went_ms in went.items())
        assert slot.is_empty
