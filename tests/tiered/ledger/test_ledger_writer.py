"""One writer commits; races, lost answers and crashes leave the ledger before a commit or after it, never between."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from random import Random

import pytest

from tests.clock import Clock
from tests.fixtures_s3 import S3Bucket
from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.tiered.ledger_data import IDENTITY, KEYS, commit_segment, make_entry, open_writer
from tests.tiered.objects.test_object_store import open_s3
from thermocline.remoting.errors import (
    FencedError,
    InvalidRequestError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    StoreClosedError,
)
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import CatalogSettings, LedgerChanges, SegmentOut, TopicChange, TopicDelete
from thermocline.tiered.garbage.garbage import GarbageCollector
from thermocline.tiered.ledger.checkpoint import BucketReference, decode_bucket, load_head_if_good
from thermocline.tiered.ledger.ledger_reader import HeadHint, LedgerReader, open_catalog, read_hint, write_hint
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.objects.errors import (
    EarlierCommitUnsettledError,
    ForeignLedgerError,
    FrameChecksumError,
    LedgerCorruptError,
)
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.stores.file import FileObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import (
    Fault,
    FaultInjectingObjectStore,
    MeteringObjectStore,
    ProcessCrash,
    RetryingObjectStore,
    RetryPolicy,
    StoreCall,
    Verb,
)
from thermocline.tiered.wrappers.fault_injection import crash_at, unreliable

TEN_DAYS_MS = 10 * 24 * 3_600_000


def segment_ids(catalog: Catalog, topic: str = "orders") -> list[str]:
    entry = catalog.topics.get(topic)
    return [segment.segment_id for segment in entry.segments] if entry else []


async def test_commits_are_read_back() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    assert (writer.version, writer.epoch) == (1, 1)
    entries = [await commit_segment(writer, start=start, count=10) for start in range(0, 100, 10)]
    await writer.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, ttl_ms=60_000),)))
    catalog = await open_catalog(store, KEYS)
    assert catalog == writer.catalog
    assert catalog.topics["orders"].segments == tuple(entries)
    assert catalog.topics["orders"].queue_ends() == {0: 100}
    assert catalog.ttl_ms("orders") == 60_000
    assert (catalog.store_uuid, catalog.broker_name) == ("store-1", "broker-a")


async def test_every_version_opens_as_it_was() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    catalogs = {writer.version: writer.catalog}
    for number in range(25):
        await commit_segment(writer, topic=f"topic-{number % 3}", start=number * 10)
        catalogs[writer.version] = writer.catalog
    for version, catalog in catalogs.items():
        assert await open_catalog(store, KEYS, version=version) == catalog
    only = await open_catalog(store, KEYS, only_topics=frozenset({"topic-1"}))
    assert only.topics == {"topic-1": writer.catalog.topics["topic-1"]}


async def test_a_reader_follows() -> None:
    store = MemoryObjectStore()
    reader = await LedgerReader.open(store, KEYS)
    assert reader.catalog == Catalog.empty()
    writer = await open_writer(store)
    for number in range(40):
        await commit_segment(writer, start=number * 10)
        if number % 7 == 0:
            assert (await reader.refresh()) == writer.catalog
    assert (await reader.refresh()) == writer.catalog


async def test_requests_of_a_commit_are_bounded() -> None:
    store = MeteringObjectStore(MemoryObjectStore())
    writer = await open_writer(store, checkpoint_interval=32)
    before = store.counters.copy()
    for number in range(64):
        entry = make_entry(writer.next_segment_id(), start=number * 10)
        await writer.commit(LedgerChanges(segments_in=(entry,)))
    spent = store.counters.since(before)
    assert spent.requests[Verb.CREATE_IF_ABSENT] == 64 + 2  # two checkpoints
    assert spent.requests[Verb.PUT] == 2 * 2  # a bucket and the hint each
    assert spent.requests[Verb.GET] == 64  # the entry before
    before = store.counters.copy()
    await open_catalog(store, KEYS)
    opened = store.counters.since(before)
    assert opened.requests[Verb.LIST] == 0
    assert opened.requests[Verb.GET] <= 8


async def test_unchanged_buckets_are_written_once() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store, checkpoint_interval=64)
    entries = tuple(make_entry(writer.next_segment_id(), topic=f"topic-{number}") for number in range(4100))
    await writer.commit(LedgerChanges(segments_in=entries))
    await writer.write_checkpoint()
    first = writer.checkpoint
    assert first is not None
    assert first.bucket_count == 4
    await commit_segment(writer, topic="topic-5", start=10)
    await writer.write_checkpoint()
    second = writer.checkpoint
    assert second is not None
    assert len(set(second.buckets) - set(first.buckets)) == 1
    assert await open_catalog(store, KEYS) == writer.catalog


async def test_a_later_writer_fences_the_earlier() -> None:
    store = MemoryObjectStore()
    first = await open_writer(store, seed=1)
    await commit_segment(first)
    second = await open_writer(store, seed=2)
    assert second.epoch == 2
    assert second.catalog.topics == first.catalog.topics
    with pytest.raises(FencedError):
        await commit_segment(first, start=10)
    assert first.is_fenced
    with pytest.raises(FencedError):
        await commit_segment(first, start=10)
    await commit_segment(second, start=10)
    assert await open_catalog(store, KEYS) == second.catalog


async def test_many_writers_race_for_the_ledger() -> None:
    store = MemoryObjectStore()

    async def live(seed: int) -> int:
        writer = await open_writer(store, seed=seed)
        committed = 0
        try:
            for number in range(5):
                await commit_segment(writer, topic=f"topic-{seed}", start=number * 10)
                committed += 1
        except FencedError:
            assert writer.is_fenced
        return committed

    counts = await asyncio.gather(*(live(seed) for seed in range(1, 13)))
    catalog = await open_catalog(store, KEYS)
    assert catalog.epoch == 12
    assert {f"topic-{seed}": count for seed, count in enumerate(counts, start=1) if count} == {
        topic: len(entry.segments) for topic, entry in catalog.topics.items()
    }
    assert max(counts) == 5


async def test_lost_answers_and_unreached_calls_commit_once() -> None:
    memory = MemoryObjectStore()
    faulty = FaultInjectingObjectStore(memory, unreliable(Random(5), probability=0.3))

    async def no_sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    store = RetryingObjectStore(faulty, policy=RetryPolicy(attempts_max=50), random=Random(6), sleep=no_sleep)
    writer = await open_writer(store)
    for number in range(60):
        await commit_segment(writer, start=number * 10)
    catalog = await open_catalog(memory, KEYS)
    assert catalog.version == 61
    assert len(segment_ids(catalog)) == 60
    assert catalog.epoch == 1


async def test_a_pending_commit_is_settled_before_the_next() -> None:
    memory = MemoryObjectStore()
    faults = {"fault": Fault.NONE}

    def plan(_number: int, call: StoreCall) -> Fault:
        return faults["fault"] if "ledger/" in call.key else Fault.NONE

    store = FaultInjectingObjectStore(memory, plan)
    writer = await open_writer(store)
    for fault in (Fault.UNREACHED, Fault.LOST_ANSWER):
        faults["fault"] = fault
        with pytest.raises(ObjectStoreUnavailableError):
            await commit_segment(writer, start=writer.version * 10)
        with pytest.raises(EarlierCommitUnsettledError):
            await commit_segment(writer, start=writer.version * 10 + 5)
        faults["fault"] = Fault.NONE
        before = writer.version
        assert (await writer.settle()).version == before + 1
    await commit_segment(writer, start=1000)
    catalog = await open_catalog(memory, KEYS)
    assert catalog == writer.catalog
    assert len(segment_ids(catalog)) == 3


async def test_a_cancelled_commit_is_settled() -> None:
    memory = MemoryObjectStore()
    arrived = asyncio.Event()
    wait_for_ever = asyncio.Event()

    class Stalling(MemoryObjectStore):
        async def create_if_absent(self, key: str, data: bytes | bytearray | memoryview) -> None:
            await memory.create_if_absent(key, data)
            if "ledger/" in key and key.endswith("2.json") and not arrived.is_set():
                arrived.set()
                await wait_for_ever.wait()

        async def get(self, key: str) -> bytes:
            return await memory.get(key)

    writer = await open_writer(Stalling())
    task = asyncio.create_task(commit_segment(writer))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert writer.version == 1
    assert (await writer.settle()).version == 2


async def test_commits_queue_up() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    await asyncio.gather(*(commit_segment(writer, start=number * 10) for number in range(20)))
    assert writer.version == 21
    assert await open_catalog(store, KEYS) == writer.catalog


async def test_another_store_directory_is_refused() -> None:
    store = MemoryObjectStore()
    await commit_segment(await open_writer(store))
    stranger = LedgerIdentity(store_uuid="store-2", cluster="DefaultCluster", broker_name="broker-a")
    with pytest.raises(ForeignLedgerError, match="another broker name"):
        await open_writer(store, seed=2, identity=stranger)
    adopted = await open_writer(store, seed=3, identity=stranger, adopt=True)
    assert adopted.catalog.store_uuid == "store-2"
    assert len(segment_ids(adopted.catalog)) == 1
    with pytest.raises(ForeignLedgerError):
        await open_writer(store, seed=4)


async def test_a_slave_takes_over_from_its_master_alone() -> None:
    store = MemoryObjectStore()
    master = await open_writer(store)
    await commit_segment(master)
    owner = master.catalog.store_uuid
    first, second = (
        LedgerIdentity(store_uuid=name, cluster="DefaultCluster", broker_name="broker-a", predecessor=owner)
        for name in ("slave-1", "slave-2")
    )
    promoted = await open_writer(store, seed=2, identity=first)
    assert promoted.catalog.store_uuid == "slave-1"
    with pytest.raises(FencedError):
        await commit_segment(master, start=10)
    with pytest.raises(ForeignLedgerError):
        await open_writer(store, seed=3, identity=second)
    with pytest.raises(ForeignLedgerError):
        await open_writer(store, seed=4)
    again = await open_writer(store, seed=5, identity=first)
    assert again.epoch == promoted.epoch + 1


async def test_a_slept_writer_meets_a_freed_slot() -> None:
    """The entry after the sleeper's newest one is gone, and so is that one: the create succeeds and must not count."""
    store = MemoryObjectStore()
    sleeper = await open_writer(store, seed=1)
    await commit_segment(sleeper)
    sleeper_version = sleeper.version
    successor = await open_writer(store, seed=2)
    for number in range(10):
        await commit_segment(successor, start=100 + number * 10)
    for version in range(1, sleeper_version + 3):
        await store.delete(KEYS.ledger_entry(version))
    with pytest.raises(FencedError):
        await commit_segment(sleeper, start=50)
    with pytest.raises(ObjectNotFoundError):
        await store.get(KEYS.ledger_entry(sleeper_version + 1))  # it cleans up after itself
    assert await open_catalog(store, KEYS) == successor.catalog


