"""Packs end to end on a synthetic hot tier: sealed, read, expired, collected, merged, purged.

Covers `tiered/packs/piece_logs.py`, `tiered/packs/piece_times.py`, `tiered/packs/segment_upload.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest

from benchmarks.synthetic_cold_tier import KEYS, SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import TAG, SyntheticHotTier
from thermocline.remoting.errors import ObjectStoreUnavailableError, QueryNotFoundError
from thermocline.remoting.string_hash import tags_code
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.amending import Change
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, TopicDelete
from thermocline.tiered.catalog.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.catalog.pack_ttl import packs_holding
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.errors import EarlierCommitUnsettledError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.packs.pack_format import check_footer
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.reading.cold_reader import Boundary
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore, ProcessCrash, StoreCall, Verb
from thermocline.tiered.wrappers.fault_injection import Fault, FaultInjectingObjectStore

KIB = 1024
HOUR_MS = 3_600_000
TOPICS = ("alpha", "beta", "gamma", "delta", "%RETRY%group")


def config(**changes: int) -> TierConfig:
    values: dict[str, int] = {
        "segment_bytes": 64 * KIB,
        "frame_bytes": 4 * KIB,
        "seal_age_ms": 60_000,
        "pack_bytes": 256 * KIB,
        "merge_fan_in": 3,
        "grace_ms": 10 * HOUR_MS,
        "sweep_interval_ms": 1_000,
    }
    return TierConfig(cold_url="memory://packs", **(values | changes))


class Rig:
    """A tier, and what was sent."""

    def __init__(self, tier: SyntheticColdTier, seed: int = 5) -> None:
        self.tier = tier
        self.random = Random(seed)
        self.sent: dict[tuple[str, int], list[bytes]] = {}

    async def send_and_pack(self, count: int = 30, *, topics: tuple[str, ...] = TOPICS) -> None:
        """Send messages, and let them become due by age."""
        tier = self.tier
        for _ in range(count):
            topic, queue_id = self.random.choice(topics), self.random.randrange(3)
            record = tier.hot.append(topic, queue_id, body_bytes=self.random.randint(50, 600))
            self.sent.setdefault((topic, queue_id), []).append(record)
            tier.hot.now_ms += self.random.randint(0, 20)
        tier.hot.now_ms += 61_000
        tier.report()
        await tier.service.run_once()

    async def pulled(
        self, topic: str, queue_id: int, *, cut_ms: int = 0, tags_codes: frozenset[int] | None = None
    ) -> list[bytes]:
        """The queue from its minimum on, as a consumer reads it."""
        reader = self.tier.reader
        offset = await reader.min_offset(topic, queue_id, cut_ms=cut_ms)
        found: list[bytes] = []
        while offset is not None:
            result = await reader.pull(
                ColdPull(
                    topic=topic,
                    queue_id=queue_id,
                    offset=offset,
                    count_max=7,
                    bytes_max=1 << 20,
                    cut_ms=cut_ms,
                    tags_codes=tags_codes,
                )
            )
            if result.status in (ColdPullStatus.ABOVE_END, ColdPullStatus.NO_QUEUE):
                break
            assert result.next_offset > offset
            joined = b"".join(map(bytes, result.buffers))
            position = 0
            while position < len(joined):
                size = int.from_bytes(joined[position : position + 4], "big")
                found.append(joined[position : position + size])
                position += size
            offset = result.next_offset
        return found

    async def check_all(self) -> None:
        """Every queue reads as it was sent."""
        for (topic, queue_id), records in self.sent.items():
            assert await self.pulled(topic, queue_id) == records


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    hot = SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in TOPICS}
    async with opened(MemoryObjectStore(), config(), hot=hot, topics=topics) as tier:
        yield Rig(tier)


def store_of(tier: SyntheticColdTier) -> MemoryObjectStore:
    store = tier.writer.store
    assert isinstance(store, MemoryObjectStore)
    return store


async def test_small_topics_go_up_in_one_object(rig: Rig) -> None:
    await rig.send_and_pack()
    catalog = rig.tier.catalog
    (pack,) = catalog.packs.values()
    assert set(pack.topics) == {topic for topic, _ in rig.sent}
    assert all(not topic.segments for topic in catalog.topics.values())
    keys = [key for key in store_of(rig.tier).objects if key.startswith((KEYS.topics_prefix, KEYS.packs_prefix))]
    assert keys == [pack.key] == [f"{KEYS.packs_prefix}forever/{pack.pack_id}.pack"]
    data = store_of(rig.tier).objects[pack.key]
    assert len(data) == pack.object_bytes
    check_footer(data)
    await rig.check_all()


async def test_a_full_topic_keeps_segments_of_its_own(rig: Rig) -> None:
    for _ in range(200):
        rig.tier.hot.append("alpha", 0, body_bytes=600)
    await rig.send_and_pack(topics=("beta", "gamma"))
    catalog = rig.tier.catalog
    assert len(catalog.topics["alpha"].segments) >= 1
    assert all("alpha" not in pack.topics or pack.raw_bytes < 64 * KIB for pack in catalog.packs.values())
    assert {"beta", "gamma"} <= set(catalog.packed)


async def test_topics_of_different_times_to_live_do_not_share_a_pack(rig: Rig) -> None:
    rig.tier.topics["beta"].ttl_ms = 24 * HOUR_MS
    rig.tier.topics["gamma"].ttl_ms = 23 * HOUR_MS
    rig.tier.topics["delta"].ttl_ms = 100 * HOUR_MS
    await rig.send_and_pack(60)
    catalog = rig.tier.catalog
    together = {pack.ttl_class: set(pack.topics) for pack in catalog.packs.values()}
    assert together["h010"] == {"beta", "gamma"}
    assert together["h014"] == {"delta"}
    assert together["forever"] == {"alpha", "%RETRY%group"}


async def test_another_reader_opens_the_same_catalog(rig: Rig) -> None:
    for _ in range(9):
        await rig.send_and_pack(10)
    await rig.tier.writer.write_checkpoint()
    await rig.send_and_pack(10)
    store = store_of(rig.tier)
    catalog = await open_catalog(store, KEYS)
    assert catalog == rig.tier.catalog
    only = await open_catalog(store, KEYS, only_topics=frozenset(["alpha"]))
    assert only.packed == {"alpha": catalog.packed["alpha"]}
    assert set(only.packs) == set(catalog.packed["alpha"].packs)
    entry = await with_pieces(PackPieces(store), only, "alpha")
    assert entry is not None
    found: dict[int, list[bytes]] = {}
    for segment in entry.segments:
        for run in segment.runs:
            part = SegmentReader(store, segment).records(
                run.queue_id, start_offset=run.start_offset, end_offset=run.end_offset
            )
            found.setdefault(run.queue_id, []).extend([bytes(each.data) async for each in part])
    for queue_id, parts in found.items():
        assert b"".join(parts) == b"".join(rig.sent["alpha", queue_id])


async def test_a_topic_that_ended_is_in_no_pack_of_a_checkpoint(rig: Rig) -> None:
    """Though all packs are there as before, for the other topics in them."""
    await rig.send_and_pack(30)
    writer, packs = rig.tier.writer, rig.tier.catalog.packs
    await writer.write_checkpoint()
    life = rig.tier.catalog.packed["alpha"].incarnation
    await writer.commit(LedgerChanges(topics_deleted=(TopicDelete("alpha", life),)))
    await writer.write_checkpoint()
    assert writer.catalog.packs == packs
    assert "alpha" not in writer.catalog.packed
    assert await open_catalog(store_of(rig.tier), KEYS) == writer.catalog


async def test_a_later_writer_goes_on_where_packs_end() -> None:
    store, hot = MemoryObjectStore(), SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in TOPICS}
    async with opened(store, config(), hot=hot, topics=topics) as tier:
        rig = Rig(tier)
        await rig.send_and_pack()
        sent = rig.sent
    async with opened(store, config(), hot=hot, topics=topics, seed=2) as tier:
        later = Rig(tier, seed=6)
        later.sent = sent
        await later.send_and_pack()
        assert len(tier.catalog.packs) == 2
        await later.check_all()


async def test_lookups_find_packed_records(rig: Rig) -> None:
    for _ in range(3):
        await rig.send_and_pack()
    reader = rig.tier.reader
    for (topic, queue_id), records in rig.sent.items():
        times = [int.from_bytes(record[56:64], "big") for record in records]
        for index, (record, time_ms) in enumerate(zip(records, times, strict=True)):
            physical_offset = int.from_bytes(record[28:36], "big")
            assert bytes(await reader.view(physical_offset, cut_ms=lambda _: 0)) == record
            lower = await reader.offset_by_time(topic, queue_id, time_ms, boundary=Boundary.LOWER, cut_ms=0)
            assert lower == times.index(time_ms)
            assert await reader.message_time(topic, queue_id, index, cut_ms=0) == time_ms
            key = record[record.index(b"UNIQ_KEY\x01") + 9 :][:32].decode()
            found = await reader.query_key(topic, key, begin_ms=0, end_ms=1 << 60, count_max=8, cut_ms=0)
            assert [bytes(each) for each in found] == [record]
    with pytest.raises(QueryNotFoundError):
        await reader.view(1 << 40, cut_ms=lambda _: 0)


async def test_a_pack_dies_whole_by_time_to_live_and_is_never_rewritten() -> None:
    store, hot = MemoryObjectStore(), SyntheticHotTier()
    topics = {name: SyntheticTopic(ttl_ms=2 * HOUR_MS) for name in TOPICS}
    metered = MeteringObjectStore(store)
    async with opened(metered, config(merge_fan_in=100), hot=hot, topics=topics) as tier:
        rig = Rig(tier)
        await rig.send_and_pack()
        (pack,) = tier.catalog.packs.values()
        puts = metered.counters.requests[Verb.PUT]
        held = packs_holding(
            tier.catalog,
            "alpha",
            cuts_ms={"alpha": hot.now_ms},
            ttl_ms=tier.service.ttl_ms,
            now_ms=hot.now_ms,
        )
        assert [each.pack_id for each in held] == [pack.pack_id]
        assert held[0].due_ms == pack.max_store_ms + 2 * HOUR_MS
        hot.now_ms = pack.max_store_ms + 2 * HOUR_MS + 5_000
        tier.report()
        await tier.service.run_once()
        assert not tier.catalog.packs
        assert not tier.catalog.packed
        assert pack.key in store.objects, "readers of older versions keep it through the grace period"
        assert await rig.pulled("alpha", 0) == []
        hot.now_ms += 10 * HOUR_MS + 1
        tier.report()
        await tier.service.run_once()
        await tier.service.run_once()
        assert pack.key not in store.objects
        assert metered.counters.requests[Verb.PUT] - puts <= 6, "checkpoints and hints, no pack"


async def test_a_queue_whose_newest_pack_expired_before_an_older_one_is_read_to_its_end(rig: Rig) -> None:
    """The older pack is kept by another topic. A reader anywhere in the queue gets past what is not there any more."""
    for name in ("alpha", "beta"):
        rig.tier.topics[name].ttl_ms = 2 * HOUR_MS
    await rig.send_and_pack(40, topics=("alpha", "beta"))
    await rig.send_and_pack(40, topics=("alpha",))
    older, newer = sorted(rig.tier.catalog.packs)
    rig.tier.topics["beta"].ttl_ms = 3 * HOUR_MS
    rig.tier.hot.now_ms += 2 * HOUR_MS
    cut_ms = rig.tier.hot.now_ms
    rig.tier.topics["alpha"].fixed_cut_ms = cut_ms
    rig.tier.report()
    await rig.tier.service.sweep_now()
    assert list(rig.tier.catalog.packs) == [older] != [newer]
    reader = rig.tier.reader
    for queue_id, (_, end) in rig.tier.catalog.queue_bounds("alpha").items():
        assert end == len(rig.sent["alpha", queue_id])
        assert reader.end_offset("alpha", queue_id) == end
        for offset in range(end):
            pull = ColdPull(
                topic="alpha", queue_id=queue_id, offset=offset, count_max=7, bytes_max=1 << 20, cut_ms=cut_ms
            )
            result = await reader.pull(pull)
            assert (result.status, result.next_offset, result.end_offset) == (ColdPullStatus.NO_QUEUE, end, end)
            # A reader with an older cut steps over the deleted range, too.
            late = await reader.pull(replace(pull, cut_ms=0))
            assert late.next_offset > offset
    assert rig.tier.catalog.queue_bounds("alpha")


async def test_a_pack_is_kept_as_long_as_one_topic_in_it(rig: Rig) -> None:
    await rig.send_and_pack(60)
    (pack,) = rig.tier.catalog.packs.values()
    names = sorted({topic for topic, _ in rig.sent})
    for name in names:
        assert pack.pack_id in rig.tier.catalog.packs
        rig.tier.topics[name].deleted = True
        rig.tier.hot.delete_topic(name)
        rig.tier.report()
        # A deletion is committed with the next seal.
        rig.tier.topics["keepalive"] = SyntheticTopic()
        rig.tier.hot.append("keepalive", 0, body_bytes=10)
        rig.tier.hot.now_ms += 61_000
        rig.tier.report()
        await rig.tier.service.run_once()
        assert name not in rig.tier.catalog.packed
    assert pack.pack_id not in rig.tier.catalog.packs
    assert (pack.key,) in [gone.keys for gone in rig.tier.catalog.removed]


@pytest.mark.parametrize("is_later", [False, True], ids=["in one commit", "in the next"])
async def test_a_deleted_topic_keeps_no_pack_whose_other_topics_have_expired(rig: Rig, is_later: bool) -> None:
    """Though the topic that ended has the newest messages in it."""
    tier = rig.tier
    record = tier.hot.append("beta", 0, body_bytes=100)
    tier.hot.now_ms += 5_000
    cut_ms = tier.hot.now_ms
    await rig.send_and_pack(20, topics=("alpha",))
    (pack,) = tier.catalog.packs.values()
    assert set(pack.topics) == {"alpha", "beta"}
    assert int.from_bytes(record[56:64], "big") < cut_ms <= pack.max_store_ms

    async def sweep() -> None:
        tier.report()
        await tier.service.sweep_now()

    tier.topics["alpha"].deleted = True
    tier.hot.delete_topic("alpha")
    if is_later:
        await sweep()
        assert list(tier.catalog.packs) == [pack.pack_id]
    tier.topics["beta"].fixed_cut_ms = cut_ms
    await sweep()
    assert not tier.catalog.packs
    assert [gone.keys for gone in tier.catalog.removed] == [(pack.key,)]


async def test_merging_keeps_packs_few_and_records_equal(rig: Rig) -> None:
    for round_number in range(30):
        await rig.send_and_pack(12)
        await rig.tier.merge_all()
        if round_number % 7 == 0:
            await rig.check_all()
    catalog = rig.tier.catalog
    assert max(len(packed.packs) for packed in catalog.packed.values()) <= 3 * 4
    assert max(pack.level for pack in catalog.packs.values()) >= 2
    await rig.check_all()
    for (topic, queue_id), records in rig.sent.items():
        assert await rig.pulled(topic, queue_id, tags_codes=frozenset([tags_code(TAG)])) == records
        assert await rig.pulled(topic, queue_id, tags_codes=frozenset([tags_code("another")])) == []


async def test_a_merge_whose_commit_never_started_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects are garbage that may be collected; the merge itself is made again."""
    tier = rig.tier

    async def refuse(change: Change) -> bool:
        raise EarlierCommitUnsettledError("an earlier commit is unsettled")

    async def merge_something() -> None:
        for _ in range(30):
            await rig.send_and_pack(12)
            await tier.merging.run_once()

    with monkeypatch.context() as patch:
        patch.setattr(tier.merging, "_amend", refuse)
        with pytest.raises(EarlierCommitUnsettledError):
            await merge_something()
    assert tier.writer.under_way() == []
    assert tier.writer.discarded
    assert await tier.merging.run_once() is not None
    await rig.check_all()


