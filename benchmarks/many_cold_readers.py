"""Question: how much memory does the tier process take while a hundred readers replay a hundred topics?

`python -m benchmarks.many_cold_readers`. A real `thermocline dev` on a real S3 server; `--topics` topics of `--mib` MiB
raw each, one queue, bodies of `--body` bytes that compress to half; sealed whole, local files deleted. Then one reader
a topic, on a connection of its own, pulls from offset 0 to the end, 32 messages at a time, the next pull written when
the answer before is there: at full speed, all at once. Answers that say "too many cold pulls" are asked again after
20 ms, as official clients do. After half of what is to be read half of the readers close their connections at once.

Reported: resident memory of the tier process (VmRSS, sampled ten times a second, pages of libraries and of mapped files
included) and the anonymous part of it when it is idle, at most while all read, and at most after half have left; raw MB
a second. Wanted: at most 400 MB resident. Exit status 1 when that is missed or a message was not served in order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from benchmarks.broker_under_test import EVERY_HOUR, BrokerUnderTest, make_cold_tier, start_thermocline
from benchmarks.verdicts import Verdict, show_verdicts
from thermocline.localstack import LocalStackError, start_server
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.broker import CreateTopicRequestHeader
from thermocline.remoting.headers.read import PullMessageRequestHeader, PullMessageResponseHeader
from thermocline.remoting.headers.send import SendMessageRequestHeader, encode_send_header
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.message_record import INT, LONG, POSITION_QUEUE_OFFSET, POSITION_SIZE
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

MIB = 1 << 20
LOG_FILE_BYTES = 16 * MIB
MEMORY_MB_WANTED = 400.0
BATCH_COUNT = 100
RECORD_MORE_BYTES = 120
"""About what a record takes besides its body."""
WAIT_MS = 600_000
SUBSCRIPTION_BIT = 1 << 2
PULL_COUNT = 32
SAMPLE_S = 0.1
AGAIN_S = 0.02
TRY_AGAIN = (ResponseCode.FLOW_CONTROL, ResponseCode.SYSTEM_BUSY)
TIMEOUT_MS = 60_000


@dataclass(slots=True)
class Memory:
    """A process's memory over time, in MB."""

    pid: int
    resident: list[float] = field(default_factory=list)
    anonymous: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Sample until stopped."""
        while not self._stop.wait(SAMPLE_S):
            lines = dict(
                line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines() if ":" in line
            )
            self.resident.append(int(lines["VmRSS"].split()[0]) * 1024 / 1e6)
            self.anonymous.append(int(lines["RssAnon"].split()[0]) * 1024 / 1e6)

    def stop(self) -> None:
        """Sample no more."""
        self._stop.set()


@dataclass(slots=True)
class Progress:
    """What the readers have got."""

    messages: int = 0
    size_bytes: int = 0
    asked_again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Memory when idle, while all read, and after half have left; and what was read in `seconds`."""

    idle: Memory
    all_read: Memory
    half_read: Memory
    progress: Progress
    seconds: float

    @property
    def resident_mb(self) -> float:
        """The maximum while any reader ran."""
        return max((*self.all_read.resident, *self.half_read.resident))

    @property
    def idle_mb(self) -> float:
        """Before, at most."""
        return max(self.idle.resident)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when something is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_cold_readers")
    parser.add_argument("--server", default="versitygw", help="an S3 server of localstack/ (default: %(default)s)")
    parser.add_argument("--topics", type=int, default=100, help="and readers (default: %(default)s)")
    parser.add_argument("--mib", type=int, default=16, help="raw, for each topic (default: %(default)s)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        start_server(options.server, Path(name) / "s3") as server,
    ):
        outcome = measure(
            Path(name),
            cold_url=make_cold_tier(server),
            topic_count=options.topics,
            raw_bytes=options.mib * MIB,
            body_bytes=options.body,
        )
    return _report(options, outcome)


