"""Snapshots: every action gives equal rows until they are closed, whatever is committed and collected meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import AnalysisException

from tests.clock import Clock
from tests.spark.cold_tier import ColdTier, directory_url, flights, rows_of
from thermocline import spark as tc
from thermocline.client.admin.hand_off_administration import GroupPlace
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.bodies.hand_off import BEGINNING
from thermocline.remoting.errors import InvalidRequestError, ObjectStoreUnavailableError, TopicNotFoundError
from thermocline.spark.access.blocking_store import BlockingStore, blocking_store
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.handoff import snapshot as snapshot_module
from thermocline.spark.handoff.pin_keeper import PIN_MS, PinKeeper
from thermocline.spark.handoff.receipt import read_receipt
from thermocline.spark.reading.read_plan import ColdSource
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut, TopicChange, TopicDelete
from thermocline.tiered.garbage.garbage import GarbageCollector
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.ledger.pins import list_pins
from thermocline.tiered.objects.errors import VersionExpiredError
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.state.snapshot import TOPICS
from thermocline.tiered.stores.object_store_url import open_object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WITHOUT_SPARK = cast("SparkSession", None)
"""Who opens a directory and loads nothing needs no session."""
COLLECTED_MS = 1_750_000_000_000
"""Behind all commits of the tests, before all pins run out."""


@pytest.fixture
def tier(tmp_path: Path) -> ColdTier:
    return ColdTier(directory_url(tmp_path / "cold"))


def places(snapshot: tc.ColdSnapshot) -> list[tuple[int, int]]:
    return sorted((row.queueId, row.queueOffset) for row in snapshot.load().select("queueId", "queueOffset").collect())


def collect_garbage(tier: ColdTier) -> None:
    """As a broker does that keeps nothing without a pin."""

    async def collect() -> None:
        store = await open_object_store(tier.url)
        writer = await LedgerWriter.open(
            store,
            tier.keys,
            identity=LedgerIdentity(store_uuid="uuid-broker-a", cluster="test", broker_name="broker-a"),
            clock_ms=lambda: COLLECTED_MS,
            random=Random(tier.version),
        )
        collector = GarbageCollector(writer)
        for _ in range(3):
            await collector.execute(
                await collector.plan(now_ms=COLLECTED_MS, sweep=True, grace_ms=0), now_ms=COLLECTED_MS
            )
        await writer.close()
        await store.close()

    asyncio.run(collect())


def pins(tier: ColdTier) -> list[str]:
    async def listed() -> list[str]:
        store = await open_object_store(tier.url)
        found = await list_pins(store, tier.keys)
        await store.close()
        return [pin.pin_id for pin in found]

    return asyncio.run(listed())


def test_every_action_gives_equal_rows_until_it_is_closed(spark_session: SparkSession, tier: ColdTier) -> None:
    log = flights("orders", 400, queue_count=2)
    catalog = tier.seal_in_pieces(log, 4)
    ends = log.ends()
    everything = sorted((queue_id, offset) for queue_id, end in ends.items() for offset in range(end))
    with tc.open(spark_session, tier.url, topic="orders", options={"columns": "queueId,queueOffset"}) as snapshot:
        assert [(queue.queue_id, queue.start_offset, queue.end_offset) for queue in snapshot.queues] == [
            (queue_id, 0, end) for queue_id, end in sorted(ends.items())
        ]
        assert snapshot.versions == {"test/broker-a": catalog.version}
        assert snapshot.brokers[0].incarnations == {"orders": 1}
        assert places(snapshot) == everything
        cut = catalog.topics["orders"].segments[2].max_store_ms
        tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, expired_before_ms=cut),)))
        out = tuple(SegmentOut("orders", each.segment_id) for each in catalog.topics["orders"].segments[:2])
        tier.commit(LedgerChanges(segments_out=out))
        collect_garbage(tier)
        assert places(snapshot) == everything, "what has expired since is read as before"
        tier.commit(LedgerChanges(topics_deleted=(TopicDelete("orders", 1),)))
        collect_garbage(tier)
        assert places(snapshot) == everything, "even when the topic is deleted"
        assert pins(tier) == [pins(tier)[0]]
        receipt = snapshot.receipt(row_count=400)
        assert [(each.queue_id, each.end_offset) for each in receipt.queues] == sorted(ends.items())
    assert pins(tier) == []
    for use in (snapshot.load, snapshot.receipt, snapshot.check):
        with pytest.raises(InvalidRequestError, match="closed"):
            use()


def test_after_the_close_todays_cut_counts(spark_session: SparkSession, tier: ColdTier) -> None:
    log = flights("orders", 100)
    catalog = tier.seal_in_pieces(log, 2)
    with tc.open(spark_session, tier.url, topic="orders", options={"columns": "queueOffset"}) as snapshot:
        table = snapshot.load()
        assert table.count() == 100
        cut = catalog.topics["orders"].segments[0].max_store_ms + 1
        tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, expired_before_ms=cut),)))
        assert table.count() == 100
    again = spark_session.read.format("thermocline").options(**snapshot.options).load()
    assert 0 < again.count() < 100


def test_the_receipt_records_why_a_load_is_incomplete(
    spark_session: SparkSession, tier: ColdTier, tmp_path: Path
) -> None:
    tier.seal(flights("orders", 100, queue_count=2))
    options = {"tags": "UA", "onCorruptFrame": "skip", "queues": "0", "columns": "value"}
    with tc.open(spark_session, tier.url, topic="orders", options=options) as snapshot:
        assert len(snapshot.queues) == 1
        snapshot.write_receipt(str(tmp_path / "r.json"), output="here", row_count=3)
    receipt = read_receipt(str(tmp_path / "r.json"), StoreOptions())
    assert receipt.obstacles == (
        "it skips damaged frames",
        "it takes some queues only",
        "it takes messages with some tags only",
    )
    assert (receipt.output, receipt.row_count, receipt.all_queues) == ("here", 3, False)


def test_a_condition_and_the_other_engine_read_the_same_snapshot(spark_session: SparkSession, tier: ColdTier) -> None:
    tier.seal_in_pieces(flights("orders", 300, queue_count=2), 3)
    options = {"columns": "queueId,queueOffset,tag"}
    with tc.open(spark_session, tier.url, topic="orders", options=options) as snapshot:
        tier.seal(flights("payments", 5))
        whole = sorted(snapshot.load().collect())
        assert len(whole) == 300
        assert sorted(snapshot.load(engine="s3a").collect()) == whole
        assert snapshot.receipt().obstacles == ()
        wanted = [row for row in whole if row.queueOffset < 40 and row.tag == "UA"]
        assert wanted
        for engine in ("direct", "s3a"):
            found = snapshot.load(where="queueOffset < 40 AND tag = 'UA'", engine=engine)
            assert sorted(found.collect()) == wanted
        assert snapshot.receipt().obstacles == ("it takes messages of a condition only",)
    keys = {"s3.accessKey": "a", "s3.secretKey": "b"}
    with (
        tc.open(spark_session, tier.url, topic="orders", options=keys) as snapshot,
        pytest.raises(InvalidRequestError, match=r"the session's fs\.s3a"),
    ):
        snapshot.load(engine="s3a")


def test_a_topic_without_a_cold_message_is_opened_when_brokers_know_it(
    spark_session: SparkSession, tier: ColdTier
) -> None:
    tier.seal(flights("orders", 20, queue_count=1))
    queues = {"readQueueNums": 1, "writeQueueNums": 2}
    tier.save_state({TOPICS: {"topicConfigTable": {"payments": queues, "refunds": queues}}})
    with pytest.raises(TopicNotFoundError, match="'returns'"):
        tc.open(spark_session, tier.url, topic="orders,returns")
    with pytest.raises(AnalysisException, match="topic 'payments' has no messages"):
        spark_session.read.format("thermocline").option("topic", "payments").load(tier.url).count()
    for topics, empty, count in (("payments", "payments", 0), ("orders,refunds", "refunds", 20)):
        with tc.open(spark_session, tier.url, topic=topics) as snapshot:
            found = [(queue.queue_id, queue.end_offset) for queue in snapshot.queues if queue.topic == empty]
            assert found == [(0, BEGINNING), (1, BEGINNING)]
            tier.seal(flights(empty, 7))
            assert snapshot.load().count() == count, "what comes later is not in it"
            (broker,) = snapshot.receipt().targets("g").values()
            target = next(each for each in broker if each.topic == empty)
            assert (target.incarnation, target.queues, target.is_whole) == (None, [], True)


def starts(tier: ColdTier, **options: str) -> dict[int, int | None]:
    """From where on a group must not have messages left, by queue."""
    with tc.open(WITHOUT_SPARK, tier.url, topic="orders", options=options) as snapshot:
        (broker,) = snapshot.receipt().targets("g").values()
        return {queue.queue_id: queue.start for target in broker for queue in target.queues}


def test_a_load_from_a_time_on_moves_no_group_past_messages_in_front_of_it(tier: ColdTier) -> None:
    """The range of such a load began at the oldest message, so a broker took a group there for one that had read on."""
    log = flights("orders", 400, queue_count=2)
    catalog = tier.seal_in_pieces(log, 4)
    ends = log.ends()
    second, third = catalog.topics["orders"].segments[1:3]
    assert starts(tier) == dict.fromkeys(ends, 0)
    assert starts(tier, startingTimestamp="0") == dict.fromkeys(ends, 0)
    within = (second.min_store_ms + second.max_store_ms) // 2
    assert starts(tier, startingTimestamp=str(within)) == {run.queue_id: run.end_offset for run in second.runs}
    assert starts(tier, startingTimestamp="9" * 15) == ends
    first = json.dumps({"orders": {"0": ends[0] - 1}})
    assert starts(tier, startingTimestamp=str(within), startingOffsets=first)[0] == ends[0] - 1
    cut = TopicChange(topic="orders", incarnation=1, expired_before_ms=third.max_store_ms + 1)
    tier.commit(LedgerChanges(topics=(cut,)))
    assert starts(tier, startingTimestamp=str(within)) == dict.fromkeys(ends, 0), "what has expired is no group's"


def test_a_load_from_a_group_and_a_time_on_is_no_whole_one(tier: ColdTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is where the load found it, so nothing else showed that messages were left out behind it."""
    log = flights("orders", 100, queue_count=1)
    catalog = tier.seal_in_pieces(log, 2)
    place = GroupPlace(
        queue=MessageQueue(topic="orders", broker_name="broker-a", queue_id=0),
        incarnation=1,
        min_offset=0,
        max_offset=100,
        offset=20,
    )
    answers = {("orders", "broker-a", 0): place}, {"broker-a": "uuid-broker-a"}
    monkeypatch.setattr(snapshot_module, "_ask_brokers", lambda *_, **__: answers)

    def obstacles(time_ms: int) -> tuple[str, ...]:
        options = {"startingTimestamp": str(time_ms)}
        with tc.open(
            WITHOUT_SPARK, tier.url, topic="orders", options=options, from_group="g", namesrv="127.0.0.1:1"
        ) as opened:
            assert [(queue.start_offset, queue.end_offset) for queue in opened.queues] == [(20, 100)]
            return opened.receipt().obstacles

    early, late = (segment.max_store_ms for segment in catalog.topics["orders"].segments)
    first = rows_of(log)[0]["timestamp"]
    assert obstacles(int(first.timestamp() * 1_000)) == ()
    assert obstacles(early) == obstacles(late) == ("it begins at a time behind the group's position",)