async def test_a_slept_beginner_meets_a_freed_first_slot() -> None:
    """A writer that found nothing, slept, and created entry 1 where another's once was, goes behind that other."""
    store = MemoryObjectStore()
    woken = asyncio.Event()
    asleep = asyncio.Event()

    class Sleepy(FaultInjectingObjectStore):
        async def create_if_absent(self, key: str, data: bytes | bytearray | memoryview) -> None:
            if not woken.is_set():
                asleep.set()
                await woken.wait()
            await super().create_if_absent(key, data)

    sleeper = asyncio.create_task(open_writer(Sleepy(store, crash_at(-1, Fault.NONE)), seed=1))
    await asleep.wait()
    other = await open_writer(store, seed=2)
    for number in range(10):
        await commit_segment(other, start=number * 10)
    for version in range(1, 6):
        await store.delete(KEYS.ledger_entry(version))
    woken.set()
    writer = await sleeper
    assert writer.epoch == 2
    assert writer.catalog.topics == other.catalog.topics


@pytest.mark.parametrize("version", [1, 3])
async def test_a_writer_that_slept_behind_its_create_leaves_an_entry_that_counts(version: int) -> None:
    """A successor went on from it, and has left a hint or collected the one before: it is not a relic."""
    store = MemoryObjectStore()
    woken = asyncio.Event()
    asleep = asyncio.Event()

    class Sleepy(FaultInjectingObjectStore):
        async def create_if_absent(self, key: str, data: bytes | bytearray | memoryview) -> None:
            await super().create_if_absent(key, data)
            if key == KEYS.ledger_entry(version):
                asleep.set()
                await woken.wait()

    async def live() -> LedgerWriter:
        writer = await open_writer(Sleepy(store, crash_at(-1, Fault.NONE)), seed=1)
        await commit_segment(writer)
        await commit_segment(writer, start=10)
        return writer

    sleeper = asyncio.create_task(live())
    await asleep.wait()
    other = await open_writer(store, seed=2)
    for number in range(5):
        await commit_segment(other, topic="other", start=number * 10)
    for collected in range(1, version):
        await store.delete(KEYS.ledger_entry(collected))
    woken.set()
    if version == 3:
        assert (await sleeper).version == version
    else:
        with pytest.raises(FencedError):
            await sleeper
    assert await open_catalog(store, KEYS) == other.catalog
    assert len(segment_ids(other.catalog)) == version - 1


