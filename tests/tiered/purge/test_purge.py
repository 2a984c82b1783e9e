"""Purge of a topic's own segments: no object holds an expired record afterwards, all other records are unchanged.

Covers `tiered/purge/purger.py`, `tiered/purge/segment_rewriter.py`.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from benchmarks.synthetic_cold_tier import KEYS, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import POSITION_BODY, SyntheticHotTier
from tests.fixtures_s3 import S3Bucket
from tests.tiered.bucket_bytes import found_in, objects_of
from tests.tiered.ledger_races import SlowStore
from tests.tiered.packs.test_packs import TOPICS, Rig, config
from thermocline.broker.helpers.helper_protocol import TtlProofRequest
from thermocline.broker.tier_process.tier_ttl import prove
from thermocline.remoting.errors import BrokerBusyError, CorruptDataError, ObjectStoreUnavailableError
from thermocline.remoting.records.message_record import POSITION_STORE_TIMESTAMP
from thermocline.tiered.catalog import DamagedPart, LedgerChanges, LostRange, Quarantine
from thermocline.tiered.ledger.pins import Pin, create_pin, delete_pin
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.purge.purger import WAITING_MAX
from thermocline.tiered.reading.cold_reader import Boundary
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.stores.object_store_url import open_object_store
from thermocline.tiered.wrappers import StoreCall, Verb
from thermocline.tiered.wrappers.fault_injection import Fault, FaultInjectingObjectStore
from thermocline.tiered.wrappers.wrapping import Result, WrappingObjectStore

TOPIC = "alpha"
QUEUES = 3
MIB = 1 << 20


def store_ms(record: bytes) -> int:
    return int.from_bytes(record[POSITION_STORE_TIMESTAMP : POSITION_STORE_TIMESTAMP + 8], "big")


def traces(record: bytes) -> tuple[bytes, bytes]:
    """A message's body and its id, which stand in no other."""
    size = int.from_bytes(record[POSITION_BODY - 4 : POSITION_BODY], "big")
    start = record.index(b"UNIQ_KEY\x01") + 9
    return record[POSITION_BODY : POSITION_BODY + size], record[start : start + 32]


def traces_of(records: list[bytes]) -> set[bytes]:
    return {trace for record in records for trace in traces(record)}


