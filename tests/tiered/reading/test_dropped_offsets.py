"""Ranges that a full disk dropped, beside packs: only offsets are declared lost that no object holds or will hold.

Covers `tiered/sealing/due_changes.py`, `tiered/sealing/sweep_turn.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.ledger_entry import QueueHole
from thermocline.tiered.objects.object_store import Data
from thermocline.tiered.sealing import round_uploads
from thermocline.tiered.stores.memory import MemoryObjectStore

CONFIG = TierConfig(cold_url="memory://dropped", segment_bytes=1 << 20, seal_age_ms=10_000)
SILENT = Sender(per_minute=0, queues=1)


class StoreWithHook(MemoryObjectStore):
    """Awaits `before_pack` once, when a pack is put."""

    def __init__(self) -> None:
        super().__init__()
        self.before_pack: Callable[[], Awaitable[None]] | None = None

    async def put(self, key: str, data: Data) -> None:
        hook = self.before_pack
        if hook is not None and "/packs/" in key:
            self.before_pack = None
            await hook()
        await super().put(key, data)


def send(tier: MeteredTier, topic: str, count: int) -> None:
    for _ in range(count):
        tier.hot.append(topic, 0, body_bytes=100)
    tier._changed.add((topic, 0))


def drop(tier: MeteredTier, topic: str, start_offset: int, end_offset: int) -> None:
    """Drop as the hot process does: first it reports the range, then the minimum rises."""
    tier.service.report_dropped(topic, 1, QueueHole(0, start_offset, end_offset))
    tier._changed.add((topic, 0))


def holes(tier: MeteredTier, topic: str) -> list[tuple[int, int]]:
    return [(hole.start_offset, hole.end_offset) for hole in tier.service.catalog.topics[topic].holes]


async def test_offsets_held_by_a_pack_are_not_declared() -> None:
    tier = MeteredTier({"a": SILENT, "b": SILENT})
    async with tier.opened(CONFIG):
        send(tier, "a", 40)
        send(tier, "b", 10)
        await tier.run(0.5)
        assert tier.service.catalog.packs
        assert not tier.service.catalog.topics["a"].segments
        send(tier, "a", 30)
        tier.report(only_changed=True)
        drop(tier, "a", 0, 60)
        await tier.run(0.5)
        assert holes(tier, "a") == [(40, 60)]
        assert tier.service.catalog.queue_ends("a") == {0: 70}
        drop(tier, "a", 0, 60)  # reported again, to another tier process
        await tier.run(0.5)
        assert holes(tier, "a") == [(40, 60)]


async def test_a_sweep_on_demand_declares_nothing_that_a_round_is_uploading() -> None:
    store = StoreWithHook()
    tier = MeteredTier({"a": SILENT}, store=store)
    async with tier.opened(CONFIG):
        send(tier, "a", 5)
        await tier.run(0.5)

        async def drop_and_sweep() -> None:
            drop(tier, "a", 5, 20)
            await tier.service.sweep_now()
            assert holes(tier, "a") == []

        store.before_pack = drop_and_sweep
        send(tier, "a", 30)
        await tier.run(0.5)
        assert store.before_pack is None
        assert holes(tier, "a") == []
        assert tier.service.catalog.queue_ends("a") == {0: 35}


async def test_offsets_of_a_later_entry_of_the_round_are_not_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of very many topics have an entry each; what was dropped is weighed against all of them."""
    monkeypatch.setattr(round_uploads, "ENTRY_BYTES_MAX", 1)
    store = StoreWithHook()
    ttls_ms = {"a": None, "b": 3_600_000, "c": 90_000_000}
    senders = {topic: Sender(per_minute=0, queues=1, ttl_ms=ttl_ms) for topic, ttl_ms in ttls_ms.items()}
    tier = MeteredTier(senders, store=store)
    async with tier.opened(CONFIG):
        for topic in ttls_ms:
            send(tier, topic, 5)
        await tier.run(0.5)
        before = tier.service.catalog.version

        async def drop_all() -> None:
            for topic in ttls_ms:
                drop(tier, topic, 5, 20)

        store.before_pack = drop_all
        for topic in ttls_ms:
            send(tier, topic, 30)
        await tier.run(0.5)
        assert tier.service.catalog.version >= before + len(ttls_ms)
        for topic in ttls_ms:
            assert holes(tier, topic) == []
            assert tier.service.catalog.queue_ends(topic) == {0: 35}
