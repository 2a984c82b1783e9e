"""Question: what does the cold tier ask of the object store for a GiB of messages, however many topics they are of?

Workload: `--topics` topics of `--queues` queues get 1 MiB/s in all, in messages of 1 KiB that do not compress; few
topics get much, most get little (weights 1 / (rank + 10), so that eight of 2 000 get 1 % or more). The clock is moved
two seconds at a time and a round of the tier service run, as its loop would; a hot tier is simulated
(`synthetic_hot_tier.py`), everything from the seal backlog to the object store is the real part. `--classes` spreads
the topics over so many TTL classes. A state snapshot is counted as often as a broker makes one while messages come in.

Reported, of `--gib` GiB: PUTs a GiB by kind; the greatest age of a message that was not committed, by the clock, and
the longest real time of a round, which comes on top of it; of the topics with 1 % or more of the bytes, read back as a
consumer group reads them, bytes a GET and bytes read for each byte there.

`--days`: ledger, catalog and checkpoints of that many days at the same rate, with packs and merges of which only the
entries are made, not the records (`synthetic_packs.py`): the largest entry, bytes of checkpoints against bytes of
messages, and the memory of the process.

    python -m benchmarks.request_bill [--topics 2000] [--queues 8] [--classes 1] [--gib 4] [--days 0] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.memory_watch import MemoryWatch
from benchmarks.synthetic_cold_tier import KEYS, SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from benchmarks.synthetic_packs import run_days
from thermocline.store.disk import RealDisk
from thermocline.tiered.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.cold_reader import ColdReader
from thermocline.tiered.file import FileObjectStore
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.tier_config import TierConfig
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BODY_BYTES = 880
STEP_MS = 2_000
STATE_MS = TierConfig().state_interval_ms
HOUR_MS = 3_600_000
SEAL_AGE_MS = 115_000
LARGE_PART = 0.01


def kind_of(key: str) -> str:
    """What a PUT was for."""
    if key.startswith(KEYS.packs_prefix):
        return "packs"
    if key.startswith(KEYS.topics_prefix):
        return "segments"
    if key.startswith(KEYS.indexes_prefix):
        return "indexes"
    if key.startswith(KEYS.ledger_prefix):
        return "ledger"
    return "state" if "/state/" in key else "checkpoints"


class KindMeter(WrappingObjectStore):
    """Counts PUTs and their bytes by kind, and GETs with theirs. `work` goes before the kind: it sets merging and
    indexing apart."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.puts: Counter[str] = Counter()
        self.put_bytes: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()
        self.get_sizes: list[int] = []
        self.work = ""

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb in (Verb.PUT, Verb.CREATE_IF_ABSENT):
            kind = self.work + kind_of(call.key)
            self.puts[kind] += 1
            self.put_bytes[kind] += call.sent_bytes
            self.largest[kind] = max(self.largest[kind], call.sent_bytes)
        result = await attempt()
        if call.verb in (Verb.GET, Verb.GET_RANGE) and isinstance(result, bytes):
            self.get_sizes.append(len(result))
        return result


@dataclass(slots=True)
class Bill:
    """What was counted."""

    topics: int
    queues: int
    classes: int
    gib: float
    puts_per_gib: dict[str, float] = field(default_factory=dict)
    oldest_ms: int = 0
    longest_round_s: float = 0.0
    packs_per_topic_max: int = 0
    largest_entry_bytes: int = 0
    checkpoint_part: float = 0.0
    bytes_per_get: float = 0.0
    small_gets_part: float = 0.0
    read_per_byte: float = 0.0
    memory_kib: int = 0

    def sum_of(self, *kinds: str) -> float:
        """PUTs a GiB of some kinds together."""
        return sum(self.puts_per_gib.get(kind, 0.0) for kind in kinds)

    @property
    def data_and_ledger(self) -> float:
        """What sealing asks for."""
        return self.sum_of("packs", "segments", "ledger")

    @property
    def state_and_checkpoints(self) -> float:
        """What recovery asks for."""
        return self.sum_of("state", "checkpoints")

    @property
    def all_puts(self) -> float:
        """Everything, merging and indexing too."""
        return sum(self.puts_per_gib.values())


