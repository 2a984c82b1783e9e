"""How fast does Spark read history from the bucket, beside parallel GETs, a job that pulls, and Parquet?

`python -m benchmarks.spark_read [--quick]`. A real `thermocline dev` on a real S3 server is filled by the load
generator (1 KiB bodies, JSON-like and such that do not compress) and sealed whole. One Spark session of two cores then
reads each topic, in rounds in which all take their turn:

  GETs           the `.log` parts in ranges of 4 MiB, 8 at once, by the same S3 client, in a process of its own
  source         `format("thermocline")`: all columns with properties, the nine default ones (both into the sink
                 `noop`), the body only (sum of lengths), a count
  s3a            `read_cold(engine="s3a")`, the default columns
  parquet        the same messages with all columns, as Spark wrote them to the same server (zstd), by s3a: all columns,
                 the default ones, body only, count
  pull           `mapInArrow`, one task a queue, in which the SDK pulls the queue from the broker: 32 messages at a
                 time, as consumers get them. Local files of what is read have been deleted, as those of history are;
                 `--hot` leaves them

  ratio          stored bytes a second / those of the GETs of the same round
  raw/core       raw record bytes a second / two cores, by the wall clock

The broker is stopped (SIGSTOP) while Spark reads the bucket. Medians over `--rounds`. Wanted of the source with default
columns: a ratio of 0.7 or 100 MB/s raw a core, whichever is less; 3 times the job that pulls; four tasks a queue. Exit
status 1 when one is missed or a count was wrong. `--quick`: 96 MiB raw a topic instead of 1 GiB, one round; it shows
that everything works, and its status is 0: what a query costs before its first row is most of so little, and nothing is
warmed up. `--mebibytes` says another size; files of the log and segments are in proportion.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.broker_under_test import EVERY_HOUR, BrokerUnderTest, make_cold_tier, start_thermocline
from benchmarks.cold_read import QUEUE_COUNT, WAIT_MS, delete_local_files, entry_of, fill_topic, parallel_gets
from benchmarks.load_generator import build_load_generator
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.message_queue import MessageQueue
from thermocline.localstack import LocalStackError, S3Server, start_server
from thermocline.remoting.errors import ResponseError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.spark import configure, local_session, read_cold
from thermocline.spark.decoding.message_columns import DEFAULT_COLUMNS, MESSAGE_COLUMNS, arrow_schema, spark_ddl
from thermocline.tiered.stores import open_object_store
from tooling.java_libraries import ensure_s3a_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIB = 1 << 20
CORES = 2
BODY_BYTES = 1024
URL = "s3a://cold/bench"
GETS_AT_ONCE = 8
PULL_COUNT = 32
PULL_TIMEOUT_MS = 60_000
TASKS_PER_QUEUE_WANTED = 4
RATIO_WANTED, RAW_MB_PER_CORE_WANTED, OVER_PULL_WANTED = 0.7, 100.0, 3.0
ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)
BODY_ONLY = "body only"
SOURCE, PULL = "source, default columns", "pull, default columns"
PULL_SCHEMA, PULL_DDL = arrow_schema(DEFAULT_COLUMNS), spark_ddl(DEFAULT_COLUMNS)


@dataclass(slots=True, kw_only=True)
class Topic:
    """One topic under measurement, and what was measured: seconds of each way, MB/s of the GETs, by round."""

    name: str
    fill: str
    messages: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    tasks: int = 0
    get_mb_per_s: list[float] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median_s(self, way: str) -> float:
        """Of all rounds."""
        return statistics.median(self.seconds[way])

    def ratio(self, way: str) -> float:
        """Stored bytes a second over those of the GETs: the median of the rounds' ratios."""
        pairs = zip(self.seconds[way], self.get_mb_per_s, strict=True)
        return statistics.median(self.stored_bytes / 1e6 / seconds / gets for seconds, gets in pairs)

    def raw_mb_per_core(self, way: str) -> float:
        """Raw MB a second of wall clock, for each of the cores."""
        return self.raw_bytes / 1e6 / self.median_s(way) / CORES

    def over(self, way: str, other: str) -> float:
        """How many times faster `way` is: the median of the rounds' ratios."""
        return statistics.median(b / a for a, b in zip(self.seconds[way], self.seconds[other], strict=True))

    def misses(self) -> list[str]:
        """What was wanted and is not so."""
        missed = []
        if self.ratio(SOURCE) < RATIO_WANTED and self.raw_mb_per_core(SOURCE) < RAW_MB_PER_CORE_WANTED:
            missed.append(f"ratio {self.ratio(SOURCE):.2f} and {self.raw_mb_per_core(SOURCE):.0f} MB/s raw a core")
        if self.over(SOURCE, PULL) < OVER_PULL_WANTED:
            missed.append(f"only {self.over(SOURCE, PULL):.1f} times the job that pulls")
        if self.tasks < TASKS_PER_QUEUE_WANTED * QUEUE_COUNT:
            missed.append(f"only {self.tasks} tasks for {QUEUE_COUNT} queues")
        return missed


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when something is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_read")
    parser.add_argument("--quick", action="store_true", help="96 MiB raw a topic, one round")
    parser.add_argument("--mebibytes", type=int, help="raw bytes a topic in MiB (default: 1024, or 96 with --quick)")
    parser.add_argument("--server", default="minio", help="an S3 server of localstack/ (default: %(default)s)")
    parser.add_argument("--fills", type=lambda text: text.split(","), default=["json", "random"])
    parser.add_argument("--rounds", type=int, help="default: 5, or 1 with --quick")
    parser.add_argument("--hot", action="store_true", help="leave local files to the job that pulls")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    parser.add_argument("--output", type=Path, help="write every figure to this JSON file")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (1 if options.quick else 5)
    mebibytes = options.mebibytes or (96 if options.quick else 1024)
    build_load_generator()
    settings = {
        "mappedFileSizeCommitLog": str(min(64, max(1, mebibytes // 6)) * MIB),
        "coldSegmentBytes": str(min(128, max(1, mebibytes // 3)) * MIB),
        "fileReservedTime": "48" if options.hot else "0",
        "deleteWhen": EVERY_HOUR,
    }
    topics = [Topic(name=f"SparkRead-{fill}", fill=fill) for fill in options.fills]
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        start_server(options.server, Path(name) / "s3") as server,
    ):
        cold_url = make_cold_tier(server)
        with (
            start_thermocline(Path(name), properties=settings, cold_url=cold_url) as broker,
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere,
        ):
            for topic in topics:
                fill_topic(broker, topic.name, fill=topic.fill, body_bytes=BODY_BYTES, raw_bytes=mebibytes * MIB)
            _seal(broker)
            if not options.hot:
                delete_local_files(broker, {topic.name for topic in topics})
            for topic in topics:
                elsewhere.submit(_look_at, cold_url, topic.name).result().give(topic)
            session = _session(server)
            _measure(session, broker, elsewhere, cold_url, topics, range(int(options.quick), rounds + 1))
            session.stop()
    return _report(topics, rounds, options)


# -- measuring -----------------------------------------------------------------------------------------------------


def _measure(
    session: SparkSession,
    broker: BrokerUnderTest,
    elsewhere: ProcessPoolExecutor,
    cold_url: str,
    topics: list[Topic],
    rounds: range,
) -> None:
    """All ways in turn, once for each of `rounds`; the one numbered 0 warms up and does not count."""
    ways = {topic.name: _ways(session, broker, topic) for topic in topics}
    for topic in topics:
        topic.tasks = _source(session, topic).load(URL).rdd.getNumPartitions()
        broker.pause()
        everything = _source(session, topic).option("columns", ALL_COLUMNS).load(URL)
        everything.write.mode("overwrite").option("compression", "zstd").parquet(f"s3a://cold/parquet/{topic.name}")
        broker.resume()
    for number in rounds:
        for topic in topics:
            broker.pause()
            get_bytes, get_s = elsewhere.submit(parallel_gets, cold_url, topic.name, GETS_AT_ONCE).result()
            if number:
                topic.get_mb_per_s.append(get_bytes / get_s / 1e6)
            for way, read in ways[topic.name].items():
                if way == PULL:
                    broker.resume()
                started = time.perf_counter()
                count = read()
                seconds = time.perf_counter() - started
                wanted = topic.messages * (BODY_BYTES if way.endswith(BODY_ONLY) else 1)
                if count != wanted:
                    raise SystemExit(f"{way} of {topic.name} gave {count}, not {wanted}")
                if number:
                    topic.seconds.setdefault(way, []).append(seconds)
                print(f"round {number} {topic.fill:<7} {way:<26} {seconds:8.2f} s", file=sys.stderr, flush=True)
            broker.resume()


def _ways(session: SparkSession, broker: BrokerUnderTest, topic: Topic) -> dict[str, Callable[[], int]]:
    """What is measured, each a function that reads everything and says how many rows, or bytes of bodies, that were;
    the job that pulls comes last."""
    parquet = f"s3a://cold/parquet/{topic.name}"
    return {
        "source, all columns": lambda: _drain(_source(session, topic).option("columns", ALL_COLUMNS).load(URL)),
        SOURCE: lambda: _drain(_source(session, topic).load(URL)),
        f"source, {BODY_ONLY}": lambda: _body_bytes(_source(session, topic).option("columns", "value").load(URL)),
        "source, count": lambda: _source(session, topic).option("columns", "queueOffset").load(URL).count(),
        "s3a, default columns": lambda: _drain(read_cold(session, URL, topic=topic.name, engine="s3a")),
        "parquet, all columns": lambda: _drain(session.read.parquet(parquet)),
        "parquet, default columns": lambda: _drain(session.read.parquet(parquet).select(*DEFAULT_COLUMNS)),
        f"parquet, {BODY_ONLY}": lambda: _body_bytes(session.read.parquet(parquet)),
        "parquet, count": lambda: session.read.parquet(parquet).count(),
        PULL: lambda: _pulled(session, broker, topic),
    }


def _source(session: SparkSession, topic: Topic) -> Any:
    return configure(session, URL).option("topic", topic.name)


def _drain(table: DataFrame) -> int:
    """Have every row made, and count them on the way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    table.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def _body_bytes(table: DataFrame) -> int:
    from pyspark.sql import functions as f

    (row,) = table.agg(f.sum(f.length("value"))).collect()
    return int(row[0])


def _pulled(session: SparkSession, broker: BrokerUnderTest, topic: Topic) -> int:
    """Read every queue through the broker, one task each."""
    queues = session.createDataFrame([(number,) for number in range(QUEUE_COUNT)], "queueId int")
    job = _PullJob(namesrv=broker.namesrv, topic=topic.name)
    return _drain(queues.repartitionByRange(QUEUE_COUNT, "queueId").mapInArrow(job, PULL_DDL))


@dataclass(frozen=True, slots=True, kw_only=True)
class _PullJob:
    """The function of `mapInArrow` of the job that pulls."""

    namesrv: str
    topic: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for queue_id in batch.column(0).to_pylist():
                yield from self._queue(queue_id)

    def _queue(self, queue_id: int) -> Iterator[pa.RecordBatch]:
        group = f"SparkPull{queue_id}-{time.monotonic_ns()}"
        with PullConsumer(
            group=group,
            namesrv=self.namesrv,
            pull_batch_size=PULL_COUNT,
            auto_commit=False,
            poll_timeout_ms=PULL_TIMEOUT_MS,
        ) as consumer:
            queue = next(each for each in consumer.fetch_message_queues(self.topic) if each.queue_id == queue_id)
            consumer.assign([queue])
            consumer.seek_to_end(queue)
            end = consumer.position(queue)
            consumer.seek(queue, 0)
            rows: list[tuple[Any, ...]] = []
            position = 0
            while position < end:
                messages = consumer.poll(count_max=16_384)
                if not messages:
                    raise TimeoutError(f"no message at offset {position} of {queue}")
                rows += [_row(message, queue) for message in messages]
                position = messages[-1].record.queue_offset + 1
                if len(rows) >= 8_192 or position >= end:
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array(column, kind)
                            for column, kind in zip(zip(*rows, strict=True), PULL_SCHEMA.types, strict=True)
                        ],
                        schema=PULL_SCHEMA,
                    )
                    rows = []


def _row(message: Any, queue: MessageQueue) -> tuple[Any, ...]:
    record = message.record
    return (
        message.topic,
        queue.broker_name,
        queue.queue_id,
        record.queue_offset,
        message.properties.get("KEYS"),
        message.properties.get("TAGS"),
        message.body,
        record.store_timestamp_ms * 1_000,
        record.born_timestamp_ms * 1_000,
    )


# -- around it -----------------------------------------------------------------------------------------------------


def _seal(broker: BrokerUnderTest) -> None:
    """Seal all that there is; the tier process may still be starting."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while True:
        try:
            broker.ask(PrivateRequestCode.TIER_SEAL, timeout_ms=WAIT_MS)
            return
        except ResponseError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"the tier process does not answer: {error}") from error
        time.sleep(1.0)


def _session(server: S3Server) -> SparkSession:
    jars = ",".join(map(str, ensure_s3a_jars()))
    s3a = {
        "endpoint": server.endpoint,
        "endpoint.region": server.region,
        "path.style.access": "true",
        "access.key": server.access_key,
        "secret.key": server.secret_key,
        "experimental.input.fadvise": "sequential",
    }
    return local_session(
        app_name="spark_read",
        cores=CORES,
        settings={
            "spark.jars": jars,
            "spark.driver.memory": "2g",
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What the cold tier holds of a topic."""

    messages: int
    raw_bytes: int
    stored_bytes: int

    def give(self, topic: Topic) -> None:
        topic.messages, topic.raw_bytes, topic.stored_bytes = self.messages, self.raw_bytes, self.stored_bytes


def _look_at(url: str, topic: str) -> _Content:
    async def read() -> _Content:
        store = await open_object_store(url)
        try:
            entry = await entry_of(store, topic)
            return _Content(
                messages=sum(segment.record_count for segment in entry.segments),
                raw_bytes=sum(segment.raw_bytes for segment in entry.segments),
                stored_bytes=sum(segment.log.size_bytes for segment in entry.segments),
            )
        finally:
            await store.close()

    return asyncio.run(read())


def _report(topics: list[Topic], rounds: int, options: argparse.Namespace) -> int:
    missed = False
    for topic in topics:
        print(
            f"\n{topic.fill} bodies of {BODY_BYTES} bytes: {topic.messages:,} messages, "
            f"{topic.raw_bytes / 1e6:.0f} MB raw, {topic.stored_bytes / 1e6:.0f} MB stored, "
            f"{topic.tasks} tasks; {options.server}, {CORES} cores, median of {rounds}"
        )
        print(f"{'':<26} {'s':>7} {'raw MB/s':>9} {'raw/core':>9} {'ratio':>7} {'x pull':>7} {'x parquet':>9}")
        gets = statistics.median(topic.get_mb_per_s)
        print(f"{'GETs':<26} {topic.stored_bytes / 1e6 / gets:>7.2f} {'':>9} {'':>9} {1:>7.2f}")
        for way in topic.seconds:
            parquet = "parquet, " + way.partition(", ")[2]
            print(
                f"{way:<26} {topic.median_s(way):>7.2f} {topic.raw_bytes / 1e6 / topic.median_s(way):>9.0f}"
                f" {topic.raw_mb_per_core(way):>9.0f} {topic.ratio(way):>7.2f} {topic.over(way, PULL):>7.1f}"
                f" {topic.over(way, parquet):>9.2f}"
            )
        for what in topic.misses():
            missed = True
            print(f"MISSED: {what}")
    if options.output:
        table = {"rounds": rounds, "quick": options.quick, "topics": [asdict(topic) for topic in topics]}
        options.output.write_text(json.dumps(table, indent=1))
    return 1 if missed and not options.quick else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LocalStackError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
