"""The smallest `benchmarks/spark_read.py`: all of its ways on a real broker, MinIO and Spark, a few messages each.

Its program says itself when a count is wrong, and ends; here every row of its table is looked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_s3 import check_installed
from tests.fixtures_tools import have

ROOT = Path(__file__).resolve().parents[2]
WAYS = (
    "source, all columns",
    "source, default columns",
    "source, body only",
    "source, count",
    "s3a, default columns",
    "parquet, all columns",
    "parquet, default columns",
    "parquet, body only",
    "parquet, count",
    "pull, default columns",
)
MEBIBYTES = 24
"""So that each queue has the 4 MiB that a task of its own takes."""
BODY_BYTES, RECORD_BYTES_MAX = 1024, 1300
QUEUES = 4


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("c_compiler", "spark_s3a_jars")
@pytest.mark.full
def test_every_way_reads_every_message(tmp_path: Path, java_home: Path) -> None:
    have(lambda: check_installed("minio"))
    figures = tmp_path / "figures.json"
    run = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.spark_read", "--quick", "--hot", "--mebibytes", str(MEBIBYTES)),
            *("--fills", "json", "--directory", str(tmp_path), "--output", str(figures)),
        ],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": str(java_home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    table = json.loads(figures.read_text())
    assert (table["quick"], table["rounds"]) == (True, 1)
    (topic,) = table["topics"]
    assert topic["raw_bytes"] >= MEBIBYTES << 20
    # A body and what a record has around it: the messages that were counted are those that were written.
    assert BODY_BYTES < topic["raw_bytes"] / topic["messages"] < RECORD_BYTES_MAX
    assert topic["stored_bytes"] < topic["raw_bytes"]
    assert topic["tasks"] >= QUEUES
    assert tuple(topic["seconds"]) == WAYS
    assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in topic["seconds"].values())
    assert len(topic["get_mb_per_s"]) == 1
    printed = {line[:26].strip(): line[26:].split() for line in run.stdout.splitlines()}
    assert f"{topic['messages']:,} messages" in run.stdout
    assert float(printed["GETs"][1]) == 1
    for way in WAYS:
        seconds, raw, per_core, ratio, over_pull, over_parquet = map(float, printed[way])
        assert seconds == pytest.approx(topic["seconds"][way][0], abs=0.006)
        assert raw == pytest.approx(2 * per_core, abs=2)
        assert ratio >= 0
        assert over_pull == pytest.approx(topic["seconds"][WAYS[-1]][0] / topic["seconds"][way][0], abs=0.06)
        assert over_parquet >= 0
    assert printed[WAYS[-1]][4] == "1.0"
    assert not list(tmp_path.glob("thermocline-bench-*"))
