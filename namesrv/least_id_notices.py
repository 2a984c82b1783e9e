"""Least id notices: with `notifyMinBrokerIdChanged`, brokers of one name get a notice of a new least id.

    a broker with a smaller id registers     the others get its replication address
    the broker with the least id goes        the remaining brokers get its address

One-way NOTIFY_MIN_BROKER_ID_CHANGE; a broker that cannot be reached is passed over: brokers ask every second anyhow.
Only brokers that have enableSlaveActingMaster get a notice when one goes, as in RocketMQ.
Each has a connection of its own, which ends with it: addresses come from registrations, and a NameServer that kept
connections to all of them would run out of descriptors.
Bound: NOTICES_MAX notices are on the way at once, further ones are dropped.
Owner: the NameServer's event loop.
Source: namesrv/routeinfo/RouteInfoManager.java (notifyMinBrokerIdChanged), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

import msgspec

from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import RECEIVE_BYTES
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.tls import ClientTls

logger = logging.getLogger(__name__)

NOTICES_MAX = 1_024


class LeastIdChange(msgspec.Struct, frozen=True, kw_only=True):
    """Another broker of a name has the least id."""

    broker_name: str
    addresses: Mapping[int, str]
    """Broker id -> address of all that are there now; at least one."""
    offline_address: str | None = None
    """Of the broker that went; None: one came."""
    ha_address: str | None = None
    """Where the log of the one that came is."""


class LeastIdNotices:
    """See the module's header. `close` as often as wanted."""

    def __init__(self, tls: ClientTls | None) -> None:
        """`tls`: for the connections to brokers; None: plain ones."""
        self._tls = tls
        self._buffer: memoryview | None = None
        """Where connections receive what brokers do not send."""
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, change: LeastIdChange) -> None:
        """Tell the brokers that were there before; returns at once."""
        least_id = min(change.addresses)
        # One that came gets no notice of itself, unless it is alone.
        tells_all = change.offline_address is not None or len(change.addresses) == 1
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=least_id,
            min_broker_addr=change.addresses[least_id],
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        for broker_id, address in change.addresses.items():
            if (broker_id != least_id or tells_all) and len(self._tasks) < NOTICES_MAX:
                task = asyncio.get_running_loop().create_task(self._send(address, header))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop; notices on the way are given up."""
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _send(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        command = RemotingCommand.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
        if self._buffer is None:
            self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        try:
            connection = await ClientConnection.open(address, tls=self._tls, receive_buffer=self._buffer)
            connection.send_oneway(command)
            connection.close()
            await connection.wait_closed()
        except MQError as error:
            logger.info("notice of the least id not sent address=%s error=%s", address, error)