class Traffic:
    """Sends by weight, moves the clock, and runs rounds."""

    def __init__(self, tier: SyntheticColdTier, meter: KindMeter, *, queues: int, rate_bytes: int, seed: int) -> None:
        self._tier = tier
        self._meter = meter
        self._queues = queues
        self._rate_bytes = rate_bytes
        self._random = Random(seed)
        self._names = list(tier.topics)
        self._weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(self._names))))
        self._next_state_ms = tier.hot.now_ms
        self.oldest_ms = 0
        self.longest_round_s = 0.0
        self.topic_bytes: Counter[str] = Counter()

    async def run(self, size_bytes: int) -> None:
        """Send so much, and let all that is due happen meanwhile."""
        tier, hot = self._tier, self._tier.hot
        end_offset = hot.append_offset + size_bytes
        start_ms, start_offset = hot.now_ms, hot.append_offset
        while hot.append_offset < end_offset:
            hot.now_ms += STEP_MS
            until = start_offset + self._rate_bytes * (hot.now_ms - start_ms) // 1_000
            while hot.append_offset < until:
                (name,) = self._random.choices(self._names, cum_weights=self._weights)
                queue_id = self._random.randrange(self._queues)
                self.topic_bytes[name] += len(hot.append(name, queue_id, body_bytes=BODY_BYTES))
                tier.changed.add((name, queue_id))
            await self._round()

    async def _round(self) -> None:
        tier, hot, meter = self._tier, self._tier.hot, self._meter
        tier.report(only_changed=True)
        tier.service.backlog.account()
        waiting = [topic.first_waiting_ms for topic in tier.service.backlog.topics.values()]
        oldest_ms = min((first_ms for first_ms in waiting if first_ms is not None), default=hot.now_ms)
        self.oldest_ms = max(self.oldest_ms, hot.now_ms - oldest_ms)
        began = time.perf_counter()
        await tier.service.run_once()
        self.longest_round_s = max(self.longest_round_s, time.perf_counter() - began)
        meter.work = "merge "
        await tier.merge_all()
        meter.work = "index "
        await tier.index_all()
        meter.work = ""
        if hot.now_ms >= self._next_state_ms:
            self._next_state_ms = hot.now_ms + STATE_MS
            await tier.writer.store.put(f"{KEYS.root}/state/0000000001-{hot.now_ms:010}.json", b"{}" * 1024)
        tier.service.backlog.account()
        hot.forget_before(tier.service.backlog.committed_offset())


async def measure(
    store: ObjectStore,
    *,
    topics: int,
    queues: int,
    classes: int,
    size_bytes: int,
    rate_bytes: int = MIB,
    config: TierConfig | None = None,
    spool_folder: Path | None = None,
    seed: int = 1,
    memory: MemoryWatch | None = None,
) -> Bill:
    """One workload."""
    meter, hot = KindMeter(store), SyntheticHotTier(seed=seed)
    chosen = config or TierConfig(
        cold_url="memory://bill", seal_age_ms=SEAL_AGE_MS, grace_ms=600_000, cache_bytes=64 * MIB
    )
    lives = [None if number == 0 else 24 * HOUR_MS * 2**number for number in range(classes)]
    reported = {f"topic-{number:05}": SyntheticTopic(ttl_ms=lives[number % classes]) for number in range(topics)}
    bill = Bill(topics, queues, classes, size_bytes / GIB)
    async with opened(meter, chosen, hot=hot, topics=reported, spool_folder=spool_folder) as tier:
        traffic = Traffic(tier, meter, queues=queues, rate_bytes=rate_bytes, seed=seed)
        await traffic.run(size_bytes)
        bill.puts_per_gib = {kind: count * GIB / size_bytes for kind, count in sorted(meter.puts.items())}
        bill.memory_kib = memory.anonymous_kib if memory is not None else 0
        bill.oldest_ms, bill.longest_round_s = traffic.oldest_ms, traffic.longest_round_s
        bill.packs_per_topic_max = max((len(each.packs) for each in tier.catalog.packed.values()), default=0)
        bill.largest_entry_bytes = max(meter.largest[f"{work}ledger"] for work in ("", "merge ", "index "))
        checkpoint_bytes = sum(meter.put_bytes[f"{work}checkpoints"] for work in ("", "merge ", "index "))
        bill.checkpoint_part = checkpoint_bytes / size_bytes
        total = traffic.topic_bytes.total()
        large = [name for name, count in traffic.topic_bytes.items() if count >= LARGE_PART * total]
        await _read_back(bill, tier, meter, large, queues)
    return bill