async def test_changes_that_do_not_follow() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    entry = await commit_segment(writer)
    version = writer.version
    overlapping = make_entry(writer.next_segment_id(), start=5)
    unknown = SegmentOut("orders", str(SegmentId(1, 99)))
    for changes in (
        LedgerChanges(segments_in=(overlapping,)),
        LedgerChanges(segments_out=(unknown,)),
        LedgerChanges(segments_in=(make_entry(writer.next_segment_id(), incarnation=2, start=100),)),
    ):
        with pytest.raises(InvalidRequestError):
            await writer.commit(changes)
    assert writer.version == version
    # A merge replaces what it covers, in one commit.
    merged = make_entry(writer.next_segment_id(), start=0, count=20)
    await writer.commit(LedgerChanges(segments_in=(merged,), segments_out=(SegmentOut("orders", entry.segment_id),)))
    assert segment_ids(writer.catalog) == [merged.segment_id]
    assert [removed.segment_id for removed in writer.catalog.removed] == [entry.segment_id]


async def test_topics_end_and_begin_again() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    await commit_segment(writer)
    await writer.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, expired_before_ms=500),)))
    await writer.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, expired_before_ms=400),)))
    assert writer.catalog.topics["orders"].expired_before_ms == 500
    await writer.commit(LedgerChanges(topics_deleted=(TopicDelete("orders", 1),)))
    assert writer.catalog.topics["orders"].deleted
    late = make_entry(writer.next_segment_id(), start=10)
    with pytest.raises(InvalidRequestError):
        await writer.commit(LedgerChanges(segments_in=(late,)))
    again = make_entry(writer.next_segment_id(), incarnation=2)
    await writer.commit(LedgerChanges(segments_in=(again,)))
    topic = writer.catalog.topics["orders"]
    assert (topic.incarnation, topic.deleted, topic.expired_before_ms) == (2, False, 0)
    await writer.commit(LedgerChanges(topics_deleted=(TopicDelete("orders", 1),)))  # late, and of the past
    assert segment_ids(writer.catalog) == [again.segment_id]
    assert await open_catalog(store, KEYS) == writer.catalog


