"""A segment in a store is read by few ranges, also when its parts are ranges of one object."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.tiered.cold_data import Log, unique_keys, write_segment
from tests.tiered.ledger_data import KEYS
from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError, OffsetOutOfRangeError
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.objects import SegmentOffset
from thermocline.tiered.objects.errors import SegmentFormatError
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.segments import queue_columns, segment_reader
from thermocline.tiered.segments.key_index import key_hash
from thermocline.tiered.segments.segment_entry import PartLocator, SegmentEntry
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_reader import SegmentReader, read_log_footer
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

SMALL = SegmentOptions(frame_bytes=4_000)


def make_log(count: int = 600) -> Log:
    log = Log("flights", Random(1), queue_count=3, other_bytes_max=100)
    log.append_flights(count)
    return log


async def upload(log: Log, store: MeteringObjectStore) -> SegmentEntry:
    with write_segment(log, options=SMALL) as finished:
        return await upload_segment(store, KEYS, finished, created_ms=0)


def packed(entry: SegmentEntry, parts: dict[str, PartLocator]) -> SegmentEntry:
    return msgspec.structs.replace(entry, **parts)


@pytest.mark.parametrize("in_a_pack", [False, True])
async def test_reads_by_range(in_a_pack: bool) -> None:
    log, memory = make_log(), MemoryObjectStore()
    store = MeteringObjectStore(memory)
    entry = await upload(log, store)
    if in_a_pack:
        pack, parts = bytearray(b"something of another topic"), {}
        for name in ("idx", "log", "cq"):
            part: PartLocator = getattr(entry, name)
            start = len(pack)
            pack += await memory.get(part.key)
            footer_start = start + part.footer_start
            parts[name] = PartLocator("p.pack", start, len(pack), footer_start, part.crc32)
        await memory.put("p.pack", pack)
        entry = packed(entry, parts)
        for key in KEYS.segment("flights", SegmentId(1, 1)):
            await memory.delete(key)
    reader = SegmentReader(store, entry)
    random = Random(2)
    for queue_id, queue in log.queues.items():
        end = len(queue.records)
        for start, stop in ((0, end), (end - 1, end), sorted(random.sample(range(end), 2))):
            found = [run async for run in reader.records(queue_id, start_offset=start, end_offset=stop)]
            assert b"".join(run.data for run in found) == b"".join(queue.records[start:stop])
            assert (found[0].start_offset, found[-1].end_offset) == (start, stop)
            columns = await reader.columns(queue_id, start_offset=start, end_offset=stop)
            assert columns.sizes.tolist() == [len(record) for record in queue.records[start:stop]]
            assert columns.tags_codes.tolist() == queue.tags_codes[start:stop]
        for record in random.sample(queue.records, 5):
            message = decode_record(record)
            place = await reader.find_physical_offset(message.physical_offset)
            assert place == (queue_id, message.queue_offset)
            assert message.unique_key is not None
            ((run, offset),) = await reader.find_key(message.unique_key.encode())
            assert (run.queue_id, offset) == (queue_id, message.queue_offset)
        assert await reader.find_physical_offset(decode_record(queue.records[0]).physical_offset + 1) is None


async def test_every_key_is_found() -> None:
    log, store = make_log(200), MeteringObjectStore(MemoryObjectStore())
    reader = SegmentReader(store, await upload(log, store))
    for key in unique_keys(log):
        assert await reader.find_key(key.encode())
    assert await reader.find_key(b"another") == []


async def test_requests() -> None:
    log, store = make_log(), MeteringObjectStore(MemoryObjectStore())
    reader = SegmentReader(store, await upload(log, store))
    before = store.counters.copy()
    end = len(log.queues[0].records)
    assert [run async for run in reader.records(0, start_offset=0, end_offset=end)]
    assert store.counters.since(before).request_count == 2  # footer, and one range for all the frames
    await reader.columns(0, start_offset=0, end_offset=end)
    await reader.columns(0, start_offset=5, end_offset=6)
    assert store.counters.since(before).request_count == 3  # all of the columns, being few
    assert reader.memory_bytes > 0


class DamagingStore(WrappingObjectStore):
    """Flips a bit, at `position` or in the middle, in the next `damaged_answers` ranges."""

    damaged_answers = 0
    position: int | None = None

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        data = bytearray(await super().get_range(key, start=start, end=end))
        if self.damaged_answers:
            self.damaged_answers -= 1
            data[len(data) // 2 if self.position is None else self.position] ^= 1
        return bytes(data)


async def test_a_scan_of_columns_fetches_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large columns each block is fetched once, with those behind it up to where the scan may go on."""
    monkeypatch.setattr(queue_columns, "BLOCK_RECORDS", 16)
    monkeypatch.setattr(segment_reader, "WHOLE_COLUMNS_BYTES_MAX", 0)
    log, store = make_log(), MeteringObjectStore(MemoryObjectStore())
    reader, codes = SegmentReader(store, await upload(log, store)), log.queues[0].tags_codes
    end = len(codes)
    await reader.columns_footer()
    before = store.counters.copy()
    for start in range(0, end - 8, 4):
        found = await reader.columns(0, start_offset=start, end_offset=start + 8, ahead_offset=min(end, start + 100))
        assert found.tags_codes.tolist() == codes[start : start + 8]
        assert reader.has_columns(0, start_offset=start, end_offset=start + 8)
        assert not reader.has_columns(0, start_offset=start, end_offset=end) or start > end - 120
    assert store.counters.since(before).request_count <= -(-end // (100 - 2 * 16))


async def test_a_damaged_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_columns, "BLOCK_RECORDS", 16)
    monkeypatch.setattr(segment_reader, "WHOLE_COLUMNS_BYTES_MAX", 0)
    log, damaging = make_log(), DamagingStore(MemoryObjectStore())
    reader = SegmentReader(damaging, await upload(log, MeteringObjectStore(damaging)))
    codes = log.queues[0].tags_codes
    await reader.columns_footer()

    async def scan() -> list[int]:
        found: list[int] = []
        while len(found) < 100:
            at = len(found)
            columns = await reader.columns(0, start_offset=at, end_offset=at + 10, ahead_offset=100)
            found += columns.tags_codes.tolist()
        return found

    damaging.damaged_answers = 1
    with pytest.raises(CorruptDataError):
        await scan()
    assert await scan() == codes[:100]


