"""Jobs that were interrupted go on; when their version was collected meanwhile, with what the newest one has."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.spark.cold_tier import NOW_MS, ColdTier, directory_url, flights, rows_of
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark import catch_up, compare, counts, key_history
from thermocline.spark.jobs.compare import Side
from thermocline.spark.jobs.progress import Progress
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut
from thermocline.tiered.garbage.garbage import GarbageCollector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER_MS = NOW_MS + 2 * 24 * 3_600_000


class InterruptedByTestError(Exception):
    """What stops a job in the middle."""


def stop_after_a_chunk(done: int, total: int) -> None:
    """A progress callback; the thread that watches tasks goes on."""
    if threading.current_thread() is threading.main_thread() and done:
        raise InterruptedByTestError


def collect_garbage(tier: ColdTier) -> None:
    """Collect garbage two days later, without any pin."""

    async def collect() -> None:
        store, writer = await tier._open()
        collector = GarbageCollector(writer)
        for _ in range(4):
            await collector.execute(await collector.plan(now_ms=LATER_MS, sweep=True), now_ms=LATER_MS)
        await writer.close()
        await store.close()

    asyncio.run(collect())


def test_the_rest_is_read_at_the_newest_version_without_expired_rows(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    tier = ColdTier(directory_url(tmp_path / "cold"))
    log = flights("orders", 400, queue_count=2)
    tier.seal_in_pieces(log, 2)
    output = tmp_path / "output"
    arguments = {"topic": "orders", "output": str(output), "chunk_bytes": 40_000}
    with pytest.raises(InterruptedByTestError):
        catch_up(spark_session, tier.url, **arguments, on_progress=stop_after_a_chunk)  # type: ignore[arg-type]
    plan = json.loads((output / "_thermocline" / "plan-00001.json").read_text())
    old_version = tier.version
    # What comes later is no part of the job; what goes is.
    ends = log.ends()
    log.append_flights(50)
    tier.seal(log, starts=ends)
    first = tier.entries("orders")[0]
    tier.commit(LedgerChanges(segments_out=(SegmentOut("orders", first.segment_id),)))
    collect_garbage(tier)
    report = catch_up(spark_session, tier.url, **arguments)  # type: ignore[arg-type]
    assert report.outcome == "continued"
    (note,) = report.notes
    assert f":{old_version} is not readable any more" in note
    expired = {run.queue_id: run.end_offset for run in first.runs}
    written = {part["queue_id"]: part["end_offset"] for part in plan["chunks"][0]["ranges"]}
    wanted = {
        (row["queueId"], row["queueOffset"]): row["value"]
        for row in rows_of(log)
        if row["queueOffset"] < written.get(row["queueId"], 0)
        or expired[row["queueId"]] <= row["queueOffset"] < ends[row["queueId"]]
    }
    found = [row for file in output.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {(row["queueId"], row["queueOffset"]): row["value"] for row in found} == wanted
    assert len(found) == len(wanted) == report.row_count
    assert 0 < len(wanted) < 400


def test_the_first_run_alone_pins_the_version(spark_session: SparkSession, tmp_path: Path) -> None:
    tier = ColdTier(directory_url(tmp_path / "cold"))
    tier.seal(flights("orders", 300, queue_count=1))
    arguments = {"topic": "orders", "output": str(tmp_path / "output"), "chunk_bytes": 30_000}
    pin_counts: list[int] = []

    def count_pins(_done: int, _total: int) -> None:
        pin_counts.append(len(list((tmp_path / "cold").glob("*/*/pins/*.json"))))

    def count_and_stop(done: int, total: int) -> None:
        count_pins(done, total)
        stop_after_a_chunk(done, total)

    with pytest.raises(InterruptedByTestError):
        catch_up(spark_session, tier.url, **arguments, on_progress=count_and_stop)  # type: ignore[arg-type]
    assert set(pin_counts) == {1}
    pin_counts.clear()
    report = catch_up(spark_session, tier.url, **arguments, on_progress=count_pins)  # type: ignore[arg-type]
    assert report.outcome == "continued"
    assert set(pin_counts) == {0}


@pytest.mark.parametrize(
    "job", ["counts", *(pytest.param(job, marks=pytest.mark.full) for job in ("key history", "compare"))]
)
def test_other_jobs_go_on_where_they_were_interrupted(spark_session: SparkSession, tmp_path: Path, job: str) -> None:
    tier = ColdTier(directory_url(tmp_path / "cold"))
    log = flights("orders", 300, queue_count=2)
    tier.seal_in_pieces(log, 2)
    key = rows_of(log)[0]["key"]

    def run(folder: str, on_progress: Progress | None = None) -> Any:
        more: dict[str, Any] = {"chunk_bytes": 30_000, "output": str(tmp_path / folder), "on_progress": on_progress}
        if job == "counts":
            return counts(spark_session, tier.url, topic="orders", by="queue", **more)
        if job == "key history":
            return key_history(spark_session, tier.url, topic="orders", keys=[key], **more)
        here, there = (Side(url=tier.url, topic="orders", options={"tags": tags}) for tags in ("*", "UA"))
        return compare(spark_session, here, there, by="offset", **more)

    with pytest.raises(InterruptedByTestError):
        run("interrupted", stop_after_a_chunk)
    # What comes later is no part of it.
    ends = log.ends()
    in_one_go = run("in one go")
    log.append_flights(30)
    tier.seal(log, starts=ends)
    report = run("interrupted")
    assert (in_one_go.outcome, report.outcome) == ("written", "continued")
    assert results(tmp_path / "interrupted") == results(tmp_path / "in one go") != []


def results(folder: Path) -> list[str]:
    """The lines of what a job has written for people, without its record."""
    files = [path for path in folder.rglob("*.json") if "_thermocline" not in path.parts]
    return sorted(line for path in files for line in path.read_text().splitlines())


def test_a_topic_that_was_made_again_is_refused(spark_session: SparkSession, tmp_path: Path) -> None:
    tier = ColdTier(directory_url(tmp_path / "cold"))
    tier.seal(flights("orders", 200, queue_count=1))
    arguments = {"topic": "orders", "output": str(tmp_path / "output"), "chunk_bytes": 40_000}
    with pytest.raises(InterruptedByTestError):
        catch_up(spark_session, tier.url, **arguments, on_progress=stop_after_a_chunk)  # type: ignore[arg-type]
    plan = tmp_path / "output" / "_thermocline" / "plan-00001.json"
    saved = json.loads(plan.read_text())
    saved["pins"]["snapshotversion"] = json.dumps({"test/broker-a": 999})
    for part in (part for chunk in saved["chunks"] for part in chunk["ranges"]):
        part["incarnation"] += 1
    plan.write_text(json.dumps(saved))
    plan.with_name(".plan-00001.json.crc").unlink()
    with pytest.raises(InvalidRequestError, match="deleted and made again"):
        catch_up(spark_session, tier.url, **arguments)  # type: ignore[arg-type]