async def test_settings_are_kept() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    settings = CatalogSettings(default_ttl_ms=5000, grace_ms=1000)
    await writer.commit(LedgerChanges(settings=settings))
    await commit_segment(writer)
    assert (await open_catalog(store, KEYS)).settings == settings
    assert writer.catalog.ttl_ms("orders") == 5000


async def test_a_missing_or_wrong_hint_costs_one_listing() -> None:
    store = MemoryObjectStore()
    metered = MeteringObjectStore(store)
    writer = await open_writer(store)
    for number in range(20):
        await commit_segment(writer, start=number * 10)
    for hint in (None, b"not json", b'{"version":7,"checkpoint":3}', b'{"version":400,"checkpoint":396}'):
        if hint is None:
            await store.delete(KEYS.head_hint)
        else:
            await store.put(KEYS.head_hint, hint)
        before = metered.counters.copy()
        assert await open_catalog(metered, KEYS) == writer.catalog
        assert metered.counters.since(before).requests[Verb.LIST] == 1
    await store.put(KEYS.head_hint, b'{"version":0,"checkpoint":0}')
    assert (await open_catalog(metered, KEYS)).topics == writer.catalog.topics


@pytest.mark.parametrize("data", [b"0123456789", b"012345678"], ids=["other bytes", "cut short"])
def test_a_bucket_s_object_is_the_one_that_was_stored(data: bytes) -> None:
    reference = BucketReference(bucket=0, key="k", stored_bytes=10, raw_bytes=5, crc32=zlib.crc32(b"9876543210"))
    with pytest.raises(FrameChecksumError):
        decode_bucket(data, reference)


