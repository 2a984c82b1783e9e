"""A replay that is cut between any two steps it takes on its file system, on a disk and on an object store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.fixtures_s3 import S3Bucket
from tests.spark.cold_tier import ColdTier, directory_url, flights, rows_of
from tests.tiered.cold_data import Log
from thermocline.spark import catch_up
from thermocline.spark.jobs.job_files import JobFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = ("create", "move", "delete")
CHUNK_BYTES = 40_000


class PowerCutError(Exception):
    """Ends a run between two steps."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    log = flights("orders", 120, queue_count=1)
    tier.seal(log)
    return tier, log


@contextmanager
def cut_at(step: int) -> Iterator[Callable[[], int]]:
    """Step number `step` is taken, and the run ends right behind it; yields how many steps were taken."""
    taken = itertools.count(1)
    last = 0
    originals = {name: getattr(JobFiles, name) for name in STEPS}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(files: JobFiles, *arguments: Any) -> Any:
            nonlocal last
            answer = originals[name](files, *arguments)
            last = next(taken)
            if last == step:
                raise PowerCutError
            return answer

        return call

    for name in STEPS:
        setattr(JobFiles, name, wrapped(name))
    try:
        yield lambda: last
    finally:
        for name, original in originals.items():
            setattr(JobFiles, name, original)


def check(found: list[dict[str, Any]], log: Log, *, step: int) -> None:
    assert len(found) == 120, f"cut behind step {step}"
    values = {row["queueOffset"]: row["value"] for row in rows_of(log)}
    assert {row["queueOffset"]: row["value"] for row in found} == values, f"cut behind step {step}"


def test_a_cut_behind_any_step_leaves_each_row_once(
    spark_session: SparkSession, small: tuple[ColdTier, Log], tmp_path: Path, case_count: Callable[..., int]
) -> None:
    tier, log = small

    def replay(output: Path) -> int:
        report = catch_up(spark_session, tier.url, topic="orders", output=str(output), chunk_bytes=CHUNK_BYTES)
        return report.row_count

    with cut_at(0) as steps_taken:
        replay(tmp_path / "whole")
    step_count = steps_taken()
    steps = range(1, step_count + 1)
    for step in Random(7).sample(steps, min(case_count(quick=2, soak=step_count), step_count)):
        output = tmp_path / f"cut-{step}"
        with pytest.raises(PowerCutError), cut_at(step):
            replay(output)
        assert replay(output) == 120, f"cut behind step {step}"
        files = sorted(output.glob("*.parquet"))
        check([row for file in files for row in pq.read_table(file).to_pylist()], log, step=step)
        remaining = {path.name for path in (output / "_thermocline").iterdir()}
        assert not remaining & {"staging", "parts"}, f"cut behind step {step}"


@pytest.mark.s3
def test_an_output_in_a_bucket_goes_on_too(
    spark_session: SparkSession, small: tuple[ColdTier, Log], s3_bucket: S3Bucket
) -> None:
    """There a rename is a copy and a delete, and a directory is there only while something is in it."""
    tier, log = small
    settings = {
        "fs.s3a.endpoint": s3_bucket.endpoint,
        f"fs.s3a.bucket.{s3_bucket.name}.endpoint.region": s3_bucket.region,
        f"fs.s3a.bucket.{s3_bucket.name}.path.style.access": "true",
        f"fs.s3a.bucket.{s3_bucket.name}.access.key": s3_bucket.access_key,
        f"fs.s3a.bucket.{s3_bucket.name}.secret.key": s3_bucket.secret_key,
    }
    output = f"s3a://{s3_bucket.name}/replayed/orders"
    arguments = {"topic": "orders", "output": output, "partition_by": "day", "chunk_bytes": CHUNK_BYTES}
    for name, value in settings.items():
        spark_session.conf.set(name, value)
    try:
        for step in (4, 6):
            with pytest.raises(PowerCutError), cut_at(step):
                catch_up(spark_session, tier.url, **arguments)  # type: ignore[arg-type]
        report = catch_up(spark_session, tier.url, **arguments)  # type: ignore[arg-type]
        assert (report.row_count, report.outcome) == (120, "continued")
        found = [row.asDict() for row in spark_session.read.parquet(output).collect()]
        assert catch_up(spark_session, tier.url, **arguments).outcome == "finished before"  # type: ignore[arg-type]
    finally:
        for name in settings:
            spark_session.conf.unset(name)
    check([row | {"value": bytes(row["value"])} for row in found], log, step=6)
