"""Does the send latency stay what it is while history is sealed, uploaded and replayed at full speed?

`python -m benchmarks.latency_under_offload`. Workload: an open loop of 10 000 sends a second (1 KiB by default),
measured in turn
  idle   with the tier process stopped: nothing is sealed, uploaded or read from the cold tier;
  busy   while it seals and uploads what is sent (small segments, so all the time) and consumers read a topic of history
         from the cold tier as fast as they are served: pulls of 32, one connection a queue, all below the local
         minimum, for the history's local files are deleted before.
Asynchronous flush, index on.

Pinned as on a two-core machine: the hot process has the first core; tier and index process, S3 server, load generator
and replay share the second. The null responder, which stores nothing, is measured on the first core in the same two
states (but for the sealing, as nothing is sent to the broker then): what the generator waits for its own core and for
the kernel shows there. The S3 server and the replay give way to the generator (nice 19), as the broker's helpers do.
Prints p50/p99/p99.9 of all four, the ratios of the p99s, and the replay's rate. Wanted of the broker: a busy p99 of at
most 1.2 times the idle one and 200 us; with `--real-time`, where no process of lowest priority keeps the generator
waiting until the kernel's next tick, the exit status is 1 when that is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.broker_under_test import EVERY_HOUR, BrokerUnderTest, make_cold_tier, start_thermocline, threads_of
from benchmarks.load_generator import LoadResult, LoadShape, build_load_generator, run_load
from benchmarks.null_responder import start_null_responder
from thermocline.localstack import LocalStackError, start_server

HOT_CPUS, OTHER_CPUS = {0}, {1}
GENERATOR_CPUS = "1"
HISTORY_TOPIC, LIVE_TOPIC = "OffloadHistory", "OffloadLive"
TIER_MODULE = "thermocline.broker.tier_process"
QUEUE_COUNT = 4
NICE_BESIDE = 19
LOG_FILE_BYTES = 32 << 20
COLD_TIMEOUT_S = 300.0
RATIO_WANTED, MORE_WANTED_US = 1.2, 200.0
SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "fileReservedTime": "0",
    "deleteWhen": EVERY_HOUR,
    "coldSegmentBytes": str(32 << 20),
    "coldSealAgeMs": "2000",
    # Smaller than the history, so that a replay in a loop is a replay from the store and not from this cache.
    "coldCacheBytes": str(32 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One measured run of the open loop; `is_null`: against the null responder."""

    is_busy: bool
    is_null: bool
    p50_us: float
    p99_us: float
    p999_us: float
    replay_mb_per_s: float | None
    is_clean: bool


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when any answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency_under_offload")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--history-mb", type=int, default=256)
    parser.add_argument("--cold", default="versitygw", help="an S3 server of localstack/, or file")
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="the broker's loop and the load generator run before all else (SCHED_FIFO)",
    )
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    parser.add_argument("--output", type=Path, help="write every figure to this JSON file")
    options = parser.parse_args(arguments)
    build_load_generator()
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        _cold_tier(options.cold, Path(name)) as cold_url,
        start_thermocline(Path(name), properties=SETTINGS, cold_url=cold_url) as broker,
        start_null_responder(Path(name), cpus=HOT_CPUS, is_real_time=options.real_time) as floor,
    ):
        broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)
        _fill(broker, Path(name), options)
        _open_loop(broker.address, options, seconds=15.0)  # warm
        if options.real_time:
            broker.make_real_time()
        phases = [
            _phase(broker, options, is_busy=is_busy, floor=address)
            for number in range(options.rounds)
            for is_busy in ((False, True) if number % 2 == 0 else (True, False))
            for address in (None, floor)
        ]
    is_good = _report(phases, options) and all(phase.is_clean for phase in phases)
    return 0 if is_good else 1


@contextlib.contextmanager
def _cold_tier(kind: str, directory: Path) -> Iterator[str | None]:
    """The URL of the cold tier; None is the default, a directory."""
    if kind == "file":
        yield None
        return
    with start_server(kind, directory / "s3") as server:
        for thread_id in threads_of(server.process_id):
            os.sched_setaffinity(thread_id, OTHER_CPUS)
            os.setpriority(os.PRIO_PROCESS, thread_id, NICE_BESIDE)
        yield make_cold_tier(server)


