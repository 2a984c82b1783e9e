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
from tests.spark.jobs.job_process import JobProcess, entry_count, has_entries
from tests.tiered.cold_data import Log

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(14_400)]

STEPS_MAX = 150
"""About how many files and folders a whole run makes."""
PROGRAM = """
import json, sys
from thermocline.spark import catch_up, local_session

spark = local_session(cores=2)
report = catch_up(spark, sys.argv[1], topic="orders", output=sys.argv[2], partition_by="day", chunk_bytes=30_000)
print(json.dumps({"row_count": report.row_count, "outcome": report.outcome}))
spark.stop()
"""


@pytest.mark.full
def test_a_killed_replay_goes_on_and_no_row_is_twice_or_missing(
    two_days: tuple[ColdTier, Log], tmp_path: Path, case_count: Callable[..., int], java_home: Path
) -> None:
    """Each case is one replay, killed up to twice, each time when so many files more are there."""
    tier, log = two_days
    wanted = {(row["queueId"], row["queueOffset"]): row["value"] for row in rows_of(log)}
    for seed in range(case_count(quick=1, soak=20)):
        random = Random(seed)
        output = tmp_path / f"output-{seed}"
        kills_left = case_count(quick=1, soak=2)
        while True:
            job = JobProcess(["-c", PROGRAM, tier.url, str(output)], tmp_path / f"job-{seed}")
            goal = entry_count(output) + random.randrange(1, STEPS_MAX)
            if kills_left and job.until(functools.partial(has_entries, output, goal)):
                job.kill()
                kills_left -= 1
                continue
            assert job.wait() == 0, f"seed {seed}: {job.errors}"
            break
        assert json.loads(job.output)["row_count"] == len(wanted), f"seed {seed}"
        found = [row for file in output.glob("day=*/part-*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
        assert len(found) == len(wanted), f"seed {seed}"
        assert {(row["queueId"], row["queueOffset"]): row["value"] for row in found} == wanted, f"seed {seed}"
