"""Question: do sends of other clients wait while one client lets many topics be created by its first sends?

Workload: an open loop of `--rate` sends a second to one topic (100 B, 4 connections), in slices of `--slice` seconds,
first alone, then beside one client that sends one message to each of `--topics` topics that do not exist, over one
connection with `--window` in flight, until all are created. Then the first part once more, so that the two quiet parts
show how steady the machine is. Asynchronous flush, index and cold tier (a directory) on, NameServer in the same process
as the broker. Nothing is pinned: the creating client is the load.

Prints p50 and p99 of each part (medians of its slices), their ratios to the quiet part before, and the topics created
per second.

    python -m benchmarks.topic_creation [--topics 20000] [--rate 2000] [--window 16] [--tree DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest, start_thermocline
from benchmarks.load_generator import LoadResult, LoadShape, build_load_generator, run_load
from benchmarks.pipelined_sends import send_all
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.send import SendMessageRequestHeader, encode_send_header
from thermocline.remoting.request_code import RequestCode

BODY = b"b" * 100
TOPIC = "CreationBystander"
CONNECTIONS, QUEUES = 4, 4
QUIET_SLICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Medians over the slices of one part, in microseconds. `topics_per_s`: 0 where none was created."""

    name: str
    slices: int
    p50_us: float
    p99_us: float
    topics_per_s: float
    is_clean: bool


def creating_frames(count: int) -> Iterator[bytes]:
    """A send to each of `count` topics that do not exist, as official producers write it."""
    code = RequestCode.SEND_MESSAGE_V2
    for number in range(count):
        header = SendMessageRequestHeader(
            producer_group="topic-creation",
            topic=f"Created{number:06d}",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=number % 4,
            properties=f"UNIQ_KEY\x010A0700016AE04E0E2F2A68B4{number:08X}\x02WAIT\x01true\x02",
        )
        yield RemotingCommand.request(code, ext_fields=encode_send_header(code, header), body=BODY).encode()


def create(address: str, count: int, window: int) -> float:
    """Create the topics, in a process of its own; topics per second."""
    started = time.monotonic()
    answered = asyncio.run(send_all(address, creating_frames(count), connections=1, window=window))
    assert answered == count
    return count / (time.monotonic() - started)


def measure(
    name: str, one_slice: Callable[[], LoadResult], *, is_over: Callable[[int], bool], created: Future[float] | None
) -> Part:
    """Slices until it is over."""
    results: list[LoadResult] = []
    while not results or not is_over(len(results)):
        results.append(one_slice())
    part = Part(
        name=name,
        slices=len(results),
        p50_us=statistics.median(result.latency_us.p50 for result in results),
        p99_us=statistics.median(result.latency_us.p99 for result in results),
        topics_per_s=created.result() if created else 0.0,
        is_clean=all(result.is_clean for result in results),
    )
    print(part, file=sys.stderr, flush=True)
    return part


def run(broker: BrokerUnderTest, options: argparse.Namespace) -> list[Part]:
    """All parts on one broker."""
    shape = LoadShape(connections=CONNECTIONS, rate_per_s=options.rate, queues=QUEUES)

    def one_slice() -> LoadResult:
        return run_load(shape, address=broker.address, topic=TOPIC, seconds=options.slice, warm_s=0.2)

    one_slice()  # makes the topic, and warms

    def quiet(name: str) -> Part:
        return measure(name, one_slice, is_over=lambda count: count >= QUIET_SLICES, created=None)

    before = quiet("alone")
    with ThreadPoolExecutor(1) as pool:
        created = pool.submit(_in_process, broker.address, options)
        busy = measure("beside", one_slice, is_over=lambda _: created.done(), created=created)
    return [before, busy, quiet("after")]


def _in_process(address: str, options: argparse.Namespace) -> float:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(create, (address, options.topics, options.window))


def main() -> int:
    """Measure and print; 1 when any answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topic_creation")
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--slice", type=float, default=1.0)
    parser.add_argument("--tree", type=Path, help="another checkout of the source whose broker is measured")
    parser.add_argument("--output", type=Path, help="write every figure to this JSON file")
    options = parser.parse_args()
    build_load_generator()
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as folder,
        start_thermocline(Path(folder), properties={}, tree=options.tree) as broker,
    ):
        parts = run(broker, options)
    quiet = parts[0]
    for part in parts:
        rate = f"  {part.topics_per_s:,.0f} topics/s" if part.topics_per_s else ""
        print(
            f"{part.name:7} p50 {part.p50_us:,.0f} us ({part.p50_us / quiet.p50_us:.1f} x)"
            f"  p99 {part.p99_us:,.0f} us ({part.p99_us / quiet.p99_us:.1f} x){rate}"
        )
    if options.output:
        options.output.write_text(json.dumps([asdict(part) for part in parts], indent=1))
    return 0 if all(part.is_clean for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
