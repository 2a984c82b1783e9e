"""Spark's reader and `thermocline cold read` read every golden bucket, whatever release wrote it, as the cold reader of
a broker does; that one is held against what was written, and against the reader in examples/, beside this file.

Covers `tiered/bucket/bucket_contents.py`, `tiered/bucket/bucket_messages.py`, `tiered/bucket/bucket_verify.py`,
`tiered/bucket/opened_bucket.py`, `tiered/reading/history_reader.py`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import run
from tests.spark.message_rows import expected_rows, normal_rows
from tests.tiered.stand_alone import AT_START_MS, opened
from tests.tiered.test_stand_alone_reader import every_bucket
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.records.sys_flag import INNER_BATCH
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.source_options import read_options_from

ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)


def spark_rows(bucket: Path, topic: str) -> list[dict[str, Any]]:
    """All rows of a topic, as the tasks of a Spark job would get them."""
    checked = read_options_from({"path": bucket.as_uri(), "topic": topic, "columns": ALL_COLUMNS})
    plan = resolve_plan(checked, now_ms=AT_START_MS)
    reader = FrameReader(checked)
    rows = [row for task in plan.tasks for batch in reader.read(task) for row in batch.to_pylist()]
    return of_records(normal_rows(rows))


def of_records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that are one record each, by place."""
    return sorted((row for row in rows if not row["sysFlag"] & INNER_BATCH), key=place_of)


def place_of(row: dict[str, Any]) -> tuple[int, int]:
    """Queue and queue offset."""
    return row["queueId"], row["queueOffset"]


async def records_of(bucket: Path) -> dict[str, list[bytes]]:
    """Every record of each topic of which nothing is lost, by queue and offset."""
    async with opened(bucket, AT_START_MS) as ours:
        return {
            topic: [
                record
                for queue_id in sorted(ours.catalog.queue_bounds(topic))
                for record in await ours.records(topic, queue_id)
            ]
            for topic in ours.topics
            if not ours.catalog.topics[topic].quarantine
        }


@every_bucket
def test_spark_reads_every_row(bucket: Path) -> None:
    """Inner batches aside, whose messages have more offsets than the queue of these buckets has."""
    topics = asyncio.run(records_of(bucket))
    assert sum(map(len, topics.values())) > 10
    for topic, records in topics.items():
        wanted = expected_rows(b"".join(records), broker_name="broker-a")
        assert spark_rows(bucket, topic) == of_records(wanted), topic


@every_bucket
def test_the_command_reads_every_topic_that_has_no_time_to_live(
    bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes by the present time, at which the others have expired."""
    seen = 0
    for topic, records in asyncio.run(records_of_lasting_topics(bucket)).items():
        assert run(["cold", "read", bucket.as_uri(), topic, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        messages = [decode_record(record) for record in records]
        assert [(row["queue"], row["queue_offset"], row["physical_offset"], row["properties"]) for row in rows] == [
            (each.queue_id, each.queue_offset, each.physical_offset, each.properties) for each in messages
        ]
        seen += len(rows)
    assert seen > 0


async def records_of_lasting_topics(bucket: Path) -> dict[str, list[bytes]]:
    async with opened(bucket, AT_START_MS) as ours:
        lasting = {topic for topic in ours.topics if ours.catalog.topics[topic].ttl_ms is None}
    return {topic: records for topic, records in (await records_of(bucket)).items() if topic in lasting}
