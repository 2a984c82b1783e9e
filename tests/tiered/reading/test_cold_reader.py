"""Cold reads give the answers of one endless list from which what is older than the cut was removed.

Covers `tiered/reading/cold_pull.py`, `tiered/reading/span_taker.py`,
`tiered/segments/frame.py`, `tiered/segments/known_frames.py`, `tiered/segments/segment_entry.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

import pytest

from tests.tiered.cold_data import START_MS, Log, write_segment
from tests.tiered.ledger_data import KEYS, open_writer
from thermocline.remoting.errors import (
    CorruptDataError,
    ObjectStoreUnavailableError,
    QueryNotFoundError,
)
from thermocline.remoting.records.message_record import MessageRecord, decode_record, iterate_records
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, QueueHole, SegmentOut, TopicChange
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.objects.errors import QueueGapError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.reading import cold_pull, span_taker
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.reading.cold_reader import Boundary, ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments import fetch_plan, queue_columns, segment_reader
from thermocline.tiered.segments.segment_format import FrameInfo
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import Fault, FaultInjectingObjectStore, MeteringObjectStore, StoreCall, Verb

SMALL = SegmentOptions(frame_bytes=3_000, coarse_frames=3)


@dataclass
class Tier:
    """A log, and how far each queue is in the cold tier."""

    log: Log
    store: ObjectStore
    writer: LedgerWriter
    ends: dict[int, int]

    async def seal(self, ends: dict[int, int], *, options: SegmentOptions = SMALL) -> None:
        """Commit one segment that takes every queue from its cold end to the given one."""
        segment_id = self.writer.next_segment_id()
        with write_segment(self.log, starts=self.ends, ends=ends, segment_id=segment_id, options=options) as finished:
            entry = await upload_segment(self.writer.store, KEYS, finished, created_ms=self.log.now_ms)
        await self.writer.commit(LedgerChanges(segments_in=(entry,)))
        self.ends |= ends

    def reader(self, store: ObjectStore | None = None, cache: FrameCache | None = None) -> ColdReader:
        return ColdReader(store or self.store, catalog=self.catalog, cache=cache or FrameCache())

    def catalog(self) -> Catalog:
        return self.writer.catalog

    def records(self, queue_id: int) -> list[MessageRecord]:
        queue = self.log.queues.get(queue_id)
        return [decode_record(record) for record in queue.records[: self.ends.get(queue_id, 0)]] if queue else []


async def make_tier(
    seed: int, *, count: int = 400, segments: int = 4, queue_count: int = 3, options: SegmentOptions = SMALL
) -> Tier:
    """A tier of some segments, cut at random places of the log."""
    random = Random(seed)
    store = MemoryObjectStore()
    tier = Tier(
        Log("flights", random, queue_count=queue_count, other_bytes_max=300), store, await open_writer(store), {}
    )
    for _ in range(segments):
        tier.log.append_flights(random.randint(1, 2 * count // segments))
        tier.log.now_ms += random.choice([0, 1, 50])
        await tier.seal(tier.log.ends(), options=options)
    return tier


async def replay(
    reader: ColdReader,
    queue_id: int,
    *,
    count_max: int = 32,
    bytes_max: int = 65_536,
    cut_ms: int = 0,
    group: str = "g",
) -> list[bytes]:
    """Every record from the least visible offset to the end, as a consumer would get them."""
    found: list[bytes] = []
    offset = await reader.min_offset("flights", queue_id, cut_ms=cut_ms) or 0
    while True:
        request = ColdPull(
            topic="flights",
            queue_id=queue_id,
            offset=offset,
            count_max=count_max,
            bytes_max=bytes_max,
            cut_ms=cut_ms,
            group=group,
        )
        result = await reader.pull(request)
        if result.status in (ColdPullStatus.ABOVE_END, ColdPullStatus.NO_QUEUE):
            return found
        records = [bytes(record) for record in split(result.buffers)]
        assert len(records) == result.message_count <= count_max
        assert sum(map(len, records)) == result.size_bytes
        assert result.size_bytes <= bytes_max or len(records) == 1
        assert (result.status is ColdPullStatus.FOUND) == bool(records)
        assert result.next_offset > offset
        found.extend(records)
        offset = result.next_offset


def split(buffers: tuple[memoryview, ...]) -> list[bytes]:
    records = []
    for buffer in buffers:
        position = 0
        for record in iterate_records(buffer):
            records.append(bytes(buffer[position : position + record.size_bytes]))
            position += record.size_bytes
    return records


@pytest.mark.parametrize("seed", range(4))
async def test_replay_gives_every_record_once(seed: int) -> None:
    tier = await make_tier(seed)
    random = Random(seed)
    reader = tier.reader()
    for queue_id, queue in tier.log.queues.items():
        for _ in range(3):
            count_max, bytes_max = random.choice([1, 7, 32, 1000]), random.choice([10, 500, 5_000, 10**6])
            assert await replay(reader, queue_id, count_max=count_max, bytes_max=bytes_max) == queue.records
    await reader.close()


@pytest.mark.parametrize("seed", range(4))
async def test_offsets_and_times_under_a_cut(seed: int) -> None:
    tier = await make_tier(seed)
    reader = tier.reader(cache=FrameCache(bytes_max=20_000))
    random = Random(seed)
    times = [START_MS - 5, tier.log.now_ms + 5, *(random.randint(START_MS, tier.log.now_ms) for _ in range(12))]
    for cut_ms in times:
        for queue_id in range(4):
            visible = [record for record in tier.records(queue_id) if record.store_timestamp_ms >= cut_ms]
            minimum = await reader.min_offset("flights", queue_id, cut_ms=cut_ms)
            assert minimum == (visible[0].queue_offset if visible else None)
            earliest = await reader.earliest_time("flights", queue_id, cut_ms=cut_ms)
            assert earliest == (visible[0].store_timestamp_ms if visible else None)
            for timestamp_ms in random.sample(times, 5):
                after = [record.queue_offset for record in visible if record.store_timestamp_ms >= timestamp_ms]
                before = [record.queue_offset for record in visible if record.store_timestamp_ms <= timestamp_ms]
                for boundary, expected in (
                    (Boundary.LOWER, after[0] if after else None),
                    (Boundary.UPPER, before[-1] if before else None),
                ):
                    found = await reader.offset_by_time(
                        "flights", queue_id, timestamp_ms, boundary=boundary, cut_ms=cut_ms
                    )
                    assert found == expected
            assert await replay(reader, queue_id, count_max=50, cut_ms=cut_ms) == [
                tier.log.queues[queue_id].records[record.queue_offset] for record in visible
            ]
    await reader.close()


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("seed", range(3))
async def test_filtered_pulls(seed: int, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_large`: a queue has many column blocks, of which a pull scans some, and fetches more than it scans."""
    if is_large:
        monkeypatch.setattr(queue_columns, "BLOCK_RECORDS", 7)
        monkeypatch.setattr(span_taker, "SCAN_RECORDS", 5)
        monkeypatch.setattr(span_taker, "SCAN_RECORDS_MAX", 23)
        monkeypatch.setattr(segment_reader, "WHOLE_COLUMNS_BYTES_MAX", 0)
        monkeypatch.setattr(segment_reader, "COLUMN_BYTES_KEPT", 300)
    tier = await make_tier(seed)
    reader = tier.reader()
    random = Random(seed)
    for queue_id, queue in tier.log.queues.items():
        for codes in (frozenset({queue.tags_codes[0]}), frozenset(queue.tags_codes), frozenset({123})):
            cut_ms = random.choice([0, (START_MS + tier.log.now_ms) // 2])
            count_max = random.choice([1, 5, 100])
            offset = await reader.min_offset("flights", queue_id, cut_ms=cut_ms) or 0
            found: list[int] = []
            while True:
                result = await reader.pull(
                    ColdPull(
                        topic="flights",
                        queue_id=queue_id,
                        offset=offset,
                        count_max=count_max,
                        bytes_max=8_000,
                        cut_ms=cut_ms,
                        tags_codes=codes,
                    )
                )
                if result.status is ColdPullStatus.ABOVE_END:
                    break
                assert result.next_offset > offset
                assert result.message_count <= count_max
                found.extend(record.queue_offset for buffer in result.buffers for record in iterate_records(buffer))
                offset = result.next_offset
            assert found == [
                record.queue_offset
                for record in tier.records(queue_id)
                if queue.tags_codes[record.queue_offset] in codes and record.store_timestamp_ms >= cut_ms
            ]


async def test_a_replay_by_tag_fetches_each_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pulls it takes: neither what tags there are nor the records are fetched anew for each."""
    monkeypatch.setattr(queue_columns, "BLOCK_RECORDS", 128)
    monkeypatch.setattr(span_taker, "SCAN_RECORDS", 128)
    monkeypatch.setattr(span_taker, "SCAN_RECORDS_MAX", 1_024)
    tier = await make_tier(3, count=8_000, segments=1, queue_count=1, options=SegmentOptions())
    metered, code = MeteringObjectStore(tier.store), tier.log.queues[0].tags_codes[0]
    reader, offset, pulls = tier.reader(metered), 0, 0
    while offset < tier.ends[0]:
        result = await reader.pull(
            ColdPull(
                topic="flights",
                queue_id=0,
                offset=offset,
                count_max=8,
                bytes_max=65_536,
                cut_ms=0,
                tags_codes=frozenset({code}),
            )
        )
        assert result.next_offset > offset
        offset, pulls = result.next_offset, pulls + 1
    (segment,) = tier.catalog().topics["flights"].segments
    scans = -(-tier.ends[0] // (1_024 - 2 * 128))
    assert pulls > 2 * scans
    assert metered.counters.request_count <= 1 + 1 + scans + segment.runs[0].frame_end
    assert metered.counters.received_bytes < 1.1 * segment.stored_bytes
    await reader.close()


def is_wanted(properties_text: bytes) -> bool:
    return sum(properties_text) % 3 == 0


@pytest.mark.parametrize("seed", range(3))
async def test_pulls_with_a_condition_on_properties(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They find what a plain loop does, whatever the limits; the bounds of one pull only make more pulls of it."""
    tier = await make_tier(seed)
    random = Random(seed)
    monkeypatch.setattr(span_taker, "MATCH_RECORDS_MAX", random.choice([7, 100]))
    monkeypatch.setattr(span_taker, "MATCH_FRAMES_MAX", random.choice([1, 3]))
    monkeypatch.setattr(cold_pull, "MATCH_RECORDS_AT_ONCE", random.choice([1, 10]))
    reader = tier.reader()
    for queue_id in tier.log.queues:
        cut_ms = random.choice([0, (START_MS + tier.log.now_ms) // 2])
        count_max, bytes_max = random.choice([1, 5, 100]), random.choice([10, 2_000, 10**6])
        offset = await reader.min_offset("flights", queue_id, cut_ms=cut_ms) or 0
        found: list[int] = []
        while True:
            request = ColdPull(
                topic="flights",
                queue_id=queue_id,
                offset=offset,
                count_max=count_max,
                bytes_max=bytes_max,
                cut_ms=cut_ms,
                matches=is_wanted,
            )
            result = await reader.pull(request)
            if result.status is ColdPullStatus.ABOVE_END:
                break
            assert offset < result.next_offset <= offset + span_taker.MATCH_RECORDS_MAX
            assert (result.status is ColdPullStatus.FOUND) == bool(result.message_count)
            records = [record for buffer in result.buffers for record in iterate_records(buffer)]
            assert len(records) == result.message_count <= count_max
            assert result.size_bytes == sum(record.size_bytes for record in records)
            assert result.size_bytes <= bytes_max or len(records) == 1
            found.extend(record.queue_offset for record in records)
            offset = result.next_offset
        assert found == [
            record.queue_offset
            for record in tier.records(queue_id)
            if is_wanted(record.properties_text) and record.store_timestamp_ms >= cut_ms
        ]
    await reader.close()


async def test_a_pull_that_finds_nothing_reads_a_bounded_number_of_frames() -> None:
    """And leaves the loop to others meanwhile."""
    tier = await make_tier(1, count=4_000, segments=1, queue_count=1)
    reader = tier.reader()
    looked_into = 0
    turns = 0

    def never(properties_text: bytes) -> bool:
        nonlocal looked_into
        looked_into += 1
        return False

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    end_offset = reader.end_offset("flights", 0)
    assert end_offset is not None
    request = ColdPull(topic="flights", queue_id=0, offset=0, count_max=32, bytes_max=65_536, cut_ms=0, matches=never)
    result = await reader.pull(request)
    assert result.status is ColdPullStatus.NO_MATCH
    assert 0 < result.next_offset == looked_into < end_offset
    large = await make_tier(1, count=4_000, segments=1, queue_count=1, options=SegmentOptions())
    looked_into = turns = 0
    result = await large.reader().pull(request)
    assert result.next_offset == looked_into > 2 * cold_pull.MATCH_RECORDS_AT_ONCE
    assert turns >= looked_into // cold_pull.MATCH_RECORDS_AT_ONCE
    counting.cancel()
    await reader.close()


@pytest.mark.parametrize("seed", range(3))
async def test_lookups_by_key_and_place(seed: int) -> None:
    tier = await make_tier(seed, count=300)
    reader = tier.reader()
    random = Random(seed)
    everything = sorted(
        (record for queue_id in tier.log.queues for record in tier.records(queue_id)),
        key=lambda record: record.physical_offset,
        reverse=True,
    )
    keys = ["nothing"]
    for record in random.sample(everything, 20):
        keys += [record.keys or "", record.unique_key or ""]
    for key in keys:
        begin_ms, end_ms = sorted(random.randint(START_MS - 10, tier.log.now_ms + 10) for _ in range(2))
        for begin, end, count_max, cut_ms in (
            (0, 2**62, 1000, 0),
            (begin_ms, end_ms, 64, 0),
            (0, 2**62, 2, 0),
            (0, 2**62, 64, begin_ms),
        ):
            expected = [
                record.physical_offset
                for record in everything
                if key in (record.keys, record.unique_key) and max(begin, cut_ms) <= record.store_timestamp_ms <= end
            ]
            found = await reader.query_key(
                "flights", key, begin_ms=begin, end_ms=end, count_max=count_max, cut_ms=cut_ms
            )
            assert [decode_record(record).physical_offset for record in found] == expected[:count_max]
    middle = (START_MS + tier.log.now_ms) // 2
    for record in random.sample(everything, 30):
        if record.store_timestamp_ms >= middle:
            view = await reader.view(record.physical_offset, cut_ms=lambda _topic: middle)
            assert decode_record(view) == record
        else:
            with pytest.raises(QueryNotFoundError):
                await reader.view(record.physical_offset, cut_ms=lambda _topic: middle)
        with pytest.raises(QueryNotFoundError):
            await reader.view(record.physical_offset + 1, cut_ms=lambda _topic: 0)


async def test_requests_of_a_key_lookup() -> None:
    tier = await make_tier(1, segments=1, options=SegmentOptions())
    metered = MeteringObjectStore(tier.store)
    reader = tier.reader(metered)
    key = tier.records(0)[5].unique_key
    assert key is not None
    bounds = {"begin_ms": 0, "end_ms": 2**62, "count_max": 10, "cut_ms": 0}
    assert await reader.query_key("flights", "not there", **bounds) == []
    assert metered.counters.request_count == 1
    before = metered.counters.copy()
    assert len(await reader.query_key("flights", key, **bounds)) == 1
    # The part, whose bloom pages alone are kept; then the record's frame, whose position the catalog holds.
    assert metered.counters.since(before).request_count == 1 + 1
    before = metered.counters.copy()
    assert await reader.query_key("flights", "not there", **bounds) == []
    assert metered.counters.since(before).request_count == 0


@pytest.fixture
def single_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are as large as they would be with a real frame size: none needs others with it."""
    monkeypatch.setattr(fetch_plan, "RANGE_BYTES_MIN", 1)


@pytest.mark.usefixtures("single_frames")
async def test_sequential_reading_fetches_each_byte_once_in_large_requests() -> None:
    tier = await make_tier(3, count=3_000, segments=3, queue_count=2, options=SegmentOptions(frame_bytes=8_000))
    metered = MeteringObjectStore(tier.store)
    cache = FrameCache()
    reader = tier.reader(metered, cache)
    assert await replay(reader, 0) == tier.log.queues[0].records
    frames = await frames_of_queue(tier, 0)
    assert cache.fetched_bytes == sum(frame.stored_bytes for frame in frames)
    assert len(frames) > 60
    assert cache.fetch_count < len(frames) / 3
    assert metered.counters.requests[Verb.GET_RANGE] == cache.fetch_count + 3  # a footer for each segment
    await reader.close()


async def frames_of_queue(tier: Tier, queue_id: int) -> list[FrameInfo]:
    """Every frame of a queue."""
    frames: list[FrameInfo] = []
    for segment in tier.catalog().topics["flights"].segments:
        run = segment.run(queue_id)
        assert run is not None
        footer = await SegmentReader(tier.store, segment).log_footer()
        frames.extend(footer.frames_of(run, start_offset=run.start_offset, end_offset=run.end_offset))
    return frames


@pytest.mark.usefixtures("single_frames")
async def test_two_groups_share_frames() -> None:
    tier = await make_tier(3)
    metered = MeteringObjectStore(tier.store)
    cache = FrameCache()
    reader = tier.reader(metered, cache)
    results = await asyncio.gather(*(replay(reader, 1, group=f"group-{number}") for number in range(5)))
    assert all(result == tier.log.queues[1].records for result in results)
    assert cache.fetched_bytes == sum(frame.stored_bytes for frame in await frames_of_queue(tier, 1))
    await reader.close()


async def test_offsets_outside_of_the_held_range() -> None:
    tier = await make_tier(5)
    reader = tier.reader()

    async def status(offset: int, *, topic: str = "flights", queue_id: int = 0, cut_ms: int = 0) -> ColdPullStatus:
        request = ColdPull(topic=topic, queue_id=queue_id, offset=offset, count_max=1, bytes_max=1000, cut_ms=cut_ms)
        return (await reader.pull(request)).status

    end = tier.ends[0]
    assert reader.end_offset("flights", 0) == end
    assert reader.end_offset("nothing", 0) is None
    assert await status(end - 1) is ColdPullStatus.FOUND
    assert await status(end) is ColdPullStatus.ABOVE_END
    assert await status(-1) is ColdPullStatus.BELOW_MINIMUM
    assert await status(0, topic="nothing") is ColdPullStatus.NO_QUEUE
    assert await status(0, queue_id=99) is ColdPullStatus.NO_QUEUE
    assert await status(0, cut_ms=tier.log.now_ms + 1) is ColdPullStatus.NO_QUEUE


async def test_gaps() -> None:
    """Offsets that no segment holds are an error, unless they are declared lost: then a pull steps over them."""
    tier = await make_tier(5, segments=1)
    tier.log.append_flights(60)
    cold_end, gap_end = tier.ends[0], tier.ends[0] + 5
    tier.ends[0] = gap_end
    await tier.seal(tier.log.ends())
    reader = tier.reader()
    request = ColdPull(topic="flights", queue_id=0, offset=cold_end + 1, count_max=1, bytes_max=1000, cut_ms=0)
    with pytest.raises(QueueGapError):
        await reader.pull(request)
    hole = QueueHole(0, cold_end, gap_end)
    await tier.writer.commit(LedgerChanges(topics=(TopicChange(topic="flights", incarnation=1, holes=(hole,)),)))
    result = await reader.pull(request)
    assert (result.status, result.next_offset) == (ColdPullStatus.NO_MATCH, gap_end)


async def test_a_segment_that_is_dropped_while_it_is_read() -> None:
    tier = await make_tier(6)
    reader = tier.reader()
    first = tier.catalog().topics["flights"].segments[0]
    request = ColdPull(topic="flights", queue_id=0, offset=0, count_max=1, bytes_max=1000, cut_ms=0)
    await tier.store.delete(first.log.key)
    with pytest.raises(CorruptDataError):
        await reader.pull(request)

    class Dropping(FaultInjectingObjectStore):
        async def get_range(self, key: str, *, start: int, end: int) -> bytes:
            if key == first.log.key and first in tier.catalog().topics["flights"].segments:
                out = SegmentOut("flights", first.segment_id)
                await tier.writer.commit(LedgerChanges(segments_out=(out,)))
            return await super().get_range(key, start=start, end=end)

    reader = tier.reader(Dropping(tier.store, lambda _number, _call: Fault.NONE))
    assert (await reader.pull(request)).status is ColdPullStatus.BELOW_MINIMUM


async def test_an_unavailable_store_is_an_error_and_nothing_is_skipped() -> None:
    tier = await make_tier(7)
    failing = {"on": True}

    def plan(_number: int, _call: StoreCall) -> Fault:
        return Fault.UNREACHED if failing["on"] else Fault.NONE

    cache = FrameCache()
    reader = tier.reader(FaultInjectingObjectStore(tier.store, plan), cache)
    request = ColdPull(topic="flights", queue_id=0, offset=0, count_max=10, bytes_max=10_000, cut_ms=0)
    with pytest.raises(ObjectStoreUnavailableError):
        await reader.pull(request)
    failing["on"] = False
    assert (await reader.pull(request)).message_count > 0
    failing["on"] = True
    with pytest.raises(ObjectStoreUnavailableError):
        await reader.query_key("flights", "N14228", begin_ms=0, end_ms=2**62, count_max=1, cut_ms=0)
    failing["on"] = False
    assert await replay(reader, 0) == tier.log.queues[0].records
    await reader.close()
    await cache.close()


async def test_a_cache_of_one_frame_makes_progress_for_every_reader() -> None:
    """Two readers that take turns throw each other's frame out; each still gets every record, once, in order."""
    tier = await make_tier(21, queue_count=2)
    metered = MeteringObjectStore(tier.store)
    cache = FrameCache(bytes_max=1)
    reader = tier.reader(metered, cache)
    alone = await replay(reader, 0, count_max=5)
    assert alone == [bytes(record) for record in tier.log.queues[0].records[: tier.ends[0]]]
    segments = tier.catalog().topics["flights"].segments
    frame_count = sum(
        run.frame_end - run.frame_start for segment in segments for run in segment.runs if run.queue_id == 0
    )
    # Its footer and each of its frames once: the newest frame stays for readers in order.
    assert metered.counters.requests[Verb.GET_RANGE] <= frame_count + len(segments)
    both = await asyncio.gather(*(replay(reader, queue_id, count_max=5, group=str(queue_id)) for queue_id in (0, 1)))
    assert both == [[bytes(record) for record in tier.log.queues[queue_id].records] for queue_id in (0, 1)]
    await reader.close()
    await cache.close()
