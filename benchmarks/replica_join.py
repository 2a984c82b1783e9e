"""How long does a new, empty replica take to join a set with much history, and how much does it copy?

`python -m benchmarks.replica_join [--history 20] [--official-history 4] [--log 1] [--cold-url URL]`

A master alone in its set, under a controller, takes `--history` GiB of messages, in batches of 32 with bodies of 4 KiB
that do not compress. Ours seals them into its bucket (a directory by default) and lets go of its local files; then it
takes `--log` GiB more, which it does not seal. An empty second broker is started, and the time passes until the
controllers have it in the SyncStateSet: its log is as long as the master's then. RocketMQ's set is measured the same
way, without a bucket, so it copies everything: with `--official-history` GiB, since both of its brokers have all of it
on this disk. All processes share this machine's cores and its disk.

Reported for each: seconds from the start of the process, and bytes of log that the new replica has received. Wanted of
ours: within 30 s, and no more bytes than the bucket lacks and the log file in which they begin.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE
from benchmarks.command import run_command
from benchmarks.load_generator import LoadShape, build_load_generator, run_load
from benchmarks.markdown_table import markdown_table
from benchmarks.replica_set_under_test import NAME, QUEUES, TOPIC, ReplicaSetUnderTest, official_set, thermocline_set
from benchmarks.verdicts import Verdict, show_verdicts
from thermocline import AdminClient
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

GIB = 1 << 30
FILE_BYTES = GIB
"""Of a log file, as by default."""
JOIN_WANTED_S = 30.0
MASTER, NEW = 1, 2
SHAPE = LoadShape(mode="batch", connections=4, window=2, body_bytes=4_096, queues=QUEUES, fill="random")
STEP_S = 5.0
SEAL_TIMEOUT_S = 1_800.0
SEALS_AND_LETS_GO = {"fileReservedTime": "0", "deleteWhen": "", "coldSealAgeMs": "2000"}
SEALS_LATE = {"coldSealAgeMs": str(24 * 3_600_000), "coldSegmentBytes": str(64 * GIB)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What one replica took. `lacking_bytes`: what it could not have from a bucket."""

    kind: str
    log_bytes: int
    lacking_bytes: int
    seconds: float
    copied_bytes: int


def main() -> int:
    """Measure, print; 1 when a wanted value is missed."""
    options = _parse()
    build_load_generator()
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name:
        ours = _ours(Path(name), options)
    found = [ours]
    if options.official_history:
        with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name:
            found.append(_official(software, Path(name), options))
    rows = [
        [each.kind, *_in_gib(each.log_bytes, each.lacking_bytes, each.copied_bytes), f"{each.seconds:.1f}"]
        for each in found
    ]
    print(markdown_table(["set", "log GiB", "not in a bucket GiB", "copied GiB", "joined after s"], rows))
    return show_verdicts(
        (
            Verdict("joined after", ours.seconds, JOIN_WANTED_S, "s"),
            Verdict("copied", ours.copied_bytes, ours.lacking_bytes + FILE_BYTES, "bytes"),
        )
    )


def _in_gib(*sizes: int) -> Iterator[str]:
    return (f"{size / GIB:.2f}" for size in sizes)


def _ours(directory: Path, options: argparse.Namespace) -> Joined:
    settings = dict(SEALS_AND_LETS_GO)
    cold_url = options.cold_url or (directory / "bucket").as_uri()
    with thermocline_set(directory, size=1, properties=settings, cold_url=cold_url) as brokers:
        _fill(brokers, int(options.history * GIB))
        history_bytes = _wait_until_committed(brokers)
        settings.update(SEALS_LATE)
        brokers.kill(MASTER)
        brokers.start(MASTER)
        brokers.until_writable()
        _fill(brokers, history_bytes + int(options.log * GIB))
        end = _log_end(brokers)
        seconds = _join(brokers)
        return Joined(
            kind=THERMOCLINE,
            log_bytes=end,
            lacking_bytes=end - history_bytes,
            seconds=seconds,
            copied_bytes=_copied_bytes(brokers),
        )


def _official(software: OfficialSoftware, directory: Path, options: argparse.Namespace) -> Joined:
    with official_set(software, directory, size=1, properties={}) as brokers:
        _fill(brokers, int((options.official_history + options.log) * GIB))
        end = _log_end(brokers)
        seconds = _join(brokers)
        return Joined(
            kind=OFFICIAL,
            log_bytes=end,
            lacking_bytes=end,
            seconds=seconds,
            copied_bytes=_copied_bytes(brokers),
        )


def _fill(brokers: ReplicaSetUnderTest, wanted_end: int) -> None:
    """Send until the log ends behind this offset."""
    while (end := _log_end(brokers)) < wanted_end:
        print(f"{brokers.kind}: {end / GIB:.2f} of {wanted_end / GIB:.2f} GiB", file=sys.stderr)
        result = run_load(
            SHAPE,
            address=brokers.members[MASTER].address,
            topic=TOPIC,
            seconds=STEP_S,
            warm_s=0,
            broker_name=NAME,
        )
        if result.protocol_errors or not result.messages:
            raise SystemExit(f"{brokers.kind}: sends are not stored: {result}")


def _log_end(brokers: ReplicaSetUnderTest) -> int:
    return _log_ends(brokers, MASTER)[1]


def _log_ends(brokers: ReplicaSetUnderTest, number: int) -> tuple[int, int]:
    """Where a broker's log begins and ends."""
    with AdminClient(namesrv=brokers.namesrv) as admin:
        info = admin.broker_runtime_info(brokers.members[number].address)
    return int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])


def _wait_until_committed(brokers: ReplicaSetUnderTest) -> int:
    """Return when the bucket has everything but what the last log file holds, and that as well; the log's end."""
    deadline_s = time.monotonic() + SEAL_TIMEOUT_S
    end = _log_end(brokers)
    while True:
        with AdminClient(namesrv=brokers.namesrv) as admin:
            admin.tier_seal()
        begin, end = _log_ends(brokers, MASTER)
        if end - begin <= FILE_BYTES:
            return end
        if time.monotonic() > deadline_s:
            raise SystemExit(f"after {SEAL_TIMEOUT_S:.0f} s the log begins at {begin} and ends at {end}")
        time.sleep(1)


def _join(brokers: ReplicaSetUnderTest) -> float:
    begun_s = time.monotonic()
    brokers.start(NEW)
    return time.monotonic() - begun_s


def _copied_bytes(brokers: ReplicaSetUnderTest) -> int:
    begin, end = _log_ends(brokers, NEW)
    return end - begin


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replica_join", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--history", type=float, default=20.0, help="GiB in the bucket of our set (default 20)")
    parser.add_argument(
        "--official-history", type=float, default=4.0, help="GiB of history of RocketMQ's set; 0: leave it out (4)"
    )
    parser.add_argument("--log", type=float, default=1.0, help="GiB of log that are in no bucket (default 1)")
    parser.add_argument("--cold-url", default="", help="the bucket, empty before [a directory]")
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
