"""Question: what do 50 000 queues cost, against one?

Workload: 5 000 topics of 10 queues (`--topics`, `--queues`), made by request 17; then sends of 100 B spread over all
of them, 4 connections with 64 in flight, against the same sends to one queue, in turn on two brokers, of which one is
stopped while the other is measured. Their hot processes have the first core, all else has the second.

Both first take the same number of messages, two for each queue, so that every queue is in use and has its file.
Reported: the rate of those first sends; proportional set size of all processes of each broker after them; then send
rates and their ratio; the longest stall of the loop while the broker registers all topics at its NameServer (a cheap
request every 2 ms); and the seconds from start to ready on the store with all queues.

    python -m benchmarks.many_queues [--topics 5000] [--queues 10] [--seconds 10] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest, start_thermocline
from benchmarks.pipelined_sends import WINDOW, send_all
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.broker import CreateTopicRequestHeader
from thermocline.remoting.headers.read import GetMaxOffsetRequestHeader
from thermocline.remoting.headers.send import SendMessageRequestHeader, encode_send_header
from thermocline.remoting.request_code import RequestCode

BODY = b"b" * 100
CONNECTIONS = 4
TIMEOUT_MS = 60_000
CREATORS = 64
HOT_CPUS, OTHER_CPUS = {0}, {1}
PING_PERIOD_S = 0.002
SETTLE_S = 30.0  # what the brokers do behind the answers (queue files, index, uploads) is to be over
ONE_TOPIC = "OneQueue"


def topic_name(number: int) -> str:
    """Name of a spread topic."""
    return f"Many{number:05d}"


def send_frames(places: Sequence[tuple[str, int]]) -> list[bytes]:
    """A send request for each (topic, queue id), ready to be written."""
    frames: list[bytes] = []
    for number, (topic, queue_id) in enumerate(places):
        header = SendMessageRequestHeader(
            producer_group="many-queues",
            topic=topic,
            queue_id=queue_id,
            properties=f"UNIQ_KEY\x010A0700016AE04E0E2F2A68B4{number:08X}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        )
        code = RequestCode.SEND_MESSAGE_V2
        frames.append(RemotingCommand.request(code, ext_fields=encode_send_header(code, header), body=BODY).encode())
    return frames


async def create_topics(broker: BrokerUnderTest, names: Sequence[str], queue_count: int) -> None:
    """Make topics, many at once, as auto-creation would."""
    connection = await ClientConnection.open(broker.address)
    slots = asyncio.Semaphore(CREATORS)

    async def create(name: str) -> None:
        async with slots:
            header = CreateTopicRequestHeader(
                topic=name,
                default_topic="TBW102",
                read_queue_nums=queue_count,
                write_queue_nums=queue_count,
                perm=6,
                topic_filter_type="SINGLE_TAG",
            )
            command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            await connection.request(command, timeout_ms=TIMEOUT_MS)

    try:
        await asyncio.gather(*(create(name) for name in names))
    finally:
        connection.close()


async def send_rate(broker: BrokerUnderTest, frames: list[bytes], seconds: float) -> float:
    """Sends per second, round robin over the frames."""
    return await send_all(broker.address, itertools.cycle(frames), connections=CONNECTIONS, seconds=seconds) / seconds


async def send_each(broker: BrokerUnderTest, frames: list[bytes]) -> float:
    """Send each frame once; sends per second."""
    started = time.monotonic()
    count = await send_all(broker.address, frames, connections=CONNECTIONS)
    return count / (time.monotonic() - started)


async def longest_stall_ms(broker: BrokerUnderTest, seconds: float) -> float:
    """The longest answer to a cheap request, one every few ms; registrations fall into the time."""
    connection = await ClientConnection.open(broker.address)
    longest, deadline = 0.0, time.monotonic() + seconds
    header = GetMaxOffsetRequestHeader(topic=ONE_TOPIC, queue_id=0)
    try:
        while time.monotonic() < deadline:
            started = time.monotonic()
            await connection.request(RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header), timeout_ms=TIMEOUT_MS)
            longest = max(longest, time.monotonic() - started)
            await asyncio.sleep(PING_PERIOD_S)
    finally:
        connection.close()
    return longest * 1_000


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--queues", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = [topic_name(number) for number in range(options.topics)]
    many = send_frames([(name, queue_id) for queue_id in range(options.queues) for name in names])
    one = send_frames([(ONE_TOPIC, 0)] * CONNECTIONS * WINDOW)
    rates: dict[str, list[float]] = {"one": [], "many": []}
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as folder:
        one_folder, many_folder = Path(folder) / "one", Path(folder) / "many"
        with start_thermocline(one_folder, properties={}) as small:
            asyncio.run(create_topics(small, [ONE_TOPIC], 1))
            with start_thermocline(many_folder, properties={}) as large:
                asyncio.run(create_topics(large, [ONE_TOPIC], 1))
                started = time.monotonic()
                asyncio.run(create_topics(large, names, options.queues))
                create_seconds = time.monotonic() - started
                os.sched_setaffinity(0, OTHER_CPUS)
                for broker in (small, large):
                    broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)
                first_rate = asyncio.run(send_each(large, many))
                for broker, frames in ((large, many), (small, one * (2 * len(many) // len(one)))):
                    asyncio.run(send_each(broker, frames))
                time.sleep(SETTLE_S)
                small_mb, large_mb = small.resident_mb(), large.resident_mb()
                small.pause()
                large.pause()
                for _ in range(options.rounds):
                    for name, broker, frames in (("many", large, many), ("one", small, one)):
                        broker.resume()
                        rates[name].append(asyncio.run(send_rate(broker, frames, options.seconds)))
                        broker.pause()
                large.resume()
                stall_ms = asyncio.run(longest_stall_ms(large, 35.0))
        started = time.monotonic()
        with start_thermocline(many_folder, properties={}):
            restart_seconds = time.monotonic() - started
    ratios = [many_rate / one_rate for many_rate, one_rate in zip(rates["many"], rates["one"], strict=True)]
    queue_count = options.topics * options.queues
    print(f"queues                                {queue_count}")
    print(f"topics created per second             {options.topics / create_seconds:.0f}")
    print(f"first sends/s, to queues not yet used {first_rate:.0f}")
    print(f"sends/s, one queue (median)           {statistics.median(rates['one']):.0f}")
    print(f"sends/s, all queues (median)          {statistics.median(rates['many']):.0f}")
    print(f"ratio (median, least, greatest)       {statistics.median(ratios):.2f} {min(ratios):.2f} {max(ratios):.2f}")
    print(f"memory, one queue, MB                 {small_mb:.0f}")
    print(f"memory, all queues, MB                {large_mb:.0f}  (+{large_mb - small_mb:.0f})")
    print(f"longest answer in 35 s, ms            {stall_ms:.1f}")
    print(f"restart to ready, s                   {restart_seconds:.1f}")


if __name__ == "__main__":
    main()
