"""A replay whose driver is killed, again and again: each row is written once, none is missing."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from tests.spark.cold_tier import ColdTier, rows_of
from tests.spark.jobs.job_process import JobProcess, has_files
from tests.tiered.cold_data import Log

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(14_400)]

STEPS_MAX = 250
"""About how many files a whole run makes."""


def test_a_killed_replay_goes_on_and_no_row_is_twice_or_missing(
    two_days: tuple[ColdTier, Log], tmp_path: Path, case_count: Callable[..., int], java_home: Path
) -> None:
    tier, log = two_days
    wanted = {(row["queueId"], row["queueOffset"]): row["value"] for row in rows_of(log)}
    for seed in range(case_count(quick=1, soak=10)):
        random = Random(seed)
        output = tmp_path / f"output-{seed}"
        arguments = ["spark", "catch-up", "orders", "--from", tier.url, "--to", str(output), "--json"]
        arguments += ["--partition-by", "day", "--option", "maxPartitionBytes=20k", "--cores", "2"]
        kill_count = 0
        while True:
            job = JobProcess(arguments, tmp_path / f"job-{seed}")
            goal = len(list(output.rglob("*"))) + random.randrange(1, STEPS_MAX)
            if kill_count < 2 and job.until(functools.partial(has_files, output, goal)):
                job.kill()
                kill_count += 1
                continue
            assert job.wait() == 0, f"seed {seed}: {job.errors}"
            break
        report = json.loads(job.output)
        assert report["row_count"] == len(wanted), f"seed {seed}"
        found = [row for file in output.glob("day=*/part-*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
        assert len(found) == len(wanted), f"seed {seed}"
        assert {(row["queueId"], row["queueOffset"]): row["value"] for row in found} == wanted, f"seed {seed}"
