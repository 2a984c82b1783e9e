"""Jobs on a standalone cluster: a master and two workers in processes of their own, and `spark-submit`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.cold_tier import ColdTier, rows_of
from tests.tiered.cold_data import Log

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

START_TIMEOUT_S = 300.0
WORKER_COUNT = 2
SCRIPT = """
from thermocline.cli.main import main
main()
"""
"""What docs/spark.md says to submit."""
COMBINED = """
import json, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
from thermocline.cli.main import run

spark = SparkSession.builder.getOrCreate()
statuses = [run(words) for words in json.loads(sys.argv[1])]
workers = spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("os").getppid()).distinct().count()
print(json.dumps({"statuses": statuses, "master": spark.sparkContext.master, "worker_processes": workers}))
"""
"""Several commands in one application, in the session that it has."""


class SparkDaemon:
    """A master or a worker, started from Spark's jars."""

    def __init__(self, words: list[str], directory: Path, environment: dict[str, str]) -> None:
        directory.mkdir()
        jars = Path(environment["SPARK_HOME"]) / "jars"
        self._log = directory / "daemon.log"
        java = Path(environment["JAVA_HOME"]) / "bin" / "java"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [java, "-Xmx512m", "-cp", f"{jars}/*", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=environment,
            )

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until its log has it."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            text = self._log.read_text(errors="replace")
            match = re.search(pattern, text)
            if match is not None:
                return match
            assert self.process.poll() is None, text[-2_000:]
            assert time.monotonic() < deadline, text[-2_000:]
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="module")
def environment(java_home: Path) -> dict[str, str]:
    home = Path(pytest.importorskip("pyspark").__file__).parent
    return {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # What docs/spark.md asks of a cluster: the package can be imported on every worker.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the workers keep what they run."""
    return tmp_path_factory.mktemp("standalone")


@pytest.fixture(scope="module")
def master(environment: dict[str, str], work: Path) -> Iterator[str]:
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    daemons = [SparkDaemon(["org.apache.spark.deploy.master.Master", *place], work / "master", environment)]
    try:
        url = daemons[0].said(r"Starting Spark master at (spark://\S+)")[1]
        for number in range(WORKER_COUNT):
            words = ["org.apache.spark.deploy.worker.Worker", *place, "--cores", "1", "--memory", "1g"]
            words += ["--work-dir", str(work / f"work-{number}"), url]
            daemons.append(SparkDaemon(words, work / f"worker-{number}", environment))
        for daemon in daemons[1:]:
            daemon.said("Successfully registered with master")
        yield url
    finally:
        for daemon in daemons:
            daemon.stop()


def submit(master: str, script: Path, arguments: list[str], environment: dict[str, str]) -> str:
    """`spark-submit` of a script; returns what it wrote to stdout."""
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", master]
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    done = subprocess.run(
        [*command, str(script), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


def test_the_jobs_run_on_a_cluster_in_the_session_that_is_there(
    master: str, environment: dict[str, str], two_days: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, log = two_days
    script = tmp_path / "combined.py"
    script.write_text(COMBINED)
    replayed, counted = tmp_path / "replayed", tmp_path / "counted"
    commands = [
        ["spark", "catch-up", "orders", "--from", tier.url, "--to", str(replayed), "--option", "maxPartitionBytes=20k"],
        ["spark", "counts", "orders", "--from", tier.url, "--to", str(counted), "--by", "queue"],
        ["spark", "key-history", "orders", "lonely", "--from", tier.url, "--to", str(tmp_path / "history")],
        ["spark", "compare", "orders", "orders", "--from", tier.url],
    ]
    answer = json.loads(submit(master, script, [json.dumps(commands)], environment).splitlines()[-1])
    assert answer == {"statuses": [0, 0, 0, 0], "master": master, "worker_processes": WORKER_COUNT}
    found = [row for file in replayed.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {(row["queueId"], row["queueOffset"]): row["value"] for row in found} == {
        (row["queueId"], row["queueOffset"]): row["value"] for row in rows_of(log)
    }
    assert len(found) == 500
    lines = [json.loads(line) for line in (counted / "counts.json").read_text().splitlines()]
    assert {line["queue_id"]: line["message_count"] for line in lines} == log.ends()


def test_a_submitted_command_uses_the_master_that_it_was_submitted_to(
    master: str, work: Path, environment: dict[str, str], two_days: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    """The two-line script makes no session of its own kind: workers have had executors for it."""
    tier, _ = two_days
    before = set(work.glob("work-*/app-*"))
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    arguments = ["spark", "counts", "orders", "--from", tier.url, "--json"]
    answer = json.loads(submit(master, script, arguments, environment))
    assert answer["message_count"] == 500
    assert set(work.glob("work-*/app-*")) - before
