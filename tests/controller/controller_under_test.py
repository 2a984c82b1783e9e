"""Controllers on ports of this process, a client that speaks to one, and its requests as a broker makes them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.waiting import until
from thermocline.controller import ControllerConfig, ControllerServer
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies.replica import SyncStateSet
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
)
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from thermocline.remoting.request_code import RequestCode

CLUSTER, NAME = "c", "broker-a"
TIMEOUT_MS = 10_000


def config_for(directory: Path, *, port: int | None = None, **settings: Any) -> ControllerConfig:
    """The settings of a controller that is alone; a new leader's wait is short."""
    return ControllerConfig(
        **{
            "peers_text": f"n0-127.0.0.1:{port or free_port()}",
            "node": "n0",
            "store_path": str(directory),
            "new_leader_wait_ms": 0,
            "scan_brokers_ms": 50,
            "scan_masters_ms": 50,
            **settings,
        }
    )


@contextlib.asynccontextmanager
async def running(config: ControllerConfig) -> AsyncIterator[ControllerServer]:
    """A controller that leads."""
    server = ControllerServer(config)
    await server.start()
    try:
        await until(lambda: server.node.is_serving, what="the controller leads")
        yield server
    finally:
        await server.close()


class Caller:
    """A connection to a controller, and requests over it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    @classmethod
    async def connect(cls, config: ControllerConfig) -> Caller:
        return cls(await ClientConnection.open(config.peers.address))

    async def ask(self, code: int, header: Header | None = None, *, body: bytes = b"") -> RemotingCommand:
        command = RemotingCommand.request(code, header, body=body)
        return await self.connection.call(command, timeout_ms=TIMEOUT_MS)

    async def apply_id(self, broker_id: int, *, address: str | None = None, name: str = NAME) -> RemotingCommand:
        place = address or f"127.0.0.1:{20_000 + broker_id}"
        header = ApplyBrokerIdRequestHeader(
            cluster_name=CLUSTER, broker_name=name, applied_broker_id=broker_id, register_check_code=f"{place};1"
        )
        return await self.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    async def beat(self, broker_id: int, *, timeout_ms: int = 60_000, name: str = NAME) -> RemotingCommand:
        header = BrokerHeartbeatRequestHeader(
            cluster_name=CLUSTER,
            broker_addr="127.0.0.1:1",
            broker_name=name,
            broker_id=broker_id,
            epoch=1,
            heartbeat_timeout_mills=timeout_ms,
        )
        return await self.ask(RequestCode.BROKER_HEARTBEAT, header)

    async def elect(self, broker_id: int, *, designate: bool = False) -> RemotingCommand:
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER, broker_name=NAME, broker_id=broker_id, designate_elect=designate
        )
        return await self.ask(RequestCode.CONTROLLER_ELECT_MASTER, header)

    async def alter(self, members: list[int], *, epoch: int = 1) -> RemotingCommand:
        header = AlterSyncStateSetRequestHeader(broker_name=NAME, master_broker_id=1, master_epoch=1)
        body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=epoch).encode()
        return await self.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body=body)

    async def make_pair(self) -> None:
        """Two living replicas in sync, of which number 1 is the master."""
        for broker_id in (1, 2):
            assert (await self.apply_id(broker_id)).code == 0
            assert (await self.beat(broker_id)).code == 0
        assert (await self.elect(1)).code == 0
        assert (await self.alter([1, 2])).code == 0
