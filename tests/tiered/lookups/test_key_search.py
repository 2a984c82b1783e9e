"""Lookups by key find every record with the key, whatever the key looks like; lookups by id look where it was made."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from benchmarks.lookup_history import NAMES, History, tier_of
from tests.tiered.cold_data import START_MS, Log, write_segment
from tests.tiered.ledger_data import KEYS, open_writer
from thermocline.remoting.records.message_id import month_bounds_ms
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.lookups.birth_windows import HOUR_MS
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore

TRACES = "traces"
END_MS = 1 << 60


@dataclass(slots=True)
class Traced:
    """A message's id, and what was stored with it as a key: a segment each."""

    reader: ColdReader
    message_id: str
    stored: list[bytes]

    async def look_up(self, *, is_unique: bool, begin_ms: int = 0, count_max: int = 32) -> list[bytes]:
        found = await self.reader.query_key(
            TRACES,
            self.message_id,
            begin_ms=begin_ms,
            end_ms=END_MS,
            count_max=count_max,
            cut_ms=0,
            is_unique=is_unique,
        )
        return [bytes(record) for record in found]


async def traced(hours_after_birth: list[int]) -> Traced:
    store = MemoryObjectStore()
    writer, log = await open_writer(store), Log(TRACES, Random(1))
    message_id = f"0A010203000118B4AAC2{START_MS - month_bounds_ms(START_MS)[0]:08X}0007"
    stored: list[bytes] = []
    starts: dict[int, int] = {}
    for hours in hours_after_birth:
        log.now_ms = START_MS + hours * HOUR_MS + 5
        stored.append(log.append(0, body=b"trace", keys=f"order-17 {message_id}"))
        with write_segment(log, starts=starts, segment_id=writer.next_segment_id()) as finished:
            entry = await upload_segment(store, KEYS, finished, created_ms=log.now_ms)
        await writer.commit(LedgerChanges(segments_in=(entry,)))
        starts = log.ends()
    reader = ColdReader(store, catalog=lambda: writer.catalog, cache=FrameCache())
    return Traced(reader, message_id, stored)


async def test_a_key_that_looks_like_an_id_is_found_wherever_it_was_stored() -> None:
    """A trace's messages have the traced message's id as a key: what consumers add comes hours or days later."""
    trace = await traced([0, 30, 200])
    assert await trace.look_up(is_unique=False) == trace.stored[::-1]
    assert await trace.look_up(is_unique=False, count_max=2) == trace.stored[:0:-1]
    begin_ms = decode_record(trace.stored[1]).store_timestamp_ms
    assert await trace.look_up(is_unique=False, begin_ms=begin_ms) == trace.stored[:0:-1]


async def test_an_id_is_looked_for_where_it_was_made() -> None:
    trace = await traced([0, 30, 200])
    assert await trace.look_up(is_unique=True) == trace.stored[:1]
    late = await traced([200, 230])
    assert await late.look_up(is_unique=True) == late.stored[::-1], "not there, it is looked for everywhere"


@pytest.mark.parametrize("segments", [1, 3])
async def test_of_a_key_that_many_records_have_each_frame_is_read_once(segments: int) -> None:
    """And none whose records are all of other times than the wanted."""
    store = MeteringObjectStore(MemoryObjectStore())
    writer, log = await open_writer(store), Log("orders", Random(1))
    sent: list[bytes] = []
    starts: dict[int, int] = {}
    for _ in range(segments):
        for _ in range(300):
            sent.append(log.append(0, body=log.random.randbytes(1_000), keys="tenant-1"))
            log.now_ms += 1_000
        options = SegmentOptions(frame_bytes=12_000)
        with write_segment(log, starts=starts, segment_id=writer.next_segment_id(), options=options) as finished:
            entry = await upload_segment(store, KEYS, finished, created_ms=log.now_ms)
        await writer.commit(LedgerChanges(segments_in=(entry,)))
        starts = log.ends()

    async def look_up(begin: int, end: int, count_max: int) -> int:
        """By the numbers of records; returns how many requests that takes."""
        reader = ColdReader(store, catalog=lambda: writer.catalog, cache=FrameCache())
        before = store.counters.request_count
        found = await reader.query_key(
            "orders",
            "tenant-1",
            begin_ms=START_MS + 1_000 * begin,
            end_ms=START_MS + 1_000 * (end - 1),
            count_max=count_max,
            cut_ms=0,
        )
        await reader.close()
        assert [bytes(record) for record in found] == sent[begin:end][::-1][:count_max]
        return store.counters.request_count - before

    # Of each segment its keys, a record, the footer; then frames of 10 records or so.
    assert await look_up(0, len(sent), 64) <= (3 + 8) * segments
    assert await look_up(20, 60, 64) <= 3 + 6
    assert await look_up(0, 300, 1_000) <= 3 + 31


async def test_of_a_pack_no_piece_is_read_for_each_of_its_records() -> None:
    history, key = History(), f"{17:032}"
    async with tier_of(history) as tier:
        for _ in range(5):
            for _ in range(40):
                history.send(NAMES[0], 0, body_bytes=500, key=key)
                history.hot.now_ms += 10
            await history.pack(tier)
        assert await tier.index_all()
        catalog = tier.writer.catalog
        newest = max(catalog.packs.values(), key=lambda pack: pack.end_physical_offset)
        metered, cache = MeteringObjectStore(history.store), FrameCache()
        reader = ColdReader(metered, catalog=lambda: catalog, cache=cache)
        found = await reader.query_key(NAMES[0], key, begin_ms=0, end_ms=END_MS, count_max=32, cut_ms=0)
        assert [bytes(record) for record in found] == [sent.record for sent in history.sent[::-1][:32]]
        assert metered.counters.received_bytes < 4 * newest.object_bytes
        await reader.close()
        await cache.close()
