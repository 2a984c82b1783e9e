"""Streams that continue from the cold tier to brokers, which are real processes: the source and path of each row."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.spark.cold_tier import ColdTier, directory_url, flights
from tests.spark.streaming.live_cluster import LiveCluster, bodies, live_cluster
from tests.spark.streaming.micro_batches import Journal, MicroBatches
from tests.spark.streaming.queries import by_queue
from thermocline.client import MessageQueue, PullConsumer
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, OffsetOutOfRangeError, UnavailableError
from thermocline.remoting.headers import SendMessageRequestHeader
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.request_code import RequestCode
from thermocline.spark.reading.pruning_filters import SimpleFilter, filters_text
from thermocline.spark.reading.read_plan import SegmentSlice
from thermocline.spark.streaming.live_client import LiveClient, close_live_clients
from thermocline.spark.streaming.live_reader import LivePart

LAZY = {"flushIntervalCommitLog": "600000"}


@pytest.fixture(scope="module", autouse=True)
def clients_closed() -> Iterator[None]:
    yield
    close_live_clients()


@pytest.fixture(scope="module")
def cluster(module_folder: Path) -> Iterator[LiveCluster]:
    """Two brokers with one cold tier; each test has a topic of its own."""
    with live_cluster(module_folder, "broker-a", "broker-b") as cluster:
        yield cluster


def stream(cluster: LiveCluster, journal: Journal, topic: str, **options: str) -> MicroBatches:
    cluster.wait_until_flushed(topic)
    return MicroBatches(journal, cluster.cold_url, topic, namesrvAddr=cluster.namesrv, **options)


def kinds(batches: MicroBatches) -> set[type]:
    return {type(part) for part in batches.parts()}


def test_cold_first_then_live_in_bounded_batches(cluster: LiveCluster) -> None:
    cluster.make_topic("first", queues=2)
    for broker in ("broker-a", "broker-b"):
        cluster.send("first", bodies(400), broker=broker, queue_id=0)
        cluster.send("first", bodies(300), broker=broker, queue_id=1)
    cluster.seal("first")
    cluster.send("first", bodies(500, start=5_000))
    journal = Journal()
    batches = stream(cluster, journal, "first", maxOffsetsPerTrigger="300")
    assert batches.run_batch()
    assert kinds(batches) == {SegmentSlice}
    assert batches.run_available() == 6
    assert LivePart in kinds(batches)
    assert max(len(rows) for rows in journal.batches) <= 300
    assert by_queue(journal.rows) == cluster.expected("first")


def test_a_batch_planned_live_and_again_after_sealing_gives_the_same_rows(cluster: LiveCluster) -> None:
    cluster.make_topic("resealed", queues=1)
    cluster.send("resealed", bodies(200))
    cluster.seal("resealed")
    cluster.send("resealed", bodies(300, start=200))
    journal = Journal()
    columns = "topic,queueOffset,key,tag,value,timestamp,storeHost,properties"
    options = {"columns": columns, "maxPartitionBytes": "20k"}
    first = stream(cluster, journal, "resealed", **options)
    assert first.plan()
    assert kinds(first) == {SegmentSlice, LivePart}
    rows = [first.read(partition) for partition in first.partitions()]
    assert sum(map(len, rows)) == 500
    assert len(rows) > 3
    cluster.send("resealed", bodies(100, start=500, size_bytes=900))  # the size of the last records is another now
    cluster.seal("resealed")
    second = MicroBatches(journal, cluster.cold_url, "resealed", **options)
    assert kinds(second) == {SegmentSlice}
    assert [second.read(partition) for partition in second.partitions()] == rows
    assert second.run_batch()
    assert journal.rows == [row for task in rows for row in task]


def test_nothing_is_read_that_is_not_flushed(tmp_path: Path) -> None:
    with live_cluster(tmp_path, settings=LAZY) as cluster:
        cluster.make_topic("orders", queues=1)
        cluster.send("orders", bodies(100))
        with PullConsumer(group="sees_more", namesrv=cluster.namesrv) as consumer:
            queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
            consumer.assign([queue])
            consumer.seek_to_begin(queue)
            assert consumer.poll(5_000)
        journal = Journal()
        batches = MicroBatches(journal, cluster.cold_url, namesrvAddr=cluster.namesrv)
        assert batches.run_available() == 0
        cluster.seal("orders")  # flushes
        cluster.send("orders", bodies(50, start=100))
        assert batches.run_available() == 1
        assert len(journal.rows) == 100


def test_new_queues_and_brokers_are_taken_in_without_a_restart(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster, contextlib.ExitStack() as stack:
        cluster.make_topic("orders", queues=1)
        cluster.send("orders", bodies(100))
        journal = Journal()
        batches = stream(cluster, journal, "orders")
        assert batches.run_batch()
        cluster.admin.update_topic("orders", read_queue_nums=2, write_queue_nums=2)
        cluster.send("orders", bodies(60), queue_id=1)
        cluster.add_broker(stack, "broker-c")
        cluster.make_topic("orders", queues=1, broker="broker-c")
        cluster.send("orders", bodies(70), broker="broker-c")
        cluster.wait_until_flushed("orders")
        assert batches.run_batch()
        assert not batches.run_batch()
        assert by_queue(journal.rows) == cluster.expected("orders")


def test_consumers_groups_and_offsets_do_not_notice(cluster: LiveCluster) -> None:
    cluster.make_topic("unnoticed", queues=1)
    cluster.send("unnoticed", bodies(500))
    groups = cluster.admin.list_groups(include_system=True)
    journal = Journal()
    assert stream(cluster, journal, "unnoticed").run_available() == 1
    assert len(journal.rows) == 500
    assert cluster.admin.list_groups(include_system=True) == groups
    progress = [row for group in groups for row in cluster.admin.group_progress(group, topic="unnoticed")]
    assert {row.consumer_offset for row in progress} <= {0}


def test_beginnings_and_tags_of_live_messages(cluster: LiveCluster) -> None:
    cluster.make_topic("beginnings", queues=1)
    cluster.send("beginnings", bodies(90))
    latest = Journal()
    from_now = stream(cluster, latest, "beginnings", startingOffsets="latest")
    assert not from_now.run_batch()
    tagged = Journal()
    stream(cluster, tagged, "beginnings", tags="t1").run_available()
    assert [row["queueOffset"] for row in tagged.rows] == list(range(1, 90, 3))
    time.sleep(0.01)
    moment_ms = time.time_ns() // 1_000_000
    cluster.send("beginnings", bodies(30, start=90))
    cluster.wait_until_flushed("beginnings")
    assert from_now.run_batch()
    later = Journal()
    stream(cluster, later, "beginnings", startingTimestamp=str(moment_ms)).run_available()
    for journal in (latest, later):
        assert [row["queueOffset"] for row in journal.rows] == list(range(90, 120))


def test_keys_and_conditions_choose_rows_cold_and_live(cluster: LiveCluster) -> None:
    """And what a condition rules out by its number is not asked of the broker."""
    cluster.make_topic("chosen", queues=2)
    for queue_id in (0, 1):
        cluster.send("chosen", bodies(60), queue_id=queue_id)
    cluster.seal("chosen")
    for queue_id in (0, 1):
        cluster.send("chosen", bodies(60, start=60), queue_id=queue_id)
    every = [(queue_id, offset) for queue_id in (0, 1) for offset in range(120)]
    first_queue = [SimpleFilter("EqualTo", "queueId", 0), SimpleFilter("GreaterThan", "queueOffset", 50)]
    spans = [SimpleFilter("In", "queueOffset", [3, 59, 60, 119]), SimpleFilter("EqualTo", "key", "k59", True)]
    cases: dict[str, tuple[dict[str, str], set[tuple[int, int]]]] = {
        "keys": ({"keys": "k7 k61 k200 nowhere-key"}, {(0, 7), (1, 7), (0, 61), (1, 61)}),
        "no key": ({"keys": "nowhere-key"}, set()),
        "keys and tags": ({"keys": "k7 k61 k62", "tags": "t1"}, {(0, 7), (1, 7), (0, 61), (1, 61)}),
        "where": ({"where": filters_text(first_queue)}, {each for each in every if each[0] == 0 and each[1] > 50}),
        "where spans": ({"where": filters_text(spans)}, {each for each in every if each[1] in (3, 59, 60, 119)}),
        "where key and keys": (
            {"where": filters_text([SimpleFilter("In", "key", ["k61", "k62"])]), "keys": "k7 k61"},
            {(0, 61), (1, 61)},
        ),
    }
    for name, (options, wanted) in cases.items():
        journal = Journal()
        batches = stream(cluster, journal, "chosen", **options)
        assert batches.plan()
        live = {part.queue_id for part in batches.parts() if isinstance(part, LivePart)}
        assert live == ({0} if name == "where" else {0, 1}), name
        batches.run_available()
        found = [(row["queueId"], row["queueOffset"]) for row in journal.rows]
        assert sorted(found) == sorted(wanted), name


def test_large_messages_come_in_small_rounds(cluster: LiveCluster) -> None:
    cluster.make_topic("large", queues=1)
    random = Random(1)  # so that the producer's compression does not help
    cluster.send("large", [random.randbytes(800_000) for _ in range(12)])
    journal = Journal()
    stream(cluster, journal, "large", maxBytesPerTrigger="4m").run_available()
    assert by_queue(journal.rows) == cluster.expected("large")
    assert len(journal.batches) >= 3


def send_broken(cluster: LiveCluster, topic: str) -> None:
    """Send a message whose flag says that its body is compressed, as any producer can."""
    client = LiveClient((cluster.namesrv,))
    header = SendMessageRequestHeader(producer_group="broken", topic=topic, queue_id=0, sys_flag=sys_flags.COMPRESSED)
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE, header, body=b"no zlib")
    try:
        answer = client.run(client.ask(client.run(client.address(topic, "broker-a")), command))
    finally:
        client.close()
    assert answer.code == 0, answer.remark


def test_a_body_that_does_not_decompress_is_left_out_live_and_cold(cluster: LiveCluster) -> None:
    """Whatever the options said, a query failed at it until it was sealed; then its whole frame was left out."""
    cluster.make_topic("broken", queues=1, broker="broker-a")
    cluster.send("broken", bodies(40))
    send_broken(cluster, "broken")
    cluster.sent["broken", "broker-a", 0].append(b"no zlib")
    cluster.send("broken", bodies(40, start=40))
    sentence = r"body of a message does not decompress.*topic=broken queue=broker-a:0 .*queue_offset=40 "
    for is_sealed in (False, True):
        with pytest.raises(CorruptDataError, match=sentence):
            stream(cluster, Journal(), "broken").run_available()
        journal = Journal()
        batches = stream(cluster, journal, "broken", onCorruptFrame="skip")
        assert batches.plan()
        assert kinds(batches) == {SegmentSlice if is_sealed else LivePart}
        batches.run_available()
        assert [row["queueOffset"] for row in journal.rows] == [*range(40), *range(41, 81)]
        stored = Journal()
        stream(cluster, stored, "broken", decompressBody="false").run_available()
        assert len(stored.rows) == 81
        cluster.seal("broken")


def test_messages_that_expire_in_the_broker_are_reported_as_lost(cluster: LiveCluster) -> None:
    cluster.make_topic("expiring", queues=1)
    cluster.send("expiring", bodies(100))
    journal = Journal()
    assert stream(cluster, journal, "expiring", maxOffsetsPerTrigger="40").run_batch()
    cluster.admin.set_ttl("expiring", 1)
    time.sleep(0.01)
    cluster.admin.set_ttl("expiring", None)
    cluster.send("expiring", bodies(20, start=100))
    with pytest.raises(OffsetOutOfRangeError, match=r"expired.*before they were read.*\[40, 100\)"):
        stream(cluster, journal, "expiring").run_available()
    stream(cluster, journal, "expiring", failOnDataLoss="false").run_available()
    assert [row["queueOffset"] for row in journal.rows] == [*range(40), *range(100, 120)]
    begun = Journal()
    stream(cluster, begun, "expiring").run_available()
    assert [row["queueOffset"] for row in begun.rows] == list(range(100, 120))


def test_messages_that_expire_between_plan_and_task_are_reported_as_lost(cluster: LiveCluster) -> None:
    cluster.make_topic("between", queues=1)
    cluster.send("between", bodies(100))
    batches = stream(cluster, Journal(), "between", startingOffsets='{"between": {"0": 10}}')
    assert batches.plan()
    (partition,) = batches.partitions()
    cluster.admin.set_ttl("between", 1)
    time.sleep(0.01)
    with pytest.raises(OffsetOutOfRangeError, match="before they were read"):
        batches.read(partition)


def test_a_topic_that_is_deleted_and_made_again_ends_the_query(cluster: LiveCluster) -> None:
    cluster.make_topic("again", queues=1)
    cluster.send("again", bodies(50))
    journal = Journal()
    batches = stream(cluster, journal, "again")
    assert batches.run_batch()
    cluster.send("again", bodies(10, start=50))
    cluster.wait_until_flushed("again")
    assert batches.plan()
    (partition,) = batches.partitions()
    cluster.admin.delete_topic("again")
    cluster.sent.clear()
    cluster.make_topic("again", queues=1)
    cluster.send("again", bodies(80))
    cluster.wait_until_flushed("again")
    with pytest.raises(CorruptDataError, match="deleted and made again"):
        batches.read(partition)
    with pytest.raises(CorruptDataError, match="was deleted and made again since this query has read it"):
        batches.plan()


def test_a_broker_of_another_cluster_is_refused(cluster: LiveCluster, tmp_path: Path) -> None:
    cluster.make_topic("foreign", queues=1)
    cluster.send("foreign", bodies(10))
    ColdTier(directory_url(tmp_path)).seal(flights("foreign", 10))
    batches = MicroBatches(Journal(), directory_url(tmp_path), "foreign", namesrvAddr=cluster.namesrv)
    with pytest.raises(InvalidRequestError, match="belong to different clusters"):
        batches.run_available()


def test_a_query_waits_through_an_outage_and_a_task_for_its_configured_time(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        cluster.make_topic("orders", queues=1)
        cluster.send("orders", bodies(100))
        journal = Journal()
        batches = stream(cluster, journal, "orders", brokerTimeoutMs="700")
        assert batches.run_batch()
        cluster.send("orders", bodies(100, start=100))
        cluster.wait_until_flushed("orders")
        assert batches.plan()
        (partition,) = batches.partitions()
        broker = cluster.brokers["broker-a"]
        broker.kill()
        journal.done_count += 1  # as if it had been done: what is asked now is the next one
        assert not batches.run_batch()
        assert not batches.run_available()
        journal.done_count -= 1
        assert batches.reader.reportLatestOffset() is None
        with pytest.raises(UnavailableError, match="the query may be started again"):
            batches.read(partition)
        patient = MicroBatches(journal, cluster.cold_url, namesrvAddr=cluster.namesrv)
        found: list[dict[str, Any]] = []
        task = threading.Thread(target=lambda: found.extend(patient.read(partition)))
        task.start()
        broker.start()
        task.join()
        assert [row["queueOffset"] for row in found] == list(range(100, 200))
        assert batches.run_batch()
        assert by_queue(journal.rows) == cluster.expected("orders")
        broker.check_log()
