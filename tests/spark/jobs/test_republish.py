"""Sending a topic again: order, preserved fields, and messages that a rerun skips."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.spark.cold_tier import ColdTier, directory_url, rows_of
from tests.spark.jobs.job_process import JobProcess
from tests.tiered.cold_data import Log
from thermocline.client import AdminClient, Message, PullStatus, ReceivedMessage
from thermocline.remoting.errors import InvalidRequestError, OffsetOutOfRangeError
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.string_hash import java_string_hash
from thermocline.spark import republish
from thermocline.spark.jobs.republish import BATCH_BYTES_DEFAULT, REQUEST_BYTES_MAX, batches, message_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    """600 messages in three queues; some have the same unique id, some have none."""
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    random = Random(4)
    log = Log(topic="source", random=random, queue_count=3)
    for number in range(600):
        unique_key = None if number % 7 == 0 else f"U{number // 2 if number % 5 == 0 else number:05}"
        log.append(
            random.randrange(3),
            body=b"body %04d" % number,
            tag="AB"[number % 2],
            keys=f"k{number % 11}",
            unique_key=unique_key,
        )
        log.now_ms += 1
    tier.seal_in_pieces(log, 2)
    return tier, log


def made(cluster: dict[str, str], topic: str, *, queue_count: int = 2) -> str:
    with AdminClient(namesrv=cluster["namesrv"]) as admin:
        admin.create_topic(topic, queue_nums=queue_count)
    return topic


def stored(cluster: dict[str, str], topic: str) -> dict[int, list[ReceivedMessage]]:
    """Every message of a topic, by queue, in order."""
    found: dict[int, list[ReceivedMessage]] = {}
    with AdminClient(namesrv=cluster["namesrv"]) as admin:
        for stats in admin.topic_stats(topic):
            messages = found.setdefault(stats.queue.queue_id, [])
            while (pulled := admin.pull(stats.queue, len(messages))).status is PullStatus.FOUND:
                messages += pulled.messages
    return found


def bodies(log: Log) -> Counter[bytes]:
    return Counter(row["value"] for row in rows_of(log))


def test_copies_keep_the_order_of_their_queues_and_the_applications_fields(
    spark_session: SparkSession, source: tuple[ColdTier, Log], cluster: dict[str, str], tmp_path: Path
) -> None:
    tier, log = source
    target = made(cluster, "copy-by-queue")
    arguments = {"topic": "source", "namesrv": cluster["namesrv"], "target": target, "state": str(tmp_path / "state")}
    report = republish(spark_session, tier.url, **arguments, batch_bytes=200, chunk_bytes=20_000)
    assert (report.sent_count, report.found_count, report.outcome) == (600, 0, "written")
    found = stored(cluster, target)
    originals = {row["value"]: row for row in rows_of(log)}
    for queue_id, messages in found.items():
        for source_queue in range(3):
            offsets = [
                originals[message.body]["queueOffset"]
                for message in messages
                if originals[message.body]["queueId"] == source_queue
            ]
            assert offsets == sorted(offsets)
            assert bool(offsets) == (source_queue % 2 == queue_id)
        for message in messages:
            original = originals[message.body]
            assert (message.tags, message.keys) == (original["tag"], original["key"])
            assert original["msgId"] in (None, message.message_id)
    assert Counter(message.body for messages in found.values() for message in messages) == bodies(log)
    again = republish(spark_session, tier.url, **arguments)
    assert (again.sent_count, again.outcome) == (600, "finished before")
    assert sum(map(len, stored(cluster, target).values())) == 600


def test_equal_keys_go_to_the_queue_of_their_hash(
    spark_session: SparkSession, source: tuple[ColdTier, Log], cluster: dict[str, str], tmp_path: Path
) -> None:
    tier, log = source
    target = made(cluster, "copy-by-key", queue_count=4)
    republish(
        spark_session,
        tier.url,
        topic="source",
        namesrv=cluster["namesrv"],
        target=target,
        state=str(tmp_path / "state"),
        order="key",
    )
    found = stored(cluster, target)
    for queue_id, messages in found.items():
        assert {abs(java_string_hash(message.keys)) % 4 for message in messages} <= {queue_id}
    assert Counter(message.body for messages in found.values() for message in messages) == bodies(log)


@pytest.mark.full
def test_a_killed_run_goes_on_and_nothing_is_sent_twice(
    spark_session: SparkSession, source: tuple[ColdTier, Log], cluster: dict[str, str], tmp_path: Path
) -> None:
    """The process is killed while it sends: what the broker has stored by then is found and left out."""
    tier, log = source
    target = made(cluster, "copy-after-kill")
    state = tmp_path / "state"
    arguments = [
        "-m",
        "thermocline.cli",
        "spark",
        "republish",
        "source",
        target,
        "--from",
        tier.url,
        "--namesrv",
        cluster["namesrv"],
    ]
    arguments += ["--state", str(state), "--batch-size", "20", "--cores", "1"]
    job = JobProcess(arguments, tmp_path / "job")
    with AdminClient(namesrv=cluster["namesrv"]) as admin:
        queues = [stats.queue for stats in admin.topic_stats(target)]
        assert job.until(lambda: sum(map(admin.max_offset, queues)) > 50), job.errors
    job.kill()
    before = sum(map(len, stored(cluster, target).values()))
    assert 50 < before < 600
    report = republish(
        spark_session, tier.url, topic="source", namesrv=cluster["namesrv"], target=target, state=str(state)
    )
    assert (report.sent_count, report.found_count, report.outcome) == (600 - before, before, "continued")
    found = stored(cluster, target)
    assert Counter(message.body for messages in found.values() for message in messages) == bodies(log)


def test_a_target_that_has_lost_sent_messages_is_refused_unless_repeats_are_allowed(
    spark_session: SparkSession, source: tuple[ColdTier, Log], cluster: dict[str, str], tmp_path: Path
) -> None:
    """The record of a chunk that was begun says offsets that the target does not have."""
    tier, _ = source
    target = made(cluster, "copy-lost", queue_count=1)
    state = tmp_path / "state"
    with pytest.raises(InvalidRequestError, match="is not sent to itself"):
        republish(
            spark_session, tier.url, topic="source", namesrv=cluster["namesrv"], target="source", state=str(state)
        )
    arguments = {"topic": "source", "namesrv": cluster["namesrv"], "target": target, "state": str(state)}
    for batch_bytes in (0, 9 << 30):
        with pytest.raises(InvalidRequestError, match="more than travels in one request, or nothing"):
            republish(spark_session, tier.url, **arguments, batch_bytes=batch_bytes)
    assert not state.exists()
    republish(spark_session, tier.url, **arguments)
    record = state / "_thermocline"
    for name in ("report.json", "done/00000.json"):
        (record / name).unlink()
    begun = json.loads((record / "begun" / "00000.json").read_text())
    (record / "begun" / "00000.json").write_text(json.dumps({"ends": dict.fromkeys(begun["ends"], 10000)}))
    for path in record.rglob(".*.crc"):
        path.unlink()
    with pytest.raises(OffsetOutOfRangeError, match="--may-repeat"):
        republish(spark_session, tier.url, **arguments)
    report = republish(spark_session, tier.url, **arguments, may_repeat=True)
    assert (report.sent_count, report.found_count) == (600, 0)


def test_the_copy_of_a_message_has_the_application_s_properties_only() -> None:
    row = {
        "topic": "source",
        "brokerName": "broker-a",
        "queueId": 1,
        "queueOffset": 7,
        "key": "k",
        "tag": None,
        "value": b"body",
        "msgId": None,
        "flag": 3,
        "properties": [("colour", "red"), ("CLUSTER", "c"), ("DELAY", "3"), ("__SHARDINGKEY", "s"), ("KEYS", "k")],
    }
    copy = message_of(row, "target")
    assert copy.properties == {"colour": "red"}
    assert (copy.keys, copy.tags, copy.sharding_key, copy.flag, copy.delay_level) == ("k", "", "s", 3, 0)
    assert copy.unique_key == message_of(row, "target").unique_key != ""
    assert copy.unique_key != message_of(row | {"queueOffset": 8}, "target").unique_key


def test_batches_are_cut_by_their_bodies() -> None:
    messages = [Message("t", b"x" * size) for size in (4, 4, 4, 20, 1)]
    sizes = [[len(message.body) for message in batch] for batch in batches(messages, batch_bytes=9)]
    assert sizes == [[4, 4], [4], [20], [1]]


def test_batches_of_small_bodies_with_long_properties_fit_a_request() -> None:
    """They were cut by their bodies alone: what was sent was larger than a broker takes, in every run of the job."""
    properties = {"address": "主题" * 500}
    messages = [Message("t", b"x", properties=properties, unique_key=f"{number:032}") for number in range(3_000)]
    found = list(batches(messages, batch_bytes=BATCH_BYTES_DEFAULT))
    assert [message for batch in found for message in batch] == messages
    for batch in found:
        texts = [message.properties_text(message.unique_key).encode() for message in batch]
        encoded = encode_batch(BatchMessage(each.body, text, 0) for each, text in zip(batch, texts, strict=True))
        assert len(encoded) <= REQUEST_BYTES_MAX
    assert len(found) == 3
