"""How fast is history read through the broker, beside parallel GETs of the same objects by the same S3 client?

`python -m benchmarks.cold_read`. A real `thermocline dev` on a real S3 server is filled by the load generator (batches;
bodies that are JSON-like or do not compress, 1 KiB or 100 bytes), sealed whole, and filled on until the local files of
what is measured are gone. Then each topic is read once, from offset 0, by raw PULL_MESSAGE readers: one connection a
queue, pulls of 32, the next one written when the answer before is there, as official clients do. Right before each
read the same client (`S3ObjectStore` on the same kind of loop, in a process of its own) gets the `.log` parts of the
same segments in ranges of 4 MiB, `--get-concurrency` at once.

  ratio      stored bytes a second through the broker / by the parallel GETs
  raw/core   raw record bytes a second of CPU time of all of the broker's processes (S3 server and readers left out)
  fetched    bytes received from the store / stored size of the frames that hold what was served
  PUTs/GiB   PUT and create-if-absent requests of fill and seal for each GiB raw: of data and ledger, and in all with
             checkpoints, state snapshots, indexes and merges

Between fill and reads it waits until the tier process asks nothing of the store any more.

Wanted: a ratio of at least 0.7 or 100 MB/s raw a core, whichever is less; fetched at most 1.1; PUTs/GiB at most 40 of
data and ledger and 80 in all at the default segment size. `--full` writes 1 GiB raw for each topic at the default
segment size; without it both are an eighth, which the report says; the PUTs are then no measure. Exit status 1 when
something wanted is missed or an answer was wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.broker_under_test import EVERY_HOUR, BrokerUnderTest, make_cold_tier, start_thermocline
from benchmarks.load_generator import LoadShape, build_load_generator, run_load
from thermocline.broker.process import run
from thermocline.localstack import LocalStackError, start_server
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.tiered.catalog import PackPieces, TopicEntry, with_pieces
from thermocline.tiered.ledger import open_catalog
from thermocline.tiered.objects import ObjectStore, SegmentOffset, run_all
from thermocline.tiered.segments import BrokerKeys, SegmentReader
from thermocline.tiered.stores import open_object_store

MIB, GIB = 1 << 20, 1 << 30
QUEUE_COUNT = 4
SEGMENT_BYTES = 128 * MIB
SCALE = 8
FILLER_TOPIC = "ColdReadFiller"
KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
GET_BYTES = 4 * MIB
WAIT_MS = 300_000
READ_S_MAX = 600.0
RATIO_WANTED, RAW_MB_PER_CORE_WANTED, FETCHED_WANTED = 0.7, 100.0, 1.1
DATA_PUTS_PER_GIB_WANTED, PUTS_PER_GIB_WANTED = 40.0, 80.0
IDLE_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a read is to be served with: queue offsets [0, end) of the first queues, and the frames that hold them."""

    end: int
    raw_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Puts:
    """PUT and create-if-absent requests for each GiB raw: of segments, packs and the ledger, and in all."""

    data_per_gib: float
    all_per_gib: float

    @property
    def are_few(self) -> bool:
        """Whether both are as wanted."""
        return self.data_per_gib <= DATA_PUTS_PER_GIB_WANTED and self.all_per_gib <= PUTS_PER_GIB_WANTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One read, and the GETs before it. Rates in MB a second."""

    fill: str
    body_bytes: int
    queues: int
    messages: int
    raw_bytes: int
    stored_bytes: int
    read_s: float
    get_mb_per_s: float
    stored_mb_per_s: float
    raw_mb_per_s: float
    ratio: float
    cpu_s: float
    raw_mb_per_core: float
    fetched_ratio: float
    is_clean: bool

    @property
    def is_fast_enough(self) -> bool:
        """By the lesser of the two."""
        return self.ratio >= RATIO_WANTED or self.raw_mb_per_core >= RAW_MB_PER_CORE_WANTED


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when something is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_read")
    parser.add_argument("--server", default="versitygw", help="an S3 server of localstack/ (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="1 GiB raw a topic, default segment size")
    parser.add_argument("--bodies", type=_numbers, default=[1024, 100], help="body sizes (default: 1024,100)")
    parser.add_argument("--fills", type=lambda text: text.split(","), default=["json", "random"])
    parser.add_argument("--queues", type=_numbers, default=[4, 1], help="how many queues at once (default: 4,1)")
    parser.add_argument("--window", type=int, default=1, help="pulls in flight for each queue (default: %(default)s)")
    parser.add_argument("--get-concurrency", type=int, default=8, help="parallel GETs (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    parser.add_argument("--output", type=Path, help="write every figure to this JSON file")
    options = parser.parse_args(arguments)
    build_load_generator()
    scale = 1 if options.full else SCALE
    settings = {
        "mappedFileSizeCommitLog": str(64 * MIB if options.full else 16 * MIB),
        "fileReservedTime": "0",
        "deleteWhen": EVERY_HOUR,
        "coldSegmentBytes": str(SEGMENT_BYTES // scale),
        # Smaller than what is read between two reads of one topic.
        "coldCacheBytes": str(64 * MIB),
    }
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        start_server(options.server, Path(name) / "s3") as server,
    ):
        url = make_cold_tier(server)
        with (
            start_thermocline(Path(name), properties=settings, cold_url=url) as broker,
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere,
        ):
            topics = {(fill, size): f"ColdRead-{fill}-{size}" for fill in options.fills for size in options.bodies}
            before, keys_before = tier_status(broker), elsewhere.submit(_data_keys, url).result()
            for (fill, size), topic in topics.items():
                fill_topic(broker, topic, fill=fill, body_bytes=size, raw_bytes=GIB // scale)
            broker.ask(PrivateRequestCode.TIER_SEAL, timeout_ms=WAIT_MS)
            puts = _puts_since(before, tier_status(broker), elsewhere.submit(_data_keys, url).result() - keys_before)
            delete_local_files(broker, set(topics.values()))
            _wait_until_idle(broker)
            figures = [
                _measure(broker, elsewhere, url, topic, fill=fill, body_bytes=size, queues=queues, options=options)
                for _ in range(options.repeats)
                for queues in options.queues
                for (fill, size), topic in topics.items()
            ]
    return _report(figures, puts, options)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


# -- filling -----------------------------------------------------------------------------------------------------------


def fill_topic(broker: BrokerUnderTest, topic: str, *, fill: str, body_bytes: int, raw_bytes: int) -> None:
    """Write until the log has grown by `raw_bytes`."""
    shape = LoadShape(mode="batch", connections=4, window=2, body_bytes=body_bytes, queues=QUEUE_COUNT, fill=fill)
    start, written, seconds = _log_end(broker), 0, 0.2
    while written < raw_bytes:
        result = run_load(shape, address=broker.address, topic=topic, seconds=seconds, warm_s=0.0)
        if result.errors or result.protocol_errors:
            raise SystemExit(f"filling failed: {result}")
        before, written = written, _log_end(broker) - start
        seconds = min(5.0, max(0.1, seconds * (raw_bytes - written) / (written - before)))
    print(f"filled {topic}: {written / 1e6:.0f} MB raw", file=sys.stderr, flush=True)


def _log_end(broker: BrokerUnderTest) -> int:
    return int(broker.runtime_info()["commitLogMaxOffset"])


def delete_local_files(broker: BrokerUnderTest, topics: set[str]) -> None:
    """Write to another topic until everything of these is cold alone."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while True:
        rows = [row for row in tier_status(broker)["topics"] if row["topic"] in topics]
        if rows and all(queue["localMin"] >= queue["coldEnd"] > 0 for row in rows for queue in row["queues"]):
            return
        if time.monotonic() > deadline:
            raise SystemExit("local files were not deleted in time")
        shape = LoadShape(mode="batch", connections=1, window=1, body_bytes=1024, queues=QUEUE_COUNT, fill="random")
        run_load(shape, address=broker.address, topic=FILLER_TOPIC, seconds=0.5, warm_s=0.0)
        broker.ask(PrivateRequestCode.TIER_SEAL, timeout_ms=WAIT_MS)
        time.sleep(1.0)


