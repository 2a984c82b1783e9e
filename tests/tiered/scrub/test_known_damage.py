"""What is known to be broken, over scrubs that do not read everything: true for as long as it is so.

Covers `tiered/healing/healer.py`, `tiered/healing/hot_records.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.tiered.scrub.damage import flip_bit, objects_of
from tests.tiered.scrub.rig import ScrubRig
from thermocline.tiered.findings.findings import Finding, ObjectKind
from thermocline.tiered.scrub.known_damage import broken_now, damage_after


class Memory:
    """A rig, and the findings of its scrubs so far."""

    def __init__(self, rig: ScrubRig) -> None:
        self.rig = rig
        self.findings: tuple[Finding, ...] = ()
        self.cursor = ""

    async def scrub(self, *, deep: bool, heal: bool = False, budget_bytes: int | None = None) -> int:
        """How much is broken by then."""
        begun_at = self.cursor if deep else ""
        report = await self.rig.scrub(deep=deep, heal=heal, budget_bytes=budget_bytes, cursor=begun_at)
        self.findings = damage_after(self.findings, report, cursor=begun_at)
        self.cursor = report.cursor if deep else self.cursor
        return self.count

    @property
    def count(self) -> int:
        return len(broken_now(self.findings, self.rig.catalog))


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    rig = ScrubRig(tmp_path)
    try:
        async with rig.opened():
            for _ in range(4):
                rig.put("orders", 40)
                await rig.seal()
            yield Memory(rig)
    finally:
        rig.close()


async def test_a_shallow_scrub_does_not_settle_findings_of_a_deep_one(memory: Memory) -> None:
    await flip_bit(memory.rig.objects, objects_of(memory.rig, ObjectKind.LOG)[1], Random(1))
    assert await memory.scrub(deep=False) == 0
    assert await memory.scrub(deep=True) == 1
    assert await memory.scrub(deep=False) == 1
    assert await memory.scrub(deep=True, heal=True) == 0


async def test_a_deep_scrub_settles_it_when_it_comes_to_it(memory: Memory) -> None:
    key = objects_of(memory.rig, ObjectKind.LOG)[2]
    whole = memory.rig.objects.objects[key]
    await flip_bit(memory.rig.objects, key, Random(1))
    assert await memory.scrub(deep=True) == 1
    await memory.rig.objects.put(key, whole)
    counts = [await memory.scrub(deep=True, budget_bytes=1) for _ in range(4)]
    assert counts == [1, 1, 0, 0], "read again third"


async def test_findings_out_of_the_catalog_are_dropped(memory: Memory) -> None:
    await flip_bit(memory.rig.objects, objects_of(memory.rig, ObjectKind.LOG)[0], Random(1))
    assert await memory.scrub(deep=True) == 1
    memory.rig.cut_ms = memory.rig.clock.now_ms + 1
    memory.rig.clock.now_ms += 1_001
    await memory.rig.seal()
    assert memory.count == 0


async def test_a_ledger_object_is_judged_by_each_scrub(memory: Memory) -> None:
    key = objects_of(memory.rig, ObjectKind.LEDGER_ENTRY)[1]
    whole = memory.rig.objects.objects[key]
    await flip_bit(memory.rig.objects, key, Random(1))
    assert await memory.scrub(deep=False) == 1
    await memory.rig.objects.put(key, whole)
    assert memory.count == 1
    assert await memory.scrub(deep=False) == 0


async def test_quarantine_counts_until_it_has_expired(memory: Memory) -> None:
    memory.rig.delete_local()
    await memory.rig.objects.delete(objects_of(memory.rig, ObjectKind.LOG)[0])
    assert await memory.scrub(deep=False, heal=True) == 1
    assert memory.rig.catalog.topics["orders"].quarantine
    memory.rig.cut_ms = memory.rig.clock.now_ms + 1
    memory.rig.clock.now_ms += 1_001
    await memory.rig.seal()
    assert memory.count == 0
