"""Clean scrubs beside sealing, indexing, merging, purging, expiry, saved states, pins, garbage collection and store
doctors at work: none of them finds anything.

Everything runs in one loop, at whose every request to the store the others may go on, as a seed decides.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.tiered.ledger_data import KEYS
from tests.tiered.scrub.rig import GRACE_MS, ScrubRig
from thermocline.tiered.doctor.fencing_check import check_fencing
from thermocline.tiered.ledger.fencing import FencingMode
from thermocline.tiered.ledger.pins import Pin, create_pin
from thermocline.tiered.objects.object_store import ObjectStore
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
    """Messages come, segments or packs go up, are indexed, merged, purged, expire and are collected, the state is
    saved, pins come and go, time passes; for ever."""
    for number in count():
        match random.randrange(10):
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
            case 6:
                await rig.index()
            case 7:
                await rig.save_state()
            case 8:
                pin = Pin(
                    pin_id=f"job-{number}",
                    version=rig.catalog.version,
                    until_ms=rig.clock.now_ms + random.choice((1, GRACE_MS)),
                    owner="a test",
                )
                await create_pin(rig.store, KEYS, pin)
        await rig.seal()


async def examine(rig: ScrubRig, random: Random) -> None:
    """As a broker does that starts: a store doctor tries things out beside everything else."""
    await check_fencing(rig.store, KEYS, mode=rig.fencing, random=random)


async def scrub_beside_life(folder: Path, seed: str, *, packs: bool, fencing: FencingMode) -> Counter[str]:
    """What kinds of objects there were."""
    random, seen = Random(seed), Counter[str]()
    rig = ScrubRig(folder, wrap=lambda store: ShufflingStore(store, random), packs=packs, fencing=fencing)
    rig.own_bytes = 64 << 10
    try:
        async with rig.opened():
            for _ in range(5):
                rig.put("orders", 40)
                rig.put("audits", 40)
                await rig.seal()
                await rig.index()
            assert (await rig.merging.run_once() is not None) == packs
            life = asyncio.create_task(live(rig, random))
            try:
                for number in range(SCRUBS_PER_RUN_MAX):
                    if number >= SCRUBS_PER_RUN and rig.catalog.readable_from > 1:
                        break
                    deep = random.random() < 0.6
                    scrub = rig.scrub(deep=deep) if random.random() < 0.6 else rig.scrub_bucket(deep=deep)
                    doctor = [examine(rig, Random(f"{seed}/{number}"))] if random.random() < 0.3 else []
                    report, *_ = await asyncio.gather(scrub, *doctor)
                    assert report.findings == (), (seed, report.findings)
                    assert report.notes == (), (seed, report.notes)
                    seen.update(key.removeprefix(f"{KEYS.root}/").partition("/")[0] for key in rig.objects.objects)
                    if life.done():
                        life.result()
            finally:
                life.cancel()
                await asyncio.gather(life, return_exceptions=True)
            assert rig.catalog.readable_from > 1, "something was collected meanwhile"
    finally:
        rig.close()
    return seen


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("fencing", list(FencingMode))
@pytest.mark.parametrize("packs", [False, True], ids=["own segments", "packs"])
async def test_clean_scrubs_find_nothing(
    tmp_path: Path, case_count: Callable[..., int], packs: bool, fencing: FencingMode
) -> None:
    seen: Counter[str] = Counter()
    for number in range(case_count(quick=30, soak=1_000) // SCRUBS_PER_RUN):
        seen += await scrub_beside_life(tmp_path / str(number), f"clean/{number}", packs=packs, fencing=fencing)
    expected = {"ledger", "checkpoints", "head-hint", "state", "indexes", "pins", "packs" if packs else "topics"}
    assert expected <= seen.keys(), "each kind was there to be found"
    assert ("ballots" in seen) == (fencing is FencingMode.BALLOTS)
