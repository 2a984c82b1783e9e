"""Question: how much CPU time does a broker use for a message of the official Java clients, beside the official broker?

Workload: a producer of 64 threads that send messages of 128 B synchronously over one client, and the official
benchmark's consumer, which waits at the tail of all 8 queues, so that nearly every send wakes a pull. At 1 000, 5 000
and 10 000 messages a second, and as fast as answers come. Both brokers flush asynchronously, keep their index and have
no cold tier.

Each broker has clients of its own. They are warmed at full speed; then each rate is measured on one and on the other in
turn, while the broker that waits, and its clients, are stopped. Reported: CPU time of all processes of the broker for
each message, median [least-most], and the median of the ratios of neighbouring runs. The bar is 0.8 of the official
broker at every rate; the exit status says whether it is held.

    python -m benchmarks.client_cpu [--quick] [--rounds 5] [--seconds 10] [--warm 30] [--before REVISION]

`--before` measures the broker of an earlier revision too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.before_after import BEFORE, tree_of
from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE, BrokerUnderTest, start_official, start_thermocline
from benchmarks.command import run_command
from benchmarks.java_clients import FULL_SPEED, RESTING, ClientPair, make_topic, start_clients
from benchmarks.markdown_table import markdown_table, spread
from benchmarks.verdicts import Verdict, show_verdicts
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

TOPIC = "ClientCpu"
QUEUES = 8
FAILURES_SHOWN_MAX = 20
THREADS = 64
BODY_BYTES = 128
RATES = (1_000, 5_000, 10_000, FULL_SPEED)
WANTED_RATIO = 0.8
SETTLE_S = 2.0
DRAIN_TIMEOUT_S = 60.0
PUT_COUNT, GET_COUNT = "msgPutTotalTodayNow", "msgGetTotalTodayNow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run at one rate."""

    messages: int
    consumed: int
    seconds: float
    broker_cpu_s: float

    @property
    def us_per_message(self) -> float:
        """CPU time of the broker for each message sent."""
        return self.broker_cpu_s * 1e6 / max(1, self.messages)

    @property
    def messages_per_s(self) -> float:
        """Messages sent in a second."""
        return self.messages / self.seconds


@dataclass(frozen=True, slots=True)
class Side:
    """A broker with its clients."""

    kind: str
    broker: BrokerUnderTest
    clients: ClientPair


def main(arguments: list[str] | None = None) -> int:
    """Measure, print; 1 when the bar is missed or a send failed."""
    options = _parse(arguments)
    software = OfficialSoftware(java_home=find_java_home(with_compiler=True), jars=find_jars(OFFICIAL_ROCKETMQ))
    rates = [rate for rate in RATES if not options.rates or rate in options.rates]
    runs: dict[int, list[dict[str, Run]]] = {rate: [] for rate in rates}
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name, ExitStack() as stack:
        sides = [_start(kind, software, Path(name), stack, options) for kind in _kinds(options)]
        for number in range(options.rounds):
            for rate, of_rate in runs.items():
                of_rate.append({})
                for side in sides if number % 2 == 0 else reversed(sides):
                    run = of_rate[-1][side.kind] = measure(side, rate, seconds=options.seconds)
                    print(
                        f"round {number + 1}/{options.rounds} {rate_name(rate)} {side.kind}: {run.messages_per_s:,.0f}"
                        f" messages/s, {run.consumed} of {run.messages} consumed, {run.us_per_message:.1f} us each",
                        file=sys.stderr,
                        flush=True,
                    )
        failures = [f"{side.kind}: {failure}" for side in sides for failure in side.clients.failures()]
    print(table(runs, [side.kind for side in sides]))
    for failure in failures[:FAILURES_SHOWN_MAX]:
        print(failure, file=sys.stderr)
    return max(show_verdicts(verdicts(runs)), 1 if failures else 0)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.client_cpu", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs at each rate on each broker (default 5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured seconds a run (default 10)")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds of warm-up of each broker (default 30)")
    parser.add_argument("--rates", type=int, nargs="*", help="only these rates; -1 is full speed")
    parser.add_argument("--before", metavar="REVISION", help="measure the broker of this revision too")
    parser.add_argument("--no-official", action="store_true", help="leave the official broker out")
    parser.add_argument("--quick", action="store_true", help="one round of short runs: does it work at all?")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.warm = 1, 3.0, 3.0
    return options


