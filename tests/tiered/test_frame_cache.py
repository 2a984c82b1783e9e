"""A frame is fetched once, whoever waits and whoever leaves; what is kept stays within its bytes."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.tiered.cold_data import Log, write_segment
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.errors import FrameChecksumError
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.memory import MemoryObjectStore
from thermocline.tiered.segment_format import FrameInfo
from thermocline.tiered.segment_reader import SegmentReader
from thermocline.tiered.segment_writer import SegmentOptions
from thermocline.tiered.wrappers import MeteringObjectStore, Verb


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
    assert tiny.size_bytes == 0


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


async def test_closing_ends_what_is_under_way(reader: SegmentReader, store: GatedStore) -> None:
    cache = FrameCache()
    info = (await frames(reader))[0]
    store.gate.clear()
    waiting = asyncio.create_task(cache.get(reader, info))
    await store.waiting.wait()
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_has_left_the_catalog_is_forgotten(reader: SegmentReader) -> None:
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


async def test_what_is_under_way_when_it_is_forgotten_is_not_kept(reader: SegmentReader, store: GatedStore) -> None:
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