def _puts_since(before: Mapping[str, Any], after: Mapping[str, Any], keys: set[str]) -> Puts:
    raw_gib = sum(row["rawBytes"] or 0 for row in after["topics"]) / GIB
    return Puts(data_per_gib=len(keys) / raw_gib, all_per_gib=(_puts(after) - _puts(before)) / raw_gib)


def _puts(status: Mapping[str, Any]) -> int:
    return sum(status["requests"].get(verb, 0) for verb in ("put", "create_if_absent"))


def _data_keys(url: str) -> set[str]:
    """The keys of segments, packs and ledger entries. So soon none of them has been deleted: each was one PUT."""

    async def read() -> set[str]:
        store = await open_object_store(url)
        try:
            prefixes = (KEYS.topics_prefix, KEYS.packs_prefix, KEYS.ledger_prefix)
            return {info.key for prefix in prefixes async for info in store.list(prefix)}
        finally:
            await store.close()

    return run(read())


def _wait_until_idle(broker: BrokerUnderTest) -> None:
    """Until indexes and merges of what was filled are done: nothing has been asked of the store for some seconds."""
    deadline = time.monotonic() + WAIT_MS / 1000
    requests: Mapping[str, int] | None = None
    while requests != (requests := tier_status(broker)["requests"]):
        if time.monotonic() > deadline:
            raise SystemExit("the tier process did not come to rest in time")
        time.sleep(IDLE_S)


