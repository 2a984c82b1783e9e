"""SmallBroker: one process of a whole broker, over a taped disk and a taped object store, in one virtual loop.

Every part is the real one, put together as the hot and the tier process do it; only sockets are missing (`direct_hub`)
and what runs by time in a daemon is called: flush, report, sync and retention. The tier process's own rounds run by
themselves, in virtual time.

    World         what outlives a process: files, bucket, clock
    SmallBroker   what does not
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import mmap
from dataclasses import dataclass, field
from random import Random

import msgspec

from tests.boundary.whole_broker import BuiltIndex
from tests.crash.bucket import KEYS
from tests.crash.points.direct_hub import DirectHub
from tests.crash.points.slumber import SleepingObjectStore, Slumber
from tests.crash.points.tape import Tape
from tests.crash.points.taped_disk import TapedDisk
from tests.simulated_disk import SimulatedDisk
from tests.store.inline_executor import InlineExecutor
from tests.tiered.ledger_races import SlowStore
from thermocline.broker.assembly.parts import BrokerParts, make_parts
from thermocline.broker.assembly.recurring import make_housekeeping
from thermocline.broker.helpers.helper_protocol import (
    TIER_ROLE,
    Fenced,
    HelloReply,
    HelperRequestCode,
    PurgeReply,
    PurgeRequest,
    SealRequest,
    TierReportRequest,
)
from thermocline.broker.helpers.shared_page import PAGE_BYTES, SharedPage
from thermocline.broker.pulls.cold_pull_limits import ColdPullLimits
from thermocline.broker.pulls.pull_finder import PullFinder
from thermocline.broker.recovery.bucket_recovery import recover_from_bucket
from thermocline.broker.recovery.ledger_takeover import TakeoverReport, take_over
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.broker.state import log_reservation
from thermocline.broker.state.log_reservation import LogReservation, reserve_bytes
from thermocline.broker.state.state_link import StateLink
from thermocline.broker.state_files.config_persister import load_file
from thermocline.broker.tier.store_rounds import StoreRounds
from thermocline.broker.tier.tier_feed import TierFeed
from thermocline.broker.tier.tier_link import TierLink
from thermocline.broker.tier_process.tier_process import TierRole
from thermocline.broker.tier_process.tier_work import TierWork
from thermocline.remoting.errors import FencedError, UnavailableError
from thermocline.store.config.store_config import FlushDiskType, StoreConfig
from thermocline.store.files.disk import Disk
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.objects.errors import ForeignLedgerError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.service.tier_service import TierService
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions
from thermocline.tiered.wrappers import (
    Fault,
    FaultInjectingObjectStore,
    ProcessCrash,
    RetryingObjectStore,
    StoreCall,
    StoreHistory,
)

START_MS = 4_000_000_000_000
"""Far in the future, so that no file seems to be written to later than now."""
NEVER_MS = 1 << 40
GRACE_MS = 1_000
STATE_INTERVAL_MS = 2_000
CHECKPOINT_INTERVAL = 4
RESERVE_BYTES = 64 << 20
ASK_TIMEOUT_MS = 600_000


def _lag_ms_max(key: str) -> float:
    """Listings may lag for as long as they like, but of pins: they hold if none lags for a grace period."""
    return GRACE_MS / 2 if key.startswith(KEYS.pins_prefix) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What differs between runs."""

    log_file_bytes: int = 4_096
    seal_age_ms: int = NEVER_MS
    account_interval_ms: int = NEVER_MS
    merge_bytes_per_second: int = 0
    merge_fan_in: int = 2

    @property
    def on_demand(self) -> Settings:
        """The same files, and no task that runs by itself: a verdict sees one state of the bucket."""
        return Settings(log_file_bytes=self.log_file_bytes, merge_fan_in=self.merge_fan_in)


