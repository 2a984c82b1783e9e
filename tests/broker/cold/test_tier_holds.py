"""Bytes of a topic that pins hold, and its quarantined ranges."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tests.tiered.ledger_data import commit_segment, open_writer
from thermocline.broker.cold.tier_holds import PinHold, PinHolds, QuarantinedRange, quarantined_ranges
from thermocline.tiered.catalog.ledger_entry import (
    DamagedPart,
    LedgerChanges,
    LostRange,
    Quarantine,
    RemovedSegment,
    SegmentOut,
)
from thermocline.tiered.ledger.pins import Pin
from thermocline.tiered.packs.pack_entry import PackedTopic
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
    holds = PinHolds(writer.catalog, pins, now_ms=NOW_MS)
    assert holds.of("orders") == [
        PinHold(pin_id="between", owner="reader", until_ms=NOW_MS + 2, object_count=3, stored_bytes=size_bytes),
        PinHold(pin_id="before", owner="reader", until_ms=NOW_MS + 1, object_count=6, stored_bytes=2 * size_bytes),
    ]
    assert holds.of("audits") == []


class ReadOnce(tuple[RemovedSegment, ...]):
    """How often it is read."""

    count = 0

    def __iter__(self) -> Iterator[RemovedSegment]:
        type(self).count += 1
        return super().__iter__()


async def test_what_has_left_the_catalog_is_read_once_for_all_topics_and_never_without_pins() -> None:
    writer = await open_writer(MemoryObjectStore())
    before = writer.version
    packed = PackedTopic(topic="mixed", incarnation=1, packs=(), queues=(), raw_bytes=0, stored_bytes=0)
    catalog = replace(
        writer.catalog,
        removed=ReadOnce([removed("orders", before + 1), removed("", before + 1)]),
        packed={"mixed": packed},
    )
    for pins, counted in (([], 0), ([pin("over", before, until_ms=NOW_MS)], 0), ([pin("live", before)], 1)):
        holds = PinHolds(catalog, pins, now_ms=NOW_MS)
        assert [len(holds.of(topic)) for topic in ("orders", "audits", "mixed")] == [counted, 0, counted]
        assert ReadOnce.count == counted


def removed(topic: str, version: int) -> RemovedSegment:
    return RemovedSegment(topic, "s", version, ("data/packs/0/s.pack",), 1)


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
