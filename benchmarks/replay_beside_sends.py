"""Question: what does a replay of history at full speed do to the latency of sends, beside the official broker?

Workload: an open loop of 5 000 sends a second of 1 KiB, before and while four readers pull history of another topic,
32 messages at a time, as fast as they are answered. History is in the local log of either broker (the official one has
no cold tier here; `latency_under_offload.py` has the same question for history in the bucket). They are measured
in turn, as in `compare.py`.

    python -m benchmarks.replay_beside_sends [--quick] [--rounds 5] [--seconds 4] [--rate 5000]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest
from benchmarks.command import run_command
from benchmarks.compare import (
    GENERATOR_CPUS,
    PROPERTIES,
    PULL_TOPIC,
    measure,
    parse_with_common,
    start_brokers,
    warm_broker,
)
from benchmarks.load_generator import LoadResult, LoadShape, build_load_generator, run_load
from benchmarks.markdown_table import markdown_table, spread
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

SEND_TOPIC = "BenchBeside"
READERS = 4
REPLAY_AHEAD_S = 1.0
"""How much longer a replay runs than the sends that are measured beside it, at both ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The sends of one broker before and during a replay, and the replay."""

    before: LoadResult
    during: LoadResult
    replay: LoadResult


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay_beside_sends", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rate", type=int, default=5_000, help="sends a second (default 5 000)")
    options = parse_with_common(parser, arguments)
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    build_load_generator()
    rounds: dict[str, list[Round]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        contextlib.ExitStack() as stack,
    ):
        brokers = list(start_brokers(PROPERTIES["async"], stack, software, Path(name), options))
        for broker in brokers:
            warm_broker(broker, options)  # which fills the topic that is replayed
            broker.pause()
        for number in range(options.rounds):
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                rounds.setdefault(broker.kind, []).append(_round(broker, options))
    print(table(rounds, rate=options.rate))
    results = [
        result for of_kind in rounds.values() for each in of_kind for result in (each.before, each.during, each.replay)
    ]
    return 0 if all(result.is_clean for result in results) else 1


def _round(broker: BrokerUnderTest, options: argparse.Namespace) -> Round:
    sends = LoadShape(connections=16, rate_per_s=options.rate, body_bytes=1_024)
    before = measure(broker, SEND_TOPIC, sends, options).result
    broker.resume()
    with ThreadPoolExecutor(1) as pool:
        replay = pool.submit(
            run_load,
            LoadShape(mode="pull", connections=READERS, window=1),
            address=broker.address,
            topic=PULL_TOPIC,
            seconds=options.seconds + 2 * REPLAY_AHEAD_S,
            warm_s=0.0,
            cpus=None if options.no_pin else GENERATOR_CPUS,
        )
        during = run_load(
            sends,
            address=broker.address,
            topic=SEND_TOPIC,
            seconds=options.seconds,
            warm_s=REPLAY_AHEAD_S,
            cpus=None if options.no_pin else GENERATOR_CPUS,
            is_real_time=options.real_time,
        )
        replayed = replay.result()
    broker.pause()
    print(
        f"{broker.kind}: p99 {before.latency_us.p99:,.0f} us before, {during.latency_us.p99:,.0f} us during,"
        f" {replayed.messages_per_s:,.0f} messages/s replayed",
        file=sys.stderr,
        flush=True,
    )
    return Round(before=before, during=during, replay=replayed)


def table(rounds: dict[str, list[Round]], *, rate: int) -> str:
    """A line a broker."""
    head = [f"{rate} sends/s", "p99 before, us", "p99 during, us", "sends/s during", "replay, messages/s"]
    rows = []
    for kind, of_kind in rounds.items():
        rows.append(
            [
                kind,
                spread([each.before.latency_us.p99 for each in of_kind], ".0f"),
                spread([each.during.latency_us.p99 for each in of_kind], ".0f"),
                f"{statistics.median(each.during.messages_per_s for each in of_kind):.0f}",
                spread([each.replay.messages_per_s for each in of_kind], ".0f"),
            ]
        )
    return markdown_table(head, rows)


if __name__ == "__main__":
    run_command(main)
