"""What the tier process says of expired messages in packs: of a cut before it is made, and as evidence after it.

Covers `tiered/catalog/pack_ttl.py`, `tiered/garbage/garbage_rounds.py`, `tiered/service/tier_service.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from benchmarks.synthetic_cold_tier import SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.broker.helpers.helper_protocol import ExpiredParts, TtlProofReply, TtlProofRequest
from thermocline.broker.tier_process.tier_ttl import expired_parts, prove
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.stores.memory import MemoryObjectStore

HOUR_MS = 3_600_000
GRACE_MS, SWEEP_MS = 10 * HOUR_MS, 1_000
PACK_SWEEP_MS = 4 * SWEEP_MS
CONFIG = TierConfig(
    cold_url="memory://packs",
    segment_bytes=64 << 10,
    frame_bytes=4 << 10,
    seal_age_ms=60_000,
    pack_bytes=256 << 10,
    merge_fan_in=2,
    grace_ms=GRACE_MS,
    sweep_interval_ms=SWEEP_MS,
)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
async def tier(store: MemoryObjectStore) -> AsyncIterator[SyntheticColdTier]:
    topics = {"alpha": SyntheticTopic(), "beta": SyntheticTopic()}
    async with opened(store, CONFIG, hot=SyntheticHotTier(), topics=topics) as tier:
        yield tier


async def send_and_pack(tier: SyntheticColdTier, *, alpha: int = 8, beta: int = 8) -> None:
    """Messages of both topics, in one pack."""
    for topic, count in (("alpha", alpha), ("beta", beta)):
        for _ in range(count):
            tier.hot.append(topic, 0, body_bytes=200)
            tier.hot.now_ms += 10
    tier.hot.now_ms += 61_000
    await a_round(tier)


async def a_round(tier: SyntheticColdTier) -> None:
    tier.report()
    await tier.service.run_once()


async def expire(tier: SyntheticColdTier, topic: str) -> int:
    """All of a topic that is there has expired, for good, and a round has been; the cut."""
    tier.hot.now_ms += 1
    tier.topics[topic].fixed_cut_ms = tier.hot.now_ms
    await a_round(tier)
    return tier.hot.now_ms


async def proof_of(tier: SyntheticColdTier, topic: str = "alpha") -> TtlProofReply:
    tier.report()
    topic_state = tier.topics[topic]
    request = TtlProofRequest(
        topic=topic, incarnation=topic_state.incarnation, cut_ms=topic_state.cut_ms(tier.hot.now_ms)
    )
    return await prove(tier.service, tier.writer, tier.cache, request)


def preview_of(tier: SyntheticColdTier, topic: str, cut_ms: int) -> ExpiredParts:
    catalog = tier.catalog
    return expired_parts(tier.service, topic, catalog.topics[topic].segments, catalog.packed.get(topic), cut_ms=cut_ms)


async def test_expired_messages_in_a_kept_pack_are_listed_until_a_purge(
    tier: SyntheticColdTier, store: MemoryObjectStore
) -> None:
    await send_and_pack(tier)
    (pack,) = tier.catalog.packs.values()
    proof = await proof_of(tier)
    assert (proof.hidden, proof.visible_objects) == ([], 1)
    assert proof.visible_bytes == tier.catalog.packed["alpha"].stored_bytes < pack.object_bytes

    await expire(tier, "alpha")
    proof = await proof_of(tier)
    (row,) = proof.hidden
    assert (row.segment_id, row.state, row.keys) == (pack.pack_id, "in a pack that stays", [pack.key])
    assert row.bytes == tier.catalog.packed["alpha"].stored_bytes == proof.hidden_bytes
    assert (row.due_ms, row.why) == (None, "messages of beta in it are kept for ever")
    assert (proof.named, proof.visible_objects) == ([], 0), "the pack is there for beta"
    assert ((await proof_of(tier, "beta")).hidden, store.objects.keys() >= {pack.key}) == ([], True)

    tier.topics["beta"].ttl_ms = 5 * HOUR_MS
    (row,) = (await proof_of(tier)).hidden
    assert row.due_ms == pack.max_store_ms + 5 * HOUR_MS + PACK_SWEEP_MS + GRACE_MS

    report = await tier.purger.purge("alpha")
    assert (report.packs_rewritten, report.remaining) == (1, ())
    assert pack.key not in store.objects
    proof = await proof_of(tier)
    assert (proof.hidden, proof.named, proof.visible_objects) == ([], [], 0)
    assert (await proof_of(tier, "beta")).visible_objects == 1


async def test_a_pack_goes_by_the_times_of_its_pieces(tier: SyntheticColdTier) -> None:
    await send_and_pack(tier)
    (pack,) = tier.catalog.packs.values()
    # All of alpha's is older than all of beta's, and has expired by a cut before that; no time to live will move it.
    times = pack.piece_times()
    assert times is not None
    tier.topics["alpha"].fixed_cut_ms = times.of(pack.indexes_of("alpha")[0])[1] + 1
    assert tier.topics["alpha"].fixed_cut_ms <= pack.max_store_ms
    tier.topics["beta"].fixed_cut_ms = pack.max_store_ms + 1
    tier.hot.now_ms += PACK_SWEEP_MS
    await a_round(tier)
    assert not tier.catalog.packs


async def test_the_reported_date_is_kept(tier: SyntheticColdTier, store: MemoryObjectStore) -> None:
    await send_and_pack(tier)
    (pack,) = tier.catalog.packs.values()
    tier.topics["beta"].ttl_ms = 5 * HOUR_MS
    await expire(tier, "alpha")
    (row,) = (await proof_of(tier)).hidden
    assert row.due_ms is not None
    tier.hot.now_ms = pack.max_store_ms + 5 * HOUR_MS
    await a_round(tier)
    tier.hot.now_ms += 1
    (named,) = (await proof_of(tier)).named
    assert (named.segment_id, named.newest_ms, named.is_overdue) == (pack.pack_id, pack.max_store_ms, False)
    (row_as_named,) = (await proof_of(tier)).hidden
    assert row_as_named.state == "expired, still named"
    tier.hot.now_ms = row.due_ms - GRACE_MS
    await a_round(tier)
    proof = await proof_of(tier)
    (removed,) = proof.hidden
    assert (proof.named, removed.state, removed.bytes) == ([], "out of the catalog", row.bytes)
    assert pack.key in store.objects
    tier.hot.now_ms = row.due_ms
    for _ in range(3):
        await a_round(tier)
    assert pack.key not in store.objects
    assert (await proof_of(tier)).hidden == []


async def test_a_pack_that_no_sweep_drops_is_overdue(tier: SyntheticColdTier) -> None:
    await send_and_pack(tier)
    await expire(tier, "alpha")
    tier.topics["beta"].fixed_cut_ms = tier.topics["alpha"].fixed_cut_ms
    tier.hot.now_ms += PACK_SWEEP_MS
    (named,) = (await proof_of(tier)).named
    assert not named.is_overdue
    tier.hot.now_ms += HOUR_MS
    (named,) = (await proof_of(tier)).named
    assert (named.is_overdue, named.why) == (True, "sweeps have stopped")


async def test_a_removed_pack_counts_only_where_something_of_it_has_expired(tier: SyntheticColdTier) -> None:
    await send_and_pack(tier)
    await send_and_pack(tier)
    olds = sorted(tier.catalog.packs)
    assert await tier.merge_all() == 1
    assert not set(olds) & tier.catalog.packs.keys()
    assert (await proof_of(tier)).hidden == [], "they hold what is visible"
    await expire(tier, "alpha")
    rows = {row.segment_id: row for row in (await proof_of(tier)).hidden}
    assert [each for each in olds if rows[each].state == "out of the catalog"] == olds
    assert all(rows[each].due_ms is not None for each in olds)
    assert (await proof_of(tier, "beta")).hidden == []


async def test_a_preview_counts_packs_that_go_and_bytes_that_stay_in_others(tier: SyntheticColdTier) -> None:
    await send_and_pack(tier, beta=0)
    await send_and_pack(tier)
    alone, shared = tier.catalog.packs.values()
    cut_ms = tier.hot.now_ms
    packed = tier.catalog.packed["alpha"]
    before = preview_of(tier, "alpha", cut_ms)
    assert (before.segments, before.packs, before.objects) == (0, 1, 1)
    assert before.stored_bytes == alone.object_bytes
    assert before.raw_bytes == alone.raw_bytes
    assert before.held_bytes == packed.stored_bytes - alone.table().piece(0).stored_bytes > 0
    assert preview_of(tier, "alpha", alone.max_store_ms) == preview_of(tier, "beta", shared.min_store_ms)
    # What it says goes.
    tier.topics["alpha"].fixed_cut_ms = cut_ms
    tier.hot.now_ms += PACK_SWEEP_MS
    await a_round(tier)
    assert list(tier.catalog.packs) == [shared.pack_id]
    (row,) = (row for row in (await proof_of(tier)).hidden if row.state == "in a pack that stays")
    assert row.bytes == before.held_bytes
