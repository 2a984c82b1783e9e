"""Bytes of a topic that pins hold, and its quarantined ranges."""

from __future__ import annotations

from tests.tiered.ledger_data import commit_segment, open_writer
from thermocline.broker.cold.tier_holds import PinHold, QuarantinedRange, pin_holds, quarantined_ranges
from thermocline.tiered.catalog.ledger_entry import DamagedPart, LedgerChanges, LostRange, Quarantine, SegmentOut
from thermocline.tiered.ledger.pins import Pin
from thermocline.tiered.stores.memory import MemoryObjectStore

NOW_MS = 1_000


def pin(pin_id: str, version: int, *, until_ms: int = NOW_MS + 1) -> Pin:
    return Pin(pin_id=pin_id, version=version, until_ms=until_ms, owner="reader")


async def test_a_pin_keeps_segments_that_left_the_catalog_after_its_version() -> None:
    writer = await open_writer(MemoryObjectStore())
    first = await commit_segment(writer)
    second = await commit_segment(writer, start=10)
    await commit_segment(writer, topic="audits")
    before = writer.version
    await writer.commit(LedgerChanges(segments_out=(SegmentOut("orders", first.segment_id),)))
    between = writer.version
    await writer.commit(LedgerChanges(segments_out=(SegmentOut("orders", second.segment_id),)))
    pins = [
        pin("newest", writer.version),
        pin("between", between, until_ms=NOW_MS + 2),
        pin("before", before),
        pin("over", before, until_ms=NOW_MS),
    ]
    size_bytes = first.stored_bytes
    assert second.stored_bytes == size_bytes
    assert pin_holds(writer.catalog, "orders", pins, now_ms=NOW_MS) == [
        PinHold(pin_id="between", owner="reader", until_ms=NOW_MS + 2, object_count=3, stored_bytes=size_bytes),
        PinHold(pin_id="before", owner="reader", until_ms=NOW_MS + 1, object_count=6, stored_bytes=2 * size_bytes),
    ]
    assert pin_holds(writer.catalog, "audits", pins, now_ms=NOW_MS) == []


async def test_quarantined_ranges_are_reported_by_queue_and_offset() -> None:
    writer = await open_writer(MemoryObjectStore())
    segment = await commit_segment(writer)
    kept = Quarantine(
        segment=segment,
        damage=(DamagedPart(segment.log.key, "missing"),),
        lost=(LostRange(0, 5, 10), LostRange(0, 0, 3)),
    )
    await writer.commit(LedgerChanges(quarantine=(kept,)))
    damage = f"{segment.log.key} missing"
    assert quarantined_ranges(writer.catalog, "orders") == [
        QuarantinedRange(queue_id=0, start_offset=0, end_offset=3, damage=damage),
        QuarantinedRange(queue_id=0, start_offset=5, end_offset=10, damage=damage),
    ]
    assert quarantined_ranges(writer.catalog, "missing") == []
