"""A frame is fetched once, whichever readers wait or are cancelled; the cache stays within its bytes.

Covers `tiered/wrappers/bounding.py`.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.tiered.cold_data import Log, write_segment
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.objects.byte_budget import ByteBudget
from thermocline.tiered.objects.errors import FrameChecksumError
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.segment_format import FrameInfo
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import BoundingObjectStore, MeteringObjectStore, Verb


class GatedStore(MemoryObjectStore):
    """Answers ranges only once the gate is open; may answer wrongly or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()
        self.unavailable = False
        self.damaged_answers = 0

    async def get_range(self, key: str, *, start: int, end: int) -> bytes:
        self.waiting.set()
        await self.gate.wait()
        if self.unavailable:
            raise ObjectStoreUnavailableError(key=key)
        data = await super().get_range(key, start=start, end=end)
        if self.damaged_answers:
            self.damaged_answers -= 1
            return data[:-1] + bytes([data[-1] ^ 1])
        return data


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
def metered(store: GatedStore) -> MeteringObjectStore:
    return MeteringObjectStore(store)


@pytest.fixture
async def reader(store: GatedStore, metered: MeteringObjectStore) -> SegmentReader:
    log = Log("orders", Random(1), queue_count=1)
    log.append_flights(500)
    with write_segment(log, options=SegmentOptions(frame_bytes=5_000)) as finished:
        entry = finished.entry(log_key="a.log", cq_key="a.cq", idx_key="a.idx", created_ms=0)
        for key, part in (("a.log", finished.log), ("a.cq", finished.cq), ("a.idx", finished.idx)):
            await store.put(key, part)
    reader = SegmentReader(metered, entry)
    await reader.log_footer()
    metered.counters.requests.clear()
    store.waiting.clear()
    return reader


async def frames(reader: SegmentReader) -> list[FrameInfo]:
    footer = await reader.log_footer()
    return [footer.frame(index) for index in range(len(footer.frames))]


async def test_many_wait_for_one_fetch(reader: SegmentReader, metered: MeteringObjectStore) -> None:
    cache = FrameCache()
    info = (await frames(reader))[2]
    found = await asyncio.gather(*(cache.get(reader, info) for _ in range(20)))
    assert {frame.start_offset for frame in found} == {info.start_offset}
    assert metered.counters.requests[Verb.GET_RANGE] == 1
    assert (await cache.get(reader, info)).data == found[0].data
    assert cache.fetch_count == 1


async def test_a_cancelled_reader_s_fetch_still_lands(
    reader: SegmentReader, store: GatedStore, metered: MeteringObjectStore
) -> None:
    cache = FrameCache()
    info = (await frames(reader))[0]
    store.gate.clear()
    leaving = asyncio.create_task(cache.get(reader, info))
    await store.waiting.wait()
    staying = asyncio.create_task(cache.get(reader, info))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    store.gate.set()
    assert (await staying).start_offset == 0
    assert metered.counters.requests[Verb.GET_RANGE] == 1


async def test_adjacent_frames_come_together(reader: SegmentReader, metered: MeteringObjectStore) -> None:
    cache = FrameCache()
    infos = await frames(reader)
    await cache.get(reader, infos[3], ahead=infos[4:9])
    assert metered.counters.requests[Verb.GET_RANGE] == 1
    assert all(cache.is_ready(reader, info) for info in infos[3:9])
    cache.read_ahead(reader, infos[2:12])  # what is there is left out, so two requests, one on each side
    await cache.get(reader, infos[2])
    await cache.get(reader, infos[11])
    assert metered.counters.requests[Verb.GET_RANGE] == 3


async def test_fetches_are_bounded(reader: SegmentReader, metered: MeteringObjectStore) -> None:
    infos = await frames(reader)
    size = infos[0].stored_bytes * 2 + 200
    cache = FrameCache(fetch_bytes_max=size, ahead_bytes_max=size)
    cache.read_ahead(reader, infos)
    await cache.get(reader, infos[-1])
    assert metered.counters.requests[Verb.GET_RANGE] >= len(infos) // 3
    cache = FrameCache(ahead_bytes_max=0)
    cache.read_ahead(reader, infos)
    assert not cache._under_way


