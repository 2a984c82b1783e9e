"""A broker's storage through outages of its bucket: the real parts, in virtual time, on a disk in memory.

    producer -> message store -> (ticks) -> tier service, merging -> objects in memory, behind faults
                             local retention, with the policy for a full disk
    readers   from the first offset on, hot or cold, as the router finds it, again and again

What a daemon does by time is done by tasks here, in the same intervals: flush and report, derived sync, retention, the
tier's rounds with their retries. The bucket goes away and comes back, the tier process and the broker are killed.

    local retention   RETENTION_MS; outages last up to ten times as long
    disk              holds `capacity_files` log files; above nine tenths it is full
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from random import Random

from tests.crash.bucket import KEYS, held_ranges
from tests.simulated_disk import SimulatedDisk
from tests.store.inline_executor import InlineExecutor
from thermocline.broker.cold.cold_reads import ColdBounds
from thermocline.broker.cold.dropped_ranges import DroppedRange, DroppedRanges
from thermocline.broker.tier.drop_oldest import DropOldest
from thermocline.broker.tier_process.tier_work import first_to_end
from thermocline.remoting.errors import ObjectStoreUnavailableError, ServiceUnavailableError
from thermocline.remoting.records.message_record import iterate_records
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import replace_file
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets.tier_config import FullPolicy, TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import QueueHole
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.merging.merge_policy import MergePolicy
from thermocline.tiered.merging.merging import MergeBudget, Merging
from thermocline.tiered.merging.pack_merger import PackMerger
from thermocline.tiered.reading.cold_pull import ColdPull
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.sealing.due_changes import TopicReport
from thermocline.tiered.sealing.local_files import LocalLog, LocalQueues
from thermocline.tiered.sealing.pack_sealer import PackSealer
from thermocline.tiered.sealing.seal_backlog import SealBacklog, SealPolicy
from thermocline.tiered.sealing.sealer import Sealer
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.service.tier_service import TierService
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import (
    Fault,
    FaultInjectingObjectStore,
    MeteringObjectStore,
    OutageWatch,
    OutageWatchingObjectStore,
    RetryingObjectStore,
    RetryPolicy,
    StoreCall,
    Verb,
)

START_MS = 4_000_000_000_000
RETENTION_MS = 20_000
LOG_FILE_BYTES = 16 << 10
QUEUES = 2
TICK_S, RETENTION_S, SYNC_S = 0.5, 1.0, 3.0
GRACE_MS = 30_000
OPEN_RETRY_S = 2.0
REPLAY_SHARE = 0.1
HOST = ("10.0.0.1", 10911)
DROPPED_PATH = "/store/thermocline/droppedRanges.json"

Place = tuple[str, int]
"""Topic and queue id."""


class Bucket:
    """Objects of the bucket, and whether requests reach it."""

    def __init__(self, random: Random) -> None:
        self.objects = MemoryObjectStore()
        self.metered = MeteringObjectStore(self.objects)
        self.is_away = False
        self.lost_answers = 0
        self.fault_share = 0.0
        self._random = random

    def __call__(self, number: int, call: StoreCall) -> Fault:
        """The outcome of a call. The first calls of an outage may be carried out and get no answer."""
        if self.is_away:
            if self.lost_answers and call.verb in (Verb.PUT, Verb.CREATE_IF_ABSENT):
                self.lost_answers -= 1
                return Fault.LOST_ANSWER
            return Fault.UNREACHED
        if self._random.random() < self.fault_share:
            return self._random.choice((Fault.UNREACHED, Fault.LOST_ANSWER))
        return Fault.NONE


class OutageWorld:
    """See the module's header. `async with` runs everything that goes on by time."""

    def __init__(
        self,
        seed: int,
        *,
        policies: dict[str, FullPolicy],
        capacity_files: int,
        config: TierConfig,
        shares: dict[str, float] | None = None,
    ) -> None:
        """`shares`: how much is sent to each topic, against the others."""
        self.random = Random(seed)
        self.shares = shares if shares is not None else dict.fromkeys(policies, 1.0)
        self.policies = policies
        self.capacity_files = capacity_files
        self.config = config
        self.disk = SimulatedDisk()
        self.bucket = Bucket(self.random)
        self.witness: Counter[str] = Counter()
        self.acknowledged: defaultdict[Place, list[bytes]] = defaultdict(list)
        self.read: defaultdict[Place, dict[int, bytes]] = defaultdict(dict)
        self.next_read: Counter[Place] = Counter()
        self.outages: list[int | None] = []
        """When each outage began, and None when it ended."""
        self.is_producing = True
        self._local = StoreConfig(
            root_path="/store",
            log_file_bytes=LOG_FILE_BYTES,
            queue_file_bytes=20 * 64,
            index_slot_count=16,
            index_entry_count=32,
            file_reserved_ms=RETENTION_MS,
            delete_when_hours=(),
        )
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._tier: asyncio.Task[None] | None = None
        self.service: TierService | None = None
        self.reader: ColdReader | None = None
        self.store: MessageStore

    # -- life ----------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The clock of everything."""
        return START_MS + int(asyncio.get_running_loop().time() * 1_000)

    async def __aenter__(self) -> OutageWorld:
        self._open_store()
        loop = asyncio.get_running_loop()
        works = (self._produce(), self._tick(), self._retain(), self._sync(), self._follow())
        self._tasks = [loop.create_task(work) for work in works]
        self.start_tier()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.kill_tier()
        self.store.close()
        failures = [result for result in results if isinstance(result, Exception)]
        if failures and not isinstance(exc_info[1], Exception):
            raise failures[0]

    def start_tier(self) -> None:
        """A tier process that opens the ledger, however long the bucket is away."""
        self._tier = asyncio.get_running_loop().create_task(self._run_tier())

    async def kill_tier(self) -> None:
        """Kill the tier process; its uncommitted work is lost."""
        if self._tier is not None:
            self._tier.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._tier
            self._tier = None

    async def kill_broker(self) -> None:
        """`kill -9` of all processes: the disk keeps what was written, the memory is lost."""
        await self.kill_tier()
        self.disk.revive()
        self._open_store()
        self.start_tier()

    def _open_store(self) -> None:
        self.store = MessageStore.open(
            self._local,
            disk=self.disk,
            clock=self.now_ms,
            allocator_executor=InlineExecutor(),
            make_id=lambda: "outage",
            process_id=1,
        )
        self.store.store_host = HOST
        self.committed_offset = 0
        self._bounds: dict[Place, ColdBounds] | None = None
        self.ranges = DroppedRanges(incarnation_of=lambda topic: self.store.incarnations.find(topic).id)
        if self.disk.exists(DROPPED_PATH):
            self.ranges.load(self.disk.read(DROPPED_PATH))
            self.ranges.clip(self.store.queues)
        self._drop_oldest = DropOldest(
            self.store,
            bounds=self.bounds,
            policy_of=self.policies.__getitem__,
            visible_start=lambda queue: queue.min_offset,
            ranges=self.ranges,
            save=self._save_ranges,
            tell=self._tell_dropped,
            clock=self.now_ms,
        )

    async def _run_tier(self) -> None:
        store = OutageWatchingObjectStore(
            RetryingObjectStore(
                FaultInjectingObjectStore(self.bucket.metered, self.bucket),
                policy=RetryPolicy(attempts_max=3),
                random=self.random,
            ),
            OutageWatch(self.now_ms, on_change=lambda watch: self.outages.append(watch.since_ms)),
            check_key=KEYS.head_hint,
        )
        while True:
            try:
                writer = await LedgerWriter.open(
                    store,
                    KEYS,
                    identity=LedgerIdentity(store_uuid="outage", cluster="DefaultCluster", broker_name="broker-a"),
                    clock_ms=self.now_ms,
                    random=self.random,
                )
                break
            except ObjectStoreUnavailableError:
                self.witness["starts without the bucket"] += 1
                await asyncio.sleep(OPEN_RETRY_S)
        log = LocalLog(self.disk, path=self._local.commit_log_path, file_bytes=LOG_FILE_BYTES)
        config = self.config
        options = SegmentOptions(frame_bytes=config.frame_bytes, compression_level=1)
        sealer = Sealer(store=store, keys=KEYS, log=log, spool_folder=None, options=options, clock=self.now_ms)
        service = TierService(
            writer=writer,
            backlog=SealBacklog(
                queues=LocalQueues(
                    self.disk, path=self._local.consume_queue_path, file_bytes=self._local.queue_file_bytes
                ),
                log=log,
                policy=SealPolicy(segment_bytes=config.segment_bytes, age_ms=config.seal_age_ms),
                log_min_offset=lambda: self.store.commit_log.min_offset,
            ),
            sealer=sealer,
            config=config,
            clock=self.now_ms,
            flush_offset=lambda: self.store.commit_log.flush_offset,
            on_committed=self._committed,
            check_store=store.check,
            pack_sealer=PackSealer(
                writer=writer, sealer=sealer, spool_folder=None, pack_bytes=config.pack_bytes, clock=self.now_ms
            ),
        )
        merging = Merging(
            merger=PackMerger(writer=writer, options=options, spool_folder=None, clock=self.now_ms),
            policy=MergePolicy(fan_in=config.merge_fan_in, pack_bytes=config.pack_bytes),
            budget=MergeBudget(bytes_per_second=config.merge_bytes_per_second, clock=self.now_ms),
            segment_bytes=config.segment_bytes,
            catalog=lambda: service.catalog,
            class_of=service.class_of,
            cuts_ms=service.cuts_ms,
            amend=service.amend,
        )
        cache = FrameCache(bytes_max=1 << 20)
        self.reader = ColdReader(store, catalog=lambda: service.catalog, cache=cache)
        self.service = service
        try:
            self._report_topics()
            self._tell_dropped(list(self.ranges))
            self._report(pressure=False)
            service.backlog.account()
            self._committed(service.catalog, frozenset(service.catalog.topics))
            await first_to_end(service.run(), merging.run(self._changed))
        finally:
            reader, self.service, self.reader = self.reader, None, None
            await reader.close()
            await cache.close()
            log.close()
            await writer.close()

    # -- what the hot process does -------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        places = [(topic, queue_id) for topic in self.policies for queue_id in range(QUEUES)]
        weights = [self.shares[topic] for topic, _ in places]
        number = 0
        while True:
            await asyncio.sleep(self.random.uniform(0.3, 1.5))
            if not self.is_producing:
                continue
            for _ in range(self.random.randint(2, 8)):
                ((topic, queue_id),) = self.random.choices(places, weights)
                body = b"%d/" % number + self.random.randbytes(self.random.randint(10, 500))
                number += 1
                try:
                    result = self.store.put(
                        MessageDraft(
                            topic=topic,
                            queue_id=queue_id,
                            body=body,
                            properties_text=b"KEYS\x01k%d\x02" % number,
                            born_timestamp_ms=self.now_ms(),
                            born_host=HOST,
                        )
                    )
                except ServiceUnavailableError:
                    self.witness["refused"] += 1
                    continue
                assert result.queue_offset == len(self.acknowledged[topic, queue_id]), "an offset comes once"
                self.acknowledged[topic, queue_id].append(body)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.store.flush.flush()
            self.store.queues.write_dirty()
            self._gauge()
            self._report_topics()
            self._report(pressure=self.store.retention.is_under_pressure())

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            self.store.sync_derived()

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(RETENTION_S)
            self._gauge()
            gate = await self._drop_oldest.relax(RetentionGate(committed_offset=self.committed_offset))
            plan = self.store.retention.plan(gate, now_ms=self.now_ms(), hour=0)
            self.store.retention.execute(plan)
            self.witness["files deleted"] += plan.log_file_count
            self._gauge()
            self.check_covered()

    def _gauge(self) -> None:
        """How full the disk is, by the log files on it."""
        self.disk.now_ms = self.now_ms()
        self.disk.total_bytes_there = self.capacity_files * LOG_FILE_BYTES
        used_bytes = len(self.disk.list_directory(self._local.commit_log_path)) * LOG_FILE_BYTES
        self.disk.free_bytes_left = max(0, self.disk.total_bytes_there - used_bytes)

    def _report_topics(self) -> None:
        if self.service is None:
            return
        for topic in self.policies:
            self.service.report_topic(
                TopicReport(
                    topic=topic,
                    incarnation=self.store.incarnations.find(topic).id,
                    ttl_ms=None,
                    expired_before_ms=0,
                    cut_ms=0,
                    tiered=True,
                    deleted=False,
                )
            )

    def _report(self, *, pressure: bool) -> None:
        if self.service is None:
            return
        for queue in self.store.queues:
            self.service.report_queue(
                queue.topic, queue.queue_id, min_offset=queue.min_offset, end_offset=queue.tail_offset
            )
        self.service.reported(log_offset=self.store.queues.written_offset, pressure=pressure)

    async def _save_ranges(self) -> None:
        replace_file(self.disk, DROPPED_PATH, self.ranges.encode(), keep_backup=True)
        await asyncio.sleep(0.01)

    def _tell_dropped(self, ranges: list[DroppedRange]) -> None:
        self.witness["dropped"] += len(ranges)
        if self.service is not None:
            for each in ranges:
                hole = QueueHole(each.queue_id, each.start_offset, each.end_offset)
                self.service.report_dropped(each.topic, each.incarnation, hole)

    def _committed(self, catalog: Catalog, topics: frozenset[str]) -> None:
        assert self.service is not None
        self._changed.set()
        self.witness["packs"] += bool(catalog.packs)
        self.witness["merged packs"] += any(pack.level for pack in catalog.packs.values())
        self.committed_offset = max(self.committed_offset, self.service.backlog.committed_offset())
        bounds = self._bounds = {} if self._bounds is None else self._bounds
        for topic in topics:
            for queue_id, (start, end) in catalog.queue_bounds(topic).items():
                bounds[topic, queue_id] = ColdBounds(min_offset=start, end_offset=end)

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:
        """The tier's last bounds of a queue in this boot."""
        if self._bounds is None:
            return None
        return self._bounds.get((topic, queue_id), ColdBounds(min_offset=0, end_offset=0))

    # -- readers -------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """One consumer a queue, from the first offset on; it goes where the router sends it, never on by itself. Now
        and then a new one begins in its place: a replay of history."""
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 3.0))
            for place, bodies in list(self.acknowledged.items()):
                if self.is_producing and self.next_read[place] == len(bodies) and self.random.random() < REPLAY_SHARE:
                    self.next_read[place] = 0
                    self.read[place].clear()
                    self.witness["replays"] += 1
                await self.pull(place)

    async def pull(self, place: Place) -> None:
        """One pull of its consumer; nothing happens when the answer is "try again"."""
        topic, queue_id = place
        offset = self.next_read[place]
        queue = self.store.queues.find(topic, queue_id)
        if queue is None or offset >= queue.next_offset:
            return
        if offset >= queue.min_offset:
            found = self.store.get(topic, queue_id, offset, count_max=32, bytes_max=1 << 20, codes=None)
            self._check_pulled(place, list(found.buffers), found.next_begin_offset)
            self.witness["hot pulls"] += 1
            return
        bounds, reader = self.bounds(topic, queue_id), self.reader
        if bounds is None:
            self.witness["cold pulls before the tier was heard of"] += 1
            return
        if offset >= bounds.end_offset:
            self._check_pulled(place, [], queue.min_offset)
            return
        if reader is None:
            return
        pull = ColdPull(
            topic=topic, queue_id=queue_id, offset=offset, count_max=32, bytes_max=1 << 20, cut_ms=0, group="follow"
        )
        try:
            cold = await reader.pull(pull)
        except ObjectStoreUnavailableError:
            self.witness["cold pulls answered with try again"] += 1
            return
        except asyncio.CancelledError:
            if self.reader is not reader:
                return  # its process was killed, not this consumer
            raise
        assert cold.next_offset > offset
        self._check_pulled(place, list(cold.buffers), cold.next_offset)
        self.witness["cold pulls"] += 1

    def _check_pulled(self, place: Place, buffers: list[memoryview | bytes], next_offset: int) -> None:
        start = self.next_read[place]
        assert next_offset >= start
        got: set[int] = set()
        for buffer in buffers:
            for record in iterate_records(memoryview(buffer)):
                assert start <= record.queue_offset < next_offset
                assert record.queue_offset not in self.read[place], "a message comes once"
                self.read[place][record.queue_offset] = record.body
                got.add(record.queue_offset)
        stepped = set(range(start, next_offset)) - got
        assert stepped <= self.dropped_offsets(place), f"stepped over {sorted(stepped)} of {place}"
        self.next_read[place] = next_offset

    # -- what must hold ------------------------------------------------------------------------------------------------

    def dropped_offsets(self, place: Place) -> set[int]:
        """The offsets that were dropped, by the list of dropped ranges."""
        return {
            offset
            for each in self.ranges
            if (each.topic, each.queue_id) == place
            for offset in range(each.start_offset, each.end_offset)
        }

    def cold_runs(self, catalog: Catalog, place: Place) -> list[tuple[int, int]]:
        """The ranges of a queue that segments and packs hold, in order."""
        topic, queue_id = place
        return held_ranges(catalog, topic).get(queue_id, [])

    def check_covered(self) -> None:
        """Every acknowledged message is local, or committed, or was given up by name."""
        if self.service is None:
            return
        catalog = self.service.catalog
        ranges = {topic: held_ranges(catalog, topic) for topic in {topic for topic, _ in self.acknowledged}}
        for place, bodies in self.acknowledged.items():
            topic, queue_id = place
            queue = self.store.queues.find(topic, queue_id)
            assert queue is not None
            assert queue.next_offset == len(bodies)
            missing = set(range(queue.min_offset))
            for start, end in ranges[topic].get(queue_id, []):
                missing.difference_update(range(start, end))
            missing -= self.dropped_offsets(place)
            assert not missing, f"neither local nor committed: {place} {sorted(missing)[:10]}"
