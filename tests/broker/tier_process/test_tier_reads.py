"""What the hot process asks of the cold tier by key: answers of a bounded size, a few at a time."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from tests.tiered.cold_data import Log, write_segment
from tests.tiered.ledger_data import KEYS, open_writer
from thermocline.broker.cold import ColdKeyQuery
from thermocline.broker.helpers import ColdQueryRequest, ColdRecordReply, HelperRequestCode
from thermocline.broker.tier_process import tier_reads
from thermocline.broker.tier_process.tier_reads import TierReads
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnavailableError
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, TopicDelete
from thermocline.tiered.objects import SegmentOffset
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

TOPIC = "orders"
BODY_BYTES = 10_000


class GatedStore(WrappingObjectStore):
    """Ranges wait for the gate; `asked` of them have begun."""

    def __init__(self) -> None:
        super().__init__(MemoryObjectStore())
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        self.asked += 1
        await self.gate.wait()
        return await super().get_range(key, start=start, end=end)


async def reads_of(
    store: GatedStore, *, segments: int, records: int, deletes: bool = False
) -> tuple[TierReads, list[bytes]]:
    """Segments of large records with one key, and the records, the newest first. `deletes`: the topic at last."""
    writer, log = await open_writer(store), Log(TOPIC, Random(1))
    sent: list[bytes] = []
    starts: dict[int, int] = {}
    for _ in range(segments):
        for _ in range(records):
            sent.append(log.append(0, body=log.random.randbytes(BODY_BYTES), keys="k"))
            log.now_ms += 1_000
        options = SegmentOptions(frame_bytes=3 * BODY_BYTES)
        with write_segment(log, starts=starts, segment_id=writer.next_segment_id(), options=options) as finished:
            entry = await upload_segment(store, KEYS, finished, created_ms=log.now_ms)
        await writer.commit(LedgerChanges(segments_in=(entry,)))
        starts = log.ends()
    if deletes:
        await writer.commit(LedgerChanges(topics_deleted=(TopicDelete(TOPIC, 1),)))
    reader = ColdReader(store, catalog=lambda: writer.catalog, cache=FrameCache())
    return TierReads(reader, catalog=lambda: writer.catalog, cut_ms=lambda _: 0), sent[::-1]


async def query(reads: TierReads, *, count_max: int = 64, incarnation: int = 1) -> list[bytes]:
    wanted = ColdKeyQuery(
        topic=TOPIC, key="k", index_type="K", begin_ms=0, end_ms=1 << 60, count_max=count_max, expired_before_ms=0
    )
    request = ColdQueryRequest(version=0, incarnation=incarnation, query=wanted)
    command = RemotingCommand.request(HelperRequestCode.COLD_QUERY, body=msgspec.msgpack.encode(request))
    answer = await reads.handle(command)
    return [each.record for each in msgspec.msgpack.decode(answer.body, type=list[ColdRecordReply])]


@pytest.mark.parametrize(("segments", "records"), [(1, 20), (20, 1), (3, 7)])
async def test_an_answer_by_key_has_a_bounded_size(
    monkeypatch: pytest.MonkeyPatch, segments: int, records: int
) -> None:
    """Else one query of large messages would be more than the socket to the hot process takes, and end the process."""
    reads, sent = await reads_of(GatedStore(), segments=segments, records=records)
    assert await query(reads) == sent
    for bytes_max, count in ((1, 1), (4 * len(sent[0]), 4), (5 * len(sent[0]) - 1, 4)):
        monkeypatch.setattr(tier_reads, "QUERY_BYTES_MAX", bytes_max)
        assert await query(reads) == sent[:count]
        assert await query(reads, count_max=2) == sent[: min(count, 2)]


async def test_of_a_deleted_topic_nothing_is_there() -> None:
    """The client gets an error: an answer to try again would never become another."""
    reads, _ = await reads_of(GatedStore(), segments=1, records=3, deletes=True)
    assert await query(reads) == []
    with pytest.raises(UnavailableError):
        await query(reads, incarnation=0)
    assert await query(reads, incarnation=2) == []


async def test_a_lookup_by_key_does_not_wait_for_its_turn_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hot process has given up by then and asks again: a store that hangs would leave a queue of lookups."""
    store = GatedStore()
    reads, sent = await reads_of(store, segments=1, records=3)
    store.gate.clear()
    tasks = [asyncio.create_task(query(reads)) for _ in range(tier_reads.QUERIES_AT_ONCE)]
    await asyncio.sleep(0)
    monkeypatch.setattr(tier_reads, "QUERY_WAIT_S", 0)
    for _ in range(2 * tier_reads.QUERIES_MAX):
        with pytest.raises(UnavailableError, match="others come first"):
            await query(reads)
    monkeypatch.undo()
    tasks.append(asyncio.create_task(query(reads)))
    store.gate.set()
    assert await asyncio.gather(*tasks) == [sent] * len(tasks)


async def test_lookups_by_key_are_a_few_at_a_time() -> None:
    store = GatedStore()
    reads, sent = await reads_of(store, segments=1, records=3)
    store.gate.clear()
    tasks = [asyncio.create_task(query(reads)) for _ in range(tier_reads.QUERIES_MAX)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert store.asked == tier_reads.QUERIES_AT_ONCE
    with pytest.raises(UnavailableError):
        await query(reads)
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    store.gate.set()
    assert await asyncio.gather(*tasks[1:]) == [sent] * (len(tasks) - 1)
    assert await query(reads) == sent
