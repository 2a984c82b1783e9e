"""Has a change made sends slower? The working tree against an earlier revision, in alternation.

`python -m benchmarks.before_after REVISION [--rounds 9] [--real-time]`

Two brokers without a cold tier, one of each tree, are warmed; then every shape is measured on one and on the other in
turn, the order changing each time, while the one that waits is stopped. The broker of the working tree has seen
transactions, timers and POP (`feature_traffic.py`); `--no-features` leaves that out.

A ratio is the median of the ratios of neighbouring runs, its least and greatest beside it: messages a second after to
before, and in the open loop the p99 before to after, so that less than 1 is worse in both. "Per cpu-s" compares the
work done per second of the broker's own CPU time, which other work on the machine does not falsify.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest, start_thermocline
from benchmarks.feature_traffic import use_features
from benchmarks.load_generator import LoadResult, LoadShape, build_load_generator, run_load

REPOSITORY = Path(__file__).resolve().parents[1]
HOT_CPUS, OTHER_CPUS, GENERATOR_CPUS = {0}, {1}, "1"
BEFORE, AFTER = "before", "after"
SHAPES = {
    "100 B c1 w64": LoadShape(connections=1, window=64),
    "100 B c16 w64": LoadShape(connections=16, window=64),
    "100 B c64 w1": LoadShape(connections=64, window=1),
    "1 KiB c16 w64": LoadShape(connections=16, window=64, body_bytes=1024),
    "10 000/s 100 B c16": LoadShape(connections=16, rate_per_s=10_000),
}
WARM_SHAPE = LoadShape(connections=16, window=32)
WARM_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run of one shape."""

    result: LoadResult
    broker_cores: float

    @property
    def messages_per_cpu_s(self) -> float:
        """Work per second of the broker's own CPU time."""
        return self.result.messages_per_s / self.broker_cores


def main() -> int:
    """Measure, print; 1 when an answer was wrong."""
    options = _parse()
    build_load_generator()
    runs: dict[str, list[dict[str, Run]]] = {name: [] for name in SHAPES if options.only in name}
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name, ExitStack() as stack:
        directory = Path(name)
        tree = stack.enter_context(tree_of(options.revision, directory / "tree"))
        brokers = {
            kind: stack.enter_context(
                start_thermocline(
                    directory / kind, properties={}, cold_url="none", tree=tree if kind == BEFORE else None
                )
            )
            for kind in (BEFORE, AFTER)
        }
        for kind, broker in brokers.items():
            _warm(broker, with_features=kind == AFTER and not options.no_features)
            if options.real_time:
                broker.make_real_time()
            broker.pause()
        for number in range(options.rounds):
            for name, pairs in runs.items():
                pair: dict[str, Run] = {}
                for kind in (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE):
                    pair[kind] = _measure(brokers[kind], name, options)
                    print(f"round {number + 1} {name} {kind}: {_value(name, pair[kind].result):,.0f}", file=sys.stderr)
                pairs.append(pair)
    for name, pairs in runs.items():
        print(_line(name, pairs))
    return 0 if all(run.result.is_clean for pairs in runs.values() for pair in pairs for run in pair.values()) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.before_after", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("revision", help="what the working tree is compared with, as git names it")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each shape on each broker (default 9)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured seconds a run (default 3)")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--no-features", action="store_true", help="no transactions, timers and POP before")
    parser.add_argument("--real-time", action="store_true", help="real-time priority for brokers and generator")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    return parser.parse_args()


@contextmanager
def tree_of(revision: str, directory: Path) -> Iterator[Path]:
    """A working tree of `revision`, while the block runs."""
    git = ["git", "-C", str(REPOSITORY), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(directory), revision], check=True)
    try:
        yield directory
    finally:
        subprocess.run([*git, "remove", "--force", str(directory)], check=True)


def _warm(broker: BrokerUnderTest, *, with_features: bool) -> None:
    if with_features:
        use_features(broker.namesrv)
    run_load(WARM_SHAPE, address=broker.address, topic="BenchWarm", seconds=WARM_S, warm_s=1.0, cpus=GENERATOR_CPUS)
    broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)


def _measure(broker: BrokerUnderTest, name: str, options: argparse.Namespace) -> Run:
    broker.resume()
    try:
        broker.wait_for_index()
        cpu_s, started_s = broker.cpu_s(), time.monotonic()
        result = run_load(
            SHAPES[name],
            address=broker.address,
            topic="Bench" + "".join(filter(str.isalnum, name)),
            seconds=options.seconds,
            warm_s=1.0,
            cpus=GENERATOR_CPUS,
            is_real_time=options.real_time,
        )
        return Run(result=result, broker_cores=(broker.cpu_s() - cpu_s) / (time.monotonic() - started_s))
    finally:
        broker.pause()


def _value(name: str, result: LoadResult) -> float:
    return result.latency_us.p99 if SHAPES[name].rate_per_s else result.messages_per_s


def _line(name: str, pairs: list[dict[str, Run]]) -> str:
    before, after = ([_value(name, pair[kind].result) for pair in pairs] for kind in (BEFORE, AFTER))
    ratios = [each_after / each_before for each_before, each_after in zip(before, after, strict=True)]
    if SHAPES[name].rate_per_s:
        ratios = [1 / ratio for ratio in ratios]
    per_cpu_s = [pair[AFTER].messages_per_cpu_s / pair[BEFORE].messages_per_cpu_s for pair in pairs]
    unit = "us p99" if SHAPES[name].rate_per_s else "messages/s"
    return (
        f"{name:20} {statistics.median(before):>10,.0f} -> {statistics.median(after):>10,.0f} {unit:10}"
        f" ratio {spread(ratios)}, per cpu-s {spread(per_cpu_s)}"
    )


def spread(ratios: list[float]) -> str:
    """The median, with the least and the greatest."""
    return f"{statistics.median(ratios):.3f} [{min(ratios):.3f}-{max(ratios):.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
