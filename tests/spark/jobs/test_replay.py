"""Replaying a topic into files, as a function and as a command."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.spark.cold_tier import ColdTier, by_place, directory_url, flights, rows_of
from tests.tiered.cold_data import Log
from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError
from thermocline.spark import CatchUpReport, catch_up, read_receipt
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.decoding.message_columns import DEFAULT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    log = flights("orders", 500, queue_count=2)
    tier.seal_in_pieces(log, 2)
    return tier, log


def ends_of(report: CatchUpReport) -> dict[int, tuple[int, int]]:
    return {queue.queue_id: (queue.start_offset, queue.end_offset) for queue in report.queues}


def json_rows(output: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(output.glob("*.json")) for line in file.read_text().splitlines()]


def test_a_topic_becomes_parquet_with_exact_ends(
    spark_session: SparkSession, orders: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, log = orders
    output = tmp_path / "parquet"
    progress: list[tuple[int, int]] = []
    report = catch_up(
        spark_session,
        tier.url,
        topic="orders",
        output=str(output),
        options={"maxPartitionBytes": "50k"},
        on_progress=lambda done, total: progress.append((done, total)),
    )
    assert report.row_count == 500
    assert ends_of(report) == {queue: (0, end) for queue, end in log.ends().items()}
    assert report.versions == {"test/broker-a": tier.version}
    receipt = read_receipt(report.receipt, StoreOptions())
    assert (report.receipt, receipt.output, receipt.row_count) == (f"{output}.receipt.json", str(output), 500)
    assert {queue.queue_id: (queue.start_offset, queue.end_offset) for queue in receipt.queues} == ends_of(report)
    assert receipt.obstacles == ()
    assert progress[-1][0] == progress[-1][1] > 1
    written = pq.read_table(output).to_pylist()
    expected = [{name: row[name] for name in DEFAULT_COLUMNS} for row in rows_of(log)]
    assert {(row["queueId"], row["queueOffset"]): row["value"] for row in written} == {
        (row["queueId"], row["queueOffset"]): row["value"] for row in expected
    }
    assert {row["key"] for row in written} == {row["key"] for row in expected}


def test_json_lines_hold_bodies_as_text_or_base64(
    spark_session: SparkSession, orders: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, log = orders
    options = {"tags": "UA", "columns": "queueId,queueOffset,value,topic,brokerName"}
    expected = {place: row["value"] for place, row in by_place(rows_of(log)).items() if row["tag"] == "UA"}
    for body in ("text", "base64"):
        output = tmp_path / body
        report = catch_up(
            spark_session,
            tier.url,
            topic="orders",
            output=str(output),
            output_format="json",
            body="base64" if body == "base64" else "text",
            options=options,
        )
        values = {place: str(row["value"]) for place, row in by_place(json_rows(output)).items()}
        decoded = {
            place: base64.b64decode(value) if body == "base64" else value.encode() for place, value in values.items()
        }
        assert decoded == expected
        assert report.row_count == len(expected)
        assert ends_of(report) == {queue: (0, end) for queue, end in log.ends().items()}


def test_an_output_that_exists_is_left_alone(
    spark_session: SparkSession, orders: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, _ = orders
    (tmp_path / "letter").write_text("a foreign file")
    with pytest.raises(InvalidRequestError, match="exists already"):
        catch_up(spark_session, tier.url, topic="orders", output=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_an_unknown_topic_writes_nothing(
    spark_session: SparkSession, orders: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, _ = orders
    with pytest.raises(TopicNotFoundError):
        catch_up(spark_session, tier.url, topic="payments", output=str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


def test_the_command_reports_the_ends_and_keeps_a_session_that_was_there(
    spark_session: SparkSession, orders: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    from thermocline.cli.spark.spark import spark

    tier, log = orders
    output = tmp_path / "lines"
    arguments = ["orders", "--from", tier.url, "--to", str(output), "--format", "json", "--json"]
    arguments += ["--ending-offsets", '{"orders": {"0": 10}}', "--option", "maxPartitionBytes=50k", "--cores", "2"]
    result = CliRunner().invoke(spark, ["catch-up", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["row_count"] == 10 + log.ends()[1] == len(json_rows(output))
    assert [(queue["queue_id"], queue["end_offset"]) for queue in report["queues"]] == [(0, 10), (1, log.ends()[1])]
    assert spark_session.range(3).count() == 3


def test_the_command_refuses_options_that_are_no_pairs() -> None:
    from thermocline.cli.spark.spark import spark

    result = CliRunner().invoke(
        spark, ["catch-up", "orders", "--from", "file:///x", "--to", "y", "--option", "fetchBytes"]
    )
    assert result.exit_code == 2
    assert "NAME=VALUE" in result.stderr


def test_days_and_tags_become_folders_whatever_the_session_s_zone_is(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, log = two_days
    output = tmp_path / "by-day"
    zone = spark_session.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark_session.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        report = catch_up(
            spark_session,
            tier.url,
            topic="orders",
            output=str(output),
            partition_by="day,tag",
            options={"columns": "queueId,queueOffset,value"},
            chunk_bytes=60_000,
        )
    finally:
        spark_session.conf.set("spark.sql.session.timeZone", zone)
    assert report.row_count == 500
    expected: dict[str, set[tuple[int, int, bytes]]] = {}
    for row in rows_of(log):
        folder = f"day={row['timestamp']:%Y-%m-%d}/tag={row['tag'] or '__HIVE_DEFAULT_PARTITION__'}"
        expected.setdefault(folder, set()).add((row["queueId"], row["queueOffset"], row["value"]))
    found: dict[str, set[tuple[int, int, bytes]]] = {}
    count = 0
    for file in output.glob("day=*/tag=*/part-*.parquet"):
        rows = pq.ParquetFile(file).read().to_pylist()
        found.setdefault(str(file.parent.relative_to(output)), set()).update(tuple(row.values()) for row in rows)
        count += len(rows)
    assert (found, count) == (expected, 500)


def test_bodies_as_columns_go_into_folders_too(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, log = two_days
    catch_up(
        spark_session,
        tier.url,
        topic="orders",
        output=str(tmp_path / "bodies"),
        partition_by="tag",
        options={"columns": "queueOffset,tag", "bodyFormat": "json", "bodySchema": "flight BIGINT"},
    )
    files = list((tmp_path / "bodies").glob("tag=*/part-*.parquet"))
    found = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert {tuple(row) for row in found} == {("queueOffset", "body", "corruptBody")}
    bodies = sorted((row["queueOffset"], row["body"]["flight"]) for row in found if row["body"])
    sent = [(row["queueOffset"], json.loads(row["value"])["flight"]) for row in rows_of(log) if row["tag"]]
    assert bodies == sorted(sent)
    assert [row["corruptBody"]["value"] for row in found if row["corruptBody"]] == [b"untagged"]


def test_a_finished_replay_says_so_and_other_arguments_are_refused(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, _ = two_days
    output = tmp_path / "finished"
    first = catch_up(
        spark_session, tier.url, topic="orders", output=str(output), options={"tags": "UA", "s3.tls": "no"}
    )
    files = sorted(path for path in output.rglob("*") if path.is_file())
    secret = {"tags": "UA", "s3.secretKey": "hidden", "s3.accessKey": "id"}
    again = catch_up(spark_session, tier.url, topic="orders", output=str(output), options=secret)
    assert (again.outcome, again.row_count, again.queues) == ("finished before", first.row_count, first.queues)
    assert sorted(path for path in output.rglob("*") if path.is_file()) == files
    with pytest.raises(InvalidRequestError, match="other arguments") as caught:
        catch_up(spark_session, tier.url, topic="orders", output=str(output), options={"tags": "AA"})
    assert "differs=options" in str(caught.value)
