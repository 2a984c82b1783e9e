"""SegmentCheck: how much of a segment it fetches at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.tiered.scrub.rig import ScrubRig
from thermocline.tiered.scrub import segment_check
from thermocline.tiered.scrub.segment_check import SegmentCheck
from thermocline.tiered.wrappers import StoreCall, Verb, WrappingObjectStore

Result = TypeVar("Result")
FETCH_BYTES_MAX = 20_000
FRAME_BYTES_MAX = 6_000


class WatchedStore(WrappingObjectStore):
    """Remembers the ranges that are fetched."""

    ranges: list[StoreCall]

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb is Verb.GET_RANGE:
            self.ranges.append(call)
        return await super()._around(call, attempt)


async def test_frames_are_fetched_together_up_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_check, "FETCH_BYTES_MAX", FETCH_BYTES_MAX)
    rig = ScrubRig(tmp_path)
    try:
        async with rig.opened():
            rig.put("orders", 400)
            await rig.seal()
            (segment,) = rig.catalog.topics["orders"].segments
            store = WatchedStore(rig.store)
            store.ranges = []
            assert await SegmentCheck(store, segment).run() == []
    finally:
        rig.close()
    log_bytes = [call.wanted_bytes for call in store.ranges if call.key == segment.log.key]
    assert sum(log_bytes) > 5 * FETCH_BYTES_MAX
    assert max(log_bytes) <= FETCH_BYTES_MAX
    full = [size_bytes for size_bytes in log_bytes if size_bytes > FETCH_BYTES_MAX - FRAME_BYTES_MAX]
    assert len(full) >= 5, "fetches are as large as whole frames allow"
