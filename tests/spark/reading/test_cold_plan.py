"""Resolving a read: versions, ranges, expiry, what is missing; on a real ledger in memory."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cold_tier import NOW_MS, ColdTier, directory_url, flights
from tests.tiered.cold_data import START_MS
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
)
from thermocline.spark.reading.cold_plan import pinned_options, resolve_plan
from thermocline.spark.reading.read_plan import ReadPlan
from thermocline.spark.reading.source_options import read_options_from
from thermocline.tiered.catalog.ledger_entry import (
    CatalogSettings,
    DamagedPart,
    LedgerChanges,
    LostRange,
    Quarantine,
    QueueHole,
    SegmentOut,
    TopicChange,
    TopicDelete,
)
from thermocline.tiered.ledger.pins import Pin, encode_pin
from thermocline.tiered.objects.errors import QuarantinedError, VersionExpiredError
from thermocline.tiered.state.snapshot import TOPICS

_names = itertools.count()


@pytest.fixture
def tier() -> ColdTier:
    """An empty cold tier."""
    return ColdTier(f"memory://plan-{next(_names)}")


def plan(url: str, topic: str = "orders", *, now_ms: int = NOW_MS, **options: str) -> ReadPlan:
    return resolve_plan(read_options_from({"path": url, "topic": topic} | options), now_ms=now_ms)


def ranges(found: ReadPlan) -> dict[tuple[str, str, int], tuple[int, int]]:
    return {
        (queue.source.broker_name, queue.topic, queue.queue_id): (queue.start_offset, queue.end_offset)
        for queue in found.queues
    }


def sliced(found: ReadPlan) -> int:
    """How many offsets the tasks read."""
    return sum(part.end_offset - part.start_offset for task in found.tasks for part in task)


def test_everything_is_read_by_default(tier: ColdTier) -> None:
    log = flights("orders", 900)
    tier.seal_in_pieces(log, 3)
    found = plan(tier.url)
    assert ranges(found) == {("broker-a", "orders", queue_id): (0, end) for queue_id, end in log.ends().items()}
    assert sliced(found) == 900
    assert [source.version for source in found.sources] == [tier.version]


def test_offsets_bound_the_range_of_each_queue(tier: ColdTier) -> None:
    log = flights("orders", 900)
    tier.seal_in_pieces(log, 3)
    end_of_1 = log.ends()[1]
    found = plan(
        tier.url,
        queues="0,1,broker-a:2",
        startingOffsets=json.dumps({"orders": {"broker-a:0": 10, "1": -1}}),
        endingOffsets=json.dumps({"orders": {"broker-a:0": 150, "2": -2}}),
    )
    assert ranges(found) == {
        ("broker-a", "orders", 0): (10, 150),
        ("broker-a", "orders", 1): (end_of_1, end_of_1),
        ("broker-a", "orders", 2): (0, 0),
    }
    assert sliced(found) == 140


def test_a_queue_that_no_broker_has_is_refused(tier: ColdTier) -> None:
    """A queue without messages and saved state is refused, not read as empty; the saved state lists an empty one."""
    tier.seal(flights("orders", 100, queue_count=1))
    assert ranges(plan(tier.url, queues="77")) == {}, "no saved state lists the queues"
    tier.save_state({TOPICS: {"topicConfigTable": {"orders": {"readQueueNums": 2, "writeQueueNums": 4}}}})
    assert ranges(plan(tier.url, queues="0,broker-a:3")) == {("broker-a", "orders", 0): (0, 100)}
    for queue in ("4", "broker-a:4", "broker-b:0"):
        with pytest.raises(InvalidRequestError, match=rf"has queue {queue};.* option=queues .*brokers=broker-a"):
            plan(tier.url, queues=f"0,{queue}")
        assert sliced(plan(tier.url, queues=f"0,{queue}", failOnDataLoss="false")) == 100


@pytest.mark.parametrize("queue", ["7", "broker-a:7"])
def test_offsets_of_a_queue_without_a_message_are_data_loss(tier: ColdTier, queue: str) -> None:
    """As those behind a queue's end are: a wrong number of a queue was passed over, and all of the right one read."""
    tier.seal(flights("orders", 100, queue_count=1))
    for option in ("startingOffsets", "endingOffsets"):
        wrong = {option: json.dumps({"orders": {queue: 40}})}
        with pytest.raises(OffsetOutOfRangeError, match=f"offset 40 of queue {queue} .* option={option} topic=orders"):
            plan(tier.url, **wrong)
        assert sliced(plan(tier.url, failOnDataLoss="false", **wrong)) == 100
        assert sliced(plan(tier.url, queues="0", **wrong)) == 100, "a queue that is not read"
        for offset in (0, -1, -2):
            assert sliced(plan(tier.url, **{option: json.dumps({"orders": {queue: offset}})})) == 100