# -- reading -----------------------------------------------------------------------------------------------------------


def _measure(
    broker: BrokerUnderTest,
    elsewhere: ProcessPoolExecutor,
    url: str,
    topic: str,
    *,
    fill: str,
    body_bytes: int,
    queues: int,
    options: argparse.Namespace,
) -> Figures:
    get_bytes, get_s = elsewhere.submit(parallel_gets, url, topic, options.get_concurrency).result()
    served = elsewhere.submit(_what_is_served, url, topic, queues).result()
    received, cpu_s = tier_status(broker)["receivedBytes"], broker.cpu_s()
    shape = LoadShape(
        mode="pull",
        connections=queues,
        window=options.window,
        queues=queues,
        until=served.end,
        group=f"Reader{time.monotonic_ns()}",
    )
    result = run_load(shape, address=broker.address, topic=topic, seconds=READ_S_MAX, warm_s=0.0)
    cpu_s = broker.cpu_s() - cpu_s
    fetched = tier_status(broker)["receivedBytes"] - received
    get_mb_per_s, stored_mb_per_s = get_bytes / get_s / 1e6, served.stored_bytes / result.seconds / 1e6
    # A window of one reads every message once; with more a short answer makes the reader ask again for some.
    read_whole = result.messages >= queues * served.end
    figures = Figures(
        fill=fill,
        body_bytes=body_bytes,
        queues=queues,
        messages=result.messages,
        raw_bytes=served.raw_bytes,
        stored_bytes=served.stored_bytes,
        read_s=result.seconds,
        get_mb_per_s=get_mb_per_s,
        stored_mb_per_s=stored_mb_per_s,
        raw_mb_per_s=served.raw_bytes / result.seconds / 1e6,
        ratio=stored_mb_per_s / get_mb_per_s,
        cpu_s=cpu_s,
        raw_mb_per_core=served.raw_bytes / cpu_s / 1e6,
        fetched_ratio=fetched / served.stored_bytes,
        is_clean=result.is_clean and read_whole,
    )
    print(f"{figures} {result.codes or ''}", file=sys.stderr, flush=True)
    return figures