def test_brokers_of_one_name_in_two_clusters_are_no_snapshot(tier: ColdTier) -> None:
    """A range for both was that of one of them: the other's messages behind it were left out."""
    tier.seal(flights("orders", 100))
    ColdTier(tier.url, cluster="other").seal(flights("orders", 20))
    with pytest.raises(InvalidRequestError, match="have brokers of one name; name one cluster") as caught:
        tc.open(WITHOUT_SPARK, tier.url, topic="orders")
    assert "other/broker-a test/broker-a" in str(caught.value)
    assert pins(tier) == []
    with tc.open(WITHOUT_SPARK, f"{tier.url}/test", topic="orders") as snapshot:
        assert sum(queue.end_offset for queue in snapshot.queues) == 100


@pytest.mark.parametrize("options", [{"from_group": "g"}, {"seal": True}])
def test_brokers_are_found_by_name_servers(
    spark_session: SparkSession, tier: ColdTier, options: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError, match="name the NameServers"):
        tc.open(spark_session, tier.url, topic="orders", **options)  # type: ignore[arg-type]


# -- pins --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tier: ColdTier) -> tuple[ColdTier, BlockingStore, Catalog]:
    catalog = tier.seal_in_pieces(flights("orders", 100), 3)
    return tier, blocking_store(tier.url, StoreOptions()), catalog


