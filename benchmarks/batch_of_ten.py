"""Question: how many more messages a second do batches of ten bring than single sends, beside the official broker?

Workload: messages of 100 B from 16 connections, eight requests in flight on each: single sends, and batches of ten. The
brokers are measured in turn, as in `compare.py`. The last column is the median of the ratios of a broker's batches to
its single sends of the same round.

    python -m benchmarks.batch_of_ten [--quick] [--rounds 5] [--seconds 4]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest
from benchmarks.command import run_command
from benchmarks.compare import PROPERTIES, Run, measure, parse_with_common, start_brokers, topic_of, warm_broker
from benchmarks.load_generator import LoadShape, build_load_generator
from benchmarks.markdown_table import markdown_table, spread
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

SINGLES, BATCHES = "single sends", "batches of ten"
SHAPES = {
    SINGLES: LoadShape(connections=16, window=8),
    BATCHES: LoadShape(mode="batch", connections=16, window=8, batch_count=10),
}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.batch_of_ten", description=(__doc__ or "").splitlines()[0]
    )
    options = parse_with_common(parser, arguments)
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    build_load_generator()
    rounds: list[dict[tuple[str, str], Run]] = []
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        contextlib.ExitStack() as stack,
    ):
        brokers = list(start_brokers(PROPERTIES["async"], stack, software, Path(name), options))
        for broker in brokers:
            warm_broker(broker, options)
            broker.pause()
        rounds += [_round(brokers if number % 2 == 0 else brokers[::-1], options) for number in range(options.rounds)]
    print(table(rounds))
    return 0 if all(run.result.is_clean for runs in rounds for run in runs.values()) else 1


def _round(brokers: list[BrokerUnderTest], options: argparse.Namespace) -> dict[tuple[str, str], Run]:
    runs: dict[tuple[str, str], Run] = {}
    for shape_name, shape in SHAPES.items():
        for broker in brokers:
            run = runs[broker.kind, shape_name] = measure(broker, topic_of(shape_name, shape), shape, options)
            print(f"{shape_name} {broker.kind}: {run.result.messages_per_s:,.0f}/s", file=sys.stderr, flush=True)
    return runs


def table(rounds: list[dict[tuple[str, str], Run]]) -> str:
    """A line a broker."""
    head = [
        "broker",
        *(f"{name}, messages/s" for name in SHAPES),
        "messages per cpu-s of the broker",
        "batches to singles",
    ]
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in rounds[0]):
        rates = {name: [runs[kind, name].result.messages_per_s for runs in rounds] for name in SHAPES}
        per_cpu_s = (
            f"{statistics.median(runs[kind, name].messages_per_cpu_s for runs in rounds):.0f}" for name in SHAPES
        )
        rows.append(
            [
                kind,
                *(spread(rates[name], ".0f") for name in SHAPES),
                ", ".join(per_cpu_s),
                spread([many / one for many, one in zip(rates[BATCHES], rates[SINGLES], strict=True)], ".2f"),
            ]
        )
    return markdown_table(head, rows)


if __name__ == "__main__":
    run_command(main)
