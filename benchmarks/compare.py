"""How much faster than the official Java broker is this one, on the same work and the same two cores?

`make bench`, or `python -m benchmarks.compare`. Both brokers run with their index on and are warmed; then every shape
is measured on one and on the other in turn, several times over, the order changing each time, while the one that waits
is stopped. The ratio of a shape is the median of the ratios of neighbouring runs, so slow drift of the machine cancels.

Neither has a cold tier here, as the official broker can have none; `--cold` gives ours one. What that costs while it
works is the question of `latency_under_offload.py`.

Sessions: `async` (asynchronous flush) and `sync` (every answer after fdatasync), each with freshly started brokers.
Pinning: our hot process has the first core; its helpers, the load generator and, in its turn, half of the Java broker
(which is given both cores) have the second.

The open loops (10 000 sends a second) are measured at the null responder too, which answers at once and stores nothing:
the floor that the machine's scheduler and the generator put under any broker's latency. With `--real-time` the hot
process, the Java broker, the null responder and the generator run at real-time priority: what is left then is the
brokers' own.

Before each run the index has caught up; its lag at the end of a run is in seconds of that run's traffic.

Every answer is checked; a run with any error is shown as such and spoils no ratio in silence.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE, BrokerUnderTest, start_official, start_thermocline
from benchmarks.command import run_command
from benchmarks.load_generator import Latency, LoadResult, LoadShape, build_load_generator, run_load
from benchmarks.null_responder import start_null_responder
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

HOT_CPUS, OTHER_CPUS = {0}, {1}
GENERATOR_CPUS = "1"
DISK_FREE_BYTES_MIN = 25 << 30
PULL_FILL_S = 2.0
PULL_TOPIC = "BenchPull"

SHAPES: dict[str, dict[str, LoadShape]] = {
    "async": {
        "100 B c1 w64": LoadShape(connections=1, window=64),
        "100 B c16 w64": LoadShape(connections=16, window=64),
        "100 B c64 w1": LoadShape(connections=64, window=1),
        "1 KiB c1 w64": LoadShape(connections=1, window=64, body_bytes=1024),
        "1 KiB c16 w64": LoadShape(connections=16, window=64, body_bytes=1024),
        "1 KiB c64 w1": LoadShape(connections=64, window=1, body_bytes=1024),
        "batch 32 x 100 B c1 w8": LoadShape(mode="batch", connections=1, window=8),
        "pull 32 x 100 B c16 w1": LoadShape(mode="pull", connections=16, window=1),
        "10 000/s 100 B c16": LoadShape(connections=16, rate_per_s=10_000),
        "10 000/s 1 KiB c16": LoadShape(connections=16, rate_per_s=10_000, body_bytes=1024),
    },
    "sync": {
        "sync 1 KiB c16 w32": LoadShape(connections=16, window=32, body_bytes=1024),
        "sync 1 KiB c1 w1": LoadShape(connections=1, window=1, body_bytes=1024),
    },
}
PROPERTIES: dict[str, dict[str, str]] = {
    "async": {"flushDiskType": "ASYNC_FLUSH"},
    "sync": {"flushDiskType": "SYNC_FLUSH"},
}
WARM_SHAPE = LoadShape(connections=16, window=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run of one shape."""

    kind: str
    result: LoadResult
    broker_cores: float
    generator_cores: float  # near 1 the generator is what was measured
    megabytes: float
    index_lag_s: float  # what the index had still to do, in seconds of this run's traffic

    @property
    def messages_per_cpu_s(self) -> float:
        """Work per second of the broker's own CPU time: what neighbours on the machine cannot falsify."""
        return self.result.messages_per_s / self.broker_cores if self.broker_cores else 0.0


