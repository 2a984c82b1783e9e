"""The list of ranges that a full disk dropped: adjacent ranges merge, incarnations do not; a restart keeps it."""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import LOG_FILE_BYTES, draft, open_store
from thermocline.broker.cold.dropped_ranges import DroppedRange, DroppedRanges
from thermocline.remoting.errors import CorruptDataError
from thermocline.store.retention import RetentionGate


def dropped(
    start: int, end: int, *, topic: str = "T", incarnation: int = 2, queue_id: int = 0, at: int = -1
) -> DroppedRange:
    return DroppedRange(
        topic=topic,
        incarnation=incarnation,
        queue_id=queue_id,
        start_offset=start,
        end_offset=end,
        dropped_ms=1_000 + (end if at < 0 else at),
    )


def test_ranges_that_touch_are_one() -> None:
    ranges = DroppedRanges(incarnation_of=lambda _: 2)
    ranges.add([dropped(10, 20), dropped(40, 50), dropped(10, 12, queue_id=1)])
    ranges.add([dropped(20, 30), dropped(0, 5)])
    assert ranges.live() == [dropped(0, 5), dropped(10, 30), dropped(40, 50), dropped(10, 12, queue_id=1)]
    ranges.add([dropped(4, 41)])
    assert ranges.live() == [dropped(0, 50), dropped(10, 12, queue_id=1)]
    assert len(ranges) == 2
    assert ranges.live()[0].message_count == 50


def test_a_range_that_was_kept_is_removed_from_the_list() -> None:
    ranges = DroppedRanges(incarnation_of=lambda _: 2)
    ranges.add([dropped(0, 10), dropped(10, 20), dropped(5, 6, queue_id=1)])
    ranges.remove([dropped(10, 20), dropped(5, 6, queue_id=1)])
    assert [(each.queue_id, each.start_offset, each.end_offset) for each in ranges] == [(0, 0, 10)]


def test_a_range_that_is_local_after_a_crash_was_not_dropped() -> None:
    store = open_store(SimulatedDisk())
    while store.commit_log.append_offset < 3 * LOG_FILE_BYTES:
        store.put(draft(topic="T", body=b"." * 300))
    store.sync_derived()
    store.retention.execute(store.retention.plan(RetentionGate(), now_ms=1 << 50, hour=4))
    queue = store.queues.find("T", 0)
    assert queue is not None
    minimum = queue.min_offset
    assert 0 < minimum < queue.next_offset
    ranges = DroppedRanges(incarnation_of=lambda _: 2)
    ranges.add([dropped(0, 2), dropped(4, minimum + 1), dropped(minimum + 3, minimum + 9), dropped(0, 2, topic="U")])
    ranges.clip(store.queues)
    assert ranges.live() == [dropped(0, 2), dropped(4, minimum, at=minimum + 1), dropped(0, 2, topic="U")]
    store.close()


def test_the_file_holds_only_ranges_of_present_incarnations() -> None:
    incarnations = {"T": 2, "U": 7}
    ranges = DroppedRanges(incarnation_of=lambda topic: incarnations[topic])
    ranges.add([dropped(1, 2), dropped(3, 4, topic="U", incarnation=6)])
    assert ranges.live() == [dropped(1, 2)]
    again = DroppedRanges(incarnation_of=lambda topic: incarnations[topic])
    again.load(None)
    again.load(ranges.encode())
    assert list(again) == [dropped(1, 2)]
    with pytest.raises(CorruptDataError):
        again.load(b'{"ranges": [{}]}')