async def test_a_hint_with_another_number_than_was_written_does_not_count() -> None:
    store = MemoryObjectStore()
    await write_hint(store, KEYS, HeadHint(version=7, checkpoint=4))
    hint = await store.get(KEYS.head_hint)
    assert await read_hint(store, KEYS) == HeadHint(version=7, checkpoint=4)
    await store.put(KEYS.head_hint, hint.replace(b"7", b"8", 1))
    assert await read_hint(store, KEYS) is None


async def test_a_hint_to_a_checkpoint_without_its_bucket_is_passed_over() -> None:
    """A writer slept between a checkpoint's bucket and its head; its successor collected the bucket. Then it woke."""
    store = MemoryObjectStore()
    asleep, woken = asyncio.Event(), asyncio.Event()

    class Sleepy(FaultInjectingObjectStore):
        async def create_if_absent(self, key: str, data: bytes | bytearray | memoryview) -> None:
            if key.endswith("/head.json"):
                asleep.set()
                await woken.wait()
            await super().create_if_absent(key, data)

    sleeper = await open_writer(Sleepy(store, crash_at(-1, Fault.NONE)), seed=1, checkpoint_interval=3)
    await commit_segment(sleeper)
    sleeping = asyncio.create_task(commit_segment(sleeper, start=10))
    await asleep.wait()
    successor = await open_writer(store, seed=2, checkpoint_interval=3)
    for number in range(2, 6):
        await commit_segment(successor, start=number * 10)
    await successor.write_checkpoint()
    relic = KEYS.checkpoint_bucket(sleeper.version, 0, epoch=1)
    plan = await GarbageCollector(successor).plan(now_ms=Clock().now_ms, sweep=True)
    assert relic in plan.checkpoint_buckets
    await GarbageCollector(successor).execute(plan, now_ms=Clock().now_ms)
    woken.set()
    await sleeping  # its entry counts: it was there before the successor's
    hint = await read_hint(store, KEYS)
    assert hint is not None
    assert hint.checkpoint == sleeper.version, "it has left a hint to its checkpoint"
    assert await open_catalog(store, KEYS) == successor.catalog
    assert (await open_writer(store, seed=3)).epoch == 3


async def test_a_hint_to_a_checkpoint_behind_which_all_is_collected_is_passed_over() -> None:
    """A writer slept before its checkpoint's first object, and finished it when its entry had long been collected."""
    store = MemoryObjectStore()
    asleep, woken = asyncio.Event(), asyncio.Event()

    class Sleepy(FaultInjectingObjectStore):
        async def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
            if "/checkpoints/" in key:
                asleep.set()
                await woken.wait()
            await super().put(key, data)

    sleeper = await open_writer(Sleepy(store, crash_at(-1, Fault.NONE)), seed=1, checkpoint_interval=3)
    await commit_segment(sleeper)
    sleeping = asyncio.create_task(commit_segment(sleeper, start=10))
    await asleep.wait()
    successor = await open_writer(store, seed=2, checkpoint_interval=3)
    for number in range(2, 9):
        await commit_segment(successor, start=number * 10)
    collector, later_ms = GarbageCollector(successor), Clock().now_ms + TEN_DAYS_MS
    for _ in range(3):
        await collector.execute(await collector.plan(now_ms=later_ms, sweep=True), now_ms=later_ms)
    assert KEYS.ledger_entry(sleeper.version) not in store.objects
    woken.set()
    await sleeping
    hint = await read_hint(store, KEYS)
    assert hint is not None
    assert hint.checkpoint == sleeper.version, "it has left a hint to its checkpoint"
    assert KEYS.checkpoint_head(hint.checkpoint) in store.objects
    assert await open_catalog(store, KEYS) == successor.catalog
    assert (await open_writer(store, seed=3)).epoch == 3