def test_an_end_before_the_start_is_an_empty_range(tier: ColdTier) -> None:
    tier.seal(flights("orders", 100, queue_count=1))
    found = plan(tier.url, startingOffsets='{"orders": {"0": 50}}', endingOffsets='{"orders": {"0": 20}}')
    assert ranges(found) == {("broker-a", "orders", 0): (50, 50)}
    assert found.tasks == ()


def test_offsets_of_topics_that_are_not_read_are_refused(tier: ColdTier) -> None:
    """They would be read over, and everything from its beginning."""
    tier.seal(flights("orders", 100, queue_count=1))
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(
            InvalidRequestError, match=f"the offsets are of payments, which is not read option={option}"
        ):
            plan(tier.url, **{option: '{"payments": {"0": 5}}'})
        other = {option: '{"orders": {"broker-b:0": 5}}'}
        with pytest.raises(InvalidRequestError, match=rf"queue broker-b:0, .* option={option} .*brokers=broker-a"):
            plan(tier.url, **other)
        assert sliced(plan(tier.url, failOnDataLoss="false", **other)) == 100
    both = '{"payments": {"0": 5}, "orders": {"broker-a:0": 40}}'
    assert ranges(plan(tier.url, startingOffsets=both)) == {("broker-a", "orders", 0): (40, 100)}


@pytest.mark.parametrize(
    ("option", "offset", "problem"),
    [("startingOffsets", 4, "any more"), ("startingOffsets", 101, "yet"), ("endingOffsets", 101, "yet")],
)
def test_offsets_that_are_not_there_are_data_loss(tier: ColdTier, option: str, offset: int, problem: str) -> None:
    log = flights("orders", 100, queue_count=1)
    tier.seal(log, starts={0: 5})
    wrong = {option: json.dumps({"orders": {"0": offset}})}
    with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} of queue broker-a:0 .* {problem}"):
        plan(tier.url, **wrong)
    found = plan(tier.url, failOnDataLoss="false", **wrong)
    start, end = ranges(found)[("broker-a", "orders", 0)]
    assert (start, end) in {(5, 100), (100, 100)}


def test_declared_holes_are_stepped_over_and_other_gaps_are_data_loss(
    tier: ColdTier, caplog: pytest.LogCaptureFixture
) -> None:
    log = flights("orders", 300, queue_count=1)
    tier.seal(log, ends={0: 100})
    tier.seal(log, starts={0: 200})
    with pytest.raises(CorruptDataError, match=r"queue=broker-a:0 offsets=\[100, 200\)"):
        plan(tier.url)
    assert sliced(plan(tier.url, failOnDataLoss="false")) == 200
    assert sliced(plan(tier.url, endingOffsets='{"orders": {"0": 100}}')) == 100
    tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, holes=(QueueHole(0, 100, 200),)),)))
    caplog.clear()
    found = plan(tier.url)
    assert ranges(found) == {("broker-a", "orders", 0): (0, 300)}
    assert sliced(found) == 200
    (warning,) = caplog.messages
    assert warning.endswith("topic=orders queue=broker-a:0 offsets=[100, 200)")
    caplog.clear()
    plan(tier.url, endingOffsets='{"orders": {"0": 100}}')
    assert caplog.messages == []


def test_a_broker_that_two_urls_name_is_not_read_twice(tmp_path: Path) -> None:
    """As by `s3://` and `s3a://`: each message came twice."""
    tier = ColdTier(directory_url(tmp_path))
    tier.seal(flights("orders", 10))
    with pytest.raises(InvalidRequestError, match="two URLs name one broker"):
        plan(tier.url, paths=f"{tier.url},{tier.url}/../{tmp_path.name}")


def test_a_quarantined_range_is_data_loss_wherever_it_is_stored(tier: ColdTier) -> None:
    log = flights("orders", 300, queue_count=1)
    for start in (0, 100, 200):
        tier.seal(log, starts={0: start}, ends={0: start + 100})
    first, _, last = tier.entries("orders")
    tier.commit(
        LedgerChanges(
            quarantine=tuple(
                Quarantine(
                    segment=segment,
                    damage=(DamagedPart(segment.log.key, "missing"),),
                    lost=(LostRange(0, run.start_offset, run.end_offset),),
                )
                for segment in (first, last)
                for run in segment.runs
            )
        )
    )
    with pytest.raises(QuarantinedError, match=r"offsets=\[0, 100\) objects=.*\.log \(missing\)"):
        plan(tier.url)
    with pytest.raises(QuarantinedError, match=r"offsets=\[200, 250\)"):
        plan(tier.url, startingOffsets='{"orders": {"0": 150}}', endingOffsets='{"orders": {"0": 250}}')
    within = {"startingOffsets": '{"orders": {"0": 100}}', "endingOffsets": '{"orders": {"0": 200}}'}
    assert sliced(plan(tier.url, **within)) == 100
    found = plan(tier.url, failOnDataLoss="false")
    assert ranges(found) == {("broker-a", "orders", 0): (0, 300)}
    assert sliced(found) == 100


