"""Question: how long does a broker need to come back from a bucket with 100 000 segments?

Workload: the ledger of one broker, made by its own writer: `--segments` segments of `--topics` topics with 8 queues,
each segment with a run of every queue and the frame table of 128 MiB (what a catalog holds of it), in commits of 200;
a state snapshot with as many topics and `--groups` groups with an offset of every queue; one real segment, so that
there is something to read. All on a cold tier of files, or on `--url`.

Then, `--rounds` times, an empty disk and `thermocline broker --recover-from`. Reported: seconds until the broker is
ready; until the first message of history is read, from then; resident memory of the hot and the tier process at that
time, and the anonymous part of it; processor seconds of the broker until then, and how many cores others used
meanwhile: where that is much, the seconds say more of them than of the broker.

Wanted, of the median round: ready after at most 60 s for 100 000 segments, in proportion for more or fewer but not
below 10 s, as much of that is not of segments; the first message within 1 s after; the tier process under 400 MB
resident. Exit status 1 when one is missed.

    python -m benchmarks.recovery [--segments 100000] [--topics 1000] [--groups 5] [--rounds 3] [--url URL]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.verdicts import Verdict, show_verdicts
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.catalog import LedgerChanges
from thermocline.tiered.ledger import LedgerIdentity, LedgerWriter
from thermocline.tiered.objects import SegmentOffset
from thermocline.tiered.packs import upload_segment
from thermocline.tiered.segments import (
    BrokerKeys,
    CoarseFrame,
    CoarseRows,
    PartLocator,
    QueueRun,
    RunRows,
    SegmentEntry,
    SegmentOptions,
    SegmentWriter,
)
from thermocline.tiered.state import CONSUMER_OFFSETS, GROUPS, TOPICS, QueueEnd, StateLog, StateSnapshot, TopicState
from thermocline.tiered.stores import open_object_store

CLUSTER, BROKER = "DefaultCluster", "broker-a"
KEYS = BrokerKeys.of(cluster=CLUSTER, broker_name=BROKER)
QUEUES = 8
MESSAGES_PER_RUN = 16_384
SEGMENT_BYTES = 128 << 20
COARSE_FRAMES = 16
SEGMENTS_PER_COMMIT = 200
PULL_TIMEOUT_MS = 20_000
RECORDS = 32

SEGMENTS_WANTED = 100_000
READY_S_MAX = 60.0
READY_S_MIN = 10.0
FIRST_READ_S_MAX = 1.0
FIRST_READ_WAIT_S = 1_200.0
TIER_MB_MAX = 400.0


def topic_name(number: int) -> str:
    """Name of a topic."""
    return f"Recovered{number:05d}"


def make_entry(writer: LedgerWriter, topic: str, number: int) -> SegmentEntry:
    """The catalog's entry of the topic's segment `number`, whose objects are never read."""
    segment_id = writer.next_segment_id()
    keys = KEYS.segment(topic, segment_id)
    time_ms = 1_790_000_000_000 + number * 60_000
    start = number * MESSAGES_PER_RUN
    places = [number * SEGMENT_BYTES + queue_id * (SEGMENT_BYTES // QUEUES) for queue_id in range(QUEUES)]
    runs = tuple(
        QueueRun(
            queue_id,
            QueueOffset(start),
            QueueOffset(start + MESSAGES_PER_RUN),
            time_ms,
            time_ms + 60_000,
            queue_id * COARSE_FRAMES,
            (queue_id + 1) * COARSE_FRAMES,
            PhysicalOffset(places[queue_id]),
            PhysicalOffset(places[queue_id] + SEGMENT_BYTES // QUEUES),
        )
        for queue_id in range(QUEUES)
    )
    coarse = tuple(
        CoarseFrame(frame, QueueOffset(start + frame * 1_024), frame << 20, frame << 20, time_ms)
        for frame in range(COARSE_FRAMES)
    )
    return SegmentEntry(
        segment_id=str(segment_id),
        topic=topic,
        incarnation=1,
        log=PartLocator(
            keys[0], SegmentOffset(0), SegmentOffset(SEGMENT_BYTES // 3), SegmentOffset(SEGMENT_BYTES // 3 - 4_096), 1
        ),
        cq=PartLocator(keys[1], SegmentOffset(0), SegmentOffset(1 << 20), SegmentOffset((1 << 20) - 512), 2),
        idx=PartLocator(keys[2], SegmentOffset(0), SegmentOffset(1 << 20), SegmentOffset((1 << 20) - 512), 3),
        runs=RunRows.of(runs),
        coarse=CoarseRows.of(coarse),
        record_count=QUEUES * MESSAGES_PER_RUN,
        raw_bytes=SEGMENT_BYTES,
        key_count=QUEUES * MESSAGES_PER_RUN,
        bloom_page_bytes=4_096,
        bloom_page_count=40,
        created_ms=time_ms,
    )


async def real_segment(writer: LedgerWriter, topic: str) -> SegmentEntry:
    """A segment of a few messages, which are there."""
    segment = SegmentWriter(
        segment_id=writer.next_segment_id(), topic=topic, incarnation=1, folder=None, options=SegmentOptions()
    )
    position, records = 0, []
    for offset in range(RECORDS):
        record = encode_record(
            topic=topic,
            queue_id=0,
            queue_offset=QueueOffset(offset),
            physical_offset=PhysicalOffset(position),
            body=b"b" * 1_000,
            properties_text=b"",
            born_timestamp_ms=1_790_000_000_000,
            born_host=("127.0.0.1", 1),
            store_timestamp_ms=1_790_000_000_000,
            store_host=("127.0.0.1", 1),
        )
        records.append(memoryview(record))
        position += len(record)
    segment.append(0, QueueOffset(0), iter(records), [0] * RECORDS)
    with segment.finish() as finished:
        return await upload_segment(writer.store, KEYS, finished, created_ms=1)


async def fill(url: str, *, segments: int, topics: int, groups: int) -> None:
    """Make the bucket of a broker with a long history."""
    store = await open_object_store(url)
    writer = await LedgerWriter.open(
        store,
        KEYS,
        identity=LedgerIdentity(store_uuid="benchmark", cluster=CLUSTER, broker_name=BROKER),
        clock_ms=lambda: time.time_ns() // 1_000_000,
        random=random.Random(),
    )
    await writer.commit(LedgerChanges(segments_in=(await real_segment(writer, "First"),)))
    per_topic = -(-segments // topics)
    numbered = [(topic_name(number % topics), number // topics) for number in range(segments)]
    for start in range(0, segments, SEGMENTS_PER_COMMIT):
        batch = [make_entry(writer, topic, number) for topic, number in numbered[start : start + SEGMENTS_PER_COMMIT]]
        await writer.commit(LedgerChanges(segments_in=tuple(batch)))
    await writer.write_checkpoint()
    names = [topic_name(number) for number in range(topics)]
    end = per_topic * MESSAGES_PER_RUN + 1_000
    await save_state(writer, names=["First", *names], end=end, log_offset=segments * SEGMENT_BYTES, groups=groups)
    await writer.close()
    await store.close()


async def save_state(writer: LedgerWriter, *, names: Sequence[str], end: int, log_offset: int, groups: int) -> None:
    """Save what a broker with these topics is besides its messages; all queues but those of the first one end at
    `end`, half of which each group has consumed."""
    first, *others = names
    log = StateLog(writer)
    name = log.next_name()
    config = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    ends = tuple(QueueEnd(queue_id, QueueOffset(end)) for queue_id in range(QUEUES))
    await log.write(
        StateSnapshot(
            format=1,
            epoch=name.epoch,
            sequence=name.sequence,
            store_uuid="benchmark",
            cluster=CLUSTER,
            broker_name=BROKER,
            captured_ms=time.time_ns() // 1_000_000,
            log_offset=PhysicalOffset(log_offset),
            log_ceiling=PhysicalOffset(log_offset + (1 << 40)),
            record_bytes_min=91,
            last_incarnation=len(others),
            topics=(
                TopicState(topic=first, incarnation=1, ends=(QueueEnd(0, writer.catalog.queue_ends(first)[0]),)),
                *(TopicState(topic=topic, incarnation=1, ends=ends) for topic in others),
            ),
            documents={
                TOPICS: {"topicConfigTable": {topic: {"topicName": topic, **config} for topic in names}},
                GROUPS: {
                    "subscriptionGroupTable": {
                        f"group{group}": {"groupName": f"group{group}"} for group in range(groups)
                    }
                },
                CONSUMER_OFFSETS: {
                    "offsetTable": {
                        f"{topic}@group{group}": {str(queue_id): end // 2 for queue_id in range(QUEUES)}
                        for topic in others
                        for group in range(groups)
                    }
                },
            },
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """Of one process, in MB."""

    resident_mb: float
    anonymous_mb: float

    @classmethod
    def of(cls, pid: int) -> ProcessMemory:
        """As it is now."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        resident, anonymous = (int(lines[name].split()[0]) * 1_024 / 1e6 for name in ("VmRSS", "RssAnon"))
        return cls(resident_mb=resident, anonymous_mb=anonymous)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One recovery. `used_s`: processor seconds of all its processes; `others`: how many cores others used."""

    ready_s: float
    first_read_s: float
    hot: ProcessMemory
    tier: ProcessMemory
    used_s: float
    others: float


def busy_s() -> float:
    """Processor seconds that all cores have worked."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def used_s(pid: int) -> float:
    """Processor seconds of a process and of its children that live or were waited for."""
    total = 0.0
    for each in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedBroker:
    """A broker that is ready. `started_s`: when it was started, by the monotonic clock."""

    pid: int
    address: str
    started_s: float
    ready_s: float

    @property
    def tier_pid(self) -> int:
        """Its tier process."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(next(pid for pid in children if b"tier_process" in Path(f"/proc/{pid}/cmdline").read_bytes()))

    async def read_first(self, connection: ClientConnection) -> float:
        """Read the first message of history; seconds since the broker was ready."""
        header = PullMessageRequestHeader(
            consumer_group="benchmark",
            topic="First",
            queue_id=0,
            queue_offset=QueueOffset(0),
            max_msg_nums=RECORDS,
            sys_flag=4,
            subscription="*",
        )
        while True:
            command = RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=encode_header(header))
            response = await connection.call(command, timeout_ms=PULL_TIMEOUT_MS)
            waited_s = time.monotonic() - self.started_s - self.ready_s
            if response.code == ResponseCode.SUCCESS:
                return waited_s
            if waited_s > FIRST_READ_WAIT_S:
                raise SystemExit(f"history is not read: {response.code} {response.remark}")
            await asyncio.sleep(0.01)


@asynccontextmanager
async def started_broker(store: Path, *options: str) -> AsyncIterator[StartedBroker]:
    """Start `thermocline broker` on a store; it is killed at the end."""
    started_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "thermocline.cli", "broker", "--data", str(store), *options),
        *("--listen", "127.0.0.1:0", "--log-level", "WARNING"),
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        while not (line := (await process.stdout.readline()).decode()).startswith("ready "):
            assert line, "the broker did not start"
        yield StartedBroker(
            pid=process.pid,
            address=dict(part.split("=", 1) for part in line.split()[1:])["broker"],
            started_s=started_s,
            ready_s=time.monotonic() - started_s,
        )
    finally:
        process.kill()
        await process.wait()


async def recover(url: str, folder: Path) -> Outcome:
    """Recover onto an empty disk, and read the first message of history."""
    busy_before_s = busy_s()
    async with started_broker(folder / "store", "--recover-from", url) as broker:
        connection = await ClientConnection.open(broker.address)
        first_read_s = await broker.read_first(connection)
        connection.close()
        own_s = used_s(broker.pid)
        others_s = busy_s() - busy_before_s - own_s
        return Outcome(
            ready_s=broker.ready_s,
            first_read_s=first_read_s,
            hot=ProcessMemory.of(broker.pid),
            tier=ProcessMemory.of(broker.tier_pid),
            used_s=own_s,
            others=max(0.0, others_s) / (broker.ready_s + first_read_s),
        )


def verdicts_of(outcomes: Sequence[Outcome], *, segments: int) -> list[Verdict]:
    """See the module's header."""
    ready_s_max = max(READY_S_MIN, READY_S_MAX * segments / SEGMENTS_WANTED)
    return [
        Verdict(
            f"until ready, {segments} segments",
            statistics.median(each.ready_s for each in outcomes),
            ready_s_max,
            "s",
        ),
        Verdict(
            "first message of history, from then",
            statistics.median(each.first_read_s for each in outcomes),
            FIRST_READ_S_MAX,
            "s",
        ),
        Verdict(
            "resident memory of the tier process",
            max(each.tier.resident_mb for each in outcomes),
            TIER_MB_MAX,
            "MB",
        ),
    ]