@pytest.mark.parametrize("is_collected", [False, True])
async def test_the_only_checkpoint_without_its_bucket(is_collected: bool) -> None:
    """Entries from the first on are another way in. Without them the ledger is damaged: said so, not tried for ever."""
    store = MemoryObjectStore()
    writer = await open_writer(store, checkpoint_interval=3)
    await commit_segment(writer)
    await commit_segment(writer, start=10)
    await commit_segment(writer, start=20)
    head = await load_head_if_good(store, KEYS, 3)
    assert head is not None
    for key in head.object_keys:
        await store.delete(key)
    if not is_collected:
        assert await open_catalog(store, KEYS) == writer.catalog
        return
    for version in (1, 2):
        await store.delete(KEYS.ledger_entry(version))
    with pytest.raises(LedgerCorruptError, match="an object of a checkpoint is missing"):
        await open_catalog(store, KEYS)
    with pytest.raises(LedgerCorruptError, match="an object of a checkpoint is missing"):
        await open_writer(store, seed=2)


async def test_the_newest_checkpoint_without_its_bucket_is_passed_over_for_an_older_one() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store, checkpoint_interval=3)
    for number in range(6):
        await commit_segment(writer, start=number * 10)
    older, newest = [await load_head_if_good(store, KEYS, version) for version in (3, 6)]
    assert older is not None
    assert newest is not None
    for key in set(newest.object_keys) - set(older.object_keys):
        await store.delete(key)
    for version in (1, 2):
        await store.delete(KEYS.ledger_entry(version))
    assert await open_catalog(store, KEYS) == writer.catalog
    assert (await open_writer(store, seed=2)).epoch == 2


async def test_a_writer_is_fenced_even_if_its_cleanup_is_cancelled() -> None:
    """Its entry was created where a later writer's once was; that is taken away again, unless the task ends then."""
    store = MemoryObjectStore()
    deleting, never = asyncio.Event(), asyncio.Event()

    class Slow(FaultInjectingObjectStore):
        async def delete(self, key: str) -> None:
            deleting.set()
            await never.wait()

    writer = await open_writer(Slow(store, crash_at(-1, Fault.NONE)), seed=1)
    await commit_segment(writer)
    for version in (1, 2):
        await store.delete(KEYS.ledger_entry(version))
    committing = asyncio.create_task(commit_segment(writer, start=10))
    await deleting.wait()
    committing.cancel()
    await asyncio.wait([committing])
    with pytest.raises(FencedError):
        await commit_segment(writer, start=20)


async def test_closing_leaves_a_fresh_hint() -> None:
    store = MemoryObjectStore()
    writer = await open_writer(store)
    await commit_segment(writer)
    await writer.close()
    await writer.close()
    hint = await read_hint(store, KEYS)
    assert hint is not None
    assert hint.version == 2
    with pytest.raises(StoreClosedError):
        await commit_segment(writer)