def test_unknown_names_are_distinguished(tier: ColdTier) -> None:
    tier.seal(flights("orders", 10))
    with pytest.raises(TopicNotFoundError, match="'payments'"):
        plan(tier.url, "orders,payments")
    with pytest.raises(ObjectNotFoundError, match="no cold tier at this URL"):
        plan("memory://nothing-here")


def test_errors_have_no_keys_of_the_url(tier: ColdTier) -> None:
    tier.seal(flights("orders", 10))
    keys = "?access_key=AKIDSECRET&secret_key=TOPSECRET&session_token=TOKENSECRET"
    for url, topic in ((f"{tier.url}{keys}", "payments"), (f"memory://nothing{keys}", "orders")):
        with pytest.raises(ObjectNotFoundError) as caught:
            plan(url, topic)
        assert "secret_key=***" in str(caught.value)
        assert "SECRET" not in str(caught.value)
    assert "SECRET" not in repr(plan(f"{tier.url}{keys}"))


# -- expiry --------------------------------------------------------------------------------------------------------


def visible_from(found: ReadPlan) -> set[int]:
    return {queue.visible_from_ms for queue in found.queues}


def test_the_cut_is_the_later_of_ttl_and_what_has_expired_before(tier: ColdTier) -> None:
    tier.seal(flights("orders", 10))
    assert visible_from(plan(tier.url)) == {0}
    tier.commit(LedgerChanges(settings=CatalogSettings(default_ttl_ms=5_000)))
    assert visible_from(plan(tier.url)) == {NOW_MS - 5_000}
    tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, ttl_ms=9_000),)))
    assert visible_from(plan(tier.url)) == {NOW_MS - 9_000}
    expired = TopicChange(topic="orders", incarnation=1, ttl_ms=9_000, expired_before_ms=NOW_MS - 7_000)
    tier.commit(LedgerChanges(topics=(expired,)))
    assert visible_from(plan(tier.url)) == {NOW_MS - 7_000}
    assert visible_from(plan(tier.url, now_ms=NOW_MS + 5_000)) == {NOW_MS - 4_000}


def test_wholly_expired_segments_are_not_read(tier: ColdTier) -> None:
    log = flights("orders", 600)
    tier.seal_in_pieces(log, 3)
    newest = tier.entries("orders")[-1]
    cut = LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, expired_before_ms=newest.max_store_ms),))
    tier.commit(cut)
    read = {part.segment_id for task in plan(tier.url).tasks for part in task}
    assert read == {newest.segment_id}


def pin(tier: ColdTier, version: int, *, until_ms: int = NOW_MS + 120_000) -> str:
    """Hold a version; the pin's id."""
    pin_id = f"test-{next(_names)}"
    made = Pin(pin_id=pin_id, version=version, until_ms=until_ms, owner="a test")
    tier.write_object(tier.keys.pin(pin_id), encode_pin(made))
    return pin_id


def test_an_old_version_is_read_under_todays_cut_unless_its_pin_is_held(tier: ColdTier) -> None:
    tier.seal(flights("orders", 10))
    old = tier.version
    opened = plan(tier.url)
    tier.commit(LedgerChanges(settings=CatalogSettings(default_ttl_ms=5_000)))
    assert visible_from(plan(tier.url, snapshotVersion=str(old))) == {NOW_MS - 5_000}
    options = {"snapshotVersion": str(old), "snapshotTimestamp": str(START_MS)}
    assert visible_from(plan(tier.url, **options)) == {NOW_MS - 5_000}
    held = pinned_options(opened, pin_id=pin(tier, old))
    assert visible_from(plan(tier.url, **held)) == {0}
    assert visible_from(plan(tier.url, now_ms=NOW_MS + 120_000, **held)) == {NOW_MS + 115_000}, "it has run out"
    for wrong in (pin(tier, old + 1), "gone"):
        assert visible_from(plan(tier.url, **pinned_options(opened, pin_id=wrong))) == {NOW_MS - 5_000}


