"""The sealer keeps within its budgets, and goes on in memory when the disk has no room to spool.

Covers `tiered/budgets/tier_budgets.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from tests.tiered.ledger_data import KEYS
from thermocline.store.message_store import MessageStore
from thermocline.tiered.budgets.tier_budgets import TierBudgets
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.objects import spool
from thermocline.tiered.objects.object_store import Data
from thermocline.tiered.sealing.local_files import LocalLog, LocalQueues
from thermocline.tiered.sealing.seal_backlog import SealBacklog, SealPlan, SealPolicy
from thermocline.tiered.sealing.sealer import RECORD_MEMORY_BYTES, Sealer
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore

TOPICS = ("orders", "events", "metrics")
MESSAGES = 12
OPTIONS = SegmentOptions(frame_bytes=2_000)


class SlowStore(MemoryObjectStore):
    """Takes nothing before the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def put(self, key: str, data: Data) -> None:
        await self.gate.wait()
        await super().put(key, data)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store(disk: SimulatedDisk) -> Iterator[MessageStore]:
    store = open_store(disk)
    for number in range(MESSAGES * len(TOPICS)):
        store.put(draft(topic=TOPICS[number % len(TOPICS)], body=b"%d" % number + b"." * 300))
    store.sync_derived()
    yield store
    store.close()


@pytest.fixture
def log(disk: SimulatedDisk, store: MessageStore) -> Iterator[LocalLog]:
    log = LocalLog(disk, path=store.config.commit_log_path, file_bytes=store.config.log_file_bytes)
    yield log
    log.close()


@pytest.fixture
def plans(disk: SimulatedDisk, store: MessageStore, log: LocalLog) -> list[SealPlan]:
    """One of each topic."""
    config = store.config
    backlog = SealBacklog(
        queues=LocalQueues(disk, path=config.consume_queue_path, file_bytes=config.queue_file_bytes),
        log=log,
        policy=SealPolicy(segment_bytes=1 << 20),
        log_min_offset=lambda: 0,
    )
    found: list[SealPlan] = []
    for topic in TOPICS:
        backlog.set_topic(topic, incarnation=0, cut_ms=0, tiered=True, cold_ends={})
        backlog.set_queue(topic, 0, min_offset=0, end_offset=MESSAGES)
        plan = backlog.plan(topic, flush_offset=store.commit_log.flush_offset)
        assert plan is not None
        found.append(plan)
    return found


def make_sealer(
    objects: MemoryObjectStore, log: LocalLog, folder: Path | None, **settings: int
) -> tuple[Sealer, TierBudgets]:
    budgets = TierBudgets()
    budgets.resize(TierConfig(cold_url="memory://x", **settings))
    sealer = Sealer(
        store=objects, keys=KEYS, log=log, spool_folder=folder, options=OPTIONS, clock=lambda: 5, budgets=budgets
    )
    return sealer, budgets


async def check(sealer: Sealer, objects: MemoryObjectStore, plans: list[SealPlan]) -> None:
    """Seal them side by side; every record is in its segment."""
    entries = await asyncio.gather(
        *(sealer.seal(plan, SegmentId(1, number)) for number, plan in enumerate(plans, start=1))
    )
    for entry in entries:
        assert entry.record_count == MESSAGES
        footer = await SegmentReader(objects, entry).log_footer()
        assert footer.topic == entry.topic


async def test_segments_wait_for_their_share(log: LocalLog, plans: list[SealPlan], tmp_path: Path) -> None:
    objects = SlowStore()
    sealer, budgets = make_sealer(objects, log, tmp_path, spool_bytes=1 << 20, upload_budget_bytes=1 << 20)
    budgets.spool.resize(plans[0].raw_bytes + plans[1].raw_bytes)
    budgets.uploads.resize(1 << 30)
    sealing = asyncio.create_task(check(sealer, objects, plans))
    while budgets.spool.waiting_count == 0:  # noqa: ASYNC110 - turns of the loop, not time
        await asyncio.sleep(0)
    assert budgets.spool.used_bytes == plans[0].raw_bytes + plans[1].raw_bytes
    assert budgets.uploads.used_bytes == 2 * (MESSAGES * RECORD_MEMORY_BYTES + 4 * OPTIONS.frame_bytes)
    objects.gate.set()
    await sealing
    assert budgets.spool.used_bytes == budgets.uploads.used_bytes == 0


async def test_a_disk_without_room_keeps_segments_in_memory(
    log: LocalLog,
    plans: list[SealPlan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What cannot go up could never make room again. Said once."""

    def full_file(*, dir: Path, buffering: int) -> IO[bytes]:
        assert dir == tmp_path
        return open("/dev/full", "w+b", buffering=buffering)

    monkeypatch.setattr(spool.tempfile, "TemporaryFile", full_file)
    objects = MemoryObjectStore()
    sealer, budgets = make_sealer(objects, log, tmp_path)
    await check(sealer, objects, plans)
    assert len([record for record in caplog.records if "kept in memory" in record.message]) == 1
    assert budgets.spool.used_bytes == budgets.uploads.used_bytes == 0
    monkeypatch.undo()
    await check(sealer, objects, plans)