@dataclass
class World:
    """What is there beside processes. `disk` and `bucket` are bare; each process puts its tape before them."""

    disk: Disk
    bucket: ObjectStore
    seed: int
    root_path: str = "/store"
    start_ms: int = START_MS
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    is_retrying: bool = True
    settings: Settings = field(default_factory=Settings)
    process_count: int = 0
    stores: list[FaultInjectingObjectStore] = field(default_factory=list)
    """Of every process there was: what they have sent may still be on its way."""
    shared_history: StoreHistory | None = None

    @property
    def history(self) -> StoreHistory:
        """Objects written by any process that listings may have missed."""
        if self.shared_history is None:
            self.shared_history = StoreHistory(self.bucket, clock_ms=self.now_ms, lag_ms_max=_lag_ms_max)
        return self.shared_history

    def reader_store(self) -> ObjectStore:
        """The bucket, for a process beside the broker that nothing happens to."""
        return FaultInjectingObjectStore(self.bucket, lambda _number, _call: Fault.NONE, history=self.history)

    def lose_disk(self) -> None:
        """Every file is gone, for good."""
        self.disk.remove_tree(self.root_path)
        if isinstance(self.disk, SimulatedDisk):
            self.disk.sync_everything()

    def now_ms(self) -> int:
        """The clock of everything: the loop's."""
        return self.start_ms + int(asyncio.get_running_loop().time() * 1_000)

    @property
    def store_config(self) -> StoreConfig:
        """Small files, so that they roll."""
        return StoreConfig(
            root_path=self.root_path,
            log_file_bytes=self.settings.log_file_bytes,
            queue_file_bytes=20 * 7,
            index_slot_count=50,
            index_entry_count=60,
            flush_disk_type=self.flush,
            file_reserved_ms=0,
            delete_when_hours=(),
            disk_used_ratio_max=0.99,
            disk_used_ratio_force=0.99,
            disk_used_ratio_refuse=0.99,
        )

    @property
    def tier_config(self) -> TierConfig:
        """Sealed on demand, unless the settings say otherwise; everything else by its time."""
        settings = self.settings
        return TierConfig(
            cold_url="memory://crash-points",
            segment_bytes=64 << 10,
            seal_age_ms=settings.seal_age_ms,
            frame_bytes=4 << 10,
            sweep_interval_ms=100,
            grace_ms=GRACE_MS,
            cache_bytes=1 << 20,
            account_interval_ms=settings.account_interval_ms,
            merge_fan_in=settings.merge_fan_in,
            merge_bytes_per_second=settings.merge_bytes_per_second,
            state_interval_ms=STATE_INTERVAL_MS,
            reserve_bytes=RESERVE_BYTES,
            scrub_bytes_per_day=0,  # it reads alone, in a thread that the virtual clock does not know
        )


BROKER_CONFIG = BrokerConfig(listen_host="127.0.0.1", timer_wheel=False, property_filter=False)