async def test_keys_are_not_hidden_by_damaged_bloom_pages() -> None:
    log, damaging = make_log(), DamagingStore(MemoryObjectStore())
    entry = await upload(log, MeteringObjectStore(damaging))
    bloom_bytes = entry.bloom.size_bytes
    assert 0 < bloom_bytes < entry.idx.size_bytes
    keys = [key.encode() for key in unique_keys(log)]
    for key in keys[:50]:
        reader = SegmentReader(damaging, entry)
        damaging.position, damaging.damaged_answers = entry.bloom.page_position(key_hash(key)) + 1, 1
        with pytest.raises(CorruptDataError):
            await reader.find_key(key, reads_whole=True)
        assert await reader.find_key(key, reads_whole=True)


async def test_small_fetches_and_early_leaving() -> None:
    log, store = make_log(), MeteringObjectStore(MemoryObjectStore())
    reader = SegmentReader(store, await upload(log, store))
    end = len(log.queues[0].records)
    found = [run async for run in reader.records(0, start_offset=0, end_offset=end, fetch_bytes_max=1)]
    assert b"".join(run.data for run in found) == b"".join(log.queues[0].records)
    records = reader.records(0, start_offset=0, end_offset=end, fetch_bytes_max=1)
    async for run in records:
        assert run.start_offset == 0
        break
    await records.aclose()  # type: ignore[attr-defined]


async def test_ranges_outside() -> None:
    log, store = make_log(50), MeteringObjectStore(MemoryObjectStore())
    reader = SegmentReader(store, await upload(log, store))
    for queue_id, start, end in ((0, 0, 1_000), (9, 0, 1), (0, -1, 1)):
        with pytest.raises(OffsetOutOfRangeError):
            await reader.columns(queue_id, start_offset=start, end_offset=end)


async def test_a_footer_without_a_catalog() -> None:
    log, store = make_log(), MeteringObjectStore(MemoryObjectStore())
    entry = await upload(log, store)
    assert (await read_log_footer(store, entry.log.key)).runs == entry.runs
    with pytest.raises(SegmentFormatError):
        await read_log_footer(store, entry.cq.key)
    with pytest.raises(ObjectNotFoundError):
        await read_log_footer(store, "nothing")


async def test_another_segment_in_its_place() -> None:
    store = MeteringObjectStore(MemoryObjectStore())
    entry = await upload(make_log(), store)
    other = msgspec.structs.replace(entry, segment_id=str(SegmentId(1, 2)))
    with pytest.raises(SegmentFormatError):
        await SegmentReader(store, other).log_footer()


@pytest.mark.parametrize(("more_bytes", "is_small"), [(0, True), (1, False)])
async def test_a_piece_of_a_pack_is_read_whole_up_to_a_limit(more_bytes: int, is_small: bool) -> None:
    store = MemoryObjectStore()
    entry = await upload(make_log(10), MeteringObjectStore(store))
    end = SegmentOffset(100 + segment_reader.WHOLE_PART_BYTES_MAX + more_bytes)
    log = PartLocator("p.pack", SegmentOffset(100), end, end, 0)
    assert SegmentReader(store, packed(entry, {"log": log})).is_small is is_small
