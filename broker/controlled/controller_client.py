"""Controller client: a broker's connections to its controllers.

    ask    to the controller that leads, found by GET_METADATA_INFO at all of them
    beat   to all of them, one-way: each has its own table of living brokers

A controller elects another master as soon as the connection of a broker's heartbeats closes. So a connection is closed
here only by `disconnect`, never because an answer is late.

Rules
  - Every step has a deadline: METADATA_TIMEOUT_MS to find the leader, ASK_TIMEOUT_MS for an answer. One that does not
    answer, or does not lead, is not asked again before the leader has been found anew.
  - An unreachable controller delays no heartbeat to the others: one send at a time is under way for each address.
  - With no controller that answers there is one WARNING, repeated every COMPLAINT_MS, and an INFO when one answers.
  - Bound: one connection for each address in `controllerAddr`, and to LEADERS_MAX addresses that controllers name.
Belongs to the hot process's loop.
Source: broker/out/BrokerOuterAPI.java, broker/controller/ReplicasManager.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, ResponseError, UnavailableError
from thermocline.remoting.headers.controller import GetMetaDataResponseHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.tls import ClientTls

logger = logging.getLogger(__name__)

METADATA_TIMEOUT_MS = 1_000
ASK_TIMEOUT_MS = 3_000
BEAT_TIMEOUT_MS = 1_000
COMPLAINT_MS = 60_000
LEADERS_MAX = 16


class ControllerClient:
    """One broker's. `close` as often as wanted."""

    def __init__(
        self,
        *,
        addresses: Callable[[], Sequence[str]],
        clock: Callable[[], int],
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`addresses`: host:port of all controllers, asked again for each use. `clock`: ms, for intervals."""
        self._addresses = addresses
        self._clock = clock
        self._client = RemotingClient(tls=tls, credentials=credentials, connect_timeout_ms=METADATA_TIMEOUT_MS)
        self._leader = ""
        self._leaders: dict[str, None] = {}
        """Every address that a controller has named as the leader's; it may differ from the same one's in the settings.
        Heartbeats have gone there, so the connection stays."""
        self._beats: dict[str, asyncio.Task[None]] = {}
        self._silent_since_ms: int | None = None
        self._complained_ms = 0

    @property
    def leader(self) -> str:
        """host:port of the controller that led last; empty: it has to be found."""
        return self._leader

    async def ask(self, command: RemotingCommand, *, heartbeat: RemotingCommand | None = None) -> RemotingCommand:
        """Ask the controller that leads, and return its answer, whatever its code. Cancelling is safe; the request may
        have been carried out all the same, also where this raises.

        `heartbeat`: sent before, over the same connection.

        Raises:
            UnavailableError: No controller leads, or it has not answered in time.
        """
        try:
            leader = self._leader or await self._find_leader()
            if heartbeat is not None:
                await self._client.send_oneway(leader, heartbeat)
            answer = await self._client.call(leader, command, timeout_ms=ASK_TIMEOUT_MS)
        except MQError as error:
            self._leader = ""
            self._complain(error)
            raise UnavailableError("no controller has answered", reason=error) from error
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = ""
            raise UnavailableError("the controller does not lead", address=leader)
        self._heard()
        return answer

    def beat(self, make: Callable[[], RemotingCommand]) -> None:
        """Send a heartbeat to every controller; what is still under way to one is not followed by another. Returns at
        once."""
        addresses = set(self._addresses())
        if self._leader:
            addresses.add(self._leader)
        for address in addresses - self._beats.keys():
            task = asyncio.get_running_loop().create_task(self._beat(address, make()), name=f"heartbeat to {address}")
            self._beats[address] = task
            task.add_done_callback(partial(self._beat_over, address))
        for address in self._client.addresses:
            if address not in addresses and address not in self._leaders:
                self._client.disconnect(address)

    def disconnect(self) -> None:
        """Close all connections: the controllers take this broker for gone."""
        for address in self._client.addresses:
            self._client.disconnect(address)

    async def close(self) -> None:
        """Close all connections for good. Idempotent."""
        beats = list(self._beats.values())
        for task in beats:
            task.cancel()
        await asyncio.gather(*beats, return_exceptions=True)
        await self._client.close()

    async def _beat(self, address: str, command: RemotingCommand) -> None:
        try:
            async with asyncio.timeout(BEAT_TIMEOUT_MS / 1_000):
                await self._client.send_oneway(address, command)
        except (MQError, TimeoutError) as error:
            logger.debug("heartbeat not sent controller=%s error=%s", address, error)

    def _beat_over(self, address: str, task: asyncio.Task[None]) -> None:
        if self._beats.get(address) is task:
            del self._beats[address]

    async def _find_leader(self) -> str:
        """
        Raises:
            UnavailableError: None leads, as far as they answer.
        """
        addresses = self._addresses()
        tasks = [asyncio.create_task(self._metadata(address)) for address in addresses]
        named = ""
        try:
            for answered in asyncio.as_completed(tasks):
                address, header = await answered
                if header is None:
                    continue
                if header.is_leader:
                    self._leader = header.controller_leader_address or address
                    break
                named = header.controller_leader_address or named
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._leader = self._leader or named
        if not self._leader:
            raise UnavailableError("no controller leads", addresses=";".join(addresses))
        self._leaders[self._leader] = None
        if len(self._leaders) > LEADERS_MAX:
            del self._leaders[next(iter(self._leaders))]
        logger.info("controller that leads address=%s", self._leader)
        return self._leader

    async def _metadata(self, address: str) -> tuple[str, GetMetaDataResponseHeader | None]:
        command = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        try:
            answer = await self._client.request(address, command, timeout_ms=METADATA_TIMEOUT_MS)
            return address, answer.header(GetMetaDataResponseHeader)
        except ResponseError as error:
            logger.debug("controller has no metadata address=%s error=%s", address, error)
        except MQError as error:
            logger.debug("controller does not answer address=%s error=%s", address, error)
        return address, None

    def _complain(self, error: MQError) -> None:
        now_ms = self._clock()
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
        elif now_ms - self._complained_ms < COMPLAINT_MS:
            return
        self._complained_ms = now_ms
        logger.warning(
            "no controller answers, this broker keeps its role since_ms=%d error=%s",
            now_ms - self._silent_since_ms,
            error,
        )

    def _heard(self) -> None:
        if self._silent_since_ms is not None:
            logger.info("a controller answers again after_ms=%d", self._clock() - self._silent_since_ms)
            self._silent_since_ms = None
