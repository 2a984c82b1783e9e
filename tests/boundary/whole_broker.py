"""A whole broker in one process, on a clock and in rounds that the test moves: every part is the real one.

The parts of the hot process over a disk in memory, the tier role on the other end of a real unix socket, its objects in
memory, and clients on a real port. Only what runs by time in a daemon is called by the test instead: ticks, flushes,
syncs, retention and the tier's rounds. So a case repeats exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from tests.broker.timing import deliver_all, open_timers, timer_service
from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from thermocline.broker.assembly.parts import BrokerParts, make_parts
from thermocline.broker.assembly.processors import table_processors, tier_processors
from thermocline.broker.cold.key_index import KeyMatches, KeyQuery
from thermocline.broker.helpers.helper_hub import HelperHub
from thermocline.broker.helpers.helper_process import HelperOptions
from thermocline.broker.helpers.helper_protocol import HelloReply, HelperRequestCode, TierReportRequest
from thermocline.broker.helpers.shared_page import SharedPage
from thermocline.broker.process.build_id import current_build_id
from thermocline.broker.pulls.long_polling import LongPolling
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.broker.tier.store_rounds import StoreRounds
from thermocline.broker.tier.tier_feed import TierFeed
from thermocline.broker.tier.tier_link import TierLink
from thermocline.broker.tier_process.tier_process import TierRole, serve
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.connections.server import RemotingServer
from thermocline.store.config.store_config import FlushDiskType, StoreConfig
from thermocline.store.files.disk import Disk
from thermocline.store.index.index_service import IndexService
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions, open_object_store
from thermocline.tiered.wrappers import Fault, FaultInjectingObjectStore, ProcessCrash, StoreCall

NEVER_MS = 1 << 40
GRACE_MS = 1_000
START_MS = 4_000_000_000_000
"""Far in the future, so that no file seems to be written to later than now."""
DEADLINE_S = 240.0
"""Only a broker that hangs takes so long; one on a machine that others keep busy may take half a minute."""
_names = itertools.count()


class CrashPlan:
    """Where the tier process dies: at which of its requests, and on which side of it."""

    def __init__(self) -> None:
        self._calls_left: int | None = None
        self._fault = Fault.NONE

    def crash_after(self, calls: int, fault: Fault) -> None:
        """Let so many more requests through."""
        self._calls_left, self._fault = calls, fault

    def __call__(self, number: int, call: StoreCall) -> Fault:
        if self._calls_left is None:
            return Fault.NONE
        self._calls_left -= 1
        return self._fault if self._calls_left < 0 else Fault.NONE


class BuiltIndex:
    """KeyIndex over the real index service, brought up to date in place."""

    def __init__(self, disk: Disk, config: StoreConfig, store: MessageStore, clock: Callable[[], int]) -> None:
        self._store = store
        self.service = IndexService.open(
            disk,
            config,
            log_end_offset=store.commit_log.append_offset,
            was_clean=store.recovery_report.was_clean,
            clock=clock,
        )

    def build(self) -> None:
        """Take in everything that is flushed."""
        while self.service.build(self._store.commit_log.flush_offset):
            continue

    async def find(self, query: KeyQuery) -> KeyMatches:
        """See KeyIndex."""
        self._store.flush.flush()
        self.build()
        return KeyMatches(
            physical_offsets=self.service.query(
                query.topic,
                query.key,
                begin_ms=query.begin_ms,
                end_ms=query.end_ms,
                count_max=query.count_max,
                index_type=query.index_type,
            ),
            last_store_timestamp_ms=self.service.last_timestamp_ms,
            last_physical_offset=self.service.last_physical_offset,
        )


class WholeBroker:
    """One broker. `start` and `stop` as often as wanted; disk and objects stay."""

    def __init__(
        self, folder: Path, *, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH, merge_fan_in: int | None = None
    ) -> None:
        """`merge_fan_in`: merges of packs and builds of index objects run on request only, not by themselves."""
        self.clock = Clock(START_MS)
        self.disk = SimulatedDisk()
        self.disk.now_ms = START_MS
        self._folder = folder
        self.cold_name = f"boundary-{next(_names)}"
        self._store_config = StoreConfig(
            root_path="/store",
            log_file_bytes=4_096,
            queue_file_bytes=20 * 7,
            index_slot_count=50,
            index_entry_count=60,
            flush_disk_type=flush,
            file_reserved_ms=0,
            delete_when_hours=(),
        )
        self._tier_config = TierConfig(
            cold_url=f"memory://{self.cold_name}",
            segment_bytes=64 << 10,
            seal_age_ms=NEVER_MS,
            frame_bytes=4 << 10,
            sweep_interval_ms=100,
            grace_ms=GRACE_MS,
            cache_bytes=1 << 20,
            account_interval_ms=NEVER_MS,
        )
        if merge_fan_in is not None:
            self._tier_config = replace(self._tier_config, merge_fan_in=merge_fan_in, merge_bytes_per_second=0)
        self._resources = AsyncExitStack()
        self._tier_stop = asyncio.Event()
        self._tier_task: asyncio.Task[None] | None = None
        self.crashes = CrashPlan()
        self.tier_role: TierRole
        self.store: MessageStore
        self.parts: BrokerParts
        self.cold: TierLink
        self.connection: ClientConnection

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the store from the disk, and serve."""
        resources = self._resources = AsyncExitStack()
        store = self.store = MessageStore.open(
            self._store_config, disk=self.disk, clock=self.clock, make_id=lambda: "boundary", process_id=1
        )
        page_path = self._folder / "page"
        page = SharedPage.create(page_path, generation=1, build_id=current_build_id())
        resources.callback(page.close)
        config = BrokerConfig(listen_host="127.0.0.1", default_query_count=64, property_filter=True)
        hub = self._hub = HelperHub(
            generation=page.generation,
            build_id=page.build_id,
            settings=HelloReply(
                store=self._store_config,
                tier=self._tier_config,
                store_uuid=store.identity.store_id,
                cluster_name=config.cluster_name,
                broker_name=config.broker_name,
                was_clean=store.recovery_report.was_clean,
            ),
        )
        self._options = HelperOptions(parent_pid=0, socket_path=str(self._folder / "hub"), page_path=page_path)
        helper_server = RemotingServer(hub)
        await helper_server.start_unix(self._options.socket_path)
        resources.push_async_callback(helper_server.close)
        self.cold = TierLink(
            hub,
            incarnation_of=lambda topic: store.incarnations.find(topic).id,
            timeout_ms=int(DEADLINE_S * 1_000),
            on_connected=lambda: self._feed.restart(),
            on_fenced=_never_fenced,
        )
        long_polling = LongPolling()
        settings = BrokerSettings(broker=config, store=self._store_config, tier=self._tier_config, clock=self.clock)
        parts = self.parts = await make_parts(
            settings,
            store,
            disk=self.disk,
            cold=self.cold,
            store_host=("127.0.0.1", 10911),
            arrived=long_polling.arrived,
            clock=self.clock,
            seed=7,
        )
        resources.push_async_callback(parts.tables.persister.close)
        timers = self._timers = open_timers(parts)
        self._index = BuiltIndex(self.disk, self._store_config, store, self.clock)
        self._feed = TierFeed(
            hub,
            topics=parts.tables.topics,
            queues=store.queues,
            incarnations=store.incarnations,
            kept_clock=parts.tables.kept_clock,
            cut_interval_ms=NEVER_MS,
        )

        def gate() -> RetentionGate:
            return RetentionGate(
                committed_offset=self.cold.committed_offset,
                index_offset=self._index.service.durable_offset,
                held_offset=parts.due.delays.earliest_undelivered_offset(),
                timers_offset=timers.held_offset,
            )

        self._rounds = StoreRounds(
            store,
            retention=store.retention,
            page=page,
            clock=self.clock,
            gate=gate,
            index_timestamp_ms=lambda: 0,
            on_tick=lambda _pressure: None,
            timers=timers,
        )
        resources.push_async_callback(self._rounds.close)
        self._rounds.publish()
        messages = parts.make_message_path(key_index=self._index, long_polling=long_polling)
        tier = tier_processors(parts, hub, helpers=list, report_now=self.report, gate=gate)
        server = RemotingServer(
            Dispatcher(
                (*messages.processors, *table_processors(parts), *tier), on_closed=(messages.connection_closed,)
            ),
            chunk_handler=messages.hot,
        )
        port = await server.start("127.0.0.1", 0)
        resources.push_async_callback(server.close)
        self.connection = await ClientConnection.open(f"127.0.0.1:{port}")
        resources.callback(self.connection.close)
        await self.start_tier()

    async def stop(self, *, is_crash: bool) -> None:
        """Stop cleanly, or as `kill -9` does: everything written is there, nothing else."""
        await self.stop_tier()
        if not is_crash:
            await self.parts.tables.kept_clock.keep()
        await self._resources.aclose()
        if is_crash:
            self.disk.revive()
        else:
            self._index.service.close()
            self._timers.close()
            self.store.close()

    @property
    def objects(self) -> MemoryObjectStore:
        """The bucket."""
        return MemoryObjectStore(self.cold_name)

    async def remove_objects(self) -> None:
        """Let go of the cold tier: stores in memory last as long as the process."""
        await self.objects.delete_many(list(self.objects.objects))

    async def start_tier(self) -> None:
        """Let a new tier process take the next epoch; serves when this returns."""
        self._tier_stop = asyncio.Event()
        self.crashes = CrashPlan()
        role = self.tier_role = TierRole(
            disk=self.disk,
            clock=self.clock,
            keeps_spool_in_memory=True,
            open_store=self._open_crashing_store,
            on_opened=lambda: None,  # what it does is for a process of its own: it goes through all objects there are
        )
        self._tier_task = asyncio.create_task(serve(self._options, self._tier_stop, role=role))
        await self._until(lambda: self._hub.is_connected("tier"))
        await self.report()
        await self._until(lambda: role.is_serving)
        # Its answer comes behind what it tells of the ledger.
        request = TierReportRequest(topic=None, visible_from_ms=None)
        await self._hub.ask("tier", HelperRequestCode.TIER_REPORT, request, timeout_ms=int(DEADLINE_S * 1_000))

    async def stop_tier(self) -> None:
        """End the tier process, if it has not died; its uncommitted work is lost."""
        if self._tier_task is not None:
            self._tier_stop.set()
            with contextlib.suppress(ProcessCrash, BaseExceptionGroup):
                await self._tier_task
            self._tier_task = None
            await self._until(lambda: not self._hub.is_connected("tier"))

    # -- rounds --------------------------------------------------------------------------------------------------------

    async def report(self) -> None:
        """Flush, write queue files, and report the new messages to the tier process."""
        self.store.flush.flush()
        self.store.queues.write_dirty()
        self._rounds.publish()
        await self._feed.tell_cuts()
        await self._feed.flush()

    async def delete_local_files(self) -> None:
        """Sync everything, and let go of every local file that may go."""
        await self.report()
        self._index.build()
        self._index.service.checkpoint()
        await self._rounds.sync_derived()
        await self._rounds.run_retention()

    async def merge_packs(self) -> int:
        """Merge packs as long as there is a merge to be made; how many were."""
        assert self.tier_role._work is not None
        merging, count = self.tier_role._work._merging, 0
        while (plan := merging._next()) is not None and await merging.rewrite(plan) is not None:
            count += 1
        return count

    async def index(self) -> int:
        """Make, merge and drop index objects as long as any are due; how often that was so."""
        assert self.tier_role._work is not None
        indexing, count = self.tier_role._work.indexing._indexing, 0
        while await indexing.build_or_merge() or await indexing.run_once():
            count += 1
        return count

    async def deliver_timed(self) -> None:
        """Put messages whose time has come, and those that are to leave their log file; make that durable."""
        deliver_all(timer_service(self.parts))
        await self._rounds.sync_timers()

    async def _open_crashing_store(self, url: str, options: ObjectStoreOptions) -> ObjectStore:
        return FaultInjectingObjectStore(await open_object_store(url, options), self.crashes)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                if self._tier_task is not None and self._tier_task.done():
                    self._tier_task.result()
                    raise AssertionError("the tier process has ended")
                await asyncio.sleep(0)


def _never_fenced(reason: str) -> None:
    raise AssertionError(f"fenced: {reason}")