@dataclass(slots=True)
class ShapeRuns:
    """All runs of one shape, in pairs of neighbours."""

    shape: LoadShape
    pairs: list[dict[str, Run]] = field(default_factory=list)
    floor: list[LoadResult] = field(default_factory=list)  # of the null responder, in an open loop

    def of(self, kind: str) -> list[Run]:
        return [pair[kind] for pair in self.pairs if kind in pair]

    def value(self, run: Run) -> float:
        """What is compared: messages a second, or in an open loop the p99 in microseconds."""
        return run.result.latency_us.p99 if self.shape.rate_per_s else run.result.messages_per_s

    def ratios(self) -> list[float]:
        """Ours to theirs in each pair; above 1 is better in both kinds of shape."""
        ratios = []
        for ours, theirs in self._neighbours():
            ratio = self.value(ours) / self.value(theirs)
            ratios.append(1 / ratio if self.shape.rate_per_s else ratio)
        return ratios

    def ratios_per_cpu_s(self) -> list[float]:
        """The same of the work done per second of CPU time."""
        return [ours.messages_per_cpu_s / theirs.messages_per_cpu_s for ours, theirs in self._neighbours()]

    def _neighbours(self) -> list[tuple[Run, Run]]:
        return [(pair[THERMOCLINE], pair[OFFICIAL]) for pair in self.pairs if len(pair) == 2]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, write all figures to a file; 1 when any answer was wrong."""
    options = _parse(arguments)
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    build_load_generator()
    measured: dict[str, ShapeRuns] = {}
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name:
        directory = Path(name)
        if shutil.disk_usage(directory).free < DISK_FREE_BYTES_MIN:
            print(f"{DISK_FREE_BYTES_MIN >> 30} GiB of free disk are needed in {directory}", file=sys.stderr)
            return 2
        for session, shapes in SHAPES.items():
            chosen = {key: ShapeRuns(shape) for key, shape in shapes.items() if options.only in key}
            if chosen:
                _run_session(session, chosen, software, directory / session, options)
                measured |= chosen
                shutil.rmtree(directory / session, ignore_errors=True)
    print(_table(measured, options))
    if options.output:
        options.output.write_text(json.dumps(_record(measured, options), indent=1))
        print(f"all figures: {options.output}")
    runs = [run for shape_runs in measured.values() for pair in shape_runs.pairs for run in pair.values()]
    return 0 if runs and all(run.result.is_clean for run in runs) else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--output", type=Path, help="write every figure to this JSON file")
    return parse_with_common(parser, arguments)


def parse_with_common(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options, those among them that every comparison of both brokers has."""
    parser.add_argument("--rounds", type=int, default=5, help="runs of each shape on each broker (default 5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured seconds a run (default 4)")
    parser.add_argument("--warm", type=float, default=15.0, help="seconds of warm-up of each broker (default 15)")
    parser.add_argument("--broker", choices=("both", OFFICIAL, THERMOCLINE), default="both")
    parser.add_argument("--quick", action="store_true", help="one round of short runs: does it work at all?")
    parser.add_argument("--cold", action="store_true", help="let ours keep a cold tier in a directory meanwhile")
    parser.add_argument("--real-time", action="store_true", help="real-time priority for all that is measured")
    parser.add_argument("--no-pin", action="store_true", help="leave all processes to the scheduler")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.warm = 1, 1.5, 3.0
    return options


def _run_session(
    session: str,
    shapes: dict[str, ShapeRuns],
    software: OfficialSoftware,
    directory: Path,
    options: argparse.Namespace,
) -> None:
    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(start_null_responder(directory, cpus=HOT_CPUS, is_real_time=options.real_time))
        brokers = list(start_brokers(PROPERTIES[session], stack, software, directory, options))
        for broker in brokers:
            warm_broker(broker, options)
            if options.real_time:
                broker.make_real_time()
            broker.pause()
        for number in range(options.rounds):
            for name, runs in shapes.items():
                pair: dict[str, Run] = {}
                for broker in brokers if number % 2 == 0 else reversed(brokers):
                    pair[broker.kind] = measure(broker, topic_of(name, runs.shape), runs.shape, options)
                    _progress(f"round {number + 1}/{options.rounds} {name} {broker.kind}", runs, pair[broker.kind])
                runs.pairs.append(pair)
                if runs.shape.rate_per_s:
                    runs.floor.append(_load(runs.shape, floor, "Floor", options))


def start_brokers(
    properties: Mapping[str, str],
    stack: contextlib.ExitStack,
    software: OfficialSoftware,
    directory: Path,
    options: argparse.Namespace,
) -> Iterator[BrokerUnderTest]:
    """Both brokers, or the requested one, until `stack` is closed."""
    if options.broker != OFFICIAL:
        ours = start_thermocline(
            directory / THERMOCLINE, properties=properties, cold_url=None if options.cold else "none"
        )
        yield stack.enter_context(ours)
    if options.broker != THERMOCLINE:
        yield stack.enter_context(start_official(software, directory / OFFICIAL, properties=properties))


def warm_broker(broker: BrokerUnderTest, options: argparse.Namespace) -> None:
    """Load it until its code is compiled and its files are mapped; fill the topic that pulls read."""
    cpus = None if options.no_pin else GENERATOR_CPUS
    fill = LoadShape(mode="batch", connections=4, window=2)
    # The first send creates the topic; answers before that is done may be errors and are not counted.
    run_load(WARM_SHAPE, address=broker.address, topic="BenchWarm", seconds=options.warm, warm_s=1.0, cpus=cpus)
    run_load(fill, address=broker.address, topic=PULL_TOPIC, seconds=PULL_FILL_S, warm_s=0.0, cpus=cpus)
    if broker.kind == THERMOCLINE and not options.no_pin:
        broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)


def topic_of(name: str, shape: LoadShape) -> str:
    """The topic that a shape of this name uses."""
    return PULL_TOPIC if shape.mode == "pull" else "Bench" + "".join(filter(str.isalnum, name))