def test_no_moment_in_the_past_brings_back_expired_rows(tier: ColdTier) -> None:
    tier.seal(flights("orders", 10))
    tier.commit(LedgerChanges(settings=CatalogSettings(default_ttl_ms=5_000)))
    for timestamp_ms, moment_ms in ((0, NOW_MS), (NOW_MS - 1, NOW_MS), (NOW_MS + 7, NOW_MS + 7)):
        found = plan(tier.url, snapshotTimestamp=str(timestamp_ms))
        assert visible_from(found) == {moment_ms - 5_000}
        assert found.snapshot_ms == moment_ms


@pytest.mark.parametrize("text", ["{}", "[]", '{"id": 1, "cuts": {}}', '{"id": "a", "cuts": 3}', "word"])
def test_a_pin_option_is_what_open_wrote(tier: ColdTier, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="snapshotPin"):
        plan(tier.url, snapshotPin=text)


# -- versions ------------------------------------------------------------------------------------------------------


def test_a_version_can_be_read_again(tier: ColdTier) -> None:
    log = flights("orders", 300)
    tier.seal(log, ends=dict.fromkeys(log.ends(), 20))
    old = tier.version
    tier.seal(log, starts=dict.fromkeys(log.ends(), 20))
    assert sliced(plan(tier.url)) == 300
    found = plan(tier.url, snapshotVersion=str(old))
    assert sliced(found) == 80
    assert [source.version for source in found.sources] == [old]
    with pytest.raises(VersionExpiredError, match="version=999"):
        plan(tier.url, snapshotVersion="999")


def test_pinned_options_resolve_to_the_same_plan(tier: ColdTier) -> None:
    log = flights("orders", 300)
    tier.commit(LedgerChanges(settings=CatalogSettings(default_ttl_ms=NOW_MS - START_MS)))
    tier.seal(log, ends=dict.fromkeys(log.ends(), 20))
    first = plan(tier.url)
    tier.seal(log, starts=dict.fromkeys(log.ends(), 20))
    tier.commit(LedgerChanges(settings=CatalogSettings(default_ttl_ms=1)))
    again = plan(tier.url, now_ms=NOW_MS + 60_000, **pinned_options(first, pin_id=pin(tier, first.sources[0].version)))
    assert again == first


def test_a_topic_deleted_since_is_gone_from_old_versions_too(tier: ColdTier) -> None:
    log = flights("orders", 100)
    tier.seal(log)
    old = str(tier.version)
    tier.commit(LedgerChanges(topics_deleted=(TopicDelete("orders", 1),)))
    for version in ({}, {"snapshotVersion": old}):
        with pytest.raises(TopicNotFoundError):
            plan(tier.url, **version)


def test_segments_that_left_the_catalog_are_not_read(tier: ColdTier) -> None:
    log = flights("orders", 300)
    tier.seal_in_pieces(log, 3)
    first = tier.entries("orders")[0]
    tier.commit(LedgerChanges(segments_out=(SegmentOut("orders", first.segment_id),)))
    found = plan(tier.url)
    assert {start for start, _ in ranges(found).values()} == {end // 3 for end in log.ends().values()}


# -- several places ------------------------------------------------------------------------------------------------


@pytest.fixture
def two_brokers() -> dict[str, Any]:
    """Two brokers of one cluster with the topic `orders`, one of them with `payments` too."""
    url = f"memory://plan-{next(_names)}"
    tiers = {name: ColdTier(url, broker_name=name) for name in ("broker-a", "broker-b")}
    for name, count in (("broker-a", 100), ("broker-b", 60)):
        tiers[name].seal(flights("orders", count, queue_count=1))
    tiers["broker-b"].seal(flights("payments", 30, queue_count=1))
    return {"url": url, "tiers": tiers}


def test_all_brokers_under_a_prefix_are_read(two_brokers: dict[str, Any]) -> None:
    found = plan(two_brokers["url"], "orders,payments")
    assert ranges(found) == {
        ("broker-a", "orders", 0): (0, 100),
        ("broker-b", "orders", 0): (0, 60),
        ("broker-b", "payments", 0): (0, 30),
    }
    assert ranges(plan(two_brokers["url"], queues="broker-b:0")) == {("broker-b", "orders", 0): (0, 60)}


def test_versions_are_named_by_broker(two_brokers: dict[str, Any]) -> None:
    versions = {tier.keys.root: tier.version for tier in two_brokers["tiers"].values()}
    found = plan(two_brokers["url"], snapshotVersion=json.dumps(versions))
    assert {source.root: source.version for source in found.sources} == versions
    with pytest.raises(InvalidRequestError, match="a version for each"):
        plan(two_brokers["url"], snapshotVersion="2")
    with pytest.raises(InvalidRequestError, match="broker=test/broker-b"):
        plan(two_brokers["url"], snapshotVersion='{"test/broker-a": 2}')
