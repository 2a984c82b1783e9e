"""Streams of the cold tier alone: rows read, their batches, and errors for data that does not exist any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.spark.cold_tier import ColdTier, by_place, directory_url, flights, rows_of
from tests.spark.streaming.micro_batches import Journal, MicroBatches
from tests.tiered.cold_data import Log
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
    UnavailableError,
)
from thermocline.spark.access.store_url import STRANGERS_MAX
from thermocline.spark.reading.pruning_filters import SimpleFilter, filters_text
from thermocline.spark.streaming.live_client import close_live_clients
from thermocline.spark.streaming.offset_line import OffsetLine
from thermocline.spark.streaming.open_stream import open_stream
from thermocline.tiered.catalog.ledger_entry import (
    DamagedPart,
    LedgerChanges,
    LostRange,
    Quarantine,
    QueueHole,
    SegmentOut,
    TopicChange,
    TopicDelete,
)
from thermocline.tiered.objects.errors import QuarantinedError
from thermocline.tiered.segments.segment_format import FrameInfo, decode_log_footer

AT_LEAST_50 = SimpleFilter("GreaterThanOrEqual", "queueOffset", 50)
QUIET = {"failOnDataLoss": "false"}
Place = tuple[str, str, int, int]


@pytest.fixture
def tier(tmp_path: Path) -> ColdTier:
    return ColdTier(directory_url(tmp_path))


def places(rows: list[dict[str, Any]]) -> set[Place]:
    """Where rows come from; one that comes twice fails."""
    return set(by_place(rows))


def wanted(log: Log, is_wanted: Callable[[dict[str, Any]], bool] = lambda row: True) -> set[Place]:
    return places([row for row in rows_of(log) if is_wanted(row)])


def in_order(rows: list[dict[str, Any]]) -> bool:
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        queue = (row["brokerName"], row["queueId"])
        if row["queueOffset"] <= last.get(queue, -1):
            return False
        last[queue] = row["queueOffset"]
    return True


def test_every_message_once_in_order_in_batches_of_bounded_offsets(tier: ColdTier) -> None:
    log = flights("orders", 2_000, queue_count=3)
    tier.seal_in_pieces(log, 4)
    journal = Journal()
    count = MicroBatches(journal, tier.url, maxOffsetsPerTrigger="300").run_available()
    assert 7 <= count <= 12
    assert max(len(rows) for rows in journal.batches) <= 300
    assert places(journal.rows) == wanted(log)
    assert in_order(journal.rows)


def test_a_checkpoint_of_other_topics_is_refused(tier: ColdTier) -> None:
    """Its last batch, when that was not done, was read into the query; then the topic from its oldest message."""
    for topic in ("orders", "payments", "returns"):
        tier.seal(flights(topic, 100, queue_count=1))
    journal = Journal()
    MicroBatches(journal, tier.url, maxOffsetsPerTrigger="50").plan()
    other = MicroBatches(journal, tier.url, topic="payments")
    with pytest.raises(InvalidRequestError, match=r"a query of other topics.*checkpoint_topic=orders"):
        other.run_batch()
    assert MicroBatches(journal, tier.url, maxOffsetsPerTrigger="50").run_batch()
    with pytest.raises(InvalidRequestError, match="a query of other topics"):
        other.run_batch()
    more = MicroBatches(journal, tier.url, topic="orders,payments")
    more.run_available()
    assert {row["topic"] for row in journal.rows} == {"orders", "payments"}
    assert len(places(journal.rows)) == 200


def test_batches_are_bounded_in_bytes_and_every_queue_moves(tier: ColdTier) -> None:
    log = flights("orders", 3_000, queue_count=3)
    tier.seal_in_pieces(log, 2)
    raw_bytes = sum(len(record) for queue in log.queues.values() for record in queue.records)
    journal = Journal()
    MicroBatches(journal, tier.url, maxBytesPerTrigger=str(raw_bytes // 6)).run_available()
    assert {row["queueId"] for row in journal.batches[0]} == {0, 1, 2}
    assert max(len(rows) for rows in journal.batches) < 3_000 / 6 * 1.5
    assert places(journal.rows) == wanted(log)


def test_a_message_a_batch_when_the_bound_is_below_one(tier: ColdTier) -> None:
    log = flights("orders", 12, queue_count=2)
    tier.seal(log)
    journal = Journal()
    assert MicroBatches(journal, tier.url, maxBytesPerTrigger="1").run_available() == 12
    assert places(journal.rows) == wanted(log)


def test_one_batch_without_a_limit(tier: ColdTier) -> None:
    log = flights("orders", 500)
    tier.seal_in_pieces(log, 2)
    journal = Journal()
    MicroBatches(journal, tier.url, maxOffsetsPerTrigger="10").run_once()
    assert places(journal.rows) == wanted(log)


def test_tasks_of_a_large_batch_keep_the_order(tier: ColdTier) -> None:
    log = flights("orders", 2_000, queue_count=2)
    tier.seal_in_pieces(log, 3)
    journal = Journal()
    batches = MicroBatches(journal, tier.url, maxPartitionBytes="40k")
    assert batches.plan()
    assert len(batches.partitions()) > 5
    batches.run_batch()
    assert places(journal.rows) == wanted(log)
    assert in_order(journal.rows)


def test_nothing_new_is_the_same_offset_and_no_batch(tier: ColdTier) -> None:
    tier.seal(flights("orders", 100))
    journal = Journal()
    batches = MicroBatches(journal, tier.url)
    assert batches.run_available() == 1
    assert not batches.run_batch()
    assert not MicroBatches(journal, tier.url).run_batch()
    assert len(journal.ends) == 1


def test_new_queues_and_brokers_are_taken_in_without_a_restart(tier: ColdTier) -> None:
    log = flights("orders", 100, queue_count=1)
    tier.seal(log)
    journal = Journal()
    batches = MicroBatches(journal, tier.url, startingOffsets="latest")
    assert not batches.run_batch()
    before = log.ends()
    log.queue_count = 3
    log.append_flights(200)
    tier.seal(log, starts=before)
    other_log = flights("orders", 60, seed=2)
    ColdTier(tier.url, broker_name="broker-b").seal(other_log)
    while batches.run_batch():
        pass
    new = wanted(log, lambda row: row["queueId"] > 0 or row["queueOffset"] >= 100)
    assert places(journal.rows) == new | places(rows_of(other_log, broker_name="broker-b"))


@pytest.mark.parametrize("more", [0, 60])
@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"startingOffsets": '{"orders": {"0": 130}}'}, {}])
def test_a_first_batch_that_was_not_done_starts_where_the_query_began(
    tier: ColdTier, options: dict[str, str], more: int
) -> None:
    """Spark asks anew where the query begins: at `latest` by then, so the messages of the batch were in no batch."""
    log = flights("orders", 200, queue_count=1)
    tier.seal(log, ends={0: 100})
    journal = Journal()
    first = MicroBatches(journal, tier.url, startingOffsets="latest")
    assert not first.plan()
    tier.seal(log, starts={0: 100}, ends={0: 140})
    assert first.plan()
    if more:
        tier.seal(log, starts={0: 140}, ends={0: 140 + more})
    MicroBatches(journal, tier.url, **options).run_available()
    assert [row["queueOffset"] for row in journal.rows] == list(range(100, 140 + more))
    assert len(journal.batches[0]) == 40


def test_messages_after_the_start_of_an_available_now_wait_for_the_next(tier: ColdTier) -> None:
    log = flights("orders", 100, queue_count=1)
    tier.seal(log)
    journal = Journal()
    batches = MicroBatches(journal, tier.url, maxOffsetsPerTrigger="30")
    batches.reader.prepareForTriggerAvailableNow()
    assert batches.run_batch()
    before = log.ends()
    log.queue_count = 2
    log.append_flights(100)
    tier.seal(log, starts=before)
    while batches.run_batch():
        pass
    assert len(journal.rows) == 100
    MicroBatches(journal, tier.url).run_available()
    assert places(journal.rows) == wanted(log)


def test_beginnings_and_filters(tier: ColdTier) -> None:
    log = flights("orders", 400, queue_count=2)
    tier.seal_in_pieces(log, 2)
    moment = rows_of(log)[150]["timestamp"]
    keys = sorted({row["key"] for row in rows_of(log)})
    assert len(keys) > 350
    cases: dict[str, tuple[dict[str, str], Callable[[dict[str, Any]], bool]]] = {
        "json": (
            {"startingOffsets": '{"orders": {"broker-a:0": 50, "1": -1}}'},
            lambda row: row["queueId"] == 0 and row["queueOffset"] >= 50,
        ),
        "time": ({"startingTimestamp": moment.isoformat()}, lambda row: row["timestamp"] >= moment),
        "queues": ({"queues": "1"}, lambda row: row["queueId"] == 1),
        "tags": ({"tags": "UA || DL"}, lambda row: row["tag"] in ("UA", "DL")),
        "latest": ({"startingOffsets": "latest"}, lambda row: False),
        "keys": ({"keys": f"{keys[7]} {keys[333]} nowhere-key"}, lambda row: row["key"] in (keys[7], keys[333])),
        "no key": ({"keys": "nowhere-key"}, lambda row: False),
        "where offset and key": (
            {"where": filters_text([AT_LEAST_50, SimpleFilter("In", "key", keys[:300])])},
            lambda row: row["queueOffset"] >= 50 and row["key"] in keys[:300],
        ),
        "where queue": (
            {"where": filters_text([SimpleFilter("EqualTo", "queueId", 1, True), AT_LEAST_50]), "tags": "UA || DL"},
            lambda row: row["queueId"] != 1 and row["queueOffset"] >= 50 and row["tag"] in ("UA", "DL"),
        ),
        "where tag": (
            {"where": filters_text([SimpleFilter("EqualTo", "tag", "UA")]), "tags": "UA || DL"},
            lambda row: row["tag"] == "UA",
        ),
        "where time": (
            {"where": filters_text([SimpleFilter("LessThan", "timestamp", int(moment.timestamp() * 1_000) * 1_000)])},
            lambda row: row["timestamp"] <= moment,  # pruned below the millisecond by Spark
        ),
    }
    for name, (options, is_wanted) in cases.items():
        journal = Journal()
        MicroBatches(journal, tier.url, maxOffsetsPerTrigger="90", **options).run_available()
        assert places(journal.rows) == wanted(log, is_wanted), name


@pytest.mark.parametrize("begun_with", [None, 150])
def test_a_restarted_query_goes_on_whatever_starting_time_it_is_given(tier: ColdTier, begun_with: int | None) -> None:
    """As of a program that says "since yesterday", and was stopped for two days: messages in between were left out."""
    log = flights("orders", 400, queue_count=2)
    tier.seal_in_pieces(log, 2)
    rows = rows_of(log)
    moment, last = rows[begun_with or 0]["timestamp"], max(row["timestamp"] for row in rows)
    options = {} if begun_with is None else {"startingTimestamp": moment.isoformat()}
    journal = Journal()
    first = MicroBatches(journal, tier.url, maxOffsetsPerTrigger="90", **options)
    assert first.run_batch()
    assert first.plan()
    for later in (last.isoformat(), "0"):
        assert MicroBatches(journal, tier.url, maxOffsetsPerTrigger="90", startingTimestamp=later).run_batch()
    MicroBatches(journal, tier.url).run_available()
    assert places(journal.rows) == wanted(log, lambda row: begun_with is None or row["timestamp"] >= moment)


def test_the_option_counts_for_a_checkpoint_that_says_no_starting_time(tier: ColdTier) -> None:
    """One that an earlier release has written: its batches stay the same."""
    log = flights("orders", 400, queue_count=2)
    tier.seal_in_pieces(log, 2)
    moment = rows_of(log)[150]["timestamp"]
    options = {"startingTimestamp": moment.isoformat(), "maxOffsetsPerTrigger": "60"}
    journal = Journal()
    assert MicroBatches(journal, tier.url, **options).run_batch()
    older = json.loads(journal.ends[0])
    del older["startingTimestamp"]
    journal.ends[0] = json.dumps(older)
    MicroBatches(journal, tier.url, **options).run_available()
    assert not MicroBatches(journal, tier.url, **options).run_batch(), "nothing new is the same line"
    assert "startingTimestamp" not in journal.ends[-1]
    assert places(journal.rows) == wanted(log, lambda row: row["timestamp"] >= moment)


def test_a_starting_offset_counts_for_a_queue_without_a_message_too(tier: ColdTier) -> None:
    """It was forgotten, and the queue read from its oldest message."""
    log = flights("orders", 200, queue_count=2)
    tier.seal(log, ends={0: 50})
    journal = Journal()
    first = MicroBatches(journal, tier.url, startingOffsets='{"orders": {"broker-a:0": 20, "broker-a:1": 30}}')
    assert first.run_batch()
    tier.seal(log, starts={0: 50})
    MicroBatches(journal, tier.url).run_available()
    starts = {0: 20, 1: 30}
    assert places(journal.rows) == wanted(log, lambda row: row["queueOffset"] >= starts[row["queueId"]])


@pytest.mark.parametrize(
    ("offsets", "problem"),
    [
        ('{"order": {"broker-a:0": 20}}', "the offsets are of order, which is not read"),
        ('{"orders": {"broker-A:0": 20}}', "names queue broker-A:0, whose broker is not in this cold tier"),
    ],
)
def test_starting_offsets_of_another_topic_or_broker_are_refused(tier: ColdTier, offsets: str, problem: str) -> None:
    """As in a batch read; everything was read from its beginning."""
    tier.seal(flights("orders", 100))
    with pytest.raises(InvalidRequestError, match=problem):
        MicroBatches(Journal(), tier.url, startingOffsets=offsets).run_batch()


def test_starting_offsets_wait_for_a_broker_that_is_away(tier: ColdTier) -> None:
    """Without its answer its queues are not known, and began at their oldest message."""
    tier.seal(flights("orders", 100))
    away = {"namesrvAddr": f"127.0.0.1:{free_port()}", "brokerTimeoutMs": "1"}
    with pytest.raises(UnavailableError, match="a broker does not answer, and the ends of its queues are needed"):
        MicroBatches(Journal(), tier.url, startingOffsets='{"orders": {"0": 20}}', **away).run_batch()
    close_live_clients()


def test_a_running_query_goes_on_when_many_folders_come_beside_its_brokers(tier: ColdTier, tmp_path: Path) -> None:
    """As its own output, by day; a query that begins there is refused, as it may miss brokers."""
    log = flights("orders", 100, queue_count=1)
    tier.seal(log, ends={0: 50})
    journal = Journal()
    query = MicroBatches(journal, tier.url)
    assert query.run_batch()
    for day in range(STRANGERS_MAX + 1):
        file = tmp_path / "week" / f"day={day:03}" / "part.parquet"
        file.parent.mkdir(parents=True)
        file.touch()
    tier.seal(log, starts={0: 50})
    assert query.run_batch()
    assert places(journal.rows) == wanted(log)
    with pytest.raises(InvalidRequestError, match="more than 100 other folders"):
        MicroBatches(journal, tier.url).run_batch()
    MicroBatches(journal, f"{tier.url}/test").run_available()


def test_every_url_of_a_stream_is_that_of_a_cold_tier(tier: ColdTier, tmp_path: Path) -> None:
    """A second one that was wrong, or held a broker of the same name, was passed over in silence."""
    tier.seal(flights("orders", 10))
    other = ColdTier(directory_url(tmp_path.with_name(f"{tmp_path.name}-other")), broker_name="broker-b")
    urls = f"{tier.url},{other.url}"
    with pytest.raises(ObjectNotFoundError, match=r"no cold tier at this URL .*other"):
        MicroBatches(Journal(), tier.url, paths=urls).run_batch()
    other.seal(flights("orders", 20))
    journal = Journal()
    MicroBatches(journal, tier.url, paths=urls).run_available()
    assert len(journal.rows) == 30
    ColdTier(other.url).seal(flights("orders", 5))
    with pytest.raises(InvalidRequestError, match="two brokers have one name"):
        MicroBatches(Journal(), tier.url, paths=urls).run_batch()


def test_a_batch_that_was_not_done_is_the_same_though_its_segments_were_replaced(tier: ColdTier) -> None:
    """The offsets decide; the version that the batch was planned on may be gone, with its objects."""
    log = flights("orders", 600, queue_count=2)
    tier.seal_in_pieces(log, 3)
    journal = Journal()
    first = MicroBatches(journal, tier.url, maxOffsetsPerTrigger="250")
    assert first.run_batch()
    assert first.plan()
    rows = [row for partition in first.partitions() for row in first.read(partition)]
    old = tier.entries("orders")
    tier.commit(LedgerChanges(segments_out=tuple(SegmentOut("orders", entry.segment_id) for entry in old)))
    tier.seal(log)
    for entry in old:
        for key in entry.keys:
            tier.delete_object(key)
    second = MicroBatches(journal, tier.url, maxOffsetsPerTrigger="250")
    assert second.run_batch()
    assert journal.batches[-1] == rows
    second.run_available()
    assert places(journal.rows) == wanted(log)
    assert in_order(journal.rows)


def test_a_batch_that_was_not_done_has_the_same_tasks_though_its_segments_were_replaced(tier: ColdTier) -> None:
    """Cut by the sizes of segments, others: a write that knows rows by their task stored some twice, and failed."""
    log = flights("orders", 900, queue_count=2)
    tier.seal_in_pieces(log, 3)
    journal = Journal()
    options = {"maxPartitionBytes": "30k", "maxOffsetsPerTrigger": "500"}
    first = MicroBatches(journal, tier.url, **options)
    assert first.plan()
    rows = [first.read(partition) for partition in first.partitions()]
    assert len(rows) > 5
    old = tier.entries("orders")
    tier.commit(LedgerChanges(segments_out=tuple(SegmentOut("orders", entry.segment_id) for entry in old)))
    other = ColdTier(tier.url, frame_bytes=3_000)
    ends = log.ends()
    other.seal(log, ends={queue: end // 5 for queue, end in ends.items()})
    other.seal(log, starts={queue: end // 5 for queue, end in ends.items()})
    second = MicroBatches(journal, tier.url, **options)
    assert [second.read(partition) for partition in second.partitions()] == rows
    second.run_available()
    assert places(journal.rows) == wanted(log)


def test_declared_holes_are_stepped_over(tier: ColdTier) -> None:
    log = flights("orders", 300, queue_count=1)
    tier.seal(log, ends={0: 100})
    tier.seal(log, starts={0: 200}, ends={0: 300})
    tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, holes=(QueueHole(0, 100, 200),)),)))
    journal = Journal()
    MicroBatches(journal, tier.url, maxOffsetsPerTrigger="70").run_available()
    assert places(journal.rows) == wanted(log, lambda row: not 100 <= row["queueOffset"] < 200)


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "70"}, {"maxBytesPerTrigger": "20k"}])
def test_a_hole_takes_no_share_of_a_batch(tier: ColdTier, limit: dict[str, str]) -> None:
    """After a recovery it is as long as 10^9 offsets: batches that counted them would be empty for days."""
    log = flights("orders", 5_100, queue_count=1)
    tier.seal(log, ends={0: 100})
    tier.seal(log, starts={0: 5_000})
    tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, holes=(QueueHole(0, 100, 5_000),)),)))
    journal = Journal()
    MicroBatches(journal, tier.url, **limit).run_available()
    assert places(journal.rows) == wanted(log, lambda row: not 100 <= row["queueOffset"] < 5_000)
    assert 2 <= len(journal.batches) <= 12


def test_an_undeclared_gap_is_data_loss(tier: ColdTier) -> None:
    log = flights("orders", 300, queue_count=1)
    tier.seal(log, ends={0: 100})
    tier.seal(log, starts={0: 200}, ends={0: 300})
    with pytest.raises(CorruptDataError, match=r"offsets are missing from the cold tier.*\[100, 200\)"):
        MicroBatches(Journal(), tier.url).run_available()
    journal = Journal()
    MicroBatches(journal, tier.url, **QUIET).run_available()
    assert places(journal.rows) == wanted(log, lambda row: not 100 <= row["queueOffset"] < 200)


def test_records_in_quarantine_are_data_loss(tier: ColdTier) -> None:
    log = flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    middle = tier.entries("orders")[1]
    kept = Quarantine(segment=middle, lost=(LostRange(0, 100, 200),), damage=(DamagedPart(middle.log.key, "checksum"),))
    tier.commit(LedgerChanges(quarantine=(kept,)))
    with pytest.raises(QuarantinedError, match=r"records are lost.*\[100, 200\)"):
        MicroBatches(Journal(), tier.url).run_available()
    journal = Journal()
    MicroBatches(journal, tier.url, **QUIET).run_available()
    assert places(journal.rows) == wanted(log, lambda row: not 100 <= row["queueOffset"] < 200)


@pytest.mark.parametrize("lost_count", [1, 3])
def test_a_new_stream_does_not_pass_over_records_in_quarantine(tier: ColdTier, lost_count: int) -> None:
    """Behind records in front of all others it began, in silence."""
    log = flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    kept = tuple(
        Quarantine(
            segment=segment,
            lost=(LostRange(0, 100 * number, 100 * number + 100),),
            damage=(DamagedPart(segment.log.key, "checksum"),),
        )
        for number, segment in enumerate(tier.entries("orders")[:lost_count])
    )
    tier.commit(LedgerChanges(quarantine=kept))
    with pytest.raises(QuarantinedError, match=r"records are lost.*\[0, 100\)"):
        MicroBatches(Journal(), tier.url).run_available()
    journal = Journal()
    MicroBatches(journal, tier.url, **QUIET).run_available()
    assert places(journal.rows) == wanted(log, lambda row: row["queueOffset"] >= 100 * lost_count)
    expire_before(tier, store_ms(log, 0, 299) + 1)
    MicroBatches(Journal(), tier.url).run_available()


def damaged(tier: ColdTier, log: Log) -> FrameInfo:
    """The frame in the middle of the second of three segments, which does not decompress any more."""
    tier.seal_in_pieces(log, 3)
    part = tier.entries("orders")[1].log
    footer = decode_log_footer(tier.read_object(part.key)[part.footer_start : part.end])
    (run,) = footer.runs
    frames = list(footer.frames_of(run, start_offset=run.start_offset, end_offset=run.end_offset))
    frame = frames[len(frames) // 2]
    tier.change_object(part.key, position=part.start + frame.position + frame.stored_bytes // 2)
    return frame


def test_a_damaged_frame_fails_the_batch_that_meets_it_or_is_left_out(tier: ColdTier) -> None:
    """Batches end within the frame: each leaves out its own offsets of it, and what follows is read."""
    log = flights("orders", 600, queue_count=1)
    frame = damaged(tier, log)
    assert 200 < frame.start_offset < frame.end_offset < 400
    journal = Journal()
    assert MicroBatches(journal, tier.url, maxOffsetsPerTrigger=str(frame.start_offset)).run_batch()
    batches = MicroBatches(journal, tier.url, maxOffsetsPerTrigger="3")
    key = tier.entries("orders")[1].log.key
    place = rf"object={key} .*frame={frame.index} offsets=\[{frame.start_offset}, {frame.end_offset}\) reason="
    for _ in range(2):  # not done, so planned again, and no better
        with pytest.raises(CorruptDataError, match=rf"a frame of the cold tier is damaged; .*{place}") as failure:
            batches.run_batch()
        assert failure.value.__cause__ is None
    assert places(journal.rows) == wanted(log, lambda row: row["queueOffset"] < frame.start_offset)
    skipping = {"onCorruptFrame": "skip", "maxOffsetsPerTrigger": "7"}
    MicroBatches(journal, tier.url, **skipping).run_available()
    inside = range(frame.start_offset, frame.end_offset)
    assert places(journal.rows) == wanted(log, lambda row: row["queueOffset"] not in inside)
    assert in_order(journal.rows)


@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_missing_object_fails_the_batch_that_meets_it_or_is_left_out(tier: ColdTier, is_read_before: bool) -> None:
    """Not by the option for damaged ones; and also with a footer that the worker has kept."""
    log = flights("orders", 600, queue_count=1)
    tier.seal_in_pieces(log, 3)
    if is_read_before:
        MicroBatches(Journal(), tier.url).run_available()
    part = tier.entries("orders")[1].log
    tier.delete_object(part.key)
    journal = Journal()
    batches = MicroBatches(journal, tier.url, onCorruptFrame="skip", maxOffsetsPerTrigger="150")
    place = rf"object={part.key} .*frames=\[\d+, \d+\) offsets=\[200, 300\)"
    with pytest.raises(ObjectNotFoundError, match=rf"removed by other hands than the broker's; .*{place}"):
        batches.run_available()
    assert places(journal.rows) == wanted(log, lambda row: row["queueOffset"] < 150)
    MicroBatches(journal, tier.url, maxOffsetsPerTrigger="150", **QUIET).run_available()
    assert places(journal.rows) == wanted(log, lambda row: not 200 <= row["queueOffset"] < 400)
    assert in_order(journal.rows)


def expire_before(tier: ColdTier, time_ms: int) -> None:
    tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, expired_before_ms=time_ms),)))


def store_ms(log: Log, queue_id: int, offset: int) -> int:
    row = next(row for row in rows_of(log) if (row["queueId"], row["queueOffset"]) == (queue_id, offset))
    return int(row["timestamp"].timestamp() * 1_000)


def test_a_new_stream_takes_messages_that_have_not_expired(tier: ColdTier) -> None:
    log = flights("orders", 600, queue_count=2)
    tier.seal_in_pieces(log, 3)
    cut_ms = store_ms(log, 0, 130)
    expire_before(tier, cut_ms)
    journal = Journal()
    MicroBatches(journal, tier.url, maxOffsetsPerTrigger="100").run_available()
    assert places(journal.rows) == wanted(log, lambda row: row["timestamp"].timestamp() * 1_000 >= cut_ms)


@pytest.mark.parametrize("cut_offset", [45, 130, 299])
def test_messages_that_expire_before_they_are_read_are_lost_exactly(tier: ColdTier, cut_offset: int) -> None:
    log = flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    journal = Journal()
    assert MicroBatches(journal, tier.url, maxOffsetsPerTrigger="40").run_batch()
    cut_ms = store_ms(log, 0, cut_offset)
    first = next(row["queueOffset"] for row in rows_of(log) if row["timestamp"].timestamp() * 1_000 >= cut_ms)
    expire_before(tier, cut_ms)
    with pytest.raises(OffsetOutOfRangeError, match=rf"expired.*before they were read.*\[40, {first}\)"):
        MicroBatches(journal, tier.url).run_available()
    MicroBatches(journal, tier.url, **QUIET).run_available()
    assert places(journal.rows) == wanted(log, lambda row: row["queueOffset"] < 40 or row["queueOffset"] >= first)


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_object_that_cannot_be_read_at_the_cut_is_left_to_the_tasks(tier: ColdTier, is_gone: bool) -> None:
    """Planning failed at it, also where options leave out what is gone or damaged: such a query could not go on."""
    log = flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    journal = Journal()
    assert MicroBatches(journal, tier.url, maxOffsetsPerTrigger="40").run_batch()
    expire_before(tier, store_ms(log, 0, 130))
    part = tier.entries("orders")[1].log
    if is_gone:
        tier.delete_object(part.key)
    else:
        tier.change_object(part.key, position=part.footer_start + 3)
    with pytest.raises(OffsetOutOfRangeError, match=r"expired.*before they were read.*\[40, 100\)"):
        MicroBatches(journal, tier.url).run_available()
    MicroBatches(journal, tier.url, **QUIET, onCorruptFrame="skip").run_available()
    assert places(journal.rows) == wanted(log, lambda row: row["queueOffset"] < 40 or row["queueOffset"] >= 200)


def test_a_cut_in_front_of_the_stream_takes_nothing_from_it(tier: ColdTier) -> None:
    log = flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    journal = Journal()
    assert MicroBatches(journal, tier.url, maxOffsetsPerTrigger="150").run_batch()
    expire_before(tier, store_ms(log, 0, 150))
    MicroBatches(journal, tier.url).run_available()
    assert places(journal.rows) == wanted(log)


def test_segments_that_are_swept_before_they_are_read(tier: ColdTier) -> None:
    log = flights("orders", 300, queue_count=1)
    tier.seal_in_pieces(log, 3)
    journal = Journal()
    assert MicroBatches(journal, tier.url, maxOffsetsPerTrigger="40").run_batch()
    expire_before(tier, store_ms(log, 0, 200))
    swept = tier.entries("orders")[:2]
    tier.commit(LedgerChanges(segments_out=tuple(SegmentOut("orders", entry.segment_id) for entry in swept)))
    with pytest.raises(OffsetOutOfRangeError, match=r"before they were read.*\[40, 200\)"):
        MicroBatches(journal, tier.url).run_available()
    MicroBatches(journal, tier.url, **QUIET).run_available()
    assert places(journal.rows) == wanted(log, lambda row: not 40 <= row["queueOffset"] < 200)


def test_a_topic_that_is_deleted_or_made_again_ends_the_query(tier: ColdTier) -> None:
    log = flights("orders", 100, queue_count=1)
    tier.seal(log)
    journal = Journal()
    MicroBatches(journal, tier.url).run_available()
    tier.commit(LedgerChanges(topics_deleted=(TopicDelete("orders", 1),)))
    batches = MicroBatches(journal, tier.url)
    with pytest.raises(CorruptDataError, match="was deleted since this query has read it"):
        batches.run_batch()
    with pytest.raises(TopicNotFoundError, match="neither in the cold tier nor on a broker"):
        MicroBatches(Journal(), tier.url).run_available()
    tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=2),)))
    with pytest.raises(CorruptDataError, match="was deleted and made again"):
        batches.run_batch()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "a stream has no such option"),
        ({"snapshotVersion": "3"}, "a stream has no such option; it goes on from batch to batch"),
        ({"SnapshotPin": '{"id": "a", "cuts": {}}'}, "a stream has no such option; it goes on from batch to batch"),
        ({"coldMaxOffsetsPerTrigger": "5"}, "bounded by maxBytesPerTrigger and maxOffsetsPerTrigger, cold and live"),
        ({"maxFilesPerTrigger": "5"}, "bounded by maxBytesPerTrigger and maxOffsetsPerTrigger"),
        ({"engine": "s3a"}, "its tasks fetch by the direct engine"),
        ({"metrics": "127.0.0.1:9"}, "see the query's progress"),
        ({"maxOffsetsPerTrigger": "0"}, "no number greater than zero"),
        ({"maxBytesPerTrigger": "many"}, "is no size"),
        ({"namesrvAddr": "host"}, "names no NameServer"),
        ({"brokerTimeoutMs": "soon"}, "no number greater than zero"),
    ],
)
def test_options_that_cannot_be(tier: ColdTier, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        MicroBatches(Journal(), tier.url, **options)


def test_missing_topics_are_refused(tier: ColdTier, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="no cold tier"):
        MicroBatches(Journal(), directory_url(tmp_path / "nowhere")).run_batch()
    tier.seal(flights("orders", 10))
    with pytest.raises(TopicNotFoundError):
        MicroBatches(Journal(), tier.url, topic="nothing").run_batch()


def test_brokers_of_one_name_in_two_clusters_are_not_one_line(tier: ColdTier) -> None:
    tier.seal(flights("orders", 10))
    ColdTier(tier.url, cluster="other").seal(flights("orders", 10))
    with pytest.raises(InvalidRequestError, match="two brokers have one name"):
        MicroBatches(Journal(), tier.url).run_batch()
    journal = Journal()
    MicroBatches(journal, f"{tier.url}/other").run_available()
    assert len(journal.rows) == 10


def test_lines_are_the_same_text_for_the_same_place() -> None:
    text = (
        '{"incarnations": {"a": {"x": 1}, "b": {"y": 2}}, '
        '"queues": {"a": {"x/0": 5, "x/1": 6}, "b": {"y/3": 7}}, "version": 1}'
    )
    value = json.loads(text)
    assert json.dumps(OffsetLine.from_json(value).json()) == text
    mixed = json.loads(text)
    mixed["queues"] = dict(reversed(mixed["queues"].items()))
    mixed["queues"]["a"] = {"x/1": 6, "x/0": 5}
    assert json.dumps(OffsetLine.from_json(mixed).json()) == text
    begun = text.replace('"version"', '"startingTimestamp": 0, "version"')
    assert json.dumps(OffsetLine.from_json(json.loads(begun)).json()) == begun
    with pytest.raises(CorruptDataError, match="no offsets of this data source"):
        OffsetLine.from_json({"topic": 1})
    with pytest.raises(InvalidRequestError, match="another version"):
        OffsetLine.from_json(value | {"version": 2})


def test_an_older_pyspark_is_refused_in_a_sentence(tier: ColdTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 4.2 the module of read limits is not there."""
    monkeypatch.setattr("thermocline.spark.streaming.open_stream.find_spec", lambda name: None)
    with pytest.raises(InvalidRequestError, match=r"streaming reads need PySpark 4\.2 or newer"):
        open_stream({"path": tier.url, "topic": "orders"}, StructType())
