"""Options of a read: their notations, and their values."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StructType

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.data_source import reader_of
from thermocline.spark.reading.source_options import (
    EARLIEST,
    LATEST,
    OffsetBounds,
    QueueName,
    ReadOptions,
    parse_tags,
    parse_time_ms,
    read_options_from,
)


def read(**options: str) -> ReadOptions:
    return read_options_from({"path": "file:///cold", "topic": "orders"} | options)


def test_defaults_are_the_documented_ones() -> None:
    options = read()
    assert options.urls == ("file:///cold",)
    assert options.topics == ("orders",)
    assert options.queues is None
    assert options.starting_offsets == OffsetBounds(default=EARLIEST, offsets={})
    assert options.ending_offsets == OffsetBounds(default=LATEST, offsets={})
    assert options.tags is None
    assert options.fail_on_data_loss
    assert not options.skip_corrupt_frames
    assert options.decompress_body
    assert (options.partition_bytes_max, options.fetch_bytes, options.batch_rows_max) == (256 << 20, 8 << 20, 16_384)
    assert options.snapshot_versions == {}


def test_names_are_matched_without_case() -> None:
    options = read(STARTINGOFFSETS="latest", failondataloss="FALSE", OnCorruptFrame="Skip", maxpartitionbytes="64KB")
    assert options.starting_offsets.default == LATEST
    assert not options.fail_on_data_loss
    assert options.skip_corrupt_frames
    assert options.partition_bytes_max == 64 << 10


def test_several_paths_and_topics() -> None:
    options = read_options_from({"paths": '["s3a://a/x", "s3a://b/y"]', "subscribe": "orders, payments,orders"})
    assert options.urls == ("s3a://a/x", "s3a://b/y")
    assert options.topics == ("orders", "payments")
    for text in ("7", '"s3a://a/x"', '{"s3a://a/x": 1}'):
        assert read_options_from({"paths": text, "topic": "orders"}).urls == (text,), "JSON, but no list of paths"


def test_offsets_of_single_queues() -> None:
    bounds = read(startingOffsets='{"orders": {"broker-a:0": 17, "1": 5, "broker-a/2": -1}}').starting_offsets
    assert bounds.offset_of("orders", QueueName("broker-a", 0)) == 17
    assert bounds.offset_of("orders", QueueName("broker-b", 0)) == EARLIEST
    assert bounds.offset_of("orders", QueueName("broker-b", 1)) == 5
    assert bounds.offset_of("orders", QueueName("broker-a", 2)) == LATEST
    assert bounds.offset_of("payments", QueueName("broker-a", 0)) == EARLIEST


def test_queues_name_a_broker_or_none() -> None:
    options = read(queues="broker-a:0, 3")
    assert options.wants_queue(QueueName("broker-a", 0))
    assert not options.wants_queue(QueueName("broker-b", 0))
    assert options.wants_queue(QueueName("broker-b", 3))
    assert str(QueueName("broker-a", 0)) == "broker-a:0"
    assert str(QueueName("", 3)) == "3"


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
        ("2023-11-14 22:13:20.123", 1_700_000_000_123),
        ("1970-01-01", 0),
        ("-1", -1),
    ],
)
def test_times_are_milliseconds_or_iso(text: str, timestamp_ms: int) -> None:
    assert parse_time_ms(text, option="startingTimestamp") == timestamp_ms


def test_tag_expressions() -> None:
    assert parse_tags("TagA || TagB") == {"TagA", "TagB"}
    assert parse_tags("TagA||TagA") == {"TagA"}
    assert parse_tags("*") is None
    assert parse_tags(None) is None
    with pytest.raises(InvalidRequestError, match="tags"):
        parse_tags("TagA || ")


def test_versions_to_read_at() -> None:
    assert read(snapshotVersion="41").snapshot_versions == {"": 41}
    assert read(snapshotVersion='{"c/broker-a": 41}').snapshot_versions == {"c/broker-a": 41}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("topic", ""),
        ("topic", "orders,,payments"),
        ("queues", "broker-a"),
        ("startingOffsets", "newest"),
        ("startingOffsets", "[1]"),
        ("endingOffsets", '{"orders": 7}'),
        ("endingOffsets", '{"orders": {"0": -3}}'),
        ("endingOffsets", '{"orders": {"0": true}}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "9" * 19),
        ("endingTimestamp", "9" * 5_000),
        ("includeProperties", "yes"),
        ("onCorruptFrame", "ignore"),
        ("maxPartitionBytes", "0"),
        ("fetchBytes", "-1"),
        ("fetchBytes", "9" * 5_000),
        ("fetchBytes", "8388608t"),
        ("rowsPerBatch", "many"),
        ("snapshotVersion", "new"),
        ("snapshotVersion", '{"a": -1}'),
    ],
    ids=lambda text: text[:20],
)
def test_wrong_values_are_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"option={option}"):
        read(**{option: value})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("endingTimestmp", "is it endingTimestamp[?]"),
        ("pushdown", "read_cold.where=...."),
        ("client", "there is one S3 client"),
        ("coldMaxOffsetsPerTrigger", "maxOffsetsPerTrigger bounds"),
        ("s3.acessKey", "docs/spark.md"),
        ("zzz", "docs/spark.md"),
    ],
)
def test_a_name_that_is_no_option_is_refused(name: str, hint: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"no option '{name}'; .*{hint}"):
        read(**{name: "5"})


def test_options_of_streams_bodies_and_hadoop_are_accepted_too() -> None:
    beside = {"NamesrvAddr": "h:1", "maxBytesPerTrigger": "1m", "bodyFormat": "json", "fs.s3a.connection.timeout": "5"}
    assert read(**beside).topics == read().topics


@pytest.mark.parametrize("name", ["namesrvAddr", "MaxBytesPerTrigger", "maxOffsetsPerTrigger", "brokerTimeoutMs"])
def test_a_batch_read_refuses_options_of_streams(name: str) -> None:
    options = {"path": "file:///cold", "topic": "orders"}
    with pytest.raises(InvalidRequestError, match=r"batch read has no such option.*read_stream") as refused:
        reader_of(options | {name: "5"}, StructType([]))
    assert refused.value.context["option"] == name
    assert reader_of(options, StructType([])) is not None


def test_a_read_without_a_path_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="load"):
        read_options_from({"topic": "orders"})


def test_options_travel_to_tasks_and_keep_secrets_out_of_text() -> None:
    options = read(**{"s3.secretKey": "very-secret", "s3.accessKey": "key"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert "very-secret" not in repr(options)