class SmallBroker:
    """One process. `start`, then whatever a script does, then `close`, or `die`."""

    def __init__(
        self,
        world: World,
        tape: Tape,
        *,
        slumber: Slumber | None = None,
    ) -> None:
        """`slumber`: where it sleeps when the tape says so."""
        world.process_count += 1
        self.world = world
        self.random = Random(f"{world.seed} process {world.process_count}")
        self.disk = TapedDisk(world.disk, tape, root_path=world.root_path, now_ms=world.now_ms)
        self._tape = tape
        self._slumber = slumber or Slumber()
        self.fenced: Fenced | None = None
        self.role: TierRole | None = None
        self.tier_task: asyncio.Task[None] | None = None
        self.store: MessageStore
        self.parts: BrokerParts
        self.cold: TierLink
        self.rounds: StoreRounds

    # -- life ----------------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Make the directory from the bucket, as `--recover-from` does."""
        store = self._open_store()
        try:
            await recover_from_bucket(
                store,
                broker=BROKER_CONFIG,
                store=self.world.store_config,
                tier=self.world.tier_config,
                disk=self.disk,
                clock=self.world.now_ms,
                random=self.random,
                make_id=lambda: f"{self.random.getrandbits(64):016x}",
            )
        finally:
            await store.close()

    async def take_over(self) -> TakeoverReport | None:
        """Continue the ledger of the master that this disk's store was the copy of."""
        store = self._open_store()
        try:
            return await take_over(
                store,
                broker=BROKER_CONFIG,
                store=self.world.store_config,
                tier=self.world.tier_config,
                disk=self.disk,
                clock=self.world.now_ms,
                random=self.random,
                open_local=self.open_local,
            )
        finally:
            await store.close()

    def open_local(self, config: StoreConfig | None = None) -> MessageStore:
        """Open the store on the disk."""
        return MessageStore.open(
            config or self.world.store_config,
            disk=self.disk,
            clock=self.world.now_ms,
            allocator_executor=InlineExecutor(),
            make_id=lambda: f"{self.random.getrandbits(64):016x}",
            process_id=1,
        )

    async def start(self) -> None:
        """Recover what is on the disk, and serve."""
        world, config, tier = self.world, self.world.store_config, self.world.tier_config
        store = self.store = self.open_local()
        page = SharedPage(mmap.mmap(-1, PAGE_BYTES), generation=1, build_id=1)
        hub = self._hub = DirectHub(
            HelloReply(
                store=config,
                tier=tier,
                store_uuid=store.identity.store_id,
                cluster_name=BROKER_CONFIG.cluster_name,
                broker_name=BROKER_CONFIG.broker_name,
                was_clean=store.recovery_report.was_clean,
            ),
            page,
        )
        self.cold = TierLink(
            hub,  # type: ignore[arg-type]
            incarnation_of=lambda topic: store.incarnations.find(topic).id,
            timeout_ms=ASK_TIMEOUT_MS,
            on_connected=lambda: self.feed.restart(),
            on_fenced=self._fence,
            on_state=lambda code, body: self._state.handle(code, body),
        )
        settings = BrokerSettings(broker=BROKER_CONFIG, store=config, tier=tier, clock=world.now_ms)
        parts = self.parts = await make_parts(
            settings,
            store,
            disk=self.disk,
            cold=self.cold,
            store_host=("127.0.0.1", 10911),
            arrived=lambda _queues: None,
            clock=world.now_ms,
            seed=7,
        )
        reservation = LogReservation(
            store.commit_log,
            reserve_bytes=reserve_bytes(self.disk, config, configured=tier.reserve_bytes),
            request_save=lambda: parts.tables.persister.request(log_reservation.FILE_NAME),
        )
        parts.tables.persister.register(log_reservation.FILE_NAME, config.log_ceiling_path, reservation.encode)
        reservation.load(load_file(self.disk, config.log_ceiling_path))
        self._state = StateLink(
            hub,  # type: ignore[arg-type]
            in_flight=parts.pops.store.in_flight,
            reservation=reservation,
            save_files=make_housekeeping(parts).save,
        )
        self._index = BuiltIndex(self.disk, config, store, world.now_ms)
        self.feed = TierFeed(
            hub,  # type: ignore[arg-type]
            topics=parts.tables.topics,
            queues=store.queues,
            incarnations=store.incarnations,
            kept_clock=parts.tables.kept_clock,
            cut_interval_ms=NEVER_MS,
        )
        self.rounds = StoreRounds(
            store,
            retention=store.retention,
            page=page,
            clock=world.now_ms,
            gate=self.gate,
            index_timestamp_ms=lambda: 0,
            on_tick=lambda _pressure: None,
        )
        self.rounds.publish()
        self.finder = PullFinder(
            settings=settings,
            store=store,
            offsets=parts.tables.offsets,
            cold=self.cold,
            cold_quota=parts.reads.cold_quota,
            limits=ColdPullLimits(),
            visible=parts.reads.visible,
            on_cold_read=parts.base.stats.rates.add_get_time,
            near_bytes=0,
        )
        await self.start_tier()

    async def close(self) -> None:
        """Stop cleanly."""
        await self.stop_tier()
        await self._state.close()
        await self.parts.tables.persister.close()
        await self.rounds.close()
        self._index.service.close()
        self.store.close()
        self.disk.die()

    def die(self) -> None:
        """As `kill -9`: nothing that it still has in hand comes to pass."""
        self.disk.die()
        if self.tier_task is not None:
            self.tier_task.cancel()

    async def start_tier(self) -> None:
        """Let a new tier process take the next epoch; serves when this returns."""

        async def open_store(_url: str, _options: ObjectStoreOptions) -> ObjectStore:
            return self._open_store()

        role = self.role = TierRole(
            disk=self.disk,
            clock=self.world.now_ms,
            keeps_spool_in_memory=True,
            open_store=open_store,
            make_random=lambda: Random(self.random.getrandbits(64)),
            checkpoint_interval=CHECKPOINT_INTERVAL,
            on_opened=lambda: None,  # a collection of all objects of the tests' process takes longer than a trial
        )
        link = self._hub.connect(TIER_ROLE, role)
        self.tier_task = asyncio.get_running_loop().create_task(self._run_tier(role, link))
        await self.report()
        while not role.is_serving:
            if self.tier_task.done():
                self.tier_task.result()
                raise FencedError("the tier process has ended")
            await asyncio.sleep(0.01)
        # Its answer comes behind what it tells of the ledger.
        request = TierReportRequest(topic=None, visible_from_ms=None)
        await self._hub.ask(TIER_ROLE, HelperRequestCode.TIER_REPORT, request, timeout_ms=ASK_TIMEOUT_MS)

    async def stop_tier(self) -> None:
        """End the tier process; what is not committed is lost with it."""
        self._hub.disconnect(TIER_ROLE)
        if self.tier_task is not None:
            self.tier_task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ProcessCrash, FencedError):
                await self.tier_task

    async def _run_tier(self, role: TierRole, link: object) -> None:
        try:
            await role.run(link)  # type: ignore[arg-type]
        except (FencedError, ForeignLedgerError) as error:
            role.fenced(error)
            await asyncio.sleep(0)  # said before the connection closes
            self._hub.disconnect(TIER_ROLE)

    def _open_store(self) -> ObjectStore:
        world = self.world
        slow = SlowStore(world.bucket, self.random)
        faulty = FaultInjectingObjectStore(
            slow,
            self._plan,
            crash=self._crash,
            late_by=self.random.choice((1, 3, 60)),
            history=world.history,
            sleep=self._slumber.sleep,
        )
        world.stores.append(faulty)
        store = SleepingObjectStore(faulty, self._slumber)
        return RetryingObjectStore(store, random=self.random) if world.is_retrying else store

    def _plan(self, number: int, call: StoreCall) -> Fault:
        self.disk.check()  # a process that is dead on one side is dead
        return self._tape.store_plan(number, call)

    def _crash(self) -> None:
        self.disk.die()
        self._tape.stop()

    def _fence(self, fenced: Fenced) -> None:
        """As the hot process does it: take no message any more, delete nothing."""
        self.fenced = fenced
        self.store.commit_log.fail(f"fenced: {fenced.reason}")

    # -- rounds --------------------------------------------------------------------------------------------------------

    def gate(self) -> RetentionGate:
        """What local deletion waits for, as in the hot process."""
        parts = self.parts
        return RetentionGate(
            committed_offset=0 if self.fenced else self.cold.committed_offset,
            index_offset=self._index.service.durable_offset,
            held_offset=parts.due.delays.earliest_undelivered_offset(),
            transactions_offset=parts.due.transactions.held_offset,
        )

    async def report(self, *, flush: bool = True) -> None:
        """Write queue files, and tell the tier process what is new; flushed, unless that has not come round yet."""
        if flush:
            self.store.flush.flush()
        self.store.queues.write_dirty()
        self.rounds.publish()
        await self.feed.tell_cuts()
        await self.feed.flush()

    async def seal(self, topic: str | None = None) -> None:
        """Everything that is reported and flushed goes to the cold tier; a round that sweeps and collects, too.

        Of a topic that is named into a segment of its own, else into packs."""
        await self._hub.ask(TIER_ROLE, HelperRequestCode.SEAL, SealRequest(topic=topic), timeout_ms=ASK_TIMEOUT_MS)

    async def purge(self, topic: str) -> PurgeReply:
        """Delete a topic's expired records from the bucket."""
        answer = await self._hub.ask(
            TIER_ROLE, HelperRequestCode.PURGE, PurgeRequest(topic=topic), timeout_ms=ASK_TIMEOUT_MS
        )
        return msgspec.msgpack.decode(answer.body, type=PurgeReply)

    async def delete_local_files(self) -> None:
        """Make everything durable, and let go of every local file that may go."""
        await self.report()
        self._index.build()
        self._index.service.checkpoint()
        await self.rounds.sync_derived()
        await self.rounds.run_retention()

    @property
    def work(self) -> TierWork:
        """The tier process's. UnavailableError while there is none."""
        assert self.role is not None
        work = self.role._work
        if work is None:
            raise UnavailableError("the tier process is away")
        return work

    @property
    def service(self) -> TierService:
        """See `work`."""
        return self.work.service
