"""Clean scrubs beside sealing, merging, purging, expiry and garbage collection: none of them finds anything.

Everything runs in one loop, at whose every request to the store the others may go on, as a seed decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from tests.tiered.scrub.rig import GRACE_MS, ScrubRig
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, WrappingObjectStore

SCRUBS_PER_RUN = 10
SCRUBS_PER_RUN_MAX = 200
"""Life goes on in worker threads too: on a busy machine it takes more scrubs until something has been collected."""


class ShufflingStore(WrappingObjectStore):
    """Each call lets others go first, and on again before it returns."""

    def __init__(self, inner: ObjectStore, random: Random) -> None:
        super().__init__(inner)
        self._random = random

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        await self._let_others_go()
        result = await attempt()
        await self._let_others_go()
        return result

    async def _let_others_go(self) -> None:
        for _ in range(self._random.choice((0, 0, 1, 2, 5, 30))):
            await asyncio.sleep(0)


async def live(rig: ScrubRig, random: Random) -> None:
    """Messages come, segments or packs go up, are merged, purged, expire and are collected, time passes; for ever."""
    while True:
        match random.randrange(7):
            case 0 | 1:
                rig.put(random.choice(("orders", "audits")), random.randint(1, 60))
            case 2:
                rig.cut_ms = max(rig.cut_ms, rig.clock.now_ms - random.randint(1, 200))
                rig.clock.now_ms += 1_001  # the next sweep is due
            case 3:
                rig.clock.now_ms += random.choice((1, GRACE_MS // 2, 2 * GRACE_MS))
            case 4 if rig.packs:
                await rig.merging.run_once()
            case 5 if rig.packs:
                await rig.purger.purge(random.choice(("orders", "audits")))
        await rig.seal()


async def scrub_beside_life(folder: Path, seed: str, *, packs: bool) -> None:
    random = Random(seed)
    rig = ScrubRig(folder, wrap=lambda store: ShufflingStore(store, random), packs=packs)
    rig.own_bytes = 64 << 10
    try:
        async with rig.opened():
            for _ in range(5):
                rig.put("orders", 40)
                rig.put("audits", 40)
                await rig.seal()
            life = asyncio.create_task(live(rig, random))
            try:
                for number in range(SCRUBS_PER_RUN_MAX):
                    if number >= SCRUBS_PER_RUN and rig.catalog.readable_from > 1:
                        break
                    deep = random.random() < 0.6
                    scrub = rig.scrub(deep=deep) if random.random() < 0.6 else rig.look(deep=deep)
                    report = await scrub
                    assert report.findings == (), (seed, report.findings)
                    assert report.notes == (), (seed, report.notes)
                    if life.done():
                        life.result()
            finally:
                life.cancel()
                await asyncio.gather(life, return_exceptions=True)
            assert rig.catalog.readable_from > 1, "something was collected meanwhile"
    finally:
        rig.close()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("packs", [False, True])
async def test_clean_scrubs_find_nothing(tmp_path: Path, case_count: Callable[..., int], packs: bool) -> None:
    for number in range(case_count(quick=30, soak=1_000) // SCRUBS_PER_RUN):
        await scrub_beside_life(tmp_path / str(number), f"clean/{number}", packs=packs)