def _fill(broker: BrokerUnderTest, directory: Path, options: argparse.Namespace) -> None:
    """Write the history, then live messages until the history's local files are gone."""
    batch = LoadShape(mode="batch", connections=4, window=2, body_bytes=1024, queues=QUEUE_COUNT)
    written = 0
    while written < options.history_mb << 20:
        result = _load(broker.address, batch, HISTORY_TOPIC, seconds=1.0)
        written += result.messages * 1024
    commit_log = directory / "data" / "commitlog"
    if not commit_log.is_dir():
        commit_log = next((directory / "data").glob("**/commitlog"))
    history_end = max(int(path.name) for path in commit_log.iterdir())
    deadline = time.monotonic() + COLD_TIMEOUT_S
    while min(int(path.name) for path in commit_log.iterdir()) <= history_end:
        if time.monotonic() > deadline:
            raise SystemExit("the history's local files were not deleted in time")
        _open_loop(broker.address, options, seconds=2.0)


def _phase(broker: BrokerUnderTest, options: argparse.Namespace, *, is_busy: bool, floor: str | None) -> Phase:
    """`floor`: the null responder's address, when it is measured instead of the broker."""
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        replay = None
        if not is_busy:
            stack.enter_context(broker.without_helper(TIER_MODULE))
        else:
            shape = LoadShape(mode="pull", connections=QUEUE_COUNT, window=1, queues=QUEUE_COUNT)
            # A little longer on both sides, so that all of the measured time is under load.
            replay = pool.submit(
                _load, broker.address, shape, HISTORY_TOPIC, seconds=options.seconds + 2.0, gives_way=True
            )
            time.sleep(0.5)
        result = _open_loop(floor or broker.address, options, seconds=options.seconds)
        stack.close()
        replayed = replay.result() if replay else None
    phase = Phase(
        is_busy=is_busy,
        is_null=floor is not None,
        p50_us=result.latency_us.p50,
        p99_us=result.latency_us.p99,
        p999_us=result.latency_us.p999,
        replay_mb_per_s=replayed.answer_bytes / replayed.seconds / 1e6 if replayed else None,
        is_clean=result.is_clean and (replayed is None or (replayed.is_clean and replayed.messages > 0)),
    )
    print(phase, file=sys.stderr, flush=True)
    return phase


def _open_loop(address: str, options: argparse.Namespace, *, seconds: float) -> LoadResult:
    shape = LoadShape(connections=16, rate_per_s=options.rate, body_bytes=options.body, queues=QUEUE_COUNT)
    return _load(address, shape, LIVE_TOPIC, seconds=seconds, is_real_time=options.real_time)


def _load(
    address: str,
    shape: LoadShape,
    topic: str,
    *,
    seconds: float,
    is_real_time: bool = False,
    gives_way: bool = False,
) -> LoadResult:
    return run_load(
        shape,
        address=address,
        topic=topic,
        seconds=seconds,
        warm_s=0.5,
        cpus=GENERATOR_CPUS,
        is_real_time=is_real_time,
        gives_way=gives_way,
    )


def _report(phases: list[Phase], options: argparse.Namespace) -> bool:
    """Print; whether it is as wanted, where that is judged."""
    is_within = True
    for is_null, whose in ((False, "thermocline"), (True, "null responder")):
        p99 = {}
        for is_busy, name in ((False, "idle"), (True, "busy")):
            of_kind = [phase for phase in phases if (phase.is_busy, phase.is_null) == (is_busy, is_null)]
            cells = []
            for quantile in ("p50_us", "p99_us", "p999_us"):
                values = [getattr(phase, quantile) for phase in of_kind]
                cells.append(f"{statistics.median(values):,.0f} [{min(values):,.0f}-{max(values):,.0f}]")
            p99[is_busy] = statistics.median(phase.p99_us for phase in of_kind)
            print(f"{whose:14} {name} p50 {cells[0]}  p99 {cells[1]}  p99.9 {cells[2]} us")
        print(f"{whose:14} p99 ratio {p99[True] / p99[False]:.2f}")
        if not is_null:
            wanted_us = RATIO_WANTED * p99[False] + MORE_WANTED_US
            is_within = p99[True] <= wanted_us
            print(f"{whose:14} busy p99 wanted at most {wanted_us:,.0f} us: {'ok' if is_within else 'MISSED'}")
    rates = [phase.replay_mb_per_s for phase in phases if phase.replay_mb_per_s is not None]
    print(
        f"replay {statistics.median(rates):.0f} MB/s; errors in"
        f" {sum(not phase.is_clean for phase in phases)} of {len(phases)} runs"
    )
    if options.output:
        options.output.write_text(json.dumps([asdict(phase) for phase in phases], indent=1))
    return is_within or not options.real_time


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LocalStackError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
