"""What a scrub finds: nothing where nothing is wrong, and every kind of damage in every kind of object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tiered.scrub.rig import ScrubRig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ScrubRig]:
    rig = ScrubRig(tmp_path)
    try:
        async with rig.opened():
            for _ in range(6):
                rig.put("orders", 120)
                rig.put("audits", 40)
                await rig.seal()
            yield rig
    finally:
        rig.close()


async def test_a_sound_tier_has_no_findings(rig: ScrubRig) -> None:
    for report in (await rig.scrub(), await rig.scrub(deep=False), await rig.look(), await rig.look(deep=False)):
        assert report.findings == ()
        assert report.notes == ()
        assert report.is_sound
        assert report.garbage_count == 0
        assert report.segment_count == 12
    assert await rig.cold("orders") == rig.hot("orders")
