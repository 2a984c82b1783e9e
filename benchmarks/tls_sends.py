"""Question: what does TLS cost a send, and how fast are sends over TLS beside the official broker with TLS?

Workload: single sends of 1 KiB: 16 connections with 64 requests in flight on each, 64 connections with one, and 10 000
a second from 16 connections; each plain and over TLS. The brokers are measured in turn, as in `compare.py`. Both have
the certificate that they sign themselves, TLS 1.3 and the ciphers that both sides choose; the generator checks nothing.

The last two columns are medians of ratios of the same round: TLS to plain, and ours to the official broker's. A rate is
better above 1, a p99 below 1.

    python -m benchmarks.tls_sends [--quick] [--rounds 5] [--seconds 4] [--only "c64 w1"]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE, BrokerUnderTest
from benchmarks.command import run_command
from benchmarks.compare import PROPERTIES, Run, measure, parse_with_common, start_brokers, topic_of, warm_broker
from benchmarks.load_generator import LoadShape, build_load_generator, run_load
from benchmarks.markdown_table import markdown_table, spread
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

PLAIN_SHAPES = {
    "c16 w64": LoadShape(connections=16, window=64, body_bytes=1024),
    "c64 w1": LoadShape(connections=64, window=1, body_bytes=1024),
    "10 000/s c16": LoadShape(connections=16, rate_per_s=10_000, body_bytes=1024),
}
SHAPES = {
    (name, way): replace(shape, tls=way == "TLS") for name, shape in PLAIN_SHAPES.items() for way in ("plain", "TLS")
}
WARM_SHAPE = LoadShape(connections=16, window=32, tls=True)
Key = tuple[str, str, str]
"""Broker, shape, plain or TLS."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls_sends", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    options = parse_with_common(parser, arguments)
    if not any(options.only in name for name in PLAIN_SHAPES):
        parser.error(f"no shape's name contains {options.only!r}; there are {', '.join(PLAIN_SHAPES)}")
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    build_load_generator()
    rounds: list[dict[Key, Run]] = []
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        contextlib.ExitStack() as stack,
    ):
        brokers = list(start_brokers(PROPERTIES["async"], stack, software, Path(name), options))
        for broker in brokers:
            warm_broker(broker, options)
            run_load(WARM_SHAPE, address=broker.address, topic="BenchWarmTls", seconds=options.warm, warm_s=1.0)
            broker.pause()
        rounds += [_round(brokers if number % 2 == 0 else brokers[::-1], options) for number in range(options.rounds)]
    print(table(rounds))
    return 0 if all(run.result.is_clean for runs in rounds for run in runs.values()) else 1


def _round(brokers: list[BrokerUnderTest], options: argparse.Namespace) -> dict[Key, Run]:
    runs: dict[Key, Run] = {}
    for (name, way), shape in SHAPES.items():
        if options.only not in name:
            continue
        for broker in brokers:
            run = measure(broker, topic_of(f"{name}{way}", shape), shape, options)
            runs[broker.kind, name, way] = run
            flaw = "" if run.result.is_clean else f" ERRORS {run.result.codes}"
            print(f"{name} {way} {broker.kind}: {_value(name, run):,.0f}{flaw}", file=sys.stderr, flush=True)
    return runs


def _value(name: str, run: Run) -> float:
    """What is compared: messages a second, or in an open loop the p99 in microseconds."""
    return run.result.latency_us.p99 if PLAIN_SHAPES[name].rate_per_s else run.result.messages_per_s


def table(rounds: list[dict[Key, Run]]) -> str:
    """A line a broker and shape."""
    head = ["broker", "shape", "plain", "TLS", "TLS, CPU us a message", "TLS to plain", "to the official broker, TLS"]
    rows = []
    kinds = tuple(dict.fromkeys(kind for kind, _, _ in rounds[0]))
    for name in dict.fromkeys(name for _, name, _ in rounds[0]):
        for kind in kinds:
            values = {way: [_value(name, runs[kind, name, way]) for runs in rounds] for way in ("plain", "TLS")}
            over_tls = [runs[kind, name, "TLS"] for runs in rounds if runs[kind, name, "TLS"].result.messages]
            cpu_us = [1e6 / run.messages_per_cpu_s for run in over_tls]
            beside = _ratios(rounds, (kind, name, "TLS"), (OFFICIAL, name, "TLS")) if kind == THERMOCLINE else []
            unit = " us p99" if PLAIN_SHAPES[name].rate_per_s else " messages/s"
            rows.append(
                [
                    kind,
                    f"{name},{unit}",
                    *(spread(values[way], ".0f") for way in ("plain", "TLS")),
                    spread(cpu_us, ".0f"),
                    spread(_ratios(rounds, (kind, name, "TLS"), (kind, name, "plain")), ".2f"),
                    spread(beside, ".2f"),
                ]
            )
    return markdown_table(head, rows)


def _ratios(rounds: list[dict[Key, Run]], first: Key, second: Key) -> list[float]:
    """Of the rounds in which both had right answers alone."""
    pairs = [(runs[first], runs[second]) for runs in rounds if first in runs and second in runs]
    return [
        _value(first[1], one) / _value(second[1], other)
        for one, other in pairs
        if one.result.is_clean and other.result.is_clean
    ]


if __name__ == "__main__":
    run_command(main)