async def test_a_merge_of_a_pack_that_is_missing_is_not_tried_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Else the others would be read again every few seconds, until it is healed."""
    tier = rig.tier
    for _ in range(3):
        await rig.send_and_pack()
    (first, *_) = tier.catalog.packs.values()
    await tier.writer.store.delete(first.key)
    for _ in range(2):
        assert await tier.merging.run_once() is None
    assert [each.levelname for each in caplog.records if "packs not merged" in each.message] == ["ERROR"]


async def test_pieces_that_add_up_become_segments_of_their_own(rig: Rig) -> None:
    for _ in range(12):
        await rig.send_and_pack(60, topics=("alpha", "alpha", "alpha", "beta"))
        await rig.tier.merge_all()
    own = rig.tier.catalog.topics["alpha"].segments
    assert own
    assert all(len(segment.keys) == 1 and segment.raw_bytes <= 64 * KIB for segment in own)
    await rig.check_all()


async def test_merging_stays_within_its_budget() -> None:
    store, hot = MemoryObjectStore(), SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in TOPICS}
    metered = MeteringObjectStore(store)
    async with opened(metered, config(merge_bytes_per_second=20, merge_fan_in=2), hot=hot, topics=topics) as tier:
        rig = Rig(tier)
        start_ms, written = hot.now_ms, 0
        for _ in range(40):
            await rig.send_and_pack(10)
            while (outcome := await tier.merging.run_once()) is not None:
                written += outcome.written_bytes
        largest = max(pack.object_bytes for pack in tier.catalog.packs.values())
        assert 0 < written <= 20 * (hot.now_ms - start_ms) // 1_000 + largest
        await rig.check_all()


async def test_readers_of_an_older_version_keep_working_while_packs_are_merged(rig: Rig) -> None:
    for _ in range(3):
        await rig.send_and_pack()
    older = rig.tier.catalog
    assert await rig.tier.merge_all() >= 1
    store = store_of(rig.tier)
    entry = await with_pieces(PackPieces(store), await open_catalog(store, KEYS, version=older.version), "alpha")
    assert entry is not None
    found: list[bytes] = []
    for segment in entry.segments:
        if (run := segment.run(0)) is not None:
            part = SegmentReader(store, segment).records(0, start_offset=run.start_offset, end_offset=run.end_offset)
            found.extend([bytes(each.data) async for each in part])
    assert b"".join(found) == b"".join(rig.sent["alpha", 0])


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
async def test_a_crash_between_upload_and_commit_leaves_an_orphan_that_is_collected(fault: Fault) -> None:
    """At every call of sealing and merging: the next writer serves all that was committed, and one sweep cleans up."""
    step = 0
    while True:
        store, hot = MemoryObjectStore(), SyntheticHotTier()
        topics = {name: SyntheticTopic() for name in TOPICS}
        crashing = CrashAfter(store)
        has_crashed = False
        sent: dict[tuple[str, int], list[bytes]] = {}
        try:
            async with opened(crashing, config(), hot=hot, topics=topics) as tier:
                rig = Rig(tier)
                sent = rig.sent
                await rig.send_and_pack(12)
                await rig.send_and_pack(12)
                crashing.arm(step, fault)
                await rig.send_and_pack(12)
                await tier.merge_all()
        except ProcessCrash:
            has_crashed = True
        except BaseExceptionGroup:
            has_crashed = True
        async with opened(store, config(), hot=hot, topics=topics, seed=2) as tier:
            later = Rig(tier, seed=9)
            later.sent = sent
            await later.send_and_pack(12)
            await later.check_all()
            named = tier.catalog.live_keys() | {key for gone in tier.catalog.removed for key in gone.keys}
            stored = {key for key in store.objects if key.startswith((KEYS.topics_prefix, KEYS.packs_prefix))}
            assert stored == named
        if not has_crashed:
            break
        step += 1
    assert step >= 5


class CrashAfter(FaultInjectingObjectStore):
    """Works until it is armed."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, lambda number, call: self._planned(number))
        self._at: int | None = None
        self._fault = Fault.NONE

    def arm(self, steps: int, fault: Fault) -> None:
        """Crash at the call that many calls from now."""
        self._at, self._fault = self.step_count + steps, fault

    def _planned(self, number: int) -> Fault:
        return self._fault if number == self._at else Fault.NONE