def source(tier: ColdTier, version: int) -> ColdSource:
    return ColdSource(url=tier.url, root=tier.keys.root, broker_name="broker-a", version=version)


def found(store: BlockingStore, keys: BrokerKeys) -> list[tuple[int, int]]:
    return [(pin.version, pin.until_ms) for pin in store.run(list_pins(store.store, keys))]


def test_pins_are_renewed_and_released(kept: tuple[ColdTier, BlockingStore, Catalog]) -> None:
    tier, store, catalog = kept
    clock = Clock(1_800_000_000_000)
    keeper = PinKeeper([(store, source(tier, catalog.version))], owner="a test", clock=clock)
    assert found(store, tier.keys) == [(catalog.version, clock() + PIN_MS)]
    clock.now_ms += PIN_MS // 2
    keeper.renew()
    assert found(store, tier.keys) == [(catalog.version, clock() + PIN_MS)]
    keeper.check()
    keeper.close()
    keeper.close()
    assert found(store, tier.keys) == []


def test_a_version_that_is_gone_is_not_pinned(kept: tuple[ColdTier, BlockingStore, Catalog]) -> None:
    tier, store, catalog = kept
    wrong = [(store, source(tier, catalog.version)), (store, source(tier, catalog.version + 9))]
    with pytest.raises(VersionExpiredError):
        PinKeeper(wrong, owner="a test", clock=Clock(1_800_000_000_000))
    assert found(store, tier.keys) == [], "what was pinned before is released"


