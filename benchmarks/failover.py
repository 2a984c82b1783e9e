"""How long is a queue not writable after the master of its set was killed, or frozen?

`python -m benchmarks.failover [--kills 3] [--rounds 3] [--brokers 3]`

Two sets in turn, ours and RocketMQ's, each with its own NameServer and one controller, all on this machine, with the
same settings: sends wait for all that are in sync (`allAckInSyncStateSet`), and heartbeats and their time limits are
those that both have by default. A master is killed (`kill -9`), and a producer that fetches its route anew after each
failure sends until each of the topic's 4 queues has taken a message. Then the broker is started, and the next is not
killed before all are in sync again. At the end of each round the last master is frozen (SIGSTOP, its connections stay);
the next round has new sets. Both kinds wait the same way, by our SDK.

Reported for each kind: seconds, median and worst. Wanted: at most those of RocketMQ, and 3 s for a killed and 12 s for
a frozen master.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE
from benchmarks.command import run_command
from benchmarks.markdown_table import markdown_table
from benchmarks.replica_set_under_test import ReplicaSetUnderTest, in_sync, official_set, thermocline_set
from benchmarks.verdicts import Verdict, show_verdicts
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

KILLED, FROZEN = "killed", "frozen"
GOALS_S: Mapping[str, float] = {KILLED: 3.0, FROZEN: 12.0}


def main() -> int:
    """Measure, print; 1 when a wanted time is missed."""
    options = _parse()
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    found: dict[str, dict[str, list[float]]] = {kind: {KILLED: [], FROZEN: []} for kind in (OFFICIAL, THERMOCLINE)}
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name:
        for number in range(options.rounds):
            for kind in (OFFICIAL, THERMOCLINE) if number % 2 else (THERMOCLINE, OFFICIAL):
                with _set(kind, software, Path(name) / f"{kind}-{number}", size=options.brokers) as brokers:
                    found[kind][KILLED] += [_kill(brokers, options.brokers) for _ in range(options.kills)]
                    found[kind][FROZEN].append(_freeze(brokers, options.brokers))
    rows = [
        [f"{kind}, {what}", f"{statistics.median(times):.2f}", f"{max(times):.2f}", str(len(times))]
        for kind, of_kind in found.items()
        for what, times in of_kind.items()
        if times
    ]
    print(markdown_table(["master", "median s", "worst s", "times"], rows))
    return show_verdicts(
        verdict
        for what, goal_s in GOALS_S.items()
        if found[THERMOCLINE][what]
        for verdict in _verdicts(what, goal_s, found[THERMOCLINE][what], found[OFFICIAL][what])
    )


def _verdicts(what: str, goal_s: float, ours: list[float], theirs: list[float]) -> Iterator[Verdict]:
    functions: Mapping[str, Callable[[list[float]], float]] = {"median": statistics.median, "worst": max}
    for name, function in functions.items():
        yield Verdict(f"{what} master, {name}, beside RocketMQ's", function(ours), function(theirs), "s")
    yield Verdict(f"{what} master, worst", max(ours), goal_s, "s")


@contextmanager
def _set(kind: str, software: OfficialSoftware, directory: Path, *, size: int) -> Iterator[ReplicaSetUnderTest]:
    directory.mkdir(parents=True)
    if kind == OFFICIAL:
        with official_set(software, directory, size=size, properties={}) as brokers:
            yield brokers
    else:
        with thermocline_set(directory, size=size, properties={}) as brokers:
            yield brokers


def _kill(brokers: ReplicaSetUnderTest, size: int) -> float:
    master = _whole(brokers, size)
    brokers.kill(master)
    took_s = brokers.until_writable()
    brokers.wait_for(lambda info: info.master_broker_id not in (None, master), "another master is elected")
    brokers.start(master)
    return took_s


def _freeze(brokers: ReplicaSetUnderTest, size: int) -> float:
    brokers.freeze(_whole(brokers, size))
    return brokers.until_writable()


def _whole(brokers: ReplicaSetUnderTest, size: int) -> int:
    """The master, once all are in sync."""
    return brokers.wait_for(lambda info: len(in_sync(info)) == size, "all are in sync").master_broker_id or 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=3, help="killed masters a round of each set (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each set is built (default 3)")
    parser.add_argument("--brokers", type=int, default=3, help="brokers of a set (default 3)")
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
