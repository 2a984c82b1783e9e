"""ClientSession: what every client object keeps with its cluster: connections, routes and heartbeats.

    start  -> fetch routes of watched topics -> heartbeat to every broker in them
    then   every 30 s both again, and where the NameServers are; a broker that a route newly names hears from us at once
    close  -> stop both -> tell every broker that we leave -> close the connections

Each client object has a session and a client id of its own. What a broker asks of a client arrives here and is handed
to the owner. Source: client/impl/factory/MQClientInstance.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, Protocol

from thermocline.client.answer import check_answer
from thermocline.client.busy_retry import RETRIED_CODES, retry_while_busy
from thermocline.client.client_id import build_client_id, local_address
from thermocline.client.close_once import CloseOnce
from thermocline.client.name_servers import NameServers
from thermocline.client.options import ClientOptions, name_server_addresses
from thermocline.client.route_table import RouteTable
from thermocline.client.topic_route import MASTER_ID, BrokerAddress, TopicRoute
from thermocline.remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from thermocline.remoting.clients import NameServerSource, RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import ChunkHandler, Connection
from thermocline.remoting.errors import MQError, RequestTimeoutError, UnsupportedRequestError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers import UnregisterClientRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.tls import ClientTls

__all__ = ["ClientSession", "SessionOwner"]

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_MS = 1_000
RECONNECT_PAUSE_S = 1.0


class SessionOwner(Protocol):
    """The producer or consumer that a session belongs to."""

    def producer_groups(self) -> list[str]:
        """The producer groups to announce."""

    def consumer_data(self) -> list[ConsumerData]:
        """The consumer groups to announce, with their subscriptions."""

    def answer(self, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Serve a broker's request; UnsupportedRequestError for what this client does not serve."""

    def connection_closed(self, connection: Connection) -> None:
        """A connection is gone; callers that waited on it have their errors."""