async def test_a_checkpoint_that_cannot_be_written_stops_commits_in_the_end() -> None:
    failing = {"on": False}

    def plan(_number: int, call: StoreCall) -> Fault:
        return Fault.UNREACHED if failing["on"] and "checkpoints/" in call.key else Fault.NONE

    memory = MemoryObjectStore()
    writer = await open_writer(FaultInjectingObjectStore(memory, plan))
    failing["on"] = True
    for number in range(63):
        await commit_segment(writer, start=number * 10)
    assert writer.version == 64
    with pytest.raises(ObjectStoreUnavailableError):
        await commit_segment(writer, start=4000)
    assert writer.version == 64
    with pytest.raises(EarlierCommitUnsettledError):
        await commit_segment(writer, start=5000)
    failing["on"] = False
    await commit_segment(writer, start=6000)
    assert writer.version == 66
    assert await open_catalog(memory, KEYS, version=65)
    assert await open_catalog(memory, KEYS) == writer.catalog


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
async def test_a_crash_at_any_request_leaves_before_or_after(fault: Fault) -> None:
    """Open, commit, checkpoint: whichever request is the last, a new writer finds a whole ledger and goes on."""
    step = 0
    while True:
        memory = MemoryObjectStore()
        faulty = FaultInjectingObjectStore(memory, crash_at(step, fault))
        done: list[str] = []
        attempted: list[str] = []
        try:
            writer = await open_writer(faulty, checkpoint_interval=3)
            for number in range(8):
                segment_id = writer.next_segment_id()
                attempted.append(str(segment_id))
                await writer.commit(LedgerChanges(segments_in=(make_entry(segment_id, start=number * 10),)))
                done.append(str(segment_id))
            await writer.close()
        except ProcessCrash:
            pass
        else:
            break
        successor = await open_writer(memory, seed=2, checkpoint_interval=3)
        found = segment_ids(successor.catalog)
        assert found in (done, attempted)
        await commit_segment(successor, start=1000)
        assert await open_catalog(memory, KEYS) == successor.catalog
        step += 1
    assert step > 30


async def test_a_power_cut_at_any_step_of_the_disk_leaves_before_or_after() -> None:
    """The same on `file://`, where every request is several steps of a disk that forgets what was not synced."""
    cut = 0
    while True:
        cut += 1
        disk = SimulatedDisk(cut_at_step=cut)
        done: list[str] = []
        attempted: list[str] = []
        try:
            writer = await open_writer(FileObjectStore("/cold", disk=disk, in_thread=False), checkpoint_interval=2)
            for number in range(4):
                segment_id = writer.next_segment_id()
                attempted.append(str(segment_id))
                await writer.commit(LedgerChanges(segments_in=(make_entry(segment_id, start=number * 10),)))
                done.append(str(segment_id))
        except PowerCut:
            pass
        else:
            break
        survivor = FileObjectStore("/cold", disk=disk.after_power_cut(Random(cut)), in_thread=False)
        successor = await open_writer(survivor, seed=2, checkpoint_interval=2)
        assert segment_ids(successor.catalog) in (done, attempted)
        await commit_segment(successor, start=1000)
        assert await open_catalog(survivor, KEYS) == successor.catalog
    assert cut > 80


@pytest.mark.s3
async def test_writers_race_on_a_bucket(any_s3_bucket: S3Bucket) -> None:
    """What the store itself arbitrates, with the servers that there are launchers for."""

    async def live(seed: int) -> int:
        async with open_s3(any_s3_bucket) as store:
            writer = await open_writer(store, seed=seed, checkpoint_interval=2)
            committed = 0
            with contextlib.suppress(FencedError):
                for number in range(3):
                    entry = make_entry(writer.next_segment_id(), topic=f"topic-{seed}", start=number * 10)
                    await writer.commit(LedgerChanges(segments_in=(entry,)))
                    committed += 1
            return committed

    counts = await asyncio.gather(*(live(seed) for seed in range(1, 5)))
    async with open_s3(any_s3_bucket) as store:
        catalog = await open_catalog(store, KEYS)
    assert catalog.epoch == 4
    found = {topic: len(entry.segments) for topic, entry in catalog.topics.items()}
    assert found == {f"topic-{seed}": count for seed, count in enumerate(counts, start=1) if count}


async def test_clocks_that_step_back_do_not_reach_the_ledger() -> None:
    store = MemoryObjectStore()
    clock = Clock(1_000_000)
    writer = await open_writer(store, clock=clock)
    clock.now_ms = 5
    await commit_segment(writer)
    assert writer.catalog.committed_ms == 1_000_000


async def test_identity_is_in_the_claim() -> None:
    writer: LedgerWriter = await open_writer(MemoryObjectStore(), identity=IDENTITY)
    assert writer.catalog.cluster == "DefaultCluster"
