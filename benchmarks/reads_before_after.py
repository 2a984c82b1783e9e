"""Has a change made reads slower? The working tree against an earlier revision, in alternation.

`python -m benchmarks.reads_before_after REVISION [--rounds 7] [--real-time]`

Two brokers with `file://` cold tiers, one of each tree, are filled alike: a topic that stays local, and one whose local
files are deleted once it is sealed. Then each is read on one broker and on the other in turn, the order changing each
time, while the one that waits is stopped.

  pull    32 messages of 100 bytes, 16 connections, one pull in flight each, at the local topic
  cold    the messages of the cold topic once, from offset 0 to one that both brokers have: 1 KiB, one connection a
          queue, pulls of 32; the cache is smaller than the topic

A ratio is the median of the ratios of neighbouring runs, after to before, its least and greatest beside it: messages a
second, and messages per second of CPU time of all of the broker's processes.
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

from benchmarks.before_after import AFTER, BEFORE, GENERATOR_CPUS, HOT_CPUS, OTHER_CPUS, spread, tree_of
from benchmarks.broker_under_test import EVERY_HOUR, BrokerUnderTest, start_thermocline
from benchmarks.cold_read import delete_local_files, fill_topic, tier_status
from benchmarks.load_generator import LoadShape, build_load_generator, run_load
from thermocline.client import AdminClient
from thermocline.remoting.private_requests import PrivateRequestCode

MIB = 1 << 20
QUEUE_COUNT = 4
COLD_BYTES = 192 * MIB
LOCAL_TOPIC, COLD_TOPIC = "ReadsLocal", "ReadsCold"
READ_S_MAX = 600.0
SEAL_MS = 300_000
KEEP_HOURS = "72"
"""For the local topic: without it parts of the log would be deleted between two rounds, and be read from the cold tier.
"""
SETTINGS = {
    "defaultTopicQueueNums": "16",
    "mappedFileSizeCommitLog": str(64 * MIB),
    "fileReservedTime": "0",
    "deleteWhen": EVERY_HOUR,
    "coldSegmentBytes": str(32 * MIB),
    "coldCacheBytes": str(64 * MIB),
}
FILL = LoadShape(mode="batch", connections=4, window=2)
PULL = LoadShape(mode="pull", connections=16, window=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured read."""

    messages_per_s: float
    messages_per_cpu_s: float


def main() -> int:
    """Run the comparison and print a line for each kind of read."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reads_before_after", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("revision", help="what the working tree is compared with, as git names it")
    parser.add_argument("--rounds", type=int, default=7, help="reads of each kind on each broker (default 7)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured seconds of pulls (default 3)")
    parser.add_argument("--real-time", action="store_true", help="real-time priority for brokers and generator")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    options = parser.parse_args()
    build_load_generator()
    pairs: dict[str, list[dict[str, Run]]] = {"pull": [], "cold": []}
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        tree_of(options.revision, Path(name) / "tree") as tree,
        ExitStack() as stack,
    ):
        brokers = {
            kind: stack.enter_context(start_thermocline(Path(name) / kind, properties=SETTINGS, tree=sources))
            for kind, sources in ((BEFORE, tree), (AFTER, None))
        }
        for broker in brokers.values():
            _fill(broker, is_real_time=options.real_time)
        cold_end = min(_cold_end(broker) for broker in brokers.values())
        for number in range(options.rounds):
            order = (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE)
            for read in pairs:
                pair = {kind: _measure(brokers[kind], read, options, cold_end=cold_end) for kind in order}
                pairs[read].append(pair)
                print(number, read, pair, file=sys.stderr, flush=True)
    for read, of_read in pairs.items():
        print(_line(read, of_read))
    return 0


def _fill(broker: BrokerUnderTest, *, is_real_time: bool) -> None:
    """Fill both topics, leave one in the cold tier alone, and stop the broker."""
    fill_topic(broker, COLD_TOPIC, fill="json", body_bytes=1024, raw_bytes=COLD_BYTES)
    broker.ask(PrivateRequestCode.TIER_SEAL, timeout_ms=SEAL_MS)
    delete_local_files(broker, {COLD_TOPIC})
    with AdminClient(namesrv=broker.namesrv) as admin:
        admin.update_broker_config(broker.address, {"fileReservedTime": KEEP_HOURS})
    run_load(FILL, address=broker.address, topic=LOCAL_TOPIC, seconds=1.0, warm_s=0.0)
    broker.wait_for_index()
    broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)
    if is_real_time:
        broker.make_real_time()
    broker.pause()


def _measure(broker: BrokerUnderTest, read: str, options: argparse.Namespace, *, cold_end: int) -> Run:
    broker.resume()
    try:
        cpu_s, started_s = broker.cpu_s(), time.monotonic()
        if read == "pull":
            result = run_load(
                PULL,
                address=broker.address,
                topic=LOCAL_TOPIC,
                seconds=options.seconds,
                warm_s=0.5,
                cpus=GENERATOR_CPUS,
                is_real_time=options.real_time,
            )
        else:
            result = run_load(
                LoadShape(
                    mode="pull",
                    connections=QUEUE_COUNT,
                    window=1,
                    queues=QUEUE_COUNT,
                    until=cold_end,
                    group=f"Reader{time.monotonic_ns()}",
                ),
                address=broker.address,
                topic=COLD_TOPIC,
                seconds=READ_S_MAX,
                warm_s=0.0,
            )
        if not result.is_clean:
            raise SystemExit(f"a read failed: {result}")
        cores = (broker.cpu_s() - cpu_s) / (time.monotonic() - started_s)
        return Run(messages_per_s=result.messages_per_s, messages_per_cpu_s=result.messages_per_s / cores)
    finally:
        broker.pause()


def _cold_end(broker: BrokerUnderTest) -> int:
    """The offset up to which every queue of the cold topic can be read; the broker may be stopped."""
    broker.resume()
    (row,) = [row for row in tier_status(broker)["topics"] if row["topic"] == COLD_TOPIC]
    broker.pause()
    return int(min(queue["coldEnd"] for queue in row["queues"]))


def _line(read: str, pairs: list[dict[str, Run]]) -> str:
    before, after = (statistics.median(pair[kind].messages_per_s for pair in pairs) for kind in (BEFORE, AFTER))
    ratios = [pair[AFTER].messages_per_s / pair[BEFORE].messages_per_s for pair in pairs]
    per_cpu_s = [pair[AFTER].messages_per_cpu_s / pair[BEFORE].messages_per_cpu_s for pair in pairs]
    return (
        f"{read:6} {before:>10,.0f} -> {after:>10,.0f} messages/s ratio {spread(ratios)}, per cpu-s {spread(per_cpu_s)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