class ClientSession:
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        options: ClientOptions,
        owner: SessionOwner,
        *,
        chunk_handler: ChunkHandler | None = None,
        zone_name: str = "",
        may_leave_zone: bool = False,
    ) -> None:
        """`zone_name`: use only brokers of this zone; with `may_leave_zone` others to send to, if it has none."""
        address = options.client_ip or local_address()
        self.client_address = address
        self.client_id = build_client_id(
            address=address, instance_name=options.instance_name, unit_name=options.unit_name
        )
        self._options = options
        self._owner = owner
        self.connections = RemotingClient(
            handler=self,
            chunk_handler=chunk_handler,
            connect_timeout_ms=options.connect_timeout_ms,
            on_closed=owner.connection_closed,
            tls=None if options.tls is None else ClientTls(options.tls),
            credentials=options.credentials,
        )
        self.name_servers = NameServers(
            NameServerSource.parse(name_server_addresses(options.namesrv)),
            connections=self.connections,
            timeout_ms=options.request_timeout_ms,
            random=random.Random(),
            zone_name=zone_name,
        )
        self.routes = RouteTable(self.name_servers, may_leave_zone=bool(zone_name) and may_leave_zone)
        self.routes.on_change(self._route_changed)
        self._known_brokers: set[BrokerAddress] = set()
        self._heartbeat_due = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._close = CloseOnce()

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Fetch the watched routes, announce this client, and keep doing both. A start that fails closes the session.

        Raises:
            UnavailableError: Where the NameServers are to be looked up, none was found.
            PermissionDeniedError: A NameServer refuses this client.
        """
        try:
            if not self.name_servers.is_fixed:
                await self.name_servers.refresh()
            await self.routes.refresh_all()
            await self.send_heartbeats()
        except BaseException:
            await self.close()
            raise
        self.start_task(self._keep_routes_fresh())
        self.start_task(self._keep_heartbeats_going())

    async def close(self) -> None:
        """Say goodbye to every broker and close the connections; idempotent. Cancelling stops only the waiting."""
        self._closing = True
        await self._close.run(self._finish)

    async def _finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._unregister()
        await self.routes.close()
        await self.connections.close()

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something until it ends or the session closes, whichever comes first."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    # -- requests ----------------------------------------------------------------------------------------------------

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        ext_fields: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """Ask the broker at `address` and return its successful answer.

        Questions are asked again while the broker is busy: see busy_retry.py.

        Raises:
            MQError: It refused; see `check_answer`.
            UnavailableError: It did not answer, or was busy, for the whole time.
        """

        async def ask(left_ms: int) -> RemotingCommand:
            command = RemotingCommand.request(code, header, body=body, ext_fields=ext_fields)
            answer = await self.connections.call(address, command, timeout_ms=left_ms)
            check_answer(answer, address=address)
            return answer

        timeout_ms = timeout_ms or self._options.request_timeout_ms
        return await (retry_while_busy(ask, timeout_ms=timeout_ms) if code in RETRIED_CODES else ask(timeout_ms))

    async def tell(self, address: str, code: int, header: Header | None = None, *, body: bytes = b"") -> None:
        """Send the broker at `address` what needs no answer.

        Raises:
            UnavailableError: There is no connection, or the broker takes nothing for `request_timeout_ms`.
        """
        try:
            async with asyncio.timeout(self._options.request_timeout_ms / 1000):
                await self.connections.send_oneway(
                    address, RemotingCommand.request(code, header, body=body, oneway=True)
                )
        except TimeoutError as error:
            raise RequestTimeoutError("the broker takes no request", address=address) from error

    # -- heartbeats --------------------------------------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Announce this client to every known broker; failures are logged, the next heartbeat tries again."""
        groups = self._owner.producer_groups()
        consumers = self._owner.consumer_data()
        if not groups and not consumers:
            return
        body = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in groups],
            consumer_data_set=consumers,
        ).encode()
        brokers = self.routes.brokers()
        self._known_brokers = brokers
        # Replicas only take part in reading.
        addresses = {broker.address for broker in brokers if consumers or broker.broker_id == MASTER_ID}
        await asyncio.gather(*(self._send_heartbeat(address, body) for address in sorted(addresses)))

    def heartbeat_soon(self) -> None:
        """Announce this client again without waiting for the next round."""
        self._heartbeat_due.set()

    async def _send_heartbeat(self, address: str, body: bytes) -> None:
        sent_at_s = asyncio.get_running_loop().time()
        try:
            await self.call(address, RequestCode.HEART_BEAT, body=body)
        except MQError as error:
            logger.warning("heartbeat failed address=%s error=%s", address, error)
            if isinstance(error, RequestTimeoutError):
                self.connections.drop_silent(address, since_s=sent_at_s)

    async def _unregister(self) -> None:
        headers = [
            UnregisterClientRequestHeader(client_id=self.client_id, producer_group=group)
            for group in self._owner.producer_groups()
        ]
        headers += [
            UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=consumer.group_name)
            for consumer in self._owner.consumer_data()
        ]
        farewells = [
            self._say_goodbye(address, header)
            for address in self.connections.addresses
            if address in {broker.address for broker in self.routes.brokers()}
            for header in headers
        ]
        await asyncio.gather(*farewells)

    async def _say_goodbye(self, address: str, header: UnregisterClientRequestHeader) -> None:
        try:
            await self.call(address, RequestCode.UNREGISTER_CLIENT, header, timeout_ms=UNREGISTER_TIMEOUT_MS)
        except MQError as error:
            logger.info("unregister failed address=%s error=%s", address, error)

    # -- the two rounds ----------------------------------------------------------------------------------------------

    async def _keep_routes_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_name_server_interval_ms / 1000)
            if not self.name_servers.is_fixed:
                await self.name_servers.refresh()
            with contextlib.suppress(MQError):  # the table has logged it, and the next round asks again
                await self.routes.refresh_all()

    async def _keep_heartbeats_going(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._options.heartbeat_broker_interval_ms / 1000):
                    await self._heartbeat_due.wait()
            except TimeoutError:
                pass
            self._heartbeat_due.clear()
            await self.send_heartbeats()

    def _route_changed(self, route: TopicRoute) -> None:
        if not self._known_brokers.issuperset(route.brokers):
            self.heartbeat_soon()

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a background task failed client_id=%s", self.client_id, exc_info=task.exception())

    # -- requests of brokers -----------------------------------------------------------------------------------------

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Hand a broker's request to the owner."""
        if self._closing:
            raise UnsupportedRequestError("this client is closing", code=command.code)
        return self._owner.answer(command)

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do: heartbeats follow routes."""

    def connection_closed(self, connection: Connection) -> None:
        """Announce this client again, after a pause: a broker forgets clients with their connection."""
        if not self._closing:
            asyncio.get_running_loop().call_later(RECONNECT_PAUSE_S, self.heartbeat_soon)