async def _read_back(bill: Bill, tier: SyntheticColdTier, meter: KindMeter, topics: Sequence[str], queues: int) -> None:
    """Read topics as a group of consumers does: one pull of each queue after the other."""
    cache = FrameCache(bytes_max=256 * MIB)
    reader = ColdReader(meter, catalog=lambda: tier.catalog, cache=cache, read_ahead_frames_max=8)
    meter.get_sizes.clear()
    record_bytes = 0
    for topic in topics:
        offsets = dict.fromkeys(range(queues), 0)
        while offsets:
            for queue_id in list(offsets):
                pull = ColdPull(
                    topic=topic,
                    queue_id=queue_id,
                    offset=offsets[queue_id],
                    count_max=256,
                    bytes_max=256 * KIB,
                    cut_ms=0,
                    group="reader",
                )
                result = await reader.pull(pull)
                record_bytes += result.size_bytes
                if result.status in (ColdPullStatus.ABOVE_END, ColdPullStatus.NO_QUEUE):
                    del offsets[queue_id]
                else:
                    offsets[queue_id] = result.next_offset
    await reader.close()
    await cache.close()
    sizes = meter.get_sizes
    if sizes and record_bytes:
        bill.bytes_per_get = sum(sizes) / len(sizes)
        bill.small_gets_part = sum(size for size in sizes if size < 512 * KIB) / sum(sizes)
        bill.read_per_byte = sum(sizes) / record_bytes


def show(bill: Bill) -> str:
    """The bill for people."""
    parts = ", ".join(f"{kind} {count:.1f}" for kind, count in bill.puts_per_gib.items())
    return (
        f"{bill.topics} topics x {bill.queues} queues, {bill.classes} TTL classes, {bill.gib:.2f} GiB\n"
        f"  PUTs a GiB      {parts}\n"
        f"  data and ledger {bill.data_and_ledger:.1f}; state and checkpoints {bill.state_and_checkpoints:.1f};"
        f" all {bill.all_puts:.1f}\n"
        f"  oldest message outside the bucket {bill.oldest_ms / 1000:.1f} s;"
        f" longest round {bill.longest_round_s:.1f} s\n"
        f"  packs a topic lives in, at most {bill.packs_per_topic_max}; largest ledger entry {bill.largest_entry_bytes}"
        f" bytes; checkpoints {100 * bill.checkpoint_part:.2f} % of the messages\n"
        f"  topics of 1 % or more, read back: {bill.bytes_per_get / KIB:.0f} KiB a GET,"
        f" {100 * bill.small_gets_part:.1f} % of the bytes in GETs below 512 KiB,"
        f" {bill.read_per_byte:.3f} bytes read a byte"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--classes", type=int, default=1)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--days", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, default=None, help="where objects and spools lie meanwhile")
    options = parser.parse_args()
    with MemoryWatch() as memory, tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = FileObjectStore(f"{folder}/objects", disk=RealDisk())
        if options.days:
            days = run_days(store, topics=options.topics, queues=options.queues, days=options.days, memory=memory)
            print(json.dumps(asyncio.run(days), indent=1))
        else:
            spool = Path(folder) / "spool"
            spool.mkdir()
            bill = asyncio.run(
                measure(
                    store,
                    topics=options.topics,
                    queues=options.queues,
                    classes=options.classes,
                    size_bytes=int(options.gib * GIB),
                    spool_folder=spool,
                    memory=memory,
                )
            )
            print(show(bill))
            print(f"  memory before the reading back at most {bill.memory_kib / 1024:.0f} MiB")
    print(
        f"  memory of this process, messages that wait included: at most {memory.anonymous_kib / 1024:.0f} MiB, with"
        f" mapped files {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
