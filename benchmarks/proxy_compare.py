"""Question: how fast are sends and receives through our proxy, merged and separate, beside the official one's modes?

Workload: 1 KiB messages, 8 queues, plain text. Sends: 4 connections with 16 requests in flight each, and 64 with one.
Receives: 4 connections with 4 receives of up to 32 messages each, every message acknowledged, from a backlog that was
sent to the broker before. The deployments are measured in turn, the order changing each time; those that wait are
stopped. CPU time is that of all processes of a deployment: NameServer, broker with its helpers, proxy.

Beside it: the p99 of 1 000 sends a second that go to the broker itself, while no client uses the proxy, and while the
first shape of sends loads it as much as it can be loaded.

    python -m benchmarks.proxy_compare [--quick] [--only merged,separate,...] [--rounds 5] [--seconds 4]

Nothing is pinned but the generators, which take part of the last core. The last columns are medians of ratios of the
same round: merged to official local, separate to official cluster, routed to separate.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import run_command
from benchmarks.grpc_load import (
    RECEIVE,
    GrpcLoadResult,
    GrpcLoadShape,
    finish_grpc_load,
    run_grpc_load,
    start_grpc_load,
)
from benchmarks.load_generator import LoadShape, run_load
from benchmarks.markdown_table import markdown_table, spread
from benchmarks.proxy_under_test import (
    DEPLOYMENTS,
    PEERS,
    ProxyUnderTest,
    named_deployments,
    software_for,
    start_proxy,
)

GENERATOR_CPUS = str((os.cpu_count() or 1) - 1)
SEND_TOPIC, BACKLOG_TOPIC, BROKER_TOPIC = "ProxySends", "ProxyBacklog", "BrokerSends"
SHAPES = {
    "send c4 w16": GrpcLoadShape(connections=4, window=16),
    "send c64 w1": GrpcLoadShape(connections=64, window=1),
    "receive c4 w4": GrpcLoadShape(mode=RECEIVE, connections=4, window=4, poll_s=5.0),
}
FULL_LOAD = SHAPES["send c4 w16"]
BACKLOG = LoadShape(connections=4, window=32, body_bytes=1024, queues=8)
BACKLOG_S = 3.0
"""Sends of these seconds are more than what a proxy delivers in four."""
BROKER_SENDS = LoadShape(connections=4, rate_per_s=1_000, body_bytes=1024, queues=8)
PROBE = GrpcLoadShape(connections=1, window=1)
RESUME_TIMEOUT_S = 120.0
WARM_SHAPES = (FULL_LOAD, SHAPES["receive c4 w4"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one shape. `cpu_s`: of all processes."""

    result: GrpcLoadResult
    cpu_s: float

    @property
    def messages_per_cpu_s(self) -> float:
        """Work per second of CPU time, which neighbours on the machine cannot falsify as they do the rate."""
        return self.result.messages / self.cpu_s if self.cpu_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The p99 in microseconds of the broker's own sends: with nothing on the proxy, and with all it takes."""

    idle_us: float
    loaded_us: float


Rounds = list[dict[tuple[str, str], Run]]
"""By deployment and shape."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when an answer was wrong."""
    options = _parse(arguments)
    names = [name for name in DEPLOYMENTS if name in options.only]
    software = software_for(names)
    rounds: Rounds = []
    beside: list[dict[str, Beside]] = []
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as directory,
        contextlib.ExitStack() as stack,
    ):
        proxies = []
        for name in names:
            proxy = stack.enter_context(start_proxy(name, Path(directory) / name.replace(" ", "-"), software=software))
            _warm(proxy, options)
            proxy.broker.pause()
            proxies.append(proxy)
        for number in range(options.rounds):
            order = proxies if number % 2 == 0 else proxies[::-1]
            rounds.append({(proxy.name, shape): _measure(proxy, shape, options) for shape in SHAPES for proxy in order})
            beside.append({proxy.name: _measure_beside(proxy, options) for proxy in order})
    print(f"{options.rounds} rounds of {options.seconds:g} s, {os.cpu_count()} cores\n")
    print(_table(names, rounds), end="\n\n")
    print(_beside_table(names, beside))
    return 0 if all(run.result.is_clean for runs in rounds for run in runs.values()) else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.proxy_compare", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", default=",".join(DEPLOYMENTS), help="deployments, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each shape on each deployment (default 5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured seconds a run (default 4)")
    parser.add_argument("--warm", type=float, default=15.0, help="seconds of warm-up of each shape (default 15)")
    parser.add_argument("--quick", action="store_true", help="one round of short runs: does it work at all?")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    options = parser.parse_args(arguments)
    options.only = named_deployments(parser, options.only)
    if options.quick:
        options.rounds, options.seconds, options.warm = 1, 1.0, 1.0
    return options


def _warm(proxy: ProxyUnderTest, options: argparse.Namespace) -> None:
    for topic in (SEND_TOPIC, BACKLOG_TOPIC, BROKER_TOPIC):
        proxy.make_topic(topic)
    proxy.make_group(FULL_LOAD.group)
    _fill(proxy, options)
    for shape in WARM_SHAPES:
        _load(proxy, shape, seconds=options.warm)


