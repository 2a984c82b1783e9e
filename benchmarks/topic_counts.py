"""Question: what do 1, 100 and 10 000 topics of 8 queues cost, beside the official broker?

Workload: topics are made in bulk (request 18), then sends of 100 B go to all of them in turn: a closed loop of 16
connections with 64 in flight for the throughput, an open loop (5 000 a second, or 1 000 with synchronous flush) for the
p99. Both brokers are measured in turn at one count of topics, then get more topics. Sessions: asynchronous and
synchronous flush, each with new brokers. Before the first run at a count every queue has taken a message.

After the last count: memory (proportional set size of all processes) and disk (what the files of the store take).

The official broker maps a file for each queue, and keeps it open. For 10 000 topics it needs more maps and open files
than Linux allows a process by default: `sysctl -w vm.max_map_count=655360`, the value that its own script (`os.sh`)
sets; the limit of open files is raised here, where the user may. `--broker thermocline` needs neither.

    python -m benchmarks.topic_counts [--quick] [--rounds 5] [--seconds 4] [--topics 1 100 10000] [--session async]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE, BrokerUnderTest
from benchmarks.command import run_command
from benchmarks.compare import PROPERTIES, Run, measure, parse_with_common, start_brokers, warm_broker
from benchmarks.load_generator import LoadShape, build_load_generator, topic_name
from benchmarks.markdown_table import markdown_table, spread
from thermocline.remoting.bodies import TopicConfig, TopicConfigListBody
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.send import SendMessageRequestHeader, encode_send_header
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

COUNTS = (1, 100, 10_000)
QUICK_COUNTS = (1, 20)
QUEUES = 8
PREFIX = "Counted"
TOPICS_PER_REQUEST = 250
TIMEOUT_MS = 120_000
FIRST_SEND_TRIES = 200
RETRY_DELAY_S = 0.1
OPEN_RATES = {"async": 5_000, "sync": 1_000}
MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
OTHER_FILES = 2_000
"""Of a JVM and of the log, mapped and open."""
SETTLE_S = 30.0  # what brokers do behind the answers (queue files, index) is to be over


@dataclass(slots=True)
class Level:
    """What was measured at one count of topics: by kind of broker."""

    throughput: dict[str, list[Run]] = field(default_factory=dict)
    latency: dict[str, list[Run]] = field(default_factory=dict)

    def errors(self) -> int:
        """How many runs had one."""
        return sum(
            not run.result.is_clean
            for by_kind in (self.throughput, self.latency)
            for of_kind in by_kind.values()
            for run in of_kind
        )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when an answer was wrong."""
    options = _parse(arguments)
    if options.broker != THERMOCLINE:
        _require_files(max(options.topics) * QUEUES + OTHER_FILES)
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    build_load_generator()
    is_clean = True
    for session in options.session:
        with tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name:
            levels, costs = run_session(session, software, Path(name), options)
        print(f"\n{session}:\n\n{table(levels)}\n")
        if costs:
            print(cost_table(max(options.topics), costs))
        is_clean &= not any(level.errors() for level in levels.values())
    return 0 if is_clean else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.topic_counts", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--topics", type=int, nargs="+", help="counts of topics, rising (default 1 100 10000)")
    parser.add_argument("--session", nargs="+", choices=tuple(PROPERTIES), default=list(PROPERTIES))
    options = parse_with_common(parser, arguments)
    options.topics = sorted(options.topics or (QUICK_COUNTS if options.quick else COUNTS))
    return options


def _require_files(count: int) -> None:
    """Let processes that are started from now on map and open so many files; SystemExit when that is not possible.

    The official broker stops dispatching without maps, and accepts no connection without file descriptors.
    """
    maps = int(MAX_MAP_COUNT.read_text())
    if maps < count:
        raise SystemExit(
            f"the official broker needs {count} maps, and this machine allows {maps} to a process:"
            " sysctl -w vm.max_map_count=655360"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(count, hard)))
        except (PermissionError, ValueError) as error:
            raise SystemExit(
                f"the official broker needs {count} open files, and this user is allowed {hard}: raise `ulimit -Hn`"
            ) from error


def run_session(
    session: str, software: OfficialSoftware, directory: Path, options: argparse.Namespace
) -> tuple[dict[int, Level], dict[str, tuple[float, float]]]:
    """Count of topics -> what was measured; kind -> memory and disk at the last count, in MB."""
    levels: dict[int, Level] = {}
    with contextlib.ExitStack() as stack:
        brokers = list(start_brokers(PROPERTIES[session], stack, software, directory, options))
        for broker in brokers:
            warm_broker(broker, options)
            broker.pause()
        made = 0
        for count in options.topics:
            for broker in brokers:
                broker.resume()
                asyncio.run(_make_topics(broker, range(made, count)))
                asyncio.run(_use_queues(broker, range(made, count)))
                broker.wait_for_index()
                broker.pause()
            made = count
            levels[count] = _measure_level(brokers, count, OPEN_RATES[session], options)
        costs: dict[str, tuple[float, float]] = {}
        for broker in brokers:
            broker.resume()
            time.sleep(1.0 if options.quick else SETTLE_S)
            costs[broker.kind] = broker.resident_mb(), disk_mb(directory / broker.kind)
            broker.pause()
        return levels, costs


