"""Role notices: NOTIFY_BROKER_ROLE_CHANGED to the living replicas of a set that has a new master.

One-way and once: a broker that misses it finds out when it asks for its replica info, every 5 s. Of two notices for one
address the newer one is sent. Bound: one task an address; the addresses are those of replicas.
Owner: the controller's event loop.
Source: controller/ControllerManager.java (NotifyService), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from thermocline.remoting.bodies.replica import SyncStateSet
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.tls import ClientTls

logger = logging.getLogger(__name__)


class RoleNotices:
    """See the module."""

    def __init__(self, *, tls: ClientTls | None, credentials: Credentials | None) -> None:
        self._client = RemotingClient(tls=tls, credentials=credentials)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def send(self, address: str, header: NotifyBrokerRoleChangedRequestHeader, members: SyncStateSet) -> None:
        """Tell the broker at this address who is the master."""
        older = self._tasks.get(address)
        if older is not None:
            older.cancel()
        task = asyncio.create_task(self._send(address, header, members), name=f"role notice to {address}")
        self._tasks[address] = task
        task.add_done_callback(lambda done: self._forget(address, done))

    def keep_connections(self, addresses: Collection[str]) -> None:
        """Close connections to addresses that are no replica's any more."""
        for address in self._client.addresses:
            if address not in addresses:
                self._client.disconnect(address)

    async def close(self) -> None:
        """End what is on its way. Idempotent."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def _send(self, address: str, header: NotifyBrokerRoleChangedRequestHeader, members: SyncStateSet) -> None:
        command = RemotingCommand.request(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body=members.encode(), oneway=True
        )
        try:
            await self._client.send_oneway(address, command)
        except MQError as error:
            logger.warning("role notice not sent broker=%s: %s", address, error)

    def _forget(self, address: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(address) is task:
            del self._tasks[address]