def measure(broker: BrokerUnderTest, topic: str, shape: LoadShape, options: argparse.Namespace) -> Run:
    """One run; the broker is stopped before and after it."""
    broker.resume()
    try:
        broker.wait_for_index()
        log_before, cpu_before, started = _log_end(broker.runtime_info()), broker.cpu_s(), time.monotonic()
        result = _load(shape, broker.address, topic, options)
        cpu_s, elapsed_s = broker.cpu_s() - cpu_before, time.monotonic() - started
        info = broker.runtime_info()
        log_rate = (_log_end(info) - log_before) / elapsed_s
        return Run(
            kind=broker.kind,
            result=result,
            broker_cores=cpu_s / elapsed_s,
            generator_cores=result.generator_cpu_s / elapsed_s,
            megabytes=broker.resident_mb(),
            index_lag_s=int(info["dispatchBehindBytes"]) / log_rate if log_rate else 0.0,
        )
    finally:
        broker.pause()


def _load(shape: LoadShape, address: str, topic: str, options: argparse.Namespace) -> LoadResult:
    return run_load(
        shape,
        address=address,
        topic=topic,
        seconds=options.seconds,
        warm_s=1.0,
        cpus=None if options.no_pin else GENERATOR_CPUS,
        is_real_time=options.real_time,
    )


def _log_end(info: dict[str, str]) -> int:
    return int(info["commitLogMaxOffset"])


def _progress(what: str, runs: ShapeRuns, run: Run) -> None:
    unit = "us p99" if runs.shape.rate_per_s else "msg/s"
    flaw = "" if run.result.is_clean else f"  ERRORS {run.result.codes or run.result}"
    cores = f"{run.broker_cores:.2f} cores, generator {run.generator_cores:.2f}, index lag {run.index_lag_s:.1f} s"
    print(f"{what}: {runs.value(run):,.0f} {unit}, {cores}{flaw}", file=sys.stderr, flush=True)


def _table(measured: dict[str, ShapeRuns], options: argparse.Namespace) -> str:
    lines = [
        f"{options.rounds} alternations of {options.seconds:g} s, warmed {options.warm:g} s"
        f"{', at real-time priority' if options.real_time else ''}{', ours with a cold tier' if options.cold else ''};"
        f" {os.cpu_count()} cores, {platform.platform()}",
        "closed loop: messages/s and broker cores; open loop (10 000/s): p50/p99/p99.9 in us; medians [spread];"
        " lag: worst of our index",
        f"{'shape':24} {'thermocline':>34} {'official':>34} {'ratio':>18} {'per cpu-s':>18} {'lag s':>6} {'errors':>6}",
    ]
    for name, runs in measured.items():
        ours, theirs = _cell(runs, THERMOCLINE), _cell(runs, OFFICIAL)
        ratio, per_cpu_s = _spread(runs.ratios()), _spread(runs.ratios_per_cpu_s())
        lag_s = max((run.index_lag_s for run in runs.of(THERMOCLINE)), default=0.0)
        errors = sum(not run.result.is_clean for pair in runs.pairs for run in pair.values())
        lines.append(f"{name:24} {ours:>34} {theirs:>34} {ratio:>18} {per_cpu_s:>18} {lag_s:>6.1f} {errors:>6}")
        if runs.floor:
            lines.append(f"{'  null responder':24} {_latency_cell([result.latency_us for result in runs.floor]):>34}")
    return "\n".join(lines)


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]" if ratios else "-"


def _cell(runs: ShapeRuns, kind: str) -> str:
    of_kind = runs.of(kind)
    if not of_kind:
        return "-"
    if runs.shape.rate_per_s:
        return _latency_cell([run.result.latency_us for run in of_kind])
    rates = [run.result.messages_per_s for run in of_kind]
    cores = statistics.median(run.broker_cores for run in of_kind)
    return f"{statistics.median(rates):,.0f} [{min(rates):,.0f}-{max(rates):,.0f}] {cores:.2f}c"


def _latency_cell(latencies: list[Latency]) -> str:
    p50, p99, p999 = (
        statistics.median(values)
        for values in zip(*((latency.p50, latency.p99, latency.p999) for latency in latencies), strict=True)
    )
    spread = [latency.p99 for latency in latencies]
    return f"{p50:,.0f}/{p99:,.0f}/{p999:,.0f} [{min(spread):,.0f}-{max(spread):,.0f}]"


def _record(measured: dict[str, ShapeRuns], options: argparse.Namespace) -> dict[str, object]:
    return {
        "rounds": options.rounds,
        "seconds": options.seconds,
        "warm_s": options.warm,
        "real_time": options.real_time,
        "cold": options.cold,
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "shapes": {
            name: {
                "ratios": runs.ratios(),
                "ratios_per_cpu_s": runs.ratios_per_cpu_s(),
                "floor": [msgspec.to_builtins(result) for result in runs.floor],
                "runs": [
                    {
                        "kind": run.kind,
                        "broker_cores": run.broker_cores,
                        "generator_cores": run.generator_cores,
                        "megabytes": run.megabytes,
                        "index_lag_s": run.index_lag_s,
                        **msgspec.to_builtins(run.result),
                    }
                    for pair in runs.pairs
                    for run in pair.values()
                ],
            }
            for name, runs in measured.items()
        },
    }


if __name__ == "__main__":
    run_command(main)