def _kinds(options: argparse.Namespace) -> list[str]:
    return [
        *([BEFORE] if options.before else []),
        THERMOCLINE,
        *([] if options.no_official else [OFFICIAL]),
    ]


def _start(
    kind: str, software: OfficialSoftware, directory: Path, stack: ExitStack, options: argparse.Namespace
) -> Side:
    """The broker and its clients, warm and at rest."""
    if kind == OFFICIAL:
        broker = stack.enter_context(start_official(software, directory / kind, properties={}))
    else:
        tree = stack.enter_context(tree_of(options.before, directory / "tree")) if kind == BEFORE else None
        broker = stack.enter_context(start_thermocline(directory / kind, properties={}, cold_url="none", tree=tree))
    make_topic(broker, TOPIC, queues=QUEUES)
    clients = stack.enter_context(
        start_clients(
            software, broker, directory / f"{kind}-clients", topic=TOPIC, threads=THREADS, body_bytes=BODY_BYTES
        )
    )
    clients.send_at(FULL_SPEED)
    time.sleep(options.warm)
    clients.send_at(RESTING)
    _wait_consumed(broker)
    broker.pause()
    clients.pause()
    return Side(kind, broker, clients)


def measure(side: Side, rate: int, *, seconds: float) -> Run:
    """One run; the broker and its clients are stopped before and after it."""
    broker, clients = side.broker, side.clients
    broker.resume()
    clients.resume()
    try:
        clients.send_at(rate)
        time.sleep(SETTLE_S)
        before, cpu_s, started_s = broker.runtime_info(), broker.cpu_s(), time.monotonic()
        time.sleep(seconds)
        after, ended_cpu_s, ended_s = broker.runtime_info(), broker.cpu_s(), time.monotonic()
        run = Run(
            messages=int(after[PUT_COUNT]) - int(before[PUT_COUNT]),
            consumed=int(after[GET_COUNT]) - int(before[GET_COUNT]),
            seconds=ended_s - started_s,
            broker_cpu_s=ended_cpu_s - cpu_s,
        )
        clients.send_at(RESTING)
        _wait_consumed(broker)
        return run
    finally:
        broker.pause()
        clients.pause()


def _wait_consumed(broker: BrokerUnderTest) -> None:
    """Wait until nothing is sent and nothing is transferred any more."""
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    last: tuple[str, str] | None = None
    while time.monotonic() < deadline:
        info = broker.runtime_info()
        counts = info[PUT_COUNT], info[GET_COUNT]
        if counts == last:
            return
        last = counts
        time.sleep(1.0)
    raise SystemExit(f"the clients of the {broker.kind} broker do not come to rest")


def rate_name(rate: int) -> str:
    """How tables name a rate."""
    return "full speed" if rate == FULL_SPEED else f"{rate:,}/s".replace(",", " ")


def ratios(pairs: list[dict[str, Run]], ours: str, theirs: str) -> list[float]:
    """CPU time a message of one to the other, in each round: below 1 is cheaper."""
    return [pair[ours].us_per_message / pair[theirs].us_per_message for pair in pairs]


def table(runs: dict[int, list[dict[str, Run]]], kinds: list[str]) -> str:
    """A line a rate."""
    others = [kind for kind in kinds if kind != THERMOCLINE]
    head = ["messages", *(f"{kind}, us a message" for kind in kinds), *(f"to {kind}" for kind in others), "messages/s"]
    rows = []
    for rate, pairs in runs.items():
        rows.append(
            [
                rate_name(rate),
                *(spread([pair[kind].us_per_message for pair in pairs], ".1f") for kind in kinds),
                *(spread(ratios(pairs, THERMOCLINE, kind), ".2f") for kind in others),
                ", ".join(f"{statistics.median(pair[kind].messages_per_s for pair in pairs):.0f}" for kind in kinds),
            ]
        )
    return markdown_table(head, rows)


def verdicts(runs: dict[int, list[dict[str, Run]]]) -> list[Verdict]:
    """The bar, at each rate that both brokers were measured at."""
    return [
        Verdict(
            f"CPU time a message, {rate_name(rate)}, to the official broker's",
            statistics.median(ratios(pairs, THERMOCLINE, OFFICIAL)),
            WANTED_RATIO,
        )
        for rate, pairs in runs.items()
        if pairs and OFFICIAL in pairs[0]
    ]


if __name__ == "__main__":
    run_command(main)
