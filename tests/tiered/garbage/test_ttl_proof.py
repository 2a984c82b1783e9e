"""Expired messages in the cold tier: entries of the catalog, objects of the bucket, their due time and the reason."""

from __future__ import annotations

import pytest

from tests.clock import Clock
from tests.tiered.ledger_data import KEYS, commit_segment, open_writer
from thermocline.tiered.catalog.ledger_entry import CatalogSettings, LedgerChanges, SegmentOut, TopicDelete
from thermocline.tiered.garbage.garbage import GarbageCollector
from thermocline.tiered.garbage.ttl_proof import SWEEP_LATE_MS_MAX, BucketEvidence, HiddenState, bucket_evidence
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.ledger.pins import Pin, create_pin
from thermocline.tiered.sealing.sweep_turn import Sweep, Sweeps, SweepState
from thermocline.tiered.stores.memory import MemoryObjectStore

GRACE_MS = 10_000
SWEEP_MS = 1_000
PART_BYTES = len(b"part")


@pytest.fixture
def clock() -> Clock:
    return Clock(100_000)


@pytest.fixture
async def writer(clock: Clock) -> LedgerWriter:
    writer = await open_writer(MemoryObjectStore(), clock=clock)
    await writer.commit(LedgerChanges(settings=CatalogSettings(grace_ms=GRACE_MS)))
    return writer


async def evidence(
    writer: LedgerWriter,
    clock: Clock,
    *,
    cut_ms: int,
    ttl_ms: int | None = None,
    last: Sweep | None = None,
    incarnation: int = 1,
    waits_for_budget: bool = False,
) -> BucketEvidence:
    """The evidence; sweeps began just now."""
    state = SweepState(
        last=last,
        started_ms=clock.now_ms if last is None else last.at_ms,
        next_ms=clock.now_ms + 400,
        interval_ms=SWEEP_MS,
        waits_for_budget=waits_for_budget,
    )
    return await bucket_evidence(
        writer,
        topic="orders",
        incarnation=incarnation,
        cuts_ms={"orders": cut_ms},
        ttl_ms=lambda _: ttl_ms,
        sweeps=Sweeps(segments=state, packs=state),
        now_ms=clock.now_ms,
    )


async def test_segments_are_visible_partly_or_wholly_expired(writer: LedgerWriter, clock: Clock) -> None:
    gone = await commit_segment(writer, start=0, min_store_ms=1_000, max_store_ms=2_000)
    half = await commit_segment(writer, start=10, min_store_ms=2_000, max_store_ms=3_000)
    await commit_segment(writer, start=20, min_store_ms=3_000, max_store_ms=4_000)
    await commit_segment(writer, topic="others", start=0)
    found = await evidence(writer, clock, cut_ms=2_500, ttl_ms=97_500)
    assert (found.visible_count, found.visible_bytes) == (3, 3 * PART_BYTES)
    assert [(each.segment_id, each.is_overdue) for each in found.named] == [(gone.segment_id, False)]
    rows = {each.segment_id: each for each in found.hidden}
    assert rows.keys() == {gone.segment_id, half.segment_id}
    assert rows[gone.segment_id].state is HiddenState.NAMED
    assert rows[gone.segment_id].due_ms == clock.now_ms + 400 + GRACE_MS
    assert rows[half.segment_id].state is HiddenState.PARTLY
    assert rows[half.segment_id].due_ms == 3_000 + 97_500 + SWEEP_MS + GRACE_MS
    assert rows[half.segment_id].size_bytes == 3 * PART_BYTES
    (forever,) = (
        each for each in (await evidence(writer, clock, cut_ms=2_500)).hidden if each.segment_id == half.segment_id
    )
    assert (forever.due_ms, "for ever" in forever.why) == (None, True)


async def test_a_segment_that_a_sweep_skipped_is_overdue(writer: LedgerWriter, clock: Clock) -> None:
    await commit_segment(writer, max_store_ms=2_000)
    for swept_ms, cut_ms, is_overdue in (
        (clock.now_ms, 2_000, False),  # it had not expired then
        (clock.now_ms, 2_001, True),
        (clock.now_ms - SWEEP_MS - SWEEP_LATE_MS_MAX, 2_000, False),
        (clock.now_ms - SWEEP_MS - SWEEP_LATE_MS_MAX - 1, 2_000, True),  # sweeps have stopped
    ):
        last = Sweep(at_ms=swept_ms, cuts_ms={"orders": cut_ms})
        (named,) = (await evidence(writer, clock, cut_ms=5_000, last=last)).named
        assert named.is_overdue is is_overdue, (swept_ms, cut_ms)


