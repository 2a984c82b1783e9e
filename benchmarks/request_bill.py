"""Question: what does the cold tier ask of the object store for a GiB of messages, however many topics they are of?

Workload: `--topics` topics of `--queues` queues get 1 MiB/s in all, in messages of 1 KiB that do not compress; few
topics get much, most get little (weights 1 / (rank + 10), so that eight of 2 000 get 1 % or more). The clock is moved
to when the loop of the tier service would run its next round, and by what the round takes here: in real time, or with
`--cpu` in processor time, for a machine with other work on it. A hot tier is simulated (`synthetic_hot_tier.py`);
everything from the seal backlog to the object store, and what saves the broker's state, is the real part. `--classes`
spreads the topics over so many TTL classes, the second of which has ten minutes.

Judged, of `--gib` GiB: PUTs a GiB by kind; the greatest age of a message when it was committed; how often a record was
written, and what merges wrote; of each topic with 1 % or more of the bytes, read back as a consumer group reads it,
the sizes of the ranges that it asks for and bytes read for each byte stored. `--all` does this for 2 000 topics of 8
queues, 1 of 8, 2 500 of 8, and 2 000 in three TTL classes, and compares them.

`--days`: ledger, catalog and checkpoints of that many days at the same rate, with packs and merges of which only the
entries are made, not the records (`synthetic_packs.py`): the largest entry, bytes of checkpoints against bytes of
messages, and the memory of the process.

`--counts` does it for 1, 100 and 10 000 topics of 8 queues, and wants at most 40 PUTs a GiB of all objects of each;
where it is more, it is printed what they are of.

Exit status 1 when something that is wanted is missed (`bill_verdicts.py`).

    python -m benchmarks.request_bill [--topics 2000] [--queues 8] [--classes 1] [--gib 4] [--all] [--counts] [--days 0]
                                      [--cpu]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from benchmarks.bill import GIB, KIB, MIB, WORKS, Bill, KindMeter, TopicRead
from benchmarks.bill_verdicts import ALL_MAX, verdicts_of, verdicts_of_classes, verdicts_of_days, verdicts_of_shapes
from benchmarks.memory_watch import MemoryWatch
from benchmarks.synthetic_cold_tier import SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from benchmarks.synthetic_packs import run_days
from benchmarks.synthetic_state import SyntheticState
from benchmarks.verdicts import show_verdicts
from thermocline.remoting.offsets import QueueOffset
from thermocline.store.files import RealDisk
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog, stored_by_topic
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.reading import ColdPull, ColdPullStatus, ColdReader, FrameCache
from thermocline.tiered.stores.file import FileObjectStore

BODY_BYTES = 880
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SHORT_LIFE_MS = 10 * MINUTE_MS
GRACE_MS = 10 * MINUTE_MS
LARGE_PART = 0.01
COUNTS = ((1, 8, 1), (100, 8, 1), (10_000, 8, 1))
SHAPES = ((2_000, 8, 1), (1, 8, 1), (2_500, 8, 1), (2_000, 8, 3))
"""Topics, queues and TTL classes of each; the last is compared with the first."""


class Sealed:
    """How many records came into the catalog but by merges, and how many packs left it by TTL."""

    def __init__(self, meter: KindMeter) -> None:
        self._meter = meter
        self._counted: set[str] = set()
        self._packs: set[str] = set()
        self.records = 0
        self.expired_packs = 0

    def committed(self, catalog: Catalog, topics: frozenset[str]) -> None:
        """See TierService."""
        records = {pack.pack_id: pack.record_count for pack in catalog.packs.values()}
        for topic in topics:
            entry = catalog.topics.get(topic)
            records |= {each.segment_id: each.record_count for each in (entry.segments if entry is not None else ())}
        if not self._meter.work:
            self.records += sum(count for name, count in records.items() if name not in self._counted)
            self.expired_packs += len(self._packs - catalog.packs.keys())
        self._counted |= records.keys()
        self._packs = set(catalog.packs)


class Traffic:
    """Sends by weight, moves the clock, and runs rounds. `put_ms`: what a PUT of a round takes on the clock; None: as
    long as the round takes here, by `timer`."""

    def __init__(
        self,
        tier: SyntheticColdTier,
        meter: KindMeter,
        state: SyntheticState,
        *,
        queues: int,
        rate_bytes: int,
        seed: int,
        put_ms: int | None,
        timer: Callable[[], float],
    ) -> None:
        self._tier = tier
        self._meter = meter
        self._state = state
        self._queues = queues
        self._rate_bytes = rate_bytes
        self._random = Random(seed)
        self._put_ms = put_ms
        self._timer = timer
        self._names = list(tier.topics)
        self._weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(self._names))))
        self._start_ms = tier.hot.now_ms
        self._start_offset = tier.hot.append_offset
        self.oldest_ms = 0
        self.longest_round_s = 0.0
        self.sent_count = 0
        self.topic_bytes: Counter[str] = Counter()

    async def run(self, size_bytes: int) -> None:
        """Send so much, and let all that is due happen meanwhile."""
        tier, hot = self._tier, self._tier.hot
        while hot.append_offset < self._start_offset + size_bytes:
            hot.now_ms += tier.service.pause_ms()
            self._send()
            await self._round()

    def _send(self) -> None:
        """What has come in until now, each message with the time at which it did."""
        hot, now_ms = self._tier.hot, self._tier.hot.now_ms
        while True:
            sent_bytes = hot.append_offset - self._start_offset
            hot.now_ms = self._start_ms + sent_bytes * 1_000 // self._rate_bytes
            if hot.now_ms > now_ms:
                break
            (name,) = self._random.choices(self._names, cum_weights=self._weights)
            queue_id = self._random.randrange(self._queues)
            self.topic_bytes[name] += len(hot.append(name, queue_id, body_bytes=BODY_BYTES))
            self._tier.changed.add((name, queue_id))
            self.sent_count += 1
        hot.now_ms = now_ms

    async def _round(self) -> None:
        tier, hot, meter = self._tier, self._tier.hot, self._meter
        tier.report(only_changed=True)
        tier.service.backlog.account()
        waiting = [topic.first_waiting_ms for topic in tier.service.backlog.topics.values()]
        oldest_ms = min((first_ms for first_ms in waiting if first_ms is not None), default=hot.now_ms)
        await self._run_once()
        self.oldest_ms = max(self.oldest_ms, hot.now_ms - oldest_ms)
        meter.work = "merge "
        await tier.merge_all()
        meter.work = "index "
        await tier.index_beside()
        meter.work = ""
        await self._state.save_due()
        tier.service.backlog.account()
        hot.forget_before(tier.service.backlog.committed_offset())

    async def _run_once(self) -> None:
        """A round, the clock moved by what it takes whenever the store has answered, and at its end."""
        hot, meter = self._tier.hot, self._meter
        start_ms, began, puts_before = hot.now_ms, self._timer(), meter.puts.total()

        def move() -> None:
            if self._put_ms is not None:
                elapsed_ms = self._put_ms * (meter.puts.total() - puts_before)
            else:
                elapsed_ms = int(1_000 * (self._timer() - began))
            hot.now_ms = start_ms + elapsed_ms

        meter.called = move
        await self._tier.service.run_once()
        move()
        meter.called = lambda: None
        self.longest_round_s = max(self.longest_round_s, (hot.now_ms - start_ms) / 1_000)


async def measure(
    store: ObjectStore,
    *,
    topics: int,
    queues: int,
    classes: int,
    size_bytes: int,
    folder: Path,
    rate_bytes: int = MIB,
    config: TierConfig | None = None,
    seed: int = 1,
    put_ms: int | None = None,
    timer: Callable[[], float] = time.perf_counter,
) -> Bill:
    """One workload. State files and spools lie in `folder`. `put_ms`, `timer`: see Traffic."""
    meter, hot = KindMeter(store), SyntheticHotTier(seed=seed)
    chosen = config or TierConfig(cold_url="memory://bill", grace_ms=GRACE_MS, cache_bytes=64 * MIB)
    ttls_ms = [None, SHORT_LIFE_MS, *(HOUR_MS * 2**number for number in range(1, classes))][:classes]
    reported = {f"topic-{number:05}": SyntheticTopic(ttl_ms=ttls_ms[number % classes]) for number in range(topics)}
    bill, sealed = Bill(topics, queues, classes, size_bytes / GIB, expires=classes > 1), Sealed(meter)
    spool_folder = folder / "spool"
    spool_folder.mkdir()
    async with opened(
        meter, chosen, hot=hot, topics=reported, spool_folder=spool_folder, on_committed=sealed.committed, joins=True
    ) as tier:
        state = SyntheticState(tier, folder / "store", queues=queues, interval_ms=chosen.state_interval_ms)
        traffic = Traffic(
            tier, meter, state, queues=queues, rate_bytes=rate_bytes, seed=seed, put_ms=put_ms, timer=timer
        )
        await traffic.run(size_bytes)
        bill.puts_per_gib = {kind: count * GIB / size_bytes for kind, count in sorted(meter.puts.items())}
        bill.oldest_ms, bill.longest_round_s = traffic.oldest_ms, traffic.longest_round_s
        bill.packs_per_topic_max = max((len(each.packs) for each in tier.catalog.packed.values()), default=0)
        bill.largest_entry_bytes = max(meter.largest[f"{work}ledger"] for work in WORKS)
        bill.largest_state_bytes = meter.largest["state"]
        bill.checkpoint_part = sum(meter.put_bytes[f"{work}checkpoints"] for work in WORKS) / size_bytes
        bill.merged_part = sum(meter.put_bytes[f"merge {kind}"] for kind in ("packs", "segments")) / size_bytes
        waiting = sum(
            queue.end_offset - queue.first_waiting_offset
            for topic in tier.service.backlog.topics.values()
            for queue in topic.queues.values()
        )
        bill.sealed_per_record = sealed.records / (traffic.sent_count - waiting)
        bill.expired_packs = sealed.expired_packs
        total = traffic.topic_bytes.total()
        large = [name for name, count in traffic.topic_bytes.items() if count >= LARGE_PART * total]
        bill.reads = await _read_back(tier, meter, large, queues)
    return bill


async def _read_back(
    tier: SyntheticColdTier, meter: KindMeter, topics: Sequence[str], queues: int
) -> dict[str, TopicRead]:
    """Read topics as a group of consumers does: one pull of each queue after the other."""
    stored, reads = stored_by_topic(tier.catalog), dict[str, TopicRead]()
    for topic in topics:
        meter.ranges.clear()
        cache = FrameCache(bytes_max=256 * MIB)
        reader = ColdReader(meter, catalog=lambda: tier.catalog, cache=cache, read_ahead_frames_max=8)
        record_bytes = await _read_topic(reader, topic, queues)
        await reader.close()
        await cache.close()
        if record_bytes:
            footer_starts = {pack.key: pack.footer_start for pack in tier.catalog.packs.values()}
            footer_starts |= {each.log.key: each.log.footer_start for each in tier.catalog.topics[topic].segments}
            reads[topic] = TopicRead.of(
                meter.ranges, footer_starts=footer_starts, stored_bytes=stored[topic].stored_bytes
            )
    return reads


async def _read_topic(reader: ColdReader, topic: str, queues: int) -> int:
    """All queues from their first offsets to their ends; bytes of records."""
    offsets, record_bytes = dict.fromkeys(range(queues), 0), 0
    while offsets:
        for queue_id in list(offsets):
            pull = ColdPull(
                topic=topic,
                queue_id=queue_id,
                offset=QueueOffset(offsets[queue_id]),
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
    return record_bytes


def _measured(options: argparse.Namespace, *, topics: int, queues: int, classes: int) -> Bill:
    """Run one workload on disk; its requests are printed."""
    with tempfile.TemporaryDirectory(prefix="bill-", dir=options.folder) as name, MemoryWatch() as memory:
        bill = asyncio.run(
            measure(
                FileObjectStore(f"{name}/objects", disk=RealDisk()),
                topics=topics,
                queues=queues,
                classes=classes,
                size_bytes=int(options.gib * GIB),
                folder=Path(name),
                timer=time.process_time if options.cpu else time.perf_counter,
            )
        )
    print(bill)
    print(
        f"  memory of this process, messages that wait and what the reading back keeps included: at most"
        f" {memory.anonymous_kib / 1024:.0f} MiB, with mapped files {memory.resident_kib / 1024:.0f} MiB",
        flush=True,
    )
    return bill


def _days(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="bill-", dir=options.folder) as name, MemoryWatch() as memory:
        store = FileObjectStore(f"{name}/objects", disk=RealDisk())
        figures = asyncio.run(
            run_days(store, topics=options.topics, queues=options.queues, days=options.days, memory=memory)
        )
    print(json.dumps(figures, indent=1))
    return show_verdicts(verdicts_of_days(figures, resident_mb=memory.resident_kib * 1024 / 1e6))


def _counts(options: argparse.Namespace) -> int:
    status = 0
    for topics, queues, classes in COUNTS:
        bill = _measured(options, topics=topics, queues=queues, classes=classes)
        status |= show_verdicts(verdicts_of(bill))
        if bill.all_puts > ALL_MAX:
            print(f"  stands in the way of {ALL_MAX:.0f} PUTs a GiB: {bill.by_kind}", flush=True)
    return status


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and judge; 1 when something is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--classes", type=int, default=1)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--all", action="store_true", help="four shapes, compared")
    parser.add_argument("--counts", action="store_true", help="1, 100 and 10 000 topics")
    parser.add_argument("--days", type=float, default=0.0)
    parser.add_argument(
        "--cpu", action="store_true", help="a round takes its processor time, on a machine that is busy"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where objects and spools lie meanwhile")
    options = parser.parse_args(arguments)
    if options.days:
        return _days(options)
    if options.counts:
        return _counts(options)
    if not options.all:
        bill = _measured(options, topics=options.topics, queues=options.queues, classes=options.classes)
        return show_verdicts(verdicts_of(bill))
    bills, status = [], 0
    for topics, queues, classes in SHAPES:
        bills.append(_measured(options, topics=topics, queues=queues, classes=classes))
        status |= show_verdicts(verdicts_of(bills[-1]))
    *shapes, several = bills
    return status | show_verdicts([*verdicts_of_shapes(shapes), *verdicts_of_classes(shapes[0], several)])


if __name__ == "__main__":
    sys.exit(main())
