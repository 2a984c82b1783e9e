"""Requests of the cold tier to the object store, and their cost: none while nothing is due, few PUTs a segment.

Everything from the local log to the object store is the real part; objects are in memory, counted, on a clock that the
test moves. A round of the tier service is run where its loop would, each `account_interval_ms`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.sealing.due_changes import TopicReport
from thermocline.tiered.sealing.local_files import LocalLog, LocalQueues
from thermocline.tiered.sealing.seal_backlog import SealBacklog, SealPolicy
from thermocline.tiered.sealing.sealer import Sealer
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.service.tier_service import TierService
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore, StoreCounters

START_MS = 4_000_000_000_000
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
TEN_MINUTES_MS = 600_000
PUTS_PER_SEGMENT_MAX = 5
PUTS_PER_GIB_MAX = 40
BODY_BYTES = 15 * KIB
HOST = ("127.0.0.1", 10911)


class Bill:
    """A store, its cold tier, and what that asks for."""

    def __init__(self, folder: Path, config: TierConfig) -> None:
        self.now_ms = START_MS
        self.counters = StoreCounters()
        self.config = config
        self._store_config = StoreConfig(
            root_path=str(folder / "store"), log_file_bytes=8 * MIB, queue_file_bytes=20 * 5_000
        )
        self.store = MessageStore.open(
            self._store_config, disk=RealDisk(), clock=lambda: self.now_ms, make_id=lambda: "bill", process_id=1
        )
        self.service: TierService

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the ledger, and let the service be what the tier process makes it."""
        objects = MeteringObjectStore(MemoryObjectStore(), self.counters)
        config, disk, local = self.config, RealDisk(), self._store_config
        writer = await LedgerWriter.open(
            objects,
            BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a"),
            identity=LedgerIdentity(store_uuid="bill", cluster="DefaultCluster", broker_name="broker-a"),
            clock_ms=lambda: self.now_ms,
            random=Random(7),
        )
        log = LocalLog(disk, path=local.commit_log_path, file_bytes=local.log_file_bytes)
        self.service = TierService(
            writer=writer,
            backlog=SealBacklog(
                queues=LocalQueues(disk, path=local.consume_queue_path, file_bytes=local.queue_file_bytes),
                log=log,
                policy=SealPolicy(segment_bytes=config.segment_bytes, age_ms=config.seal_age_ms),
                log_min_offset=lambda: self.store.commit_log.min_offset,
            ),
            sealer=Sealer(
                store=objects,
                keys=writer.keys,
                log=log,
                spool_folder=None,
                options=SegmentOptions(frame_bytes=config.frame_bytes, compression_level=config.compression_level),
                clock=lambda: self.now_ms,
            ),
            config=config,
            clock=lambda: self.now_ms,
            flush_offset=lambda: self.store.commit_log.flush_offset,
            on_committed=_nothing_to_tell,
        )
        try:
            yield
        finally:
            log.close()
            await writer.close()
            await objects.close()
            self.store.close()

    def put(self, topic: str, *, count: int, queue_count: int = 4) -> None:
        """Messages of about 15 KiB, that no compression makes smaller."""
        bodies = Random(topic)
        for number in range(count):
            self.store.put(
                MessageDraft(
                    topic=topic,
                    queue_id=number % queue_count,
                    body=bodies.randbytes(BODY_BYTES),
                    properties_text=b"KEYS\x01key%d\x02" % number,
                    born_timestamp_ms=self.now_ms,
                    born_host=HOST,
                )
            )

    def report(self, *, ttl_ms: int | None = None) -> None:
        """Flush, and tell the service everything, as the hot process does behind a tick."""
        self.store.flush.flush()
        self.store.queues.write_dirty()
        queues = list(self.store.queues)
        for topic in sorted({queue.topic for queue in queues}):
            self.service.report_topic(
                TopicReport(
                    topic=topic,
                    incarnation=self.store.incarnations.find(topic).id,
                    ttl_ms=ttl_ms,
                    expired_before_ms=0,
                    cut_ms=0 if ttl_ms is None else self.now_ms - ttl_ms,
                    tiered=True,
                    deleted=False,
                )
            )
        for queue in queues:
            self.service.report_queue(
                queue.topic, queue.queue_id, min_offset=queue.min_offset, end_offset=queue.tail_offset
            )
        self.service.reported(log_offset=self.store.queues.written_offset, pressure=False)


def _nothing_to_tell(catalog: Catalog, topics: frozenset[str]) -> None:
    """There is no hot process behind it."""


async def test_a_broker_with_nothing_due_asks_for_nothing(tmp_path: Path) -> None:
    bill = Bill(
        tmp_path,
        TierConfig(cold_url="memory://bill", segment_bytes=256 * KIB, frame_bytes=64 * KIB, seal_age_ms=3_600_000),
    )
    async with bill.opened():
        for number in range(20):
            bill.put(f"History{number}", count=20)
        bill.report(ttl_ms=7 * 24 * 3_600_000)
        await bill.service.run_once()  # the first round after a start: seals, and looks for orphans once
        assert bill.service.catalog.topics, "there is history"
        bill.put("Young", count=4)  # waits, and is far from being due
        bill.report(ttl_ms=7 * 24 * 3_600_000)
        await bill.service.run_once()
        before = bill.counters.copy()
        for elapsed_ms in range(0, TEN_MINUTES_MS, bill.config.account_interval_ms):
            bill.now_ms += bill.config.account_interval_ms
            if elapsed_ms % 15_000 == 0:
                bill.report(ttl_ms=7 * 24 * 3_600_000)  # cuts move on although nothing comes in
            await bill.service.run_once()
        assert bill.counters.since(before).requests == {}


async def test_puts_for_each_full_segment(tmp_path: Path) -> None:
    segment_count = 96  # three checkpoints
    bill = Bill(tmp_path, TierConfig(cold_url="memory://bill", segment_bytes=64 * KIB, frame_bytes=16 * KIB))
    async with bill.opened():
        before = bill.counters.copy()
        bill.put("Full", count=4 * segment_count)
        bill.report()
        await bill.service.run_once()
        sealed = bill.service.catalog.topics["Full"].segments
        puts = bill.counters.since(before).put_count
        assert segment_count - 2 <= len(sealed) <= segment_count
        assert min(segment.raw_bytes for segment in sealed) > 0.9 * bill.config.segment_bytes
        assert 4 * len(sealed) < puts <= PUTS_PER_SEGMENT_MAX * len(sealed)


def test_five_puts_a_segment_are_forty_a_gibibyte_at_the_default_size() -> None:
    assert GIB // TierConfig().segment_bytes * PUTS_PER_SEGMENT_MAX <= PUTS_PER_GIB_MAX
