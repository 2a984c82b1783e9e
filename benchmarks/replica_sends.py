"""How much does a second copy cost a send, and how much do two brokers cost while nothing is sent?

`python -m benchmarks.replica_sends [--rounds 3] [--seconds 5] [--warm 20] [--idle 20]`

single       one broker of ours under a controller
async pair   two of ours: a send is answered before the second has it
2-2          two of ours: a send is answered when both have it (`allAckInSyncStateSet`, `minInSyncReplicas=2`)
official     the same 2-2 of RocketMQ's brokers, under RocketMQ's controller

Each is started anew for each round, in turn, the order changing; nothing else runs. Sends have 100 bytes of body, in
the form of the official Java clients: one at a time on each of 32 connections, then 64 under way on each of 4. Before
each is measured it runs unmeasured for `--warm` seconds, which a JVM needs. All brokers share this machine's cores with
the load generator, so a pair's copying takes from its sending.

Reported: messages a second and 99th percentile, CPU time of the master's processes a message (the part of the cost that
does not depend on whose cores the slave uses), and cores that the set's brokers use while idle. Wanted: the async pair
at least 0.9 of the single broker, and 2-2 at least 1.5 of the official 2-2, one send at a time; an idle pair of ours
under 0.02 cores.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.command import run_command
from benchmarks.load_generator import LoadResult, LoadShape, build_load_generator, run_load
from benchmarks.markdown_table import markdown_table, spread
from benchmarks.replica_set_under_test import NAME, QUEUES, TOPIC, ReplicaSetUnderTest, official_set, thermocline_set
from benchmarks.verdicts import Verdict, show_verdicts
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

SINGLE, ASYNC, BOTH, OFFICIAL_BOTH = "single", "async pair", "2-2", "official 2-2"
KINDS = (SINGLE, ASYNC, BOTH, OFFICIAL_BOTH)
BOTH_HAVE_IT: Mapping[str, str] = {"minInSyncReplicas": "2"}
FIRST_HAS_IT: Mapping[str, str] = {"allAckInSyncStateSet": "false"}
SHAPES = {
    "one at a time": LoadShape(connections=32, window=1, queues=QUEUES),
    "64 under way": LoadShape(connections=4, window=64, queues=QUEUES),
}
ASYNC_WANTED, BOTH_WANTED, IDLE_WANTED = 0.9, 1.5, 0.02


@dataclass(slots=True)
class Found:
    """What was measured of one kind, a value a round."""

    results: dict[str, list[LoadResult]] = field(default_factory=lambda: {name: [] for name in SHAPES})
    master_cpu_us: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SHAPES})
    idle_cores: list[float] = field(default_factory=list)

    def per_s(self, shape: str) -> list[float]:
        """Messages a second."""
        return [result.messages_per_s for result in self.results[shape]]


def main() -> int:
    """Measure, print; 1 when a wanted value is missed."""
    options = _parse()
    build_load_generator()
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    found = {kind: Found() for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name:
        for number in range(options.rounds):
            for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                with _set(kind, software, Path(name) / f"{kind}-{number}") as brokers:
                    _measure(brokers, found[kind], options)
                print(f"round {number + 1}: {kind} is measured", file=sys.stderr)
    rows = [
        [
            *(kind, shape, spread(found[kind].per_s(shape), ",.0f")),
            spread([result.latency_us.p99 / 1_000 for result in found[kind].results[shape]], ".2f"),
            spread(found[kind].master_cpu_us[shape], ".1f"),
        ]
        for shape, kind in itertools.product(SHAPES, KINDS)
    ]
    print(markdown_table(["set", "sends", "messages/s", "p99 ms", "master, CPU us a message"], rows))
    print(markdown_table(["set", "cores, idle"], [[kind, spread(found[kind].idle_cores, ".3f")] for kind in KINDS]))
    return show_verdicts(_verdicts(found))


def _verdicts(found: Mapping[str, Found]) -> Iterator[Verdict]:
    for kind, base, wanted in ((ASYNC, SINGLE, ASYNC_WANTED), (BOTH, OFFICIAL_BOTH, BOTH_WANTED)):
        for shape in SHAPES:
            pairs = zip(found[kind].per_s(shape), found[base].per_s(shape), strict=True)
            ratio = statistics.median(mine / other for mine, other in pairs)
            if shape == "one at a time":
                yield Verdict(f"{kind} to {base}, {shape}", ratio, wanted, at_least=True)
            else:
                print(f"{kind} to {base}, {shape}: {ratio:.2f}")
    yield Verdict("an idle pair", statistics.median(found[BOTH].idle_cores), IDLE_WANTED, "cores")


def _measure(brokers: ReplicaSetUnderTest, found: Found, options: argparse.Namespace) -> None:
    master = brokers.master()
    address = brokers.members[master].address
    for name, shape in SHAPES.items():
        run_load(shape, address=address, topic=TOPIC, seconds=options.warm, warm_s=0.0, broker_name=NAME)
        cpu_s = brokers.cpu_s(master)
        result = run_load(shape, address=address, topic=TOPIC, seconds=options.seconds, warm_s=0.0, broker_name=NAME)
        if not result.is_clean:
            raise SystemExit(f"{brokers.kind}: not every send was stored: {result}")
        found.results[name].append(result)
        found.master_cpu_us[name].append((brokers.cpu_s(master) - cpu_s) / result.messages * 1_000_000)
    time.sleep(5)  # for what follows sends: flushes, indexes
    cpu_s, begun_s = brokers.cpu_s(), time.monotonic()
    time.sleep(options.idle)
    found.idle_cores.append((brokers.cpu_s() - cpu_s) / (time.monotonic() - begun_s))


@contextmanager
def _set(kind: str, software: OfficialSoftware, directory: Path) -> Iterator[ReplicaSetUnderTest]:
    directory.mkdir(parents=True)
    if kind == OFFICIAL_BOTH:
        with official_set(software, directory, size=2, properties=BOTH_HAVE_IT) as brokers:
            yield brokers
    else:
        properties = BOTH_HAVE_IT if kind == BOTH else FIRST_HAS_IT
        with thermocline_set(directory, size=1 if kind == SINGLE else 2, properties=properties) as brokers:
            yield brokers


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replica_sends", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each set is measured (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds a measured run (default 5)")
    parser.add_argument("--warm", type=float, default=20.0, help="seconds before it (default 20)")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without load (default 20)")
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