def test_a_pin_that_was_lost_is_remembered(kept: tuple[ColdTier, BlockingStore, Catalog]) -> None:
    tier, store, catalog = kept
    clock = Clock(1_800_000_000_000)
    keeper = PinKeeper([(store, source(tier, catalog.version))], owner="a test", clock=clock)
    store.run(store.store.delete(tier.keys.pin(keeper.pin_id)))
    first = catalog.topics["orders"].segments[0]
    tier.commit(LedgerChanges(segments_out=(SegmentOut("orders", first.segment_id),)))
    collect_garbage(tier)
    clock.now_ms += PIN_MS
    for use in (keeper.renew, keeper.check):
        with pytest.raises(VersionExpiredError, match="not held all the time"):
            use()
    keeper.close()


def test_a_pin_that_had_run_out_is_lost_though_its_version_is_there(
    kept: tuple[ColdTier, BlockingStore, Catalog],
) -> None:
    """Plans that were made in between have left out what had expired."""
    tier, store, catalog = kept
    for use in ("check", "renew"):
        clock = Clock(1_800_000_000_000)
        keeper = PinKeeper([(store, source(tier, catalog.version))], owner="a test", clock=clock)
        clock.now_ms += PIN_MS
        with pytest.raises(VersionExpiredError, match="not held all the time"):
            getattr(keeper, use)()
        with pytest.raises(VersionExpiredError, match="not held all the time"):
            keeper.check()
        keeper.close()


def test_a_store_that_gives_no_answer_loses_no_pin(
    kept: tuple[ColdTier, BlockingStore, Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, store, catalog = kept
    keeper = PinKeeper([(store, source(tier, catalog.version))], owner="a test", clock=Clock(1_800_000_000_000))

    async def fail(*_: object) -> None:
        raise ObjectStoreUnavailableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store.store, "put", fail)
        with pytest.raises(ObjectStoreUnavailableError):
            keeper.renew()
    keeper.check()
    keeper.renew()
    keeper.close()