async def run(arguments: argparse.Namespace) -> int:
    """Fill the bucket, then recover again and again; the exit status."""
    with tempfile.TemporaryDirectory(prefix="recovery-", dir=arguments.folder) as directory:
        folder = Path(directory)
        url = arguments.url or (folder / "cold").as_uri()
        started = time.monotonic()
        if not arguments.filled:
            await fill(url, segments=arguments.segments, topics=arguments.topics, groups=arguments.groups)
        print(f"made segments={arguments.segments} topics={arguments.topics} seconds={time.monotonic() - started:.1f}")
        outcomes: list[Outcome] = []
        for number in range(arguments.rounds):
            outcome = await recover(url, folder)
            shutil.rmtree(folder / "store")
            outcomes.append(outcome)
            print(
                f"round={number} ready_s={outcome.ready_s:.1f} first_read_s={outcome.first_read_s:.2f}"
                f" hot_mb={outcome.hot.resident_mb:.0f} anonymous={outcome.hot.anonymous_mb:.0f}"
                f" tier_mb={outcome.tier.resident_mb:.0f} anonymous={outcome.tier.anonymous_mb:.0f}"
                f" used_s={outcome.used_s:.1f} other_work={outcome.others:.2f} cores",
                flush=True,
            )
        print(
            f"worst ready_s={max(outcome.ready_s for outcome in outcomes):.1f}"
            f" first_read_s={max(outcome.first_read_s for outcome in outcomes):.2f}"
        )
        return show_verdicts(verdicts_of(outcomes, segments=arguments.segments))


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and judge; 1 when something is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="a cold tier that is empty; default: a folder")
    parser.add_argument("--filled", action="store_true", help="an earlier run has filled that of --url")
    parser.add_argument("--folder", type=Path, help="where bucket and stores lie (default: the temporary directory)")
    return asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
