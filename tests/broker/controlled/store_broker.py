"""Store broker: a broker under a controller without the parts that serve clients: a real store, its replication port
and link, its port for controllers and other brokers, and the product's driver.

Its role changes at once, on the open store; what a broker with clients does is tested where that is (role changes).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.clock import now_ms
from tests.store.store_parts import draft, small_config
from thermocline.broker.controlled import (
    BrokerNames,
    ControlledBroker,
    ControlledProcessor,
    ControllerClient,
    ControlMachine,
    IdentityFiles,
)
from thermocline.broker.settings.controller_settings import ControllerSettings
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.connections import Dispatcher, LimitCounts, RemotingServer
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication import (
    Alignment,
    EpochFile,
    Epochs,
    HandOver,
    ReplicaRole,
    ReplicationSettings,
    SlaveHandshake,
    SyncStateSet,
)
from thermocline.replication.links import ControlledBook, ControlledSlave, MasterPort, SlaveLink
from thermocline.store.files.disk import RealDisk
from thermocline.store.index.index_service import IndexService
from thermocline.store.log import PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.truncation import truncate_store
from tooling.official_rocketmq import free_broker_port

LOOPBACK = "127.0.0.1"
NAMES = BrokerNames(cluster="c", broker_name="broker-a")
FILE_BYTES = 1 << 20
LAG_MS_MAX = 1_500
PUT_TIMEOUT_MS = 60_000
REPLICATION = ReplicationSettings(heartbeat_interval_ms=200, silence_ms_max=5_000)


class StoreBroker:
    """A RoleChanger, and answers to controllers, tools and slaves. One folder and one port over all starts."""

    def __init__(
        self,
        folder: Path,
        controllers: str,
        *,
        names: BrokerNames = NAMES,
        is_learner: bool = False,
        on_master: Callable[[StoreBroker], Awaitable[None]] | None = None,
    ) -> None:
        """`on_master`: called when it has become the master."""
        self.folder = folder
        self.names = names
        self.port = free_broker_port()
        self.on_master = on_master
        self.address = f"{LOOPBACK}:{self.port}"
        self.settings = ControllerSettings(
            controller_mode=True,
            controller_addresses=controllers,
            heartbeat_ms=200,
            controller_silence_ms=1_500,
            replica_info_interval_ms=500,
            is_learner=is_learner,
        )
        self.settings.check_controllers()
        self.roles: list[ReplicaRole] = []
        self.cuts: list[Alignment] = []
        self.is_unfit = False
        """Whether it fails to be a master."""
        self._resources = contextlib.AsyncExitStack()

    async def start(self, *, seed: int = 0) -> None:
        """A life begins."""
        self._resources, self.roles = contextlib.AsyncExitStack(), []
        self.role_error = ""
        self.sync_state_set: SyncStateSet | None = None
        self._role_resources = contextlib.AsyncExitStack()
        self.disk = RealDisk()
        self.config = small_config(str(self.folder), log_file_bytes=FILE_BYTES, queue_file_bytes=20_000)
        self.store = MessageStore.open(self.config, disk=self.disk, clock=now_ms)
        self._resources.callback(self.store.close)
        log = self.store.commit_log
        self.epoch_file = EpochFile(self.disk, str(self.folder))
        self.epoch_file.settle(min_offset=log.min_offset, end_offset=log.append_offset)
        self._resources.push_async_callback(self._end_role)
        self.link: SlaveLink | None = None
        self._hand_over: HandOver | None = None
        self._ha_port: MasterPort | None = None
        self._ha_address = ""
        self._cutting: asyncio.Task[None] | None = None
        files = IdentityFiles(self.disk, f"{self.folder}/brokerIdentity", self.names)
        machine = ControlMachine(
            files,
            address=self.address,
            last_epoch=lambda: self.last_epoch,
            ask_interval_ms=lambda: self.settings.replica_info_interval_ms,
            wall_clock=now_ms,
            random=Random(seed),
        )
        self.driver = ControlledBroker(
            machine,
            ControllerClient(addresses=lambda: self.settings.controllers, clock=_steady_ms),
            names=self.names,
            address=self.address,
            changer=self,
            replica=self,
            settings=lambda: self.settings,
            brokers=RemotingClient(),
            clock=_steady_ms,
            random=Random(seed),
        )
        processor = ControlledProcessor(self, self.names, address=self.address, noticed=self.driver.noticed)
        server = RemotingServer(Dispatcher([processor]))
        await server.start(LOOPBACK, self.port)
        self._resources.push_async_callback(server.close)
        self.driver.start()
        self._resources.push_async_callback(self.driver.close)

    async def close(self) -> None:
        """A life ends; the controllers see the connections close."""
        await self._resources.aclose()

    # -- ReplicaState, ReplicaFigures ----------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int:
        last = self.epoch_file.epochs.last
        return 0 if last is None else last.epoch

    @property
    def served_epoch(self) -> int:
        return self.last_epoch if self.is_master else 0

    @property
    def is_failed(self) -> bool:
        return self.store.commit_log.is_failed

    @property
    def epochs(self) -> Epochs:
        return self.epoch_file.epochs

    @property
    def end_offset(self) -> PhysicalOffset:
        return self.store.commit_log.append_offset

    @property
    def confirm_offset(self) -> PhysicalOffset:
        if self.sync_state_set is not None:
            return self.sync_state_set.confirm_offset
        return LOG_START if self.link is None else self.link.confirm_offset

    @property
    def broker_id(self) -> int:
        number = self.driver.machine.files.broker_id
        return 0 if self.is_master or number is None else number

    @property
    def hand_over(self) -> HandOver | None:
        return self._hand_over

    @property
    def ha_address(self) -> str:
        return self._ha_address

    @property
    def number(self) -> int | None:
        """The controllers' number of it."""
        return self.driver.machine.files.broker_id

    @property
    def is_master(self) -> bool:
        return self.sync_state_set is not None

    @property
    def role(self) -> ReplicaRole | None:
        return self.driver.machine.role

    # -- RoleChanger ---------------------------------------------------------------------------------------------------

    @property
    def error(self) -> str:
        return self.role_error

    async def become_master(self, role: ReplicaRole, sync_state_set: frozenset[int]) -> None:
        log, number = self.store.commit_log, self.number
        assert number is not None
        if self.is_unfit:
            await self.become_slave(replace(role, broker_id=number, master_ha_address=""))
            self.role_error = "this broker cannot be a master"
            raise UnavailableError(self.role_error)
        confirm_offset = min(self.confirm_offset, log.append_offset)
        self.epoch_file.begin_as_master(role.master_epoch, log.append_offset)
        await self._end_role()
        self.roles.append(role)
        self.sync_state_set = SyncStateSet(
            number,
            members=sync_state_set,
            set_epoch=role.sync_state_set_epoch,
            epoch_start=log.append_offset,
            confirm_offset=confirm_offset,
            log_end=lambda: log.append_offset,
            acks_needed=lambda: None,
            timeout_ms=lambda: PUT_TIMEOUT_MS,
            lag_ms_max=lambda: LAG_MS_MAX,
        )
        self._hand_over = HandOver(log, self.sync_state_set)
        self.store.stored.replicas = self.sync_state_set
        self.store.read_limit = self.sync_state_set.read_limit
        port = self._ha_port = MasterPort(
            log,
            REPLICATION,
            confirmations=None,
            clock=_steady_ms,
            limits=LimitCounts(),
            connections_max=8,
            book=ControlledBook(log, REPLICATION, self.sync_state_set, self.epoch_file.epochs),
        )
        self._ha_address = f"{LOOPBACK}:{port.start(LOOPBACK, 0)}"
        self._role_resources.callback(port.close)
        if self.on_master is not None:
            await self.on_master(self)

    async def become_slave(self, role: ReplicaRole) -> None:
        self.roles.append(role)
        self.role_error = ""
        if self.link is None:
            await self._end_role()
            await self._start_link()
        assert self.link is not None
        if role.master_ha_address:
            self.link.follow(role.master_ha_address)

    async def _start_link(self) -> None:
        number = self.number
        assert number is not None
        handshake = SlaveHandshake(number, begins_with_last_file=False, is_learner=self.settings.is_learner)
        self.link = SlaveLink(
            self.store,
            REPLICATION,
            clock=_steady_ms,
            reconnect_ms=50,
            controlled=ControlledSlave(epoch_file=self.epoch_file, handshake=handshake, on_parted=self._parted),
        )
        self.store.read_limit = self.link.read_limit
        self.link.start()
        self._role_resources.push_async_callback(self.link.close)

    def _parted(self, alignment: Alignment) -> None:
        if self._cutting is None or self._cutting.done():
            self._cutting = asyncio.get_running_loop().create_task(self._cut(alignment))

    async def _cut(self, alignment: Alignment) -> None:
        assert self.link is not None
        address = self.link.master_address
        await self._end_role()
        truncate_store(self.store, self.disk, alignment.end_offset, cut_derived=self._cut_index)
        self.epoch_file.cut(alignment)
        self.cuts.append(alignment)
        await self._start_link()
        self.link.follow(address)

    def _cut_index(self, end_offset: PhysicalOffset) -> None:
        IndexService.open(self.disk, self.config, log_end_offset=end_offset, was_clean=True, clock=now_ms).close()

    async def _end_role(self) -> None:
        if self._hand_over is not None:
            self._hand_over.close()
            self._hand_over = None
        if self.sync_state_set is not None:
            self.sync_state_set.close()
        self.sync_state_set = self.store.stored.replicas = self.store.read_limit = None
        await self._role_resources.aclose()
        self._role_resources = contextlib.AsyncExitStack()
        if self.link is not None:
            self.link._copy.end()
            self.link = None
        self._ha_port = None

    # -- messages ------------------------------------------------------------------------------------------------------

    def put(self, count: int = 1) -> PhysicalOffset:
        """Append messages; where the log ends then."""
        for number in range(count):
            self.store.put(draft("Topic", number % 2, b"x" * 500))
        return self.end_offset

    async def put_acknowledged(self, count: int = 1) -> None:
        """Append messages, and wait until all brokers of the SyncStateSet have them."""
        done: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self.store.stored.wait(self.put(count), done.set_result, now_ms=now_ms())
        assert await done is PutStatus.PUT_OK


@contextlib.asynccontextmanager
async def store_brokers(folder: Path, controllers: str, *, count: int) -> AsyncIterator[list[StoreBroker]]:
    """Brokers of one name, not started."""
    brokers = [StoreBroker(folder / f"broker-{number}", controllers) for number in range(count)]
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.close()


def _steady_ms() -> int:
    return int(monotonic_ms())