class Purging(Rig):
    """A tier with one topic's own segments, whose messages lie in three queues."""

    def send(self, count: int, *, topics: tuple[str, ...] = (TOPIC,), queues: int = QUEUES) -> None:
        for _ in range(count):
            topic, queue_id = self.random.choice(topics), self.random.randrange(queues)
            record = self.tier.hot.append(topic, queue_id, body_bytes=self.random.randint(30, 600))
            self.sent.setdefault((topic, queue_id), []).append(record)
            self.tier.hot.now_ms += 10

    async def seal_own(self, topic: str = TOPIC) -> None:
        """All of a topic into segments of its own, of three objects each."""
        self.tier.report()
        sealing = asyncio.create_task(self.tier.service.seal(topic))
        await asyncio.sleep(0)
        await self.tier.service.run_once()
        await sealing

    async def merge_own(self) -> None:
        """Messages in packs, until they add up to segments of the topic's own, of one object each."""
        while len(self.segments) < 2:
            await self.send_and_pack(60, topics=(TOPIC, TOPIC, TOPIC, "beta"))
            await self.tier.merge_all()

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        entry = self.tier.catalog.topics.get(TOPIC)
        return entry.segments if entry is not None else ()

    def records(self, topic: str = TOPIC) -> list[bytes]:
        return [record for (name, _), records in self.sent.items() if name == topic for record in records]

    def expire_half(self, segment: SegmentEntry) -> int:
        """What was stored in the first half of a segment's time has expired, for good; the cut."""
        times = sorted(store_ms(record) for record in self.records())
        inside = [each for each in times if segment.min_store_ms <= each <= segment.max_store_ms]
        return self.expire_before(inside[len(inside) // 2])

    def expire_before(self, cut_ms: int) -> int:
        self.tier.topics[TOPIC].fixed_cut_ms = cut_ms
        self.tier.report()
        return cut_ms

    def split(self, cut_ms: int) -> tuple[list[bytes], list[bytes]]:
        """Return the expired records, and the others."""
        records = self.records()
        return [each for each in records if store_ms(each) < cut_ms], [
            each for each in records if store_ms(each) >= cut_ms
        ]

    async def check_purged(self, store: ObjectStore, cut_ms: int) -> None:
        """No object holds an expired byte; every other message is found by offset, time and key; other topics too."""
        gone, kept = self.split(cut_ms)
        assert gone
        assert kept
        objects = await objects_of(store)
        assert found_in(objects, traces_of(gone)) == set()
        assert found_in(objects, traces_of(kept)) == traces_of(kept)
        await self.check_reads(cut_ms)
        proof = await prove(
            self.tier.service,
            self.tier.writer,
            self.tier.cache,
            TtlProofRequest(topic=TOPIC, incarnation=self.tier.topics[TOPIC].incarnation, cut_ms=cut_ms),
        )
        assert (proof.hidden, proof.hidden_bytes, proof.named) == ([], 0, [])

    async def check_reads(self, cut_ms: int) -> None:
        """By offset, time and key."""
        reader = self.tier.reader
        for (topic, queue_id), sent in self.sent.items():
            cut = cut_ms if topic == TOPIC else 0
            first = sum(store_ms(each) < cut for each in sent)
            assert await self.pulled(topic, queue_id, cut_ms=cut) == sent[first:]
            for index in {0, first - 1, first, len(sent) // 2, len(sent) - 1} & set(range(len(sent))):
                record = sent[index]
                _, key = traces(record)
                found = await reader.query_key(topic, key.decode(), begin_ms=0, end_ms=1 << 60, count_max=4, cut_ms=cut)
                assert [bytes(each) for each in found] == ([record] if index >= first else [])
                lower = await reader.offset_by_time(
                    topic, queue_id, store_ms(record), boundary=Boundary.LOWER, cut_ms=cut
                )
                same = next(at for at, each in enumerate(sent) if store_ms(each) == store_ms(record))
                assert lower == (max(same, first) if first < len(sent) else None)


@asynccontextmanager
async def purging(
    store: ObjectStore, *, spool_folder: Path | None = None, hot: SyntheticHotTier | None = None, **changes: int
) -> AsyncIterator[Purging]:
    topics = {name: SyntheticTopic() for name in TOPICS}
    async with opened(
        store, config(**changes), hot=hot or SyntheticHotTier(), topics=topics, spool_folder=spool_folder
    ) as tier:
        yield Purging(tier)


@pytest.mark.parametrize("form", ["three objects", "one object", "rewritten before"])
@pytest.mark.parametrize("spools", [False, True])
async def test_no_byte_of_expired_records_is_left(form: str, spools: bool, tmp_path: Path) -> None:
    store = MemoryObjectStore()
    async with purging(store, spool_folder=tmp_path if spools else None) as rig:
        if form == "one object":
            await rig.merge_own()
        else:
            rig.send(60)
            await rig.seal_own()
            rig.send(60)
            await rig.seal_own()
        if form == "rewritten before":
            rig.expire_before(sorted(map(store_ms, rig.records()))[70])
            assert (await rig.tier.purger.purge(TOPIC)).segments_rewritten == 1
        old = rig.segments[-1]
        assert len(old.keys) == (3 if form == "three objects" else 1)
        before = deepcopy((rig.tier.hot.queues, rig.tier.hot._records))
        cut_ms = rig.expire_half(old)
        gone, _ = rig.split(cut_ms)
        assert found_in(store.objects, {traces(gone[-1])[0]}), "it is there before"

        report = await rig.tier.purger.purge(TOPIC)

        assert report.segments_rewritten >= 1
        assert (report.remaining, report.left_segments, report.is_held_by_pin) == ((), (), False)
        assert not set(old.keys) & store.objects.keys()
        assert report.written_bytes >= sum(each.stored_bytes for each in rig.segments if len(each.keys) == 1) / 2
        await rig.check_purged(store, cut_ms)
        assert (rig.tier.hot.queues, rig.tier.hot._records) == before, "nothing local is touched"
        again = await rig.tier.purger.purge(TOPIC)
        assert (again.segments_rewritten, again.packs_rewritten) == (0, 0)
        assert not list(tmp_path.iterdir())


async def test_queues_that_have_expired_altogether_leave_a_segment_and_go_on_behind_it() -> None:
    store = MemoryObjectStore()
    async with purging(store) as rig:
        rig.send(20, queues=2)
        middle_ms = rig.tier.hot.now_ms
        for _ in range(10):
            record = rig.tier.hot.append(TOPIC, 2, body_bytes=100)
            rig.sent.setdefault((TOPIC, 2), []).append(record)
        await rig.seal_own()
        rig.expire_before(middle_ms)
        await rig.tier.purger.purge(TOPIC)
        (segment,) = rig.segments
        assert [run.queue_id for run in segment.runs] == [2]
        await rig.check_purged(store, middle_ms)
        rig.send(30)
        await rig.seal_own()
        assert sum(each.record_count for each in rig.segments) == 40, "nothing goes up twice"
        await rig.check_purged(store, middle_ms)


async def test_packs_without_expired_records_stay_as_they_are() -> None:
    async with purging(MemoryObjectStore(), merge_bytes_per_second=1 << 30) as rig:
        await rig.send_and_pack(40, topics=(TOPIC, "beta"))
        cut_ms = rig.tier.hot.now_ms
        await rig.send_and_pack(40, topics=(TOPIC, "beta"))
        first, second = rig.tier.catalog.packs.values()
        assert second.min_store_ms >= cut_ms
        rig.expire_before(cut_ms)
        report = await rig.tier.purger.purge(TOPIC)
        assert (report.packs_rewritten, report.remaining) == (1, ())
        assert second in rig.tier.catalog.packs.values()
        assert first not in rig.tier.catalog.packs.values()


async def test_index_objects_stay_true_and_hold_nothing_of_a_message() -> None:
    store = MemoryObjectStore()
    async with purging(store, merge_bytes_per_second=1 << 30) as rig:
        for _ in range(5):
            rig.send(30)
            await rig.seal_own()
        assert await rig.tier.index_all() > 0
        indexes = rig.tier.catalog.indexes
        assert indexes
        cut_ms = rig.expire_half(rig.segments[2])
        report = await rig.tier.purger.purge(TOPIC)
        assert report.segments_rewritten == 1
        assert rig.tier.catalog.indexes == indexes
        await rig.check_purged(store, cut_ms)
        for record in rig.records():
            wanted = {record} if store_ms(record) >= cut_ms else set()
            key = traces(record)[1].decode()
            found = await rig.tier.reader.query_key(TOPIC, key, begin_ms=0, end_ms=1 << 60, count_max=4, cut_ms=cut_ms)
            assert {bytes(each) for each in found} == wanted


async def test_merges_wait_until_their_budget_has_paid_for_a_purge() -> None:
    async with purging(MemoryObjectStore(), merge_bytes_per_second=10, merge_fan_in=2) as rig:
        rig.send(120)
        await rig.seal_own()
        rig.expire_half(rig.segments[0])
        report = await rig.tier.purger.purge(TOPIC)
        for _ in range(4):
            await rig.send_and_pack(10, topics=("beta",))
        assert await rig.tier.merging.run_once() is None
        rig.tier.hot.now_ms += report.written_bytes * 1_000 // 10
        assert await rig.tier.merging.run_once() is not None


async def test_readers_get_every_message_while_it_is_rewritten() -> None:
    """Some have begun to read a segment when it goes."""
    store, random = MemoryObjectStore(), Random(3)
    async with purging(SlowStore(store, random)) as rig:
        for _ in range(3):
            rig.send(80)
            await rig.seal_own()
        purges = 0
        for segment in list(rig.segments):
            cut_ms = rig.expire_half(segment)
            purge = asyncio.create_task(rig.tier.purger.purge(TOPIC))
            while not purge.done():
                await asyncio.sleep(0)  # what is cached is read without waiting
                queue_id = random.randrange(QUEUES)
                sent = [each for each in rig.sent[TOPIC, queue_id] if store_ms(each) >= cut_ms]
                assert await rig.pulled(TOPIC, queue_id, cut_ms=cut_ms) == sent
                purges += 1
            assert (await purge).left_segments == ()
            await rig.check_purged(store, cut_ms)
        assert purges > len(rig.segments)


class Gate(WrappingObjectStore):
    """Once `is_shut`, puts of parts wait before they are carried out."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.is_shut = False
        self.met = asyncio.Event()
        self.opened = asyncio.Event()

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if self.is_shut and call.verb is Verb.PUT and call.key.startswith(KEYS.topics_prefix):
            self.met.set()
            await self.opened.wait()
        return await attempt()


@pytest.mark.parametrize("what", ["expires", "is deleted", "is deleted and made again"])
async def test_a_rewrite_that_is_overtaken_is_given_up(what: str) -> None:
    store = MemoryObjectStore()
    gate = Gate(store)
    async with purging(gate) as rig:
        rig.send(60)
        await rig.seal_own()
        rig.expire_half(rig.segments[0])
        gate.is_shut = True
        purge = asyncio.create_task(rig.tier.purger.purge(TOPIC))
        await gate.met.wait()
        if what == "expires":
            rig.expire_before(rig.tier.hot.now_ms)
        else:
            rig.tier.hot.delete_topic(TOPIC)
            old = rig.tier.topics[TOPIC]
            old.deleted = True
            rig.tier.report()
            if what != "is deleted":
                rig.tier.topics[TOPIC] = SyntheticTopic(incarnation=old.incarnation + 1)
                rig.tier.report()
        await rig.tier.service.sweep_now()
        gate.opened.set()
        report = await purge
        assert (report.segments_rewritten, report.remaining, report.left_segments) == (0, (), ())
        assert rig.segments == ()
        assert found_in(store.objects, traces_of(rig.records())) == set()


async def test_segments_in_flight_at_the_request_are_purged_too() -> None:
    """A segment that was planned before the messages expired comes up, and is rewritten."""
    store = MemoryObjectStore()
    gate = Gate(store)
    async with purging(gate) as rig:
        rig.send(60)
        gate.is_shut = True
        sealing = asyncio.create_task(rig.seal_own())
        await gate.met.wait()
        cut_ms = rig.expire_before(sorted(map(store_ms, rig.records()))[30])
        purge = asyncio.create_task(rig.tier.purger.purge(TOPIC))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not purge.done()
        gate.opened.set()
        await sealing
        assert (await purge).segments_rewritten == 1
        await rig.check_purged(store, cut_ms)


async def test_a_clock_that_was_set_back_holds_nothing() -> None:
    store = MemoryObjectStore()
    async with purging(store) as rig:
        rig.send(60)
        await rig.seal_own()
        cut_ms = rig.expire_half(rig.segments[0])
        rig.tier.hot.now_ms -= 100_000
        report = await rig.tier.purger.purge(TOPIC)
        assert (report.segments_rewritten, report.is_held_by_pin, report.remaining) == (1, False, ())
        await rig.check_purged(store, cut_ms)


async def test_a_pin_keeps_objects_that_its_version_names() -> None:
    store = MemoryObjectStore()
    async with purging(store) as rig:
        rig.send(60)
        await rig.seal_own()
        (old,) = rig.segments
        pin = Pin(
            pin_id="reader", version=rig.tier.catalog.version, until_ms=rig.tier.hot.now_ms + 60_000, owner="a reader"
        )
        await create_pin(store, KEYS, pin)
        cut_ms = rig.expire_half(old)
        report = await rig.tier.purger.purge(TOPIC)
        assert (report.segments_rewritten, report.is_held_by_pin) == (1, True)
        assert old.log.key in {held.key for held in report.remaining}
        assert set(old.keys) <= store.objects.keys()
        await rig.check_reads(cut_ms)
        await delete_pin(store, KEYS, pin.pin_id)
        report = await rig.tier.purger.purge(TOPIC)
        assert (report.segments_rewritten, report.is_held_by_pin, report.remaining) == (0, False, ())
        await rig.check_purged(store, cut_ms)


async def test_a_damaged_segment_is_named_and_stays_as_it_is() -> None:
    store = MemoryObjectStore()
    async with purging(store) as rig:
        rig.send(60)
        await rig.seal_own()
        (old,) = rig.segments
        rig.expire_half(old)
        damaged = bytearray(store.objects[old.log.key])
        damaged[len(damaged) // 2] ^= 4
        await store.put(old.log.key, bytes(damaged))
        with pytest.raises(CorruptDataError) as error:
            await rig.tier.purger.purge(TOPIC)
        assert old.log.key in str(error.value)
        assert rig.segments == (old,)
        assert set(old.keys) <= store.objects.keys()


@pytest.mark.parametrize("later_ms", [0, 1])
async def test_a_segment_in_quarantine_is_named_once_it_holds_expired_records(later_ms: int) -> None:
    async with purging(MemoryObjectStore()) as rig:
        rig.send(60)
        await rig.seal_own()
        (old,) = rig.segments
        lost = tuple(LostRange(run.queue_id, run.start_offset, run.end_offset) for run in old.runs)
        kept = Quarantine(segment=old, damage=(DamagedPart(old.log.key, "missing"),), lost=lost)
        assert await rig.tier.service.amend(lambda _: LedgerChanges(quarantine=(kept,)))
        rig.expire_before(old.min_store_ms + later_ms)
        report = await rig.tier.purger.purge(TOPIC)
        assert report.left_segments == ((old.log.key,) if later_ms else ())


async def test_a_repeated_purge_completes_one_that_the_store_interrupted() -> None:
    """Each request of a purge fails once, carried out or not."""
    for fault in (Fault.UNREACHED, Fault.LOST_ANSWER):
        step, is_through = 0, False
        while not is_through:
            store, failing = MemoryObjectStore(), -1

            def plan(number: int, _call: StoreCall, fault: Fault = fault) -> Fault:
                return fault if number == failing else Fault.NONE  # noqa: B023 - used within this turn

            faulty = FaultInjectingObjectStore(store, plan)
            async with purging(faulty) as rig:
                rig.send(40)
                await rig.seal_own()
                cut_ms = rig.expire_half(rig.segments[0])
                failing = faulty.step_count + step
                with suppress(ObjectStoreUnavailableError):
                    await rig.tier.purger.purge(TOPIC)
                is_through, failing = faulty.step_count <= failing, -1
                report = await rig.tier.purger.purge(TOPIC)
                assert (report.remaining, report.left_segments) == ((), ())
                await rig.check_purged(store, cut_ms)
                named = rig.tier.catalog.live_keys()
                assert {key for key in store.objects if key.startswith(KEYS.topics_prefix)} <= named
            step += 1
        assert step > 8


async def test_memory_does_not_depend_on_the_size_of_a_segment(tmp_path: Path) -> None:
    """With a folder to spool in, a segment of 32 MiB is rewritten in less than it has bytes."""
    spool, cold = tmp_path / "spool", tmp_path / "cold"
    spool.mkdir()
    store = await open_object_store(cold.as_uri())
    async with purging(store, spool_folder=spool, segment_bytes=64 * MIB, frame_bytes=MIB) as rig:
        for _ in range(2_000):
            rig.sent.setdefault((TOPIC, 0), []).append(rig.tier.hot.append(TOPIC, 0, body_bytes=16 << 10))
            rig.tier.hot.now_ms += 10
        await rig.seal_own()
        (old,) = rig.segments
        assert old.stored_bytes > 30 * MIB
        rig.expire_half(old)
        tracemalloc.start()
        try:
            report = await rig.tier.purger.purge(TOPIC)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert report.segments_rewritten == 1
        assert peak_bytes < old.stored_bytes
        assert not list(spool.iterdir())
    await store.close()


@pytest.mark.s3
async def test_own_segments_are_purged_on_a_bucket(any_s3_bucket: S3Bucket) -> None:
    store = await open_object_store(any_s3_bucket.cold_url)
    try:
        async with purging(store) as rig:
            rig.send(60)
            await rig.seal_own()
            cut_ms = rig.expire_half(rig.segments[0])
            report = await rig.tier.purger.purge(TOPIC)
            assert (report.segments_rewritten, report.remaining, report.left_segments) == (1, (), ())
            await rig.check_purged(store, cut_ms)
    finally:
        await store.close()


async def test_so_many_purges_wait_for_the_one_under_way() -> None:
    """Each takes one of the requests that the tier process handles at a time."""
    async with opened(MemoryObjectStore(), config(), hot=SyntheticHotTier(), topics={TOPIC: SyntheticTopic()}) as tier:
        calls = [asyncio.create_task(tier.purger.purge(TOPIC)) for _ in range(WAITING_MAX + 1)]
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        with pytest.raises(BrokerBusyError):
            await tier.purger.purge(TOPIC)
        await asyncio.gather(*calls)
        assert (await tier.purger.purge(TOPIC)).deleted_objects == 0, "there is room again"