def _measure_level(brokers: list[BrokerUnderTest], count: int, open_rate: int, options: argparse.Namespace) -> Level:
    closed = LoadShape(connections=16, window=64, queues=QUEUES, topics=count)
    opened = LoadShape(connections=16, queues=QUEUES, topics=count, rate_per_s=open_rate)
    level = Level()
    for number in range(options.rounds):
        for broker in brokers if number % 2 == 0 else reversed(brokers):
            for by_kind, shape in ((level.throughput, closed), (level.latency, opened)):
                run = measure(broker, PREFIX, shape, options)
                by_kind.setdefault(broker.kind, []).append(run)
                print(
                    f"{count} topics, round {number + 1}/{options.rounds} {broker.kind}:"
                    f" {run.result.messages_per_s:,.0f}/s, p99 {run.result.latency_us.p99:,.0f} us",
                    file=sys.stderr,
                    flush=True,
                )
    return level


async def _make_topics(broker: BrokerUnderTest, numbers: range) -> None:
    """Make topics in bulk: one of each alone would have the official broker write its table ten thousand times."""
    connection = await ClientConnection.open(broker.address)
    try:
        for start in range(numbers.start, numbers.stop, TOPICS_PER_REQUEST):
            configs = [
                TopicConfig(
                    topic_name=topic_name(PREFIX, number), read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
                )
                for number in range(start, min(start + TOPICS_PER_REQUEST, numbers.stop))
            ]
            command = RemotingCommand.request(
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=TopicConfigListBody(topic_config_list=configs).encode()
            )
            await connection.request(command, timeout_ms=TIMEOUT_MS)
    finally:
        connection.close()


async def _use_queues(broker: BrokerUnderTest, numbers: range) -> None:
    """Send a message to every queue, so that it has its files; a broker that is busy meanwhile is asked again."""
    connection = await ClientConnection.open(broker.address)

    async def send(number: int, queue_id: int) -> None:
        header = SendMessageRequestHeader(
            producer_group="topic-counts",
            topic=topic_name(PREFIX, number),
            queue_id=queue_id,
            properties=f"UNIQ_KEY\x010A0700016AE04E0E2F2A68B4{number * QUEUES + queue_id:08X}\x02WAIT\x01true\x02",
        )
        ext_fields = encode_send_header(RequestCode.SEND_MESSAGE_V2, header)
        for _ in range(FIRST_SEND_TRIES):
            command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields=ext_fields, body=b"b" * 100)
            answer = await connection.call(command, timeout_ms=TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                return
            await asyncio.sleep(RETRY_DELAY_S)
        raise SystemExit(f"the {broker.kind} broker does not take a first message: {answer.code} {answer.remark}")

    try:
        for number in numbers:
            await asyncio.gather(*(send(number, queue_id) for queue_id in range(QUEUES)))
    finally:
        connection.close()


def disk_mb(directory: Path) -> float:
    """What the files below `directory` take on the disk: blocks, not lengths."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(folder) / name).lstat().st_blocks * 512
    return total / 1e6


def table(levels: dict[int, Level]) -> str:
    """A line a count."""
    kinds = [kind for kind in (THERMOCLINE, OFFICIAL) if kind in next(iter(levels.values())).throughput]
    head = [
        "topics",
        *(f"{kind}, messages/s" for kind in kinds),
        "ratio",
        *(f"{kind}, p99 us" for kind in kinds),
        "errors",
    ]
    rows = []
    for count, level in levels.items():
        rates = {kind: [run.result.messages_per_s for run in level.throughput[kind]] for kind in kinds}
        p99s = {kind: [run.result.latency_us.p99 for run in level.latency[kind]] for kind in kinds}
        ratios = [ours / theirs for ours, theirs in zip(rates[kinds[0]], rates[kinds[-1]], strict=True)]
        rows.append(
            [
                f"{count:,}".replace(",", " "),
                *(spread(rates[kind], ".0f") for kind in kinds),
                spread(ratios if len(kinds) > 1 else [], ".2f"),
                *(f"{statistics.median(p99s[kind]):.0f}" for kind in kinds),
                str(level.errors()),
            ]
        )
    return markdown_table(head, rows)


def cost_table(count: int, costs: dict[str, tuple[float, float]]) -> str:
    """Memory and disk of each broker."""
    rows = [[kind, f"{memory:.0f}", f"{disk:.0f}"] for kind, (memory, disk) in costs.items()]
    return markdown_table([f"{count} topics", "memory, MB", "disk, MB"], rows)


if __name__ == "__main__":
    run_command(main)