def _resume(proxy: ProxyUnderTest) -> None:
    """Let it run again, and wait until it serves: a NameServer that was stopped for long has forgotten its broker."""
    proxy.broker.resume()
    deadline = time.monotonic() + RESUME_TIMEOUT_S
    while not run_grpc_load(PROBE, endpoint=proxy.endpoint, topic=SEND_TOPIC, seconds=0.2).is_clean:
        if time.monotonic() > deadline:
            raise SystemExit(f"{proxy.name} does not serve again")


def _fill(proxy: ProxyUnderTest, options: argparse.Namespace) -> None:
    """Send a backlog for the receives."""
    run_load(
        BACKLOG,
        address=proxy.broker.address,
        topic=BACKLOG_TOPIC,
        seconds=min(BACKLOG_S, 3 * options.seconds),
        warm_s=0.0,
        cpus=GENERATOR_CPUS,
    )


def _load(proxy: ProxyUnderTest, shape: GrpcLoadShape, *, seconds: float) -> GrpcLoadResult:
    topic = BACKLOG_TOPIC if shape.mode == RECEIVE else SEND_TOPIC
    return run_grpc_load(shape, endpoint=proxy.endpoint, topic=topic, seconds=seconds, cpus=GENERATOR_CPUS)


def _measure(proxy: ProxyUnderTest, name: str, options: argparse.Namespace) -> Run:
    """One run; the deployment is stopped before and after it."""
    shape = SHAPES[name]
    try:
        _resume(proxy)
        if shape.mode == RECEIVE:
            _fill(proxy, options)
        cpu_before_s = proxy.broker.cpu_s()
        result = _load(proxy, shape, seconds=options.seconds)
        run = Run(result=result, cpu_s=proxy.broker.cpu_s() - cpu_before_s)
    finally:
        proxy.broker.pause()
    flaw = "" if result.is_clean else f"  ERRORS {result.codes or result}"
    figures = f"{result.messages_per_s:,.0f} messages/s, {run.messages_per_cpu_s:,.0f} per cpu-s"
    print(f"{name} {proxy.name}: {figures}, {result.empty} empty{flaw}", file=sys.stderr, flush=True)
    return run


def _measure_beside(proxy: ProxyUnderTest, options: argparse.Namespace) -> Beside:
    """The broker's own sends, without and with load on the proxy."""

    def p99_us() -> float:
        result = run_load(
            BROKER_SENDS,
            address=proxy.broker.address,
            topic=BROKER_TOPIC,
            seconds=options.seconds,
            warm_s=0.5,
            cpus=GENERATOR_CPUS,
        )
        return result.latency_us.p99

    try:
        _resume(proxy)
        idle_us = p99_us()
        seconds = options.seconds + 2.0
        load = start_grpc_load(
            FULL_LOAD, endpoint=proxy.endpoint, topic=SEND_TOPIC, seconds=seconds, cpus=GENERATOR_CPUS
        )
        try:
            loaded_us = p99_us()
        finally:
            finish_grpc_load(load, seconds=seconds)
    finally:
        proxy.broker.pause()
    print(f"broker's p99 {proxy.name}: {idle_us:,.0f} us, loaded {loaded_us:,.0f} us", file=sys.stderr, flush=True)
    return Beside(idle_us=idle_us, loaded_us=loaded_us)


def _table(names: Sequence[str], rounds: Rounds) -> str:
    head = ["shape", "deployment", "messages/s", "p50 ms", "p99 ms", "messages/cpu-s", "rate", "per cpu-s"]
    rows = []
    for shape in SHAPES:
        for name in names:
            runs = [each[name, shape] for each in rounds]
            peer = PEERS.get(name, "")
            pairs = [(each[name, shape], each[peer, shape]) for each in rounds if (peer, shape) in each]
            rows.append(
                [
                    shape,
                    name,
                    spread([run.result.messages_per_s for run in runs], ",.0f"),
                    spread([run.result.latency_us.p50 / 1000 for run in runs], ".2f"),
                    spread([run.result.latency_us.p99 / 1000 for run in runs], ".1f"),
                    spread([run.messages_per_cpu_s for run in runs], ",.0f"),
                    spread([_ratio(a.result.messages_per_s, b.result.messages_per_s) for a, b in pairs], ".2f"),
                    spread([_ratio(a.messages_per_cpu_s, b.messages_per_cpu_s) for a, b in pairs], ".2f"),
                ]
            )
    return markdown_table(head, rows)


def _beside_table(names: Sequence[str], beside: list[dict[str, Beside]]) -> str:
    head = ["deployment", "broker's send p99, us", "with the proxy at full load, us", "ratio of medians"]
    rows = []
    for name in names:
        idle_us = [each[name].idle_us for each in beside]
        loaded_us = [each[name].loaded_us for each in beside]
        ratio = _ratio(statistics.median(loaded_us), statistics.median(idle_us))
        rows.append([name, spread(idle_us, ",.0f"), spread(loaded_us, ",.0f"), f"{ratio:.2f}"])
    return markdown_table(head, rows)


def _ratio(one: float, other: float) -> float:
    return one / other if other else 0.0


if __name__ == "__main__":
    run_command(main)
