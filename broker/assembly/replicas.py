"""Replicas: a master's port for slaves, or a slave's link to its master; neither without brokerRole.

made        sends wait for slaves if inSyncReplicas says so, under a controller for the SyncStateSet, which reads wait
            for, too; or the log refuses all but its master's bytes
open_port   slaves can connect, before NameServers get the address
start_link  the slave follows its master: its log as haMasterAddress says, else as NameServers answer, under a
            controller as that says; and its tables
end_puts    the broker is to be no master any more: sends that wait for others are answered
close       the link and what follows the tables, among the first parts; the port after all sends are answered, before
            the store
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.assembly.replica_tables import make_metadata_follower
from thermocline.broker.assembly.stand_in import StandInParts, member_requests, take_back
from thermocline.broker.replicas import EnrolmentFollower, MetadataFollower
from thermocline.broker.settings import BrokerConfig, BrokerRole, BrokerSettings, ReplicaSettings
from thermocline.broker.stats import ControlledFigures
from thermocline.remoting.bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.connections import Handler, LimitCounts, Processor
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication import (
    Alignment,
    Confirmations,
    EpochFile,
    HandOver,
    ReplicaRole,
    ReplicationSettings,
    SlaveHandshake,
    SyncStateSet,
)
from thermocline.replication.links import ControlledBook, ControlledSlave, MasterPort, SlaveLink, SlaveState
from thermocline.store.files import Disk
from thermocline.store.log import TOO_FEW_IN_SYNC
from thermocline.store.message_store import MessageStore
from thermocline.timers.taken_back import TakenBackTimers

logger = logging.getLogger(__name__)

LAST_TABLES_S = 0.5
"""Of the time until writes are served: in a planned switch the master before answers in a few milliseconds, a dead one
refuses, a frozen one costs all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBefore:
    """The log under the role before, of a broker under a controller. `confirm_offset`: what was confirmed then."""

    epochs: EpochFile
    confirm_offset: PhysicalOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A controller's decision about this broker. `sync_state_set`: a master's; None: it is a slave."""

    role: ReplicaRole
    sync_state_set: frozenset[int] | None

    @property
    def is_master(self) -> bool:
        """Whether this broker is the master."""
        return self.sync_state_set is not None

    def apply(self, config: BrokerConfig) -> BrokerConfig:
        """The settings of a broker with this role, as RocketMQ's broker shows them."""
        broker_role = BrokerRole.SYNC_MASTER if self.is_master else BrokerRole.SLAVE
        return replace(config, broker_role=broker_role, broker_id=0 if self.is_master else self.role.broker_id)