async def test_a_pack_that_cannot_be_uploaded_is_sealed_again_later() -> None:
    store, hot = MemoryObjectStore(), SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in TOPICS}
    is_down = False

    def plan(_number: int, call: StoreCall) -> Fault:
        return Fault.LOST_ANSWER if is_down and call.verb is Verb.PUT else Fault.NONE

    async with opened(FaultInjectingObjectStore(store, plan), config(), hot=hot, topics=topics) as tier:
        rig = Rig(tier)
        is_down = True
        with pytest.raises(ObjectStoreUnavailableError):
            await rig.send_and_pack()
        assert not tier.catalog.packs
        is_down = False
        await tier.service.run_once()
        await rig.check_all()
        stored = {key for key in store.objects if key.startswith(KEYS.packs_prefix)}
        assert stored == {pack.key for pack in tier.catalog.packs.values()}, "the abandoned one is collected"


async def test_purge_leaves_nothing_of_a_deleted_topic(rig: Rig) -> None:
    for _ in range(2):
        await rig.send_and_pack(40)
    tier, store = rig.tier, store_of(rig.tier)
    before = {pack.key for pack in tier.catalog.packs.values()}
    tier.topics["alpha"].deleted = True
    tier.hot.delete_topic("alpha")
    tier.report()
    await tier.service.run_once()
    report = await tier.purger.purge("alpha")
    assert report.packs_rewritten == 2
    assert report.remaining == ()
    assert before.isdisjoint(store.objects), "the packs that held it are gone, grace period or not"
    assert all("alpha" not in pack.topics for pack in tier.catalog.packs.values())
    for name in [name for name in rig.sent if name[0] == "alpha"]:
        del rig.sent[name]
    await rig.check_all()


async def test_purge_of_a_live_topic_deletes_expired_records_only(rig: Rig) -> None:
    await rig.send_and_pack(40)
    await rig.send_and_pack(40)
    tier = rig.tier
    records = rig.sent["alpha", 0]
    cut_ms = int.from_bytes(records[len(records) // 2][56:64], "big")
    tier.topics["alpha"].fixed_cut_ms = cut_ms
    tier.report()
    report = await tier.purger.purge("alpha")
    assert report.packs_rewritten >= 1
    assert report.remaining == ()
    pieces = PackPieces(tier.writer.store)
    for pack in tier.catalog.packs.values():
        if "alpha" in pack.topics:
            assert all(piece.min_store_ms >= cut_ms for piece in await pieces.of_topic(pack, "alpha"))
    expected = [record for record in records if int.from_bytes(record[56:64], "big") >= cut_ms]
    assert await rig.pulled("alpha", 0, cut_ms=cut_ms) == expected
    for name, sent in rig.sent.items():
        if name[0] != "alpha":
            assert await rig.pulled(*name) == sent