def measure(
    folder: Path,
    *,
    cold_url: str,
    topic_count: int,
    raw_bytes: int,
    body_bytes: int,
    log_file_bytes: int = LOG_FILE_BYTES,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Fill topics of `raw_bytes` each, and read them all at once. `properties`: further settings of the broker."""
    settings = {
        "mappedFileSizeCommitLog": str(log_file_bytes),
        "fileReservedTime": "0",
        "deleteWhen": EVERY_HOUR,
        **properties,
    }
    with start_thermocline(folder, properties=settings, cold_url=cold_url) as broker:
        topics = [f"Replayed{number:03}" for number in range(topic_count)]
        asyncio.run(_fill(broker.address, topics, body_bytes=body_bytes, raw_bytes=raw_bytes))
        broker.ask(PrivateRequestCode.TIER_SEAL, timeout_ms=WAIT_MS)
        ends = _delete_local_files(broker, topics, filler_bytes=log_file_bytes)
        (pid,) = broker.helper_ids("thermocline.broker.tier_process")
        idle, all_read, half_read = Memory(pid), Memory(pid), Memory(pid)
        _watched(idle, lambda: time.sleep(1.0))
        progress = Progress()
        started = time.perf_counter()
        asyncio.run(_read_all(broker.address, ends, progress, all_read, half_read))
        seconds = time.perf_counter() - started
    return Outcome(idle=idle, all_read=all_read, half_read=half_read, progress=progress, seconds=seconds)


# -- filling -----------------------------------------------------------------------------------------------------------


async def _fill(address: str, topics: list[str], *, body_bytes: int, raw_bytes: int) -> None:
    """Messages to all topics in turn, in batches; half of what a body says is chance."""
    connection = await ClientConnection.open(address)
    random = Random(5)
    try:
        for topic in topics:
            header = CreateTopicRequestHeader(topic=topic, read_queue_nums=1, write_queue_nums=1)
            command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            await connection.request(command, timeout_ms=TIMEOUT_MS)
        for _ in range(max(1, raw_bytes // ((body_bytes + RECORD_MORE_BYTES) * BATCH_COUNT))):
            for topic in topics:
                await _send_batch(connection, topic, random, body_bytes)
    finally:
        connection.close()


async def _send_batch(connection: ClientConnection, topic: str, random: Random, body_bytes: int) -> None:
    header = SendMessageRequestHeader(
        producer_group="fill",
        topic=topic,
        queue_id=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
        batch=True,
    )
    bodies = [random.randbytes(body_bytes // 2).hex().encode() for _ in range(BATCH_COUNT)]
    command = RemotingCommand.request(
        RequestCode.SEND_BATCH_MESSAGE,
        ext_fields=encode_send_header(RequestCode.SEND_BATCH_MESSAGE, header),
        body=encode_batch([BatchMessage(body, b"") for body in bodies]),
    )
    while True:
        answer = await connection.call(command, timeout_ms=TIMEOUT_MS)
        if answer.code not in TRY_AGAIN:
            break
        await asyncio.sleep(AGAIN_S)  # on a busy machine the log's pages are not written fast enough
    if answer.code != ResponseCode.SUCCESS:
        raise SystemExit(f"{topic}: {answer.code} {answer.remark}")


def _delete_local_files(broker: BrokerUnderTest, topics: list[str], *, filler_bytes: int) -> dict[str, int]:
    """Write to another topic until everything of these is cold alone; where each ends."""
    deadline = time.monotonic() + WAIT_MS / 1000
    wanted = set(topics)
    while True:
        rows = [
            row
            for row in broker.ask(PrivateRequestCode.TIER_STATUS, timeout_ms=WAIT_MS)["topics"]
            if row["topic"] in wanted
        ]
        queues = [queue for row in rows for queue in row["queues"] if queue["localEnd"]]
        if len(rows) == len(wanted) and all(queue["localMin"] >= queue["coldEnd"] > 0 for queue in queues):
            return {row["topic"]: row["queues"][0]["coldEnd"] for row in rows}
        if time.monotonic() > deadline:
            raise SystemExit("local files were not deleted in time")
        asyncio.run(_fill(broker.address, ["Filler"], body_bytes=1024, raw_bytes=filler_bytes))
        broker.ask(PrivateRequestCode.TIER_SEAL, timeout_ms=WAIT_MS)
        time.sleep(1.0)


# -- reading -----------------------------------------------------------------------------------------------------------


async def _read_all(
    address: str, ends: dict[str, int], progress: Progress, all_read: Memory, half_read: Memory
) -> None:
    """All readers at once; half of them leave half way."""
    watching = asyncio.create_task(asyncio.to_thread(all_read.watch))
    readers = {topic: asyncio.create_task(_read(address, topic, end, progress)) for topic, end in ends.items()}
    message_count = sum(ends.values())
    while progress.messages < message_count // 2:
        await asyncio.sleep(SAMPLE_S)
        if all(task.done() for task in readers.values()):
            break
    all_read.stop()
    await watching
    leaving = list(readers)[::2]
    for topic in leaving:
        readers.pop(topic).cancel()
    watching = asyncio.create_task(asyncio.to_thread(half_read.watch))
    await asyncio.gather(*readers.values())
    half_read.stop()
    await watching


async def _read(address: str, topic: str, end: int, progress: Progress) -> None:
    """Pull one queue from its first offset to its end, and see that nothing is left out."""
    connection = await ClientConnection.open(address)
    offset = 0
    try:
        while offset < end:
            header = PullMessageRequestHeader(
                consumer_group=f"{topic}-reader",
                topic=topic,
                queue_id=0,
                queue_offset=QueueOffset(offset),
                max_msg_nums=PULL_COUNT,
                sys_flag=SUBSCRIPTION_BIT,
                subscription="*",
                expression_type="TAG",
            )
            answer = await connection.call(
                RemotingCommand.request(RequestCode.PULL_MESSAGE, header), timeout_ms=TIMEOUT_MS
            )
            if answer.code in TRY_AGAIN:
                progress.asked_again += 1
                await asyncio.sleep(AGAIN_S)
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise SystemExit(f"{topic} at {offset}: {answer.code} {answer.remark}")
            offset = _check(topic, answer.body, offset, progress)
            assert answer.header(PullMessageResponseHeader).next_begin_offset == offset
    finally:
        connection.close()


def _check(topic: str, body: bytes | memoryview, offset: int, progress: Progress) -> int:
    """See that the records are the next ones; the offset behind them."""
    position = 0
    while position < len(body):
        found = LONG.unpack_from(body, position + POSITION_QUEUE_OFFSET)[0]
        if found != offset:
            raise SystemExit(f"{topic}: offset {found} in the place of {offset}")
        position += INT.unpack_from(body, position + POSITION_SIZE)[0]
        offset += 1
        progress.messages += 1
    progress.size_bytes += len(body)
    return offset


def _watched(memory: Memory, work: Any) -> None:
    thread = threading.Thread(target=memory.watch)
    thread.start()
    work()
    memory.stop()
    thread.join()


def _report(options: argparse.Namespace, outcome: Outcome) -> int:
    progress, seconds = outcome.progress, outcome.seconds
    print(
        f"{options.topics} readers of {options.topics} topics, {options.mib} MiB raw each, bodies of {options.body} B,"
        f" {options.server}, {os.cpu_count()} cores"
    )
    print(f"{'tier process, MB':>28} {'resident':>9} {'anonymous':>10}")
    for name, memory in (
        ("idle", outcome.idle),
        ("all read", outcome.all_read),
        ("half have left", outcome.half_read),
    ):
        print(f"{name:>28} {max(memory.resident, default=0):>9.0f} {max(memory.anonymous, default=0):>10.0f}")
    print(
        f"read {progress.size_bytes / 1e6:.0f} MB raw in {seconds:.1f} s,"
        f" {progress.size_bytes / seconds / 1e6:.1f} MB/s; asked again {progress.asked_again} times"
    )
    return show_verdicts([Verdict("resident memory of the tier process", outcome.resident_mb, MEMORY_MB_WANTED, "MB")])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LocalStackError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