def parallel_gets(url: str, topic: str, concurrency: int) -> tuple[int, float]:
    """Bytes and seconds of getting the `.log` parts of all of a topic's segments, by a client that is warm."""

    async def get_all() -> tuple[int, float]:
        store = await open_object_store(url)
        try:
            parts = [segment.log for segment in (await entry_of(store, topic)).segments]
            ranges = [
                (part.key, start, min(start + GET_BYTES, part.end))
                for part in parts
                for start in range(part.start, part.end, GET_BYTES)
            ]
            await run_all([_get(store, *ranges[0]) for _ in range(concurrency)], concurrency_max=concurrency)
            started = time.perf_counter()
            sizes = await run_all([_get(store, *each) for each in ranges], concurrency_max=concurrency)
            return sum(sizes), time.perf_counter() - started
        finally:
            await store.close()

    return run(get_all())


async def entry_of(store: ObjectStore, topic: str) -> TopicEntry:
    """A topic's segments, the pieces of packs among them."""
    entry = await with_pieces(PackPieces(store), await open_catalog(store, KEYS), topic)
    assert entry is not None
    return entry


async def _get(store: ObjectStore, key: str, start: int, end: int) -> int:
    return len(await store.get_range(key, start=SegmentOffset(start), end=SegmentOffset(end)))


def _what_is_served(url: str, topic: str, queues: int) -> Served:
    """The offsets that all of the first queues hold, and what holds them."""

    async def read() -> Served:
        store = await open_object_store(url)
        try:
            entry = await entry_of(store, topic)
            ends = entry.queue_ends()
            end = min(ends[queue_id] for queue_id in range(queues))
            raw_bytes = stored_bytes = 0
            for segment in entry.segments:
                footer = await SegmentReader(store, segment).log_footer()
                for run_of_queue in segment.runs:
                    if run_of_queue.queue_id < queues:
                        frames = list(footer.frames_of(run_of_queue, start_offset=QueueOffset(0), end_offset=end))
                        raw_bytes += sum(frame.raw_bytes for frame in frames)
                        stored_bytes += sum(frame.stored_bytes for frame in frames)
            return Served(end=end, raw_bytes=raw_bytes, stored_bytes=stored_bytes)
        finally:
            await store.close()

    return run(read())


# -- asking ------------------------------------------------------------------------------------------------------------


def tier_status(broker: BrokerUnderTest) -> dict[str, Any]:
    """What the broker tells of its cold tier."""
    return broker.ask(PrivateRequestCode.TIER_STATUS, timeout_ms=WAIT_MS)


def _report(figures: list[Figures], puts: Puts, options: argparse.Namespace) -> int:
    print(
        f"cold reads, {options.server}, window {options.window}; "
        + (
            "1 GiB raw a topic, segments of 128 MiB"
            if options.full
            else "scaled: 128 MiB raw a topic, segments of 16 MiB"
        )
    )
    print(
        f"{'bodies':>12} {'queues':>6} {'GET MB/s':>9} {'stored MB/s':>11} {'ratio':>6} {'raw MB/s':>9}"
        f" {'raw MB/s a core':>15} {'fetched':>8}  verdict"
    )
    for each in figures:
        verdict = "ok" if each.is_fast_enough else "SLOW"
        verdict += "" if each.fetched_ratio <= FETCHED_WANTED else ", FETCHES TOO MUCH"
        verdict += "" if each.is_clean else ", WRONG ANSWERS"
        print(
            f"{each.fill + ' ' + str(each.body_bytes):>12} {each.queues:>6} {each.get_mb_per_s:>9.0f}"
            f" {each.stored_mb_per_s:>11.1f} {each.ratio:>6.2f} {each.raw_mb_per_s:>9.1f}"
            f" {each.raw_mb_per_core:>15.1f} {each.fetched_ratio:>8.3f}  {verdict}"
        )
    print(f"PUTs per GiB raw: {puts.data_per_gib:.1f} of data and ledger, {puts.all_per_gib:.1f} in all")
    if options.output:
        table = {"full": options.full, "puts": asdict(puts), "reads": [asdict(each) for each in figures]}
        options.output.write_text(json.dumps(table, indent=1))
    good = all(each.is_clean and each.is_fast_enough and each.fetched_ratio <= FETCHED_WANTED for each in figures)
    return 0 if good and (puts.are_few or not options.full) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LocalStackError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
