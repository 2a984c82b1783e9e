"""Whole brokers in the test's process whose roles change, as a controller would have it; and a NameServer."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.control_broker import HalfFullDisk
from tests.waiting import until
from thermocline.broker.hot_process import HotProcess
from thermocline.broker.role_parts import RoleParts
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.broker.settings.replica_settings import BrokerRole
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.replication import ReplicaRole
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import Disk
from thermocline.store.message_store import MessageStore
from thermocline.tiered.budgets.tier_config import TierConfig
from tooling.official_rocketmq import free_broker_port

NAME = "broker-r"
SWITCHED = "a planned switch"


@dataclass(slots=True, kw_only=True)
class RoleBroker:
    """One of a set, by the controller's id of it."""

    number: int
    process: HotProcess
    address: str = ""
    ha_address: str = ""

    @property
    def parts(self) -> RoleParts:
        return self.process._role

    @property
    def store(self) -> MessageStore:
        return self.parts.local.store

    @property
    def is_master(self) -> bool:
        return self.process._settings.broker.broker_id == 0

    @property
    def error(self) -> str:
        return self.process._switch.error


@dataclass(slots=True, kw_only=True)
class RoleSet:
    """A set without a controller: the test decides."""

    namesrv: str
    brokers: dict[int, RoleBroker]
    epoch: int = 0
    master: int | None = None
    switch_seconds: list[float] = field(default_factory=list)

    def role_of(self, number: int, *, master: int | None) -> ReplicaRole:
        other = None if master is None or master == number else self.brokers[master]
        return ReplicaRole(
            broker_id=0 if number == master else number,
            master_epoch=self.epoch,
            sync_state_set_epoch=self.epoch,
            master_broker_id=master,
            master_address="" if other is None else other.address,
            master_ha_address="" if other is None else other.ha_address,
        )

    async def elect(self, number: int, members: Sequence[int] = ()) -> None:
        """Have a broker become the master of the next epoch; the others get no notice."""
        self.epoch += 1
        self.master = number
        role = self.role_of(number, master=number)
        await self.brokers[number].process.role_changer.become_master(role, frozenset(members or [number]))

    async def tell_others(self) -> None:
        """Have the others follow the master."""
        for number, broker in self.brokers.items():
            if number != self.master:
                await broker.process.role_changer.become_slave(self.role_of(number, master=self.master))

    async def switch(self, number: int) -> None:
        """Change masters as a planned switch does: writes stop, the next master has all, then it begins."""
        begin_s = time.perf_counter()
        before = self.brokers.get(self.master or 0)
        if before is not None:
            before.store.commit_log.refuse_all(SWITCHED)
            await self.wait_copied(number)
        await self.elect(number)
        self.switch_seconds.append(time.perf_counter() - begin_s)
        await self.tell_others()

    async def wait_copied(self, number: int) -> None:
        """Return when a slave has all of its master's log."""
        assert self.master is not None
        ours, theirs = self.brokers[number], self.brokers[self.master]
        await until(
            lambda: ours.store.commit_log.append_offset == theirs.store.commit_log.append_offset,
            what="the slave has the log",
        )

    async def wait_followed(self, number: int) -> None:
        """Return when a slave has its master's tables, and its log."""
        await self.wait_copied(number)
        await until(lambda: self.brokers[number].parts.replicas.has_followed_tables, what="the slave has the tables")


@asynccontextmanager
async def role_set(
    folder: Path,
    *,
    count: int = 2,
    cold_url: str = "none",
    disks: dict[int, Disk] | None = None,
    tier: dict[str, Any] | None = None,
    store: dict[str, Any] | None = None,
    single_process: bool = True,
    **settings: Any,
) -> AsyncIterator[RoleSet]:
    """Brokers 1 to `count`, all waiting as slaves without a master. `disks`: of single brokers; `tier`, `store` and
    others: their settings."""
    async with AsyncExitStack() as stack:
        server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
        namesrv = f"127.0.0.1:{await server.start()}"
        stack.push_async_callback(server.close)
        found = RoleSet(namesrv=namesrv, brokers={})
        for number in range(1, count + 1):
            port = free_broker_port()
            broker_settings = BrokerSettings(
                broker=BrokerConfig(
                    listen_host="127.0.0.1",
                    listen_port=port,
                    ha_port=port + 1,
                    vip_port_on=False,
                    broker_name=NAME,
                    broker_role=BrokerRole.SLAVE,
                    broker_id=number,
                    name_server_addresses=namesrv,
                    slave_read=True,
                    fast_failure=False,  # a test's process is late now and then
                    ha_heartbeat_interval_ms=100,
                    **settings,
                ),
                store=StoreConfig(
                    root_path=str(folder / f"store-{number}"),
                    **{"log_file_bytes": 1 << 20, "queue_file_bytes": 20 * 1_000, **(store or {})},
                ),
                tier=TierConfig(cold_url=cold_url, **(tier or {})),
                clock=wall_clock_ms,
            )
            process = HotProcess(
                broker_settings,
                environment={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
                single_process=single_process,
                disk=(disks or {}).get(number, HalfFullDisk()),
            )
            await process.start()
            stack.push_async_callback(process.close)
            found.brokers[number] = RoleBroker(
                number=number, process=process, address=f"127.0.0.1:{port}", ha_address=f"127.0.0.1:{port + 1}"
            )
        yield found
