"""Packs and merges hold their shares of the byte budgets; a disk without room stops no sealing, and merging waits.

Covers `tiered/merging/merge_policy.py`, `tiered/merging/pack_merger.py`, `tiered/packs/pack_entry.py`,
`tiered/packs/pack_writer.py`, `tiered/packs/piece_rewriter.py`, `tiered/packs/piece_stream.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.remoting.errors import DiskFullError
from thermocline.tiered.budgets.tier_budgets import TierBudgets
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.merging import merging
from thermocline.tiered.objects import spool
from thermocline.tiered.objects.object_store import Data
from thermocline.tiered.stores.memory import MemoryObjectStore

TOPICS = [f"t{number}" for number in range(6)]
MESSAGES = 20
FAN_IN = 3
CONFIG = TierConfig(
    cold_url="memory://budgets", segment_bytes=1 << 20, seal_age_ms=10_000, pack_bytes=1 << 20, merge_fan_in=FAN_IN
)
UNMERGED = replace(CONFIG, merge_fan_in=16)
DEADLINE_S = 30.0


class StoreWithScales(MemoryObjectStore):
    """Notes what is held of both budgets whenever a pack is put."""

    def __init__(self, budgets: TierBudgets) -> None:
        super().__init__()
        self._budgets = budgets
        self.held: list[tuple[int, int]] = []

    async def put(self, key: str, data: Data) -> None:
        if "/packs/" in key:
            self.held.append((self._budgets.spool.used_bytes, self._budgets.uploads.used_bytes))
        await super().put(key, data)


def make_tier(folder: Path | None) -> tuple[MeteredTier, StoreWithScales, TierBudgets]:
    budgets = TierBudgets()
    store = StoreWithScales(budgets)
    senders = dict.fromkeys(TOPICS, Sender(per_minute=0, queues=1))
    return MeteredTier(senders, store=store, spool_folder=folder, budgets=budgets), store, budgets


def send(tier: MeteredTier, *, body_bytes: int = 200) -> None:
    for topic in TOPICS:
        for _ in range(MESSAGES):
            tier.hot.append(topic, 0, body_bytes=body_bytes)
        tier._changed.add((topic, 0))


def assert_all_there(tier: MeteredTier, rounds: int) -> None:
    catalog = tier.service.catalog
    for topic in TOPICS:
        ranges = sorted(
            (each.start_offset, each.end_offset)
            for pack_id in catalog.packed[topic].packs
            for each in catalog.packs[pack_id].ranges_of(topic, 1)
        )
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == MESSAGES * rounds


def fill_the_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def full_file(*, dir: Path, buffering: int) -> IO[bytes]:
        assert dir == folder
        return open("/dev/full", "w+b", buffering=buffering)

    monkeypatch.setattr(spool.tempfile, "TemporaryFile", full_file)


async def test_packs_and_merges_hold_their_shares(tmp_path: Path) -> None:
    tier, store, budgets = make_tier(tmp_path)
    async with tier.opened(CONFIG):
        for _ in range(FAN_IN):
            send(tier)
            await tier.run(0.5)
        assert [pack.level for pack in tier.service.catalog.packs.values()] == [1]
        raw_bytes = sum(pack.raw_bytes for pack in tier.service.catalog.packs.values()) // FAN_IN
        *sealed, merged = store.held
        assert len(sealed) == FAN_IN
        for spool_bytes, memory_bytes in sealed:
            assert spool_bytes == pytest.approx(raw_bytes, rel=0.05)
            assert memory_bytes > raw_bytes / len(TOPICS)
        assert merged[0] >= FAN_IN * raw_bytes
        assert merged[1] > FAN_IN * 512 * 1024
        assert_all_there(tier, FAN_IN)
    assert (budgets.spool.used_bytes, budgets.uploads.used_bytes) == (0, 0)


async def test_budgets_smaller_than_any_share_still_let_everything_pass(tmp_path: Path) -> None:
    tier, _, budgets = make_tier(tmp_path)
    budgets.spool.resize(1)
    budgets.uploads.resize(1)
    async with tier.opened(CONFIG):
        for _ in range(FAN_IN):
            send(tier)
            async with asyncio.timeout(DEADLINE_S):
                await tier.run(0.5)
        assert [pack.level for pack in tier.service.catalog.packs.values()] == [1]
        assert_all_there(tier, FAN_IN)


async def test_a_disk_without_room_sends_packs_up_from_memory_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tier, store, budgets = make_tier(tmp_path)
    async with tier.opened(UNMERGED):
        send(tier, body_bytes=2_000)
        await tier.run(0.5)
        assert len(store.held) == 1
        fill_the_disk(monkeypatch, tmp_path)
        budgets.uploads.resize(2 * 2 * MESSAGES * 2_500)  # so that half of it holds two topics
        for _ in range(2):
            store.held.clear()
            send(tier, body_bytes=2_000)
            await tier.run(0.5)
            assert [spool_bytes for spool_bytes, _ in store.held] == [0] * (len(TOPICS) // 2)
        assert_all_there(tier, 3)
    assert sum("kept in memory" in record.message for record in caplog.records) == 1
    assert (budgets.spool.used_bytes, budgets.uploads.used_bytes) == (0, 0)


async def test_a_merge_waits_until_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tier, _, budgets = make_tier(tmp_path)
    async with tier.opened(UNMERGED):
        for _ in range(FAN_IN):
            send(tier)
            await tier.run(0.5)
    async with tier.opened(CONFIG):
        fill_the_disk(monkeypatch, tmp_path)
        with pytest.raises(DiskFullError):
            await tier.merging.run_once()
        assert (budgets.spool.used_bytes, budgets.uploads.used_bytes) == (0, 0)
        assert_all_there(tier, FAN_IN)
        monkeypatch.setattr(merging, "RETRY_MS", 1)
        changed = asyncio.Event()
        task = asyncio.create_task(tier.merging.run(changed))
        async with asyncio.timeout(DEADLINE_S):
            while not any("not merged until" in record.message for record in caplog.records):  # noqa: ASYNC110 - a line
                await asyncio.sleep(0.001)
            monkeypatch.undo()
            while [pack.level for pack in tier.service.catalog.packs.values()] != [1]:  # noqa: ASYNC110 - a plain value
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert_all_there(tier, FAN_IN)
    assert sum("not merged" in record.message for record in caplog.records) == 1


async def test_a_merge_gives_way_to_a_segment_that_does_not_fit_beside_it(tmp_path: Path) -> None:
    """As one of many small records, for whose seal all others of its round wait."""
    tier, store, budgets = make_tier(tmp_path)
    async with tier.opened(UNMERGED):
        for _ in range(FAN_IN):
            send(tier)
            await tier.run(0.5)
    has_begun = asyncio.Event()

    async def rewrite(*arguments: object, **named: object) -> object:
        if not has_begun.is_set():
            has_begun.set()
            await asyncio.sleep(0)  # the segment's turn to ask
        return await to_thread(*arguments, **named)

    to_thread = asyncio.to_thread
    async with tier.opened(CONFIG):
        store.held.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "to_thread", rewrite)
            merge = asyncio.create_task(tier.merging.run_once())
            await has_begun.wait()
        async with asyncio.timeout(DEADLINE_S), budgets.uploads.hold(budgets.uploads.bytes_max):
            assert not merge.done()
            assert store.held == []
        assert await merge is not None
        assert [pack.level for pack in tier.service.catalog.packs.values()] == [1]
        assert_all_there(tier, FAN_IN)
    assert (budgets.spool.used_bytes, budgets.uploads.used_bytes) == (0, 0)