class Replicas:
    """See the module's header. On the loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        disk: Disk,
        limits: LimitCounts,
        assignment: Assignment | None = None,
        before: LogBefore | None = None,
    ) -> None:
        """`assignment`, `before`: under a controller; `settings` have its role.

        Raises:
            CorruptDataError: The enrolment cannot be read.
        """
        config = settings.broker
        assert (assignment is None) == (before is None)
        self._assignment = assignment
        self._before = before
        end_offset = store.commit_log.append_offset
        self._known_confirm_offset = min(LOG_START if before is None else before.confirm_offset, end_offset)
        self.sync_state_set: SyncStateSet | None = None
        """Of a master under a controller."""
        self.hand_over: HandOver | None = None
        """Likewise."""
        self._settings = settings
        self._store = store
        self._disk = disk
        self._limits = limits
        self._takes_free_port = not config.ha_port and not config.listen_port
        self._port: MasterPort | None = None
        self._link: SlaveLink | None = None
        self._confirmations: Confirmations | None = None
        self._tables: MetadataFollower | None = None
        self._stand_in: StandInParts | None = None
        self.lacking_offset: Callable[[], PhysicalOffset | None] = self._lacks_all
        """From where on an empty slave needs the log, see MasterSession; set once that is known."""
        self.on_parted: Callable[[Alignment], None] = _ignore_alignment
        """For a slave's link: its log parts from its master's there, and has to be cut before it can go on."""
        self.on_failed: Callable[[], None] = _ignore_failure
        """For a slave's link: its log takes no writes until the store is opened again."""
        self.enrolment: EnrolmentFollower | None = None
        """Of a slave with a cold tier: whose ledger it follows."""
        if assignment is not None and assignment.sync_state_set is not None:
            self.sync_state_set = self._make_sync_state_set(assignment.role, assignment.sync_state_set)
            self.hand_over = HandOver(store.commit_log, self.sync_state_set)
        elif config.slaves_needed:
            self._confirmations = Confirmations(
                slaves_needed=config.slaves_needed, timeout_ms=lambda: settings.broker.slave_timeout_ms
            )
            store.stored.replicas = self._confirmations
        if config.is_slave:
            link = self._link = SlaveLink(
                store, replication_settings(config), clock=_steady_ms, controlled=self._make_controlled(config)
            )
            if assignment is not None:
                store.read_limit = link.read_limit
            if settings.tier.is_enabled:
                self.enrolment = EnrolmentFollower(
                    disk,
                    store.config.enrolment_path,
                    store_id=store.identity.store_id,
                    log_end=lambda: store.commit_log.append_offset,
                )
                self.enrolment.is_following = lambda: link.is_following

    def _make_sync_state_set(self, role: ReplicaRole, members: frozenset[int]) -> SyncStateSet:
        settings, store, log = self._settings, self._store, self._store.commit_log
        assert role.master_broker_id is not None, "a master's role names it"
        sync_state_set = SyncStateSet(
            role.master_broker_id,
            members=members,
            set_epoch=role.sync_state_set_epoch,
            epoch_start=log.append_offset,
            confirm_offset=self._known_confirm_offset,
            log_end=lambda: log.append_offset,
            acks_needed=lambda: None if settings.broker.all_ack else settings.broker.in_sync_replicas,
            timeout_ms=lambda: settings.broker.slave_timeout_ms,
            lag_ms_max=lambda: settings.broker.slave_lag_ms_max,
            least_in_sync=lambda: settings.broker.min_in_sync_replicas,
            on_enough=self._has_enough,
        )
        store.stored.replicas = sync_state_set
        store.read_limit = sync_state_set.read_limit
        return sync_state_set

    def _has_enough(self, has_enough: bool) -> None:
        log = self._store.commit_log
        if has_enough:
            log.refuse_no_more(TOO_FEW_IN_SYNC)
        elif log.lasting_refusal is None:
            log.refuse_all(TOO_FEW_IN_SYNC)

    def _make_controlled(self, config: ReplicaSettings) -> ControlledSlave | None:
        if self._assignment is None or self._before is None:
            return None
        return ControlledSlave(
            epoch_file=self._before.epochs,
            handshake=SlaveHandshake(
                self._assignment.role.broker_id,
                begins_with_last_file=config.begins_with_last_file,
                is_learner=config.is_learner,
            ),
            on_parted=lambda alignment: self.on_parted(alignment),
            on_failed=lambda: self.on_failed(),
            confirm_offset=self._known_confirm_offset,
            may_report=lambda: self.has_followed_tables or self._waits_for_log,
        )

    def _make_book(self, config: ReplicaSettings) -> ControlledBook | None:
        if self.sync_state_set is None or self._before is None:
            return None
        return ControlledBook(
            self._store.commit_log,
            replication_settings(config),
            self.sync_state_set,
            self._before.epochs.epochs,
            empty_start=lambda: self.lacking_offset(),
        )

    def open_port(self, resources: AsyncExitStack) -> None:
        """Take the port of slaves, until `resources` close; nothing to do on a broker that takes none.

        Raises:
            OSError: The port is taken.
        """
        config = self._settings.broker
        if not config.takes_slaves:
            return
        self._port = MasterPort(
            self._store.commit_log,
            replication_settings(config),
            confirmations=self._confirmations,
            clock=_steady_ms,
            limits=self._limits,
            connections_max=config.ha_connections_max,
            empty_start=lambda: self.lacking_offset(),
            book=self._make_book(config),
        )
        resources.callback(self._port.close)
        if self.hand_over is not None:
            resources.callback(self.hand_over.close)
        wanted = 0 if self._takes_free_port else config.ha_port or config.listen_port + 1
        self._settings.broker = replace(config, ha_port=self._port.start(config.bound_host, wanted))

    def start_link(self, parts: BrokerParts, resources: AsyncExitStack) -> None:
        """Follow the master, until `resources` close; nothing to do on a master."""
        link = self._link
        if link is None:
            return
        master_address: Callable[[], str | None] | None = None
        if self._assignment is not None:
            link.follow(self._assignment.role.master_ha_address)
            master_address = self._assigned_master
        elif self._settings.broker.ha_master_address:
            link.follow(self._settings.broker.ha_master_address)
        else:
            parts.cluster.registration.on_master = link.follow
        stand_in = self._stand_in
        if stand_in is not None:
            master_address = stand_in.master_address
        follower = make_metadata_follower(
            parts,
            enrolment=self.enrolment,
            master_address=master_address,
            followed_timers=None if stand_in is None else stand_in.followed_timers,
        )
        follower.on_progress = link.report
        self._tables = follower
        follower.start()
        resources.push_async_callback(follower.close)
        if stand_in is not None:
            stand_in.start(follower, resources)
        link.start()
        resources.push_async_callback(link.close)

    def follow(self, assignment: Assignment) -> None:
        """A slave under a controller has another master, or none."""
        assert self._link is not None
        assert not assignment.is_master
        self._assignment = assignment
        self._link.follow(assignment.role.master_ha_address)
        if self._tables is not None:
            self._tables.master_changed()

    def _assigned_master(self) -> str | None:
        assert self._assignment is not None
        return self._assignment.role.master_address or None

    @property
    def has_followed_tables(self) -> bool:
        """Whether a slave has taken over all tables of its present master, and may take its ledger over: before that it
        is not fit to be elected."""
        if self.enrolment is not None and not self.enrolment.is_current:
            return False
        return self._tables is not None and self._tables.has_followed_all

    @property
    def _waits_for_log(self) -> bool:
        """Whether a slave lacks a part of the log before it may take over all tables: it reports to receive that."""
        if self.enrolment is not None and not self.enrolment.is_current:
            return False
        return self._tables is not None and self._tables.waits_for_log

    async def follow_last(self) -> None:
        """A slave is to be the master: take its master's tables over once more, if that one still answers, within
        LAST_TABLES_S."""
        if self._tables is None:
            return
        try:
            async with asyncio.timeout(LAST_TABLES_S):
                await self._tables.follow_all()
        except (TimeoutError, MQError) as error:
            logger.info("tables are not those of the master's end error=%s", str(error) or "no answer in time")

    @property
    def has_slaves(self) -> bool:
        """Whether slaves are connected to this master."""
        return self._port is not None and bool(self._port.states())

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where the log ends."""
        return self._store.commit_log.append_offset

    @property
    def has_failed_log(self) -> bool:
        """Whether the log takes no writes until it is opened again."""
        return self._store.commit_log.is_failed

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """Under a controller: the log below it is on all brokers of the SyncStateSet, at a slave as it heard last."""
        if self.sync_state_set is not None:
            return self.sync_state_set.confirm_offset
        return self._known_confirm_offset if self._link is None else self._link.confirm_offset

    def end_puts(self) -> None:
        """Answer the sends that wait for other brokers, and those that are still to wait, FLUSH_SLAVE_TIMEOUT; what may
        be read then is read no more before the next role."""
        if self.hand_over is not None:
            self.hand_over.close()
        if self.sync_state_set is not None:
            self.sync_state_set.close()
        if self._confirmations is not None:
            self._confirmations.close()

    async def take_back(self, store_host: tuple[str, int]) -> TakenBackTimers | None:
        """Wait until a master has taken back what its slaves did in its place; see stand_in.py. Raises as it does."""
        config = self._settings.broker
        if (
            self._port is None
            or not config.slave_acting_master
            or config.skip_pre_online
            or self._assignment is not None
        ):
            return None
        return await take_back(self._settings, self._store, self._port, disk=self._disk, store_host=store_host)

    def processors(self, parts: BrokerParts, served_by: Mapping[int, Handler]) -> tuple[Processor, ...]:
        """Requests about members of the replica set, to stand before those that `served_by` serves."""
        if self._link is None:
            return (member_requests(parts),)
        if parts.cluster.members is None or self._assignment is not None:
            return ()
        self._stand_in = StandInParts(parts, self._link)
        return self._stand_in.processors(served_by)

    def _lacks_all(self) -> PhysicalOffset | None:
        return self._store.commit_log.min_offset if self._settings.tier.is_enabled else None

    def controlled_figures(self, *, has_role_failed: bool) -> ControlledFigures | None:
        """What monitoring sees under a controller; None without one."""
        if self._before is None:
            return None
        last = self._before.epochs.epochs.last
        return ControlledFigures(
            master_epoch=0 if last is None else last.epoch,
            in_sync_count=None if self.sync_state_set is None else self.sync_state_set.in_sync_count,
            confirm_offset=self.confirm_offset,
            has_role_failed=has_role_failed,
        )

    def runtime_info(self) -> HARuntimeInfo:
        """The state of replication, as `mqadmin haStatus` shows it."""
        return self._slave_info() if self._settings.broker.is_slave else self._master_info()

    def _master_info(self) -> HARuntimeInfo:
        end_offset = self._store.commit_log.append_offset
        slaves = [
            HAConnectionRuntimeInfo(
                addr=slave.address,
                diff=end_offset - slave.confirmed_offset,
                in_sync=self._is_in_sync(slave),
                slave_ack_offset=slave.confirmed_offset,
                transfer_from_where=slave.next_offset,
                transferred_byte_in_second=slave.bytes_per_second,
            )
            for slave in (() if self._port is None else self._port.states())
        ]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end_offset,
            ha_connection_info=slaves,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
        )

    def _is_in_sync(self, slave: SlaveState) -> bool:
        if self.sync_state_set is not None:
            return slave.replica_id in self.sync_state_set.members
        gap_bytes = self._store.commit_log.append_offset - slave.confirmed_offset
        return gap_bytes < self._settings.broker.ha_gap_bytes_max

    def _slave_info(self) -> HARuntimeInfo:
        link = self._link
        assert link is not None
        return HARuntimeInfo(
            master=False,
            ha_client_runtime_info=HAClientRuntimeInfo(
                master_addr=link.master_address or None,
                max_offset=self._store.commit_log.append_offset,
                last_read_timestamp=link.last_read_ms,
                last_write_timestamp=link.last_written_ms,
                transferred_byte_in_second=link.bytes_per_second,
            ),
        )


def replication_settings(config: ReplicaSettings) -> ReplicationSettings:
    """The values of `ha...` settings."""
    return ReplicationSettings(
        transfer_bytes_max=config.ha_transfer_bytes,
        heartbeat_interval_ms=config.ha_heartbeat_interval_ms,
        silence_ms_max=config.ha_silence_ms_max,
        bytes_per_second_max=config.ha_bytes_per_second_max if config.ha_flow_control else 0,
    )


def _ignore_alignment(alignment: Alignment) -> None:
    """Without a controller logs are not compared."""


def _ignore_failure() -> None:
    """Without a controller the log is opened again at the next start."""


def _steady_ms() -> int:
    return int(monotonic_ms())