async def test_memory_is_bounded(reader: SegmentReader) -> None:
    infos = await frames(reader)
    cache = FrameCache(bytes_max=20_000)
    for _ in range(2):
        for info in infos:
            frame = await cache.get(reader, info)
            assert frame.end_offset == info.end_offset
            assert cache.size_bytes <= 20_000
    assert cache.is_ready(reader, infos[-1])
    assert not cache.is_ready(reader, infos[0])
    tiny = FrameCache(bytes_max=10)
    assert (await tiny.get(reader, infos[0])).start_offset == 0
    assert tiny.is_ready(reader, infos[0])
    assert (await tiny.get(reader, infos[1])).start_offset == infos[1].start_offset
    assert not tiny.is_ready(reader, infos[0])


async def test_failures_reach_those_who_wait_and_are_forgotten(reader: SegmentReader, store: GatedStore) -> None:
    cache = FrameCache()
    infos = await frames(reader)
    store.unavailable = True
    results = await asyncio.gather(*(cache.get(reader, infos[0]) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, ObjectStoreUnavailableError) for result in results)
    cache.read_ahead(reader, infos[1:3])
    with pytest.raises(ObjectStoreUnavailableError):
        await cache.get(reader, infos[1])
    store.unavailable = False
    assert (await cache.get(reader, infos[0])).start_offset == 0


async def test_a_damaged_answer_is_fetched_once_more(reader: SegmentReader, store: GatedStore) -> None:
    cache = FrameCache()
    info = (await frames(reader))[0]
    store.damaged_answers = 1
    assert (await cache.get(reader, info)).start_offset == 0
    cache = FrameCache()
    store.damaged_answers = 2
    with pytest.raises(FrameChecksumError):
        await cache.get(reader, info)
    assert (await cache.get(reader, info)).start_offset == 0


async def test_closing_ends_running_reads(reader: SegmentReader, store: GatedStore) -> None:
    cache = FrameCache()
    info = (await frames(reader))[0]
    store.gate.clear()
    waiting = asyncio.create_task(cache.get(reader, info))
    await store.waiting.wait()
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_frames_out_of_the_catalog_are_evicted(reader: SegmentReader) -> None:
    cache = FrameCache()
    footer = await reader.log_footer()
    for index in range(3):
        await cache.get(reader, footer.frame(index))
    assert cache.bytes_of({"a.log"}) == cache.size_bytes > 0
    cache.forget({"b.log"})
    assert cache.bytes_of({"b.log"}) == 0
    assert cache.is_ready(reader, footer.frame(0))
    cache.forget({"b.log", "a.log"})
    assert cache.size_bytes == cache.bytes_of({"a.log"}) == 0
    assert not cache.is_ready(reader, footer.frame(0))
    assert (await cache.get(reader, footer.frame(0))).start_offset == 0
    assert cache.size_bytes == 0, "a reader that is late gets it, and nothing is kept"
    await cache.close()


async def test_a_fetch_in_flight_at_the_eviction_is_not_kept(reader: SegmentReader, store: GatedStore) -> None:
    cache = FrameCache()
    infos = await frames(reader)
    store.gate.clear()
    store.waiting.clear()
    getting = asyncio.create_task(cache.get(reader, infos[0]))
    await store.waiting.wait()
    cache.forget({"a.log"})
    store.gate.set()
    assert (await getting).start_offset == 0
    assert cache.size_bytes == cache.bytes_of({"a.log"}) == 0
    await cache.close()


def bounded(reader: SegmentReader, store: GatedStore, budget: ByteBudget) -> SegmentReader:
    """The same segment, its reads held in a budget from now on."""
    bounded = BoundingObjectStore(store, budget)
    opened = SegmentReader(bounded, reader.entry)
    opened._log_footer = reader._log_footer
    return opened


