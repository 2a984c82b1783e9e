"""TierService: how long it waits for its next round."""

from __future__ import annotations

from pathlib import Path

from tests.tiered.scrub.rig import ScrubRig


async def test_the_pause_ends_when_something_is_due(tmp_path: Path) -> None:
    rig = ScrubRig(tmp_path)
    try:
        async with rig.opened():
            interval_ms = rig.service.pause_ms()  # nothing waits
            rig.put("orders", 3)
            rig.report()
            rig.service.backlog.account()
            due_ms = rig.service.backlog.next_due_ms()
            assert due_ms is not None
            due_ms -= rig.service._lead.lead_ms
            for left_ms in (interval_ms - 1, 1):
                rig.clock.now_ms = due_ms - left_ms
                assert rig.service.pause_ms() == left_ms
            for left_ms in (interval_ms + 1, 0, -1):
                rig.clock.now_ms = due_ms - left_ms
                assert rig.service.pause_ms() == interval_ms, "too early, or it is due and waits for something else"
    finally:
        rig.close()
