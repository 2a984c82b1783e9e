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
from thermocline.client import AdminClient
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(1_200)]

START_TIMEOUT_S = 300.0
WORKER_COUNT = 2
COMBINED = """
import json, sys
from pyspark.sql import SparkSession
from thermocline.cli.main import run

commands, url, namesrv, folder = json.loads(sys.argv[1])
statuses = [run(commands[0])]
spark = SparkSession.builder.getOrCreate()
statuses += [run(words) for words in commands[1:]]
workers = spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("os").getppid()).distinct().count()
stream = spark.readStream.format("thermocline").option("topic", "orders").load(url)
sink = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
sink.trigger(availableNow=True).start(f"{folder}/streamed").awaitTermination()
table = spark.read.format("thermocline").option("topic", "orders").load(url).select("key", "tag", "value")
target = table.write.format("thermocline").option("namesrvAddr", namesrv).option("topic", "written")
target.mode("append").save()
print(json.dumps({
    "statuses": statuses,
    "master": spark.sparkContext.master,
    "worker_processes": workers,
    "streamed": spark.read.parquet(f"{folder}/streamed").distinct().count(),
}))
"""
"""Several commands in one application: the first as the script of docs/spark.md runs it, the others in a session that
is there; then a stream and a write."""


class SparkDaemon:
    """A master or a worker, started from Spark's jars."""

    def __init__(self, words: list[str], directory: Path, environment: dict[str, str]) -> None:
        directory.mkdir()
        self._log = directory / "daemon.log"
        with self._log.open("wb") as log:
            # Which ends as the JVM itself, in an environment as Spark wants it.
            self.process = subprocess.Popen(
                [Path(environment["SPARK_HOME"]) / "bin" / "spark-class", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=environment,
            )

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """Wait until its log matches the pattern; AssertionError if the process ends or the time is over."""
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
        "SPARK_DAEMON_MEMORY": "512m",
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
        url = daemons[0].wait_for_log(r"Starting Spark master at (spark://\S+)")[1]
        for number in range(WORKER_COUNT):
            words = ["org.apache.spark.deploy.worker.Worker", *place, "--cores", "1", "--memory", "1g"]
            words += ["--work-dir", str(work / f"work-{number}"), url]
            daemons.append(SparkDaemon(words, work / f"worker-{number}", environment))
        for daemon in daemons[1:]:
            daemon.wait_for_log("Successfully registered with master")
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
    master: str,
    work: Path,
    environment: dict[str, str],
    two_days: tuple[ColdTier, Log],
    cluster: dict[str, str],
    tmp_path: Path,
) -> None:
    """The first command finds no session yet, and makes one on the master that it was submitted to."""
    tier, log = two_days
    script = tmp_path / "combined.py"
    script.write_text(COMBINED)
    replayed, counted = tmp_path / "replayed", tmp_path / "counted"
    commands = [
        ["spark", "counts", "orders", "--from", tier.url, "--to", str(counted), "--by", "queue"],
        ["spark", "catch-up", "orders", "--from", tier.url, "--to", str(replayed), "--option", "maxPartitionBytes=20k"],
        ["spark", "key-history", "orders", "lonely", "--from", tier.url, "--to", str(tmp_path / "history")],
        ["spark", "compare", "orders", "orders", "--from", tier.url],
        ["spark", "lag", "orders", "--group", "billing", "--from", tier.url],
        ["spark", "republish", "orders", "copies", "--from", tier.url, "--state", str(tmp_path / "state")],
    ]
    commands[-1] += ["--namesrv", cluster["namesrv"]]
    tier.save_state({CONSUMER_OFFSETS: {"offsetTable": {"orders@billing": {"0": 7, "1": 3}}}})
    with AdminClient(namesrv=cluster["namesrv"]) as admin:
        for name in ("copies", "written"):
            admin.create_topic(name, queue_nums=2)
    given = json.dumps([commands, tier.url, cluster["namesrv"], str(tmp_path)])
    answer = json.loads(submit(master, script, [given], environment).splitlines()[-1])
    assert answer == {
        "statuses": [0] * len(commands),
        "master": master,
        "worker_processes": WORKER_COUNT,
        "streamed": 500,
    }
    assert len({path.name for path in work.glob("work-*/app-*")}) == 2, "one of the first command, one of the others"
    found = [row for file in replayed.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {(row["queueId"], row["queueOffset"]): row["value"] for row in found} == {
        (row["queueId"], row["queueOffset"]): row["value"] for row in rows_of(log)
    }
    assert len(found) == 500
    lines = [json.loads(line) for line in (counted / "counts.json").read_text().splitlines()]
    assert {line["queue_id"]: line["message_count"] for line in lines} == log.ends()
    with AdminClient(namesrv=cluster["namesrv"]) as admin:
        for name in ("copies", "written"):
            assert sum(stats.max_offset for stats in admin.topic_stats(name)) == 500