async def test_frames_in_flight_are_held_in_the_budget(reader: SegmentReader, store: GatedStore) -> None:
    infos = await frames(reader)
    budget = ByteBudget(infos[0].stored_bytes + infos[5].stored_bytes)
    reader, cache = bounded(reader, store, budget), FrameCache()
    store.gate.clear()
    waiting = [asyncio.create_task(cache.get(reader, infos[index])) for index in (0, 5, 9)]
    await store.waiting.wait()
    await asyncio.sleep(0)
    assert (budget.used_bytes, budget.waiting_count) == (budget.bytes_max, 1)
    store.gate.set()
    assert [frame.start_offset for frame in await asyncio.gather(*waiting)] == [
        infos[index].start_offset for index in (0, 5, 9)
    ]
    assert budget.used_bytes == 0


async def test_a_reader_that_leaves_frees_its_share_though_the_store_hangs(
    reader: SegmentReader, store: GatedStore
) -> None:
    """Also what was to be read ahead for it; what others want as well goes on."""
    infos = await frames(reader)
    budget = ByteBudget(1 << 20)
    reader, cache = bounded(reader, store, budget), FrameCache()
    store.gate.clear()
    alone = asyncio.create_task(cache.get(reader, infos[0], owner="leaving"))
    await store.waiting.wait()
    cache.read_ahead(reader, infos[1:4], owner="leaving")
    shared = [asyncio.create_task(cache.get(reader, infos[9], owner=owner)) for owner in ("leaving", "staying")]
    for _ in range(5):
        await asyncio.sleep(0)
    alone.cancel()
    shared[0].cancel()
    cache.reader_left("leaving")
    assert not cache.is_coming(reader, infos[0])
    again = asyncio.create_task(cache.get(reader, infos[0], owner="newcomer"))  # not taken along by what ends
    for _ in range(5):
        await asyncio.sleep(0)
    assert budget.used_bytes == infos[0].stored_bytes + infos[9].stored_bytes
    store.gate.set()
    assert (await shared[1]).start_offset == infos[9].start_offset
    assert (await again).start_offset == 0
    assert budget.used_bytes == 0
    assert not cache._under_way
    assert not cache._fetches


async def test_frames_read_ahead_for_a_reader_that_left_are_dropped(reader: SegmentReader) -> None:
    infos = await frames(reader)
    cache = FrameCache()
    cache.read_ahead(reader, infos[:6], owner="leaving")
    cache.read_ahead(reader, infos[6:8], owner="staying")
    await cache.get(reader, infos[2], owner="leaving")
    await cache.get(reader, infos[7], owner="staying")
    cache.reader_left("leaving")
    assert [index for index in range(8) if cache.is_ready(reader, infos[index])] == [2, 6, 7], "what was used is shared"
    cache.reader_left("staying")
    assert cache._unused_bytes == 0


async def test_a_small_cache_reads_nothing_ahead(reader: SegmentReader, metered: MeteringObjectStore) -> None:
    infos = await frames(reader)
    cache = FrameCache(bytes_max=infos[0].raw_bytes)
    for info in infos:
        cache.read_ahead(reader, infos)
        for _ in range(3):
            assert (await cache.get(reader, info, ahead=infos)).start_offset == info.start_offset
    assert metered.counters.requests[Verb.GET_RANGE] == len(infos), "each frame once for a reader in order"


async def test_unused_frames_read_ahead_are_bounded(reader: SegmentReader) -> None:
    infos = await frames(reader)
    cache = FrameCache(bytes_max=20 * infos[0].raw_bytes, ahead_bytes_max=3 * infos[0].stored_bytes)
    for start in range(0, len(infos), 2):
        cache.read_ahead(reader, infos[start : start + 2])
        while cache._under_way:  # noqa: ASYNC110 - turns of the loop, not time
            await asyncio.sleep(0)
    assert cache._unused_bytes < 5 * infos[0].stored_bytes
    assert len(infos) > 20
