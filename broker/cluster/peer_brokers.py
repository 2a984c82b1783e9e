"""Peer brokers: sends requests about physical queues to other brokers of the cluster, by broker name.

A name's address comes from a NameServer, which is queried for a new name and after a failed call, at most once in
ASK_AGAIN_MS. Connections are kept open as long as the peers keep them.
Bound: CALLS_MAX calls at a time; more are refused, and clients ask again.
Owner: the hot process's event loop.
Source: remoting/rpc/RpcClientImpl.java, broker/out/BrokerOuterAPI.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from thermocline.broker.cluster.registration import Registration
from thermocline.remoting.bodies import ClusterInfo
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import BrokerBusyError, MQError, UnavailableError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

logger = logging.getLogger(__name__)

CALLS_MAX = 1_024
ASK_AGAIN_MS = 1_000
NAME_SERVER_TIMEOUT_MS = 3_000
MASTER_ID = 0


class PeerBrokers:
    """The masters of the other brokers. `close` as often as wanted."""

    def __init__(self, registration: Registration, *, timeout_ms: Callable[[], int], clock: Callable[[], int]) -> None:
        """`timeout_ms`: the default timeout of a call. `clock`: steady, ms."""
        self._registration = registration
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._client: RemotingClient | None = None
        self._addresses: dict[str, str] = {}
        self._slaves: dict[str, str] = {}
        """Those with the least id, of brokers without a master."""
        self._asked_ms: int | None = None
        self._asking: asyncio.Task[None] | None = None
        self._calls_count = 0

    async def call(
        self, broker_name: str, command: RemotingCommand, *, timeout_ms: int | None = None, or_slave: bool = False
    ) -> RemotingCommand:
        """Ask the master of a broker and return its answer, whatever the code. Cancelling is safe. `or_slave`:
        without a master, the slave with the least id is asked, which may stand in for it.

        Raises:
            MQError: No NameServer has the broker's address, or it did not answer; RocketMQ answers SYSTEM_ERROR then.
            BrokerBusyError: Too many calls are under way.
        """
        if self._calls_count >= CALLS_MAX:
            raise BrokerBusyError("too many requests to other brokers are on the way", calls_max=CALLS_MAX)
        self._calls_count += 1
        try:
            address = await self._address_of(broker_name, or_slave=or_slave)
            if self._client is None:
                registration = self._registration
                self._client = RemotingClient(tls=registration.tls, credentials=registration.credentials)
            return await self._client.call(address, command, timeout_ms=timeout_ms or self._timeout_ms())
        except UnavailableError as error:
            self._addresses.pop(broker_name, None)
            self._slaves.pop(broker_name, None)
            raise MQError(f"no answer from broker {broker_name}", reason=str(error)) from error
        finally:
            self._calls_count -= 1

    async def close(self) -> None:
        """Close the connections; calls that wait fail."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _address_of(self, broker_name: str, *, or_slave: bool) -> str:
        if broker_name not in self._addresses and self._may_ask():
            if self._asking is None:
                self._asking = asyncio.get_running_loop().create_task(self._ask())
                self._asking.add_done_callback(self._asked)
            await asyncio.shield(self._asking)
        address = self._addresses.get(broker_name)
        if address is None and or_slave:
            address = self._slaves.get(broker_name)
        if address is None:
            raise MQError(f"cannot find addr for broker {broker_name}")
        return address

    def _may_ask(self) -> bool:
        return self._asking is not None or self._asked_ms is None or self._clock() - self._asked_ms >= ASK_AGAIN_MS

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        self._asked_ms = self._clock()

    async def _ask(self) -> None:
        try:
            answer = await self._registration.call(
                RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_ms=NAME_SERVER_TIMEOUT_MS
            )
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return
            table = ClusterInfo.decode(answer.body).broker_addr_table
        except MQError as error:
            logger.warning("addresses of brokers not known anew error=%s", error)
            return
        self._addresses = {
            name: broker.broker_addrs[MASTER_ID] for name, broker in table.items() if MASTER_ID in broker.broker_addrs
        }
        self._slaves = {
            name: broker.broker_addrs[min(broker.broker_addrs)]
            for name, broker in table.items()
            if broker.broker_addrs and MASTER_ID not in broker.broker_addrs
        }
