"""A cold tier with its log beside it, as the tier process has them: what scrubs are tried on.

The log, the sealer, the ledger and the service are the real parts; objects are in memory, on a clock that tests move.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from tests.clock import Clock
from tests.tiered.ledger_data import IDENTITY, KEYS
from thermocline.remoting.records.message_record import RECORD_BYTES_MIN
from thermocline.remoting.string_hash import tags_code
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.pack_pieces import PackPieces
from thermocline.tiered.findings.findings import ScrubReport
from thermocline.tiered.healing.healer import Healer
from thermocline.tiered.healing.hot_records import HotRecords
from thermocline.tiered.healing.index_healer import IndexHealer
from thermocline.tiered.healing.pack_healer import PackHealer
from thermocline.tiered.healing.segment_recovery import SegmentRecovery
from thermocline.tiered.healing.state_healer import StateHealer
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.fresh_index import FreshIndex
from thermocline.tiered.indexes.index_builder import IndexBuilder
from thermocline.tiered.indexes.index_merger import IndexMerger
from thermocline.tiered.ledger.fencing import FencingMode, new_arbiter
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.merging.merge_policy import MergePolicy
from thermocline.tiered.merging.merging import MergeBudget, Merging
from thermocline.tiered.merging.pack_merger import PackMerger
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.purge.purger import Purger
from thermocline.tiered.purge.segment_rewriter import SegmentRewriter
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.scrub.scrubber import Scrubber, ScrubOptions
from thermocline.tiered.scrub.view import BucketView, WriterView
from thermocline.tiered.sealing.due_changes import TopicReport
from thermocline.tiered.sealing.local_files import LocalLog, LocalQueues
from thermocline.tiered.sealing.pack_sealer import PackSealer
from thermocline.tiered.sealing.seal_backlog import SealBacklog, SealPolicy
from thermocline.tiered.sealing.sealer import Sealer
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.service.indexing import Indexing
from thermocline.tiered.service.tier_service import TierService
from thermocline.tiered.state.snapshot import STATE_FORMAT, QueueEnd, StateSnapshot, TopicState
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers.ledger_copy import LedgerCopyStore

HOST = ("127.0.0.1", 10911)
GRACE_MS = 3_600_000
OPTIONS = SegmentOptions(frame_bytes=4 << 10, coarse_frames=2)
START_MS = 1_700_000_000_000


class ScrubRig:
    """One broker's log and cold tier. `local_from`: records before that offset of the log count as deleted."""

    service: TierService
    writer: LedgerWriter
    healer: Healer
    merging: Merging
    purger: Purger
    indexing: Indexing

    states: StateLog

    def __init__(
        self,
        folder: Path,
        *,
        wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
        packs: bool = False,
        fencing: FencingMode = FencingMode.CONDITIONAL,
    ) -> None:
        """`packs`: what is sealed goes into packs, as in a broker, instead of segments."""
        self.packs = packs
        self.fencing = fencing
        self.ttl_ms: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.kept_from_ms: dict[str, int] = {}
        """Cuts of topics that do not follow `cut_ms`."""
        self.clock = Clock(START_MS)
        self.objects = MemoryObjectStore()
        self.store: ObjectStore = wrap(self.objects)
        self.folder = folder
        self.local_from = 0
        self.own_bytes = 1 << 20
        """What a topic has in a merge from which on it gets segments of its own."""
        self.cut_ms = 0
        self._seed = 0
        self._saving = asyncio.Lock()
        self._local = StoreConfig(root_path=str(folder / "store"), log_file_bytes=1 << 20, queue_file_bytes=20 * 5_000)
        self.messages = MessageStore.open(
            self._local, disk=RealDisk(), clock=self.clock, make_id=lambda: "scrub", process_id=1
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ScrubRig]:
        """As the tier process opens it; again and again, if need be."""
        disk = RealDisk()
        self._seed += 1
        copy = LedgerCopyStore(self.store, keys=KEYS, disk=disk, folder=str(self.folder / "copy"))
        self.writer = await LedgerWriter.open(
            copy,
            KEYS,
            identity=IDENTITY,
            clock_ms=self.clock,
            random=Random(self._seed),
            arbiter=new_arbiter(self.fencing, copy, KEYS, random=Random(f"ballot/{self._seed}")),
            checkpoint_interval=4,
        )
        self.states = StateLog(self.writer)
        log = LocalLog(disk, path=self._local.commit_log_path, file_bytes=self._local.log_file_bytes)
        queues = LocalQueues(disk, path=self._local.consume_queue_path, file_bytes=self._local.queue_file_bytes)
        backlog = SealBacklog(
            queues=queues, log=log, policy=SealPolicy(segment_bytes=1 << 20), log_min_offset=lambda: self.local_from
        )
        self.fresh = FreshIndex()
        sealer = Sealer(
            store=copy, keys=KEYS, log=log, spool_folder=None, options=OPTIONS, clock=self.clock, fresh=self.fresh
        )
        pack_sealer = PackSealer(
            writer=self.writer,
            sealer=sealer,
            spool_folder=None,
            pack_bytes=1 << 20,
            clock=self.clock,
            fresh=self.fresh,
        )
        self.service = TierService(
            writer=self.writer,
            backlog=backlog,
            sealer=sealer,
            config=TierConfig(grace_ms=GRACE_MS, sweep_interval_ms=1_000, account_interval_ms=10),
            clock=self.clock,
            flush_offset=lambda: self.messages.commit_log.flush_offset,
            on_committed=lambda catalog, topics: None,
            pack_sealer=pack_sealer if self.packs else None,
            states=self.states,
        )
        self.merging = Merging(
            merger=PackMerger(
                writer=self.writer, options=OPTIONS, spool_folder=None, clock=self.clock, fresh=self.fresh
            ),
            policy=MergePolicy(fan_in=3, pack_bytes=1 << 20),
            budget=MergeBudget(bytes_per_second=1 << 30, clock=self.clock),
            segment_bytes=self.own_bytes * 2,
            catalog=lambda: self.catalog,
            class_of=self.service.class_of,
            cuts_ms=self.service.cuts_ms,
            amend=self.service.amend,
        )
        rewriter = SegmentRewriter(
            writer=self.writer, options=OPTIONS, spool_folder=None, clock=self.clock, fresh=self.fresh
        )
        self.purger = Purger(service=self.service, merging=self.merging, pieces=PackPieces(copy), rewriter=rewriter)
        recovery = SegmentRecovery(
            store=copy,
            hot=HotRecords(backlog=backlog, queues=queues, log=log, log_min_offset=lambda: self.local_from),
            options=OPTIONS,
            spool_folder=None,
        )
        builder = IndexBuilder(self.writer, spool_folder=None, clock=self.clock)
        self.indexing = Indexing(
            builder=builder,
            merger=IndexMerger(self.writer, spool_folder=None, clock=self.clock),
            budget=MergeBudget(bytes_per_second=1 << 30, clock=self.clock),
            blooms=BloomCache(),
            fresh=self.fresh,
            catalog=lambda: self.catalog,
            gate=self._gate,
            class_of=self.service.class_of,
            cuts_ms=self.service.cuts_ms,
            amend=self.service.amend,
        )
        self.healer = Healer(
            writer=self.writer,
            service=self.service,
            recovery=recovery,
            packs=PackHealer(
                writer=self.writer,
                service=self.service,
                recovery=recovery,
                spool_folder=None,
                clock_ms=self.clock,
            ),
            indexes=IndexHealer(writer=self.writer, service=self.service, builder=builder),
            states=StateHealer(self.writer, self.states, self.save_state),
            find_copy=copy.find,
            clock_ms=self.clock,
        )
        try:
            await self.states.newest()
            while not self.states.reserved_ceiling:
                await self.save_state()
            self.report()
            await self.service.run_once()
            yield self
        finally:
            log.close()
            await self.writer.close()

    def close(self) -> None:
        self.messages.close()

    # -- messages ------------------------------------------------------------------------------------------------------

    def put(self, topic: str, count: int, *, queue_count: int = 2, body_bytes: int = 300) -> None:
        """Messages with keys and tags, in every queue in turn."""
        random = Random(f"{topic}/{self.messages.commit_log.append_offset}")
        for number in range(count):
            self.clock.now_ms += 1
            tag = random.choice("AB")
            self.messages.put(
                MessageDraft(
                    topic=topic,
                    queue_id=number % queue_count,
                    body=random.randbytes(body_bytes),
                    properties_text=b"KEYS\x01key%d\x02TAGS\x01%s\x02" % (number, tag.encode()),
                    tags_code=tags_code(tag),
                    born_timestamp_ms=self.clock.now_ms,
                    born_host=HOST,
                )
            )

    def report(self) -> None:
        """Flush, and tell the service what there is."""
        self.messages.tick()
        self.messages.commit_log.flush()
        for queue in self.messages.queues:
            self.service.report_topic(
                TopicReport(
                    topic=queue.topic,
                    incarnation=1,
                    ttl_ms=self.ttl_ms.get(queue.topic),
                    expired_before_ms=self.kept_from_ms.get(queue.topic, self.cut_ms),
                    cut_ms=self.kept_from_ms.get(queue.topic, self.cut_ms),
                    tiered=True,
                    deleted=queue.topic in self.deleted,
                )
            )
            self.service.report_queue(queue.topic, queue.queue_id, min_offset=0, end_offset=queue.next_offset)
        self.service.reported(log_offset=self.messages.commit_log.append_offset, pressure=True)

    async def seal(self) -> None:
        """Everything that is not in the cold tier yet."""
        self.report()
        await self.service.run_once()

    async def save_state(self) -> None:
        """A snapshot of the queues, as they are now; one at a time, as a broker's rounds."""
        async with self._saving:
            name, end = self.states.next_name(), self.messages.commit_log.append_offset
            ends: dict[str, list[QueueEnd]] = {}
            for queue in self.messages.queues:
                ends.setdefault(queue.topic, []).append(QueueEnd(queue.queue_id, queue.next_offset))
            await self.states.write(
                StateSnapshot(
                    format=STATE_FORMAT,
                    epoch=name.epoch,
                    sequence=name.sequence,
                    store_uuid=IDENTITY.store_uuid,
                    cluster=IDENTITY.cluster,
                    broker_name=IDENTITY.broker_name,
                    captured_ms=self.clock.now_ms,
                    log_offset=end,
                    log_ceiling=1 << 40,
                    record_bytes_min=RECORD_BYTES_MIN,
                    topics=tuple(
                        TopicState(topic=topic, incarnation=1, ends=tuple(each)) for topic, each in ends.items()
                    ),
                )
            )

    def _gate(self) -> int:
        self.service.backlog.account()
        return self.service.backlog.committed_offset()

    async def index(self) -> None:
        """Make index objects of everything that is due."""
        while await self.indexing.run_once():
            pass

    def delete_local(self) -> None:
        """All of the log is gone."""
        self.local_from = self.messages.commit_log.append_offset

    def hot(self, topic: str) -> dict[int, list[bytes]]:
        """Queue id -> every record, as the log has it."""
        log = self.messages.commit_log
        return {
            queue.queue_id: [
                bytes(log.record_view(unit.physical_offset, unit.size_bytes))
                for unit in map(queue.unit, range(queue.next_offset))
            ]
            for queue in self.messages.queues
            if queue.topic == topic
        }

    async def cold(self, topic: str) -> dict[int, list[bytes]]:
        """The same through the cold reader, as a new process would open it."""
        catalog = self.catalog
        cache = FrameCache()
        reader = ColdReader(self.store, catalog=lambda: catalog, cache=cache)
        found: dict[int, list[bytes]] = {}
        try:
            for queue_id in catalog.queue_ends(topic):
                offset = await reader.min_offset(topic, queue_id, cut_ms=0) or 0
                parts: list[bytes] = []
                while True:
                    pull = ColdPull(
                        topic=topic, queue_id=queue_id, offset=offset, count_max=1_000, bytes_max=1 << 20, cut_ms=0
                    )
                    result = await reader.pull(pull)
                    if result.status is ColdPullStatus.ABOVE_END:
                        break
                    for buffer in result.buffers:
                        parts += split(buffer)
                    offset = result.next_offset
                found[queue_id] = parts
        finally:
            await reader.close()
            await cache.close()
        return found

    # -- scrubs --------------------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        return self.writer.catalog

    async def scrub(self, *, deep: bool = True, heal: bool = False, **options: object) -> ScrubReport:
        """As the tier process scrubs."""
        report = await self._scrubber().run(ScrubOptions(deep=deep, **options))  # type: ignore[arg-type]
        return await self.healer.heal(report, look_again=self._scrubber) if heal else report

    def _scrubber(self) -> Scrubber:
        return Scrubber(self.writer.store, KEYS, WriterView(self.writer, self.states), self.clock)

    async def scrub_bucket(self, *, deep: bool = True) -> ScrubReport:
        """Scrub as a reader does that has only the bucket."""
        return await Scrubber(self.store, KEYS, BucketView(self.store, KEYS), self.clock).run(ScrubOptions(deep=deep))


def split(buffer: memoryview) -> list[bytes]:
    """Its records."""
    records: list[bytes] = []
    position = 0
    while position < len(buffer):
        size_bytes = int.from_bytes(buffer[position : position + 4], "big")
        records.append(bytes(buffer[position : position + size_bytes]))
        position += size_bytes
    return records