async def test_a_sweep_that_waits_for_the_request_budget_has_no_date(writer: LedgerWriter, clock: Clock) -> None:
    await commit_segment(writer, max_store_ms=2_000)
    for swept_ms, is_overdue in ((clock.now_ms, False), (clock.now_ms - 10 * SWEEP_LATE_MS_MAX, True)):
        last = Sweep(at_ms=swept_ms, cuts_ms={})
        found = await evidence(writer, clock, cut_ms=5_000, last=last, waits_for_budget=True)
        ((named,), (row,)) = found.named, found.hidden
        assert (named.is_overdue, row.due_ms) == (is_overdue, None)
        assert "request budget" in named.why
        assert "request budget" in row.why


async def test_a_segment_made_around_the_last_sweep_is_the_next_ones(writer: LedgerWriter, clock: Clock) -> None:
    await commit_segment(writer, max_store_ms=2_000)  # made at 2000
    clock.now_ms = 2_500
    last = Sweep(at_ms=2_400, cuts_ms={"orders": 3_000})
    (named,) = (await evidence(writer, clock, cut_ms=3_000, last=last)).named
    assert not named.is_overdue


async def test_objects_out_of_the_catalog_stay_for_the_grace_period(writer: LedgerWriter, clock: Clock) -> None:
    segment = await commit_segment(writer, max_store_ms=2_000)
    clock.now_ms += 500
    await writer.commit(LedgerChanges(segments_out=(SegmentOut("orders", segment.segment_id),)))
    removed_ms = clock.now_ms
    clock.now_ms += 500
    found = await evidence(writer, clock, cut_ms=5_000)
    (row,) = found.hidden
    assert (found.named, row.state, row.due_ms) == ((), HiddenState.REMOVED, removed_ms + GRACE_MS)
    assert sorted(row.keys) == sorted(segment.keys)

    until_ms = clock.now_ms + 50_000
    await create_pin(writer.store, KEYS, Pin(pin_id="p", version=writer.version - 1, until_ms=until_ms, owner="a job"))
    (row,) = (await evidence(writer, clock, cut_ms=5_000)).hidden
    assert (row.due_ms, row.why) == (until_ms, "pin p of a job")

    # When it says so, it goes.
    clock.now_ms = until_ms
    collector = GarbageCollector(writer)
    for _ in range(5):
        plan = await collector.plan(now_ms=clock.now_ms, sweep=True)
        await collector.execute(plan, now_ms=clock.now_ms)
    assert (await evidence(writer, clock, cut_ms=5_000)).hidden == ()


async def test_an_earlier_life_is_hidden_whole(writer: LedgerWriter, clock: Clock) -> None:
    before = await commit_segment(writer)
    (row,) = (await evidence(writer, clock, cut_ms=0, incarnation=2)).hidden
    assert row.state is HiddenState.NAMED, "its deletion is not committed yet"
    await writer.commit(LedgerChanges(topics_deleted=(TopicDelete("orders", 1),)))
    await commit_segment(writer, incarnation=2)
    found = await evidence(writer, clock, cut_ms=0, incarnation=2)
    (row,) = found.hidden
    assert (row.segment_id, row.state, found.visible_count) == (before.segment_id, HiddenState.REMOVED, 3)


async def test_unnamed_objects_are_listed_apart(writer: LedgerWriter, clock: Clock) -> None:
    given_up, on_its_way = writer.next_segment_id(), writer.next_segment_id()
    for segment_id in (given_up, on_its_way):
        await writer.store.put(KEYS.segment("orders", segment_id)[0], b"part")
    writer.abandon(given_up, KEYS.segment("orders", given_up))
    (row,) = (await evidence(writer, clock, cut_ms=0)).hidden
    assert (row.segment_id, row.state, row.due_ms) == (str(given_up), HiddenState.DISCARDED, clock.now_ms)
    later = await open_writer(writer.store, clock=clock, seed=2)
    rows = (await evidence(later, clock, cut_ms=0)).hidden
    assert [(each.segment_id, each.state, each.due_ms) for each in rows] == [
        (str(segment_id), HiddenState.ORPHAN, None) for segment_id in (given_up, on_its_way)
    ]
