"""ClientSession: one connected remoting client, and its own connection to each broker that it uses.

    client ==one connection==> proxy ==one connection for this client, a broker==> brokers

A request goes on as it came, its signature with it, under an opaque of the proxy's; the answer comes back under the
client's. A broker's request (the check of a transaction, a changed group, a reply, a tool's question) goes the other
way. So a broker sees each client by itself, as if it were connected directly: its registry, notifications, locks and
limits count, and clients of one group may be connected through several proxies, or without any.

Of several clusters each has connections of its own, with its TLS; the names of brokers change on the way to those of
named clusters (cluster_names.py).

The client's last heartbeat is kept: a connection to a broker begins with it, so that the broker registers the client
before its first request, also after a broker's restart.
Bounds: see `SessionLimits`. What exceeds one is refused with SYSTEM_BUSY, which clients try again.
Owner: the proxy's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from thermocline.proxy.messaging import DOUBT_CODES, BrokerNotFoundError, Messaging
from thermocline.proxy.remoting.cluster_names import ClusterSide, check_handles
from thermocline.proxy.remoting.request_codes import LONG_POLLS
from thermocline.proxy.routing import DEFAULT_CLUSTER, BrokerNames
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.remoting.errors import BrokerBusyError, ClosedError, ConnectionLostError, MQError, UnavailableError
from thermocline.remoting.headers import NotifyConsumerIdsChangedRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.tls import ClientTls

__all__ = ["ClientSession", "SessionLimits", "Shared"]

logger = logging.getLogger(__name__)

REQUESTS_MAX = "remotingRequestsMax"
BROKER_CONNECTIONS_MAX = "remotingBrokerConnectionsMax"
HEARTBEAT_BYTES_MAX = "remotingHeartbeatBytesMax"
CONNECT_TIMEOUT_MS = 2_000
"""Clients wait 3 s for most answers."""
CLIENT_ANSWER_TIMEOUT_MS = 10_000
"""How long a client may take to answer a broker."""


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of all sessions of a port together."""

    requests_max: int = 100_000
    """Requests that brokers have not answered."""
    broker_connections_max: int = 60_000
    heartbeat_bytes_max: int = 64 << 20
    """Of the heartbeats that are kept."""


class Shared(msgspec.Struct, kw_only=True):
    """What all sessions of a port share: where brokers are, and what the sessions hold together."""

    messaging: Messaging
    tls: Mapping[str, ClientTls | None]
    """By cluster."""
    names: BrokerNames
    limits: SessionLimits
    counts: LimitCounts
    receive_buffer: memoryview
    requests: int = 0
    polls: int = 0
    """Those of the requests that a broker may hold until it has something."""
    broker_connections: int = 0
    heartbeat_bytes: int = 0

    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when a request was answered and only long polls are open."""

    def begin(self, *, is_poll: bool) -> None:
        """A request goes to a broker."""
        self.requests += 1
        self.polls += is_poll

    def end(self, *, is_poll: bool) -> None:
        """It was answered, or failed."""
        self.requests -= 1
        self.polls -= is_poll
        if self.requests == self.polls:
            self.ended.set()

    async def wait_ended(self, *, timeout_ms: int) -> None:
        """Wait until only long polls are open, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while self.requests > self.polls:
                    self.ended.clear()
                    await self.ended.wait()

    def check_room(self, held: int, most: int, *, limit: str, address: str) -> None:
        """Pass while less than `most` is held.

        Raises:
            BrokerBusyError: It is not.
        """
        if held >= most:
            text = f"the proxy holds as much as its limit {limit} allows"
            self.counts.refused(limit, address=address, detail=text)
            raise BrokerBusyError(text)


class _Link:
    """A session's connections to the brokers of one cluster; also their handler."""

    def __init__(self, session: ClientSession, shared: Shared, cluster: str) -> None:
        self._session = session
        self._shared = shared
        self._plain_names: dict[str, str] = {}
        self._cluster = cluster
        self._side = None if cluster == DEFAULT_CLUSTER else ClusterSide(shared.names, cluster)
        self.connections = RemotingClient(
            handler=self,
            tls=shared.tls[cluster],
            receive_buffer=shared.receive_buffer,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
        )

    async def ask(
        self, address: str, plain_name: str, command: RemotingCommand, *, timeout_ms: int
    ) -> RemotingCommand | None:
        """Send a client's request to a broker; its answer, None for a one-way request."""
        side, request = self._side, command.renumbered()
        if self._shared.names.has_clusters:
            check_handles(self._shared.names, self._cluster, command)
        if side is not None:
            self._plain_names[address] = plain_name
            request = side.to_broker(request, plain_name)
        if command.is_oneway:
            await self.connections.send_oneway(address, request)
            return None
        answer = await self.connections.call(address, request, timeout_ms=timeout_ms)
        return answer if side is None else side.to_client(command.code, answer)

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """A broker's request to the client."""
        if self._side is not None:
            plain_name = self._plain_names.get(connection.remote_address, "")
            command = self._side.asked_of_client(command, plain_name)
        return self._session.broker_asks(command)

    def connection_opened(self, connection: Connection) -> None:
        """A connection to a broker was made: it begins with the heartbeat."""
        self._shared.broker_connections += 1
        self._session.greet(connection)

    def connection_closed(self, connection: Connection) -> None:
        """A connection to a broker is lost; the next request opens another."""
        self._shared.broker_connections -= 1


class ClientSession:
    """See the module."""

    def __init__(
        self,
        client: Connection,
        shared: Shared,
        *,
        before: Callable[[ClientSession, RemotingCommand], Awaitable[None] | None] | None = None,
    ) -> None:
        """`before`: what is to be done before the client hears of a broker's request, if anything."""
        self.client = client
        self._before = before
        self.broker_names: dict[str, None] = {}
        """The brokers that this client uses, as far as it has shown: heartbeats go to them."""
        self.consumer_groups: dict[str, set[str]] = {}
        """Topic -> the groups that consume it, by the last heartbeat."""
        self._shared = shared
        self._links: dict[str, _Link] = {}
        self._is_closed = False
        self._heartbeat: RemotingCommand | None = None
        self._heartbeat_bytes = 0
        """Of the last one, also when new connections do not begin with it: what was read in it is kept."""

    # -- to brokers --------------------------------------------------------------------------------------------------

    async def forward(self, broker_name: str, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand | None:
        """Ask a broker what the client asks; its answer, or None for a one-way request.

        Raises:
            BrokerNotFoundError: There is no such broker.
            UnavailableError: The broker does not answer, or a limit is reached.
        """
        shared, remote = self._shared, self.client.remote_address
        shared.check_room(shared.requests, shared.limits.requests_max, limit=REQUESTS_MAX, address=remote)
        is_poll = command.code in LONG_POLLS
        shared.begin(is_poll=is_poll)
        try:
            address = await shared.messaging.broker_address(broker_name)
            self.broker_names[broker_name] = None
            cluster, plain_name = shared.names.split(broker_name)
            link = self._link(cluster)
            if link.connections.connection(address) is None:
                most = shared.limits.broker_connections_max
                shared.check_room(shared.broker_connections, most, limit=BROKER_CONNECTIONS_MAX, address=remote)
            try:
                answer = await link.ask(address, plain_name, command, timeout_ms=timeout_ms)
            except UnavailableError:
                shared.messaging.doubt(address)
                raise
            if answer is not None and answer.code in DOUBT_CODES:
                shared.messaging.doubt(address)
        finally:
            shared.end(is_poll=is_poll)
        if answer is None:
            return None
        return msgspec.structs.replace(answer, opaque=command.opaque)

    async def forward_each(
        self, names: Sequence[str], command: RemotingCommand, *, timeout_ms: int
    ) -> list[RemotingCommand]:
        """Ask each of these brokers; the answers of those that do.

        Raises:
            UnavailableError: None of them did.
        """
        asked = [self.forward(name, command, timeout_ms=timeout_ms) for name in names]
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers = [answer for answer in found if isinstance(answer, RemotingCommand)]
        failures: list[BaseException] = []
        for name, answer in zip(names, found, strict=True):
            if isinstance(answer, BrokerNotFoundError):
                self.broker_names.pop(name, None)  # until a route names it again
            if isinstance(answer, BaseException):
                failures.append(answer)
                if not isinstance(answer, MQError):
                    raise answer
        if failures and not answers:
            raise failures[0]
        return answers

    def keep_heartbeat(self, command: RemotingCommand) -> None:
        """Begin new connections to brokers with this heartbeat.

        Raises:
            BrokerBusyError: Too many bytes of heartbeats are kept.
        """
        shared = self._shared
        kept_bytes = shared.heartbeat_bytes - self._heartbeat_bytes
        most = shared.limits.heartbeat_bytes_max - len(command.body)
        shared.check_room(kept_bytes, most, limit=HEARTBEAT_BYTES_MAX, address=self.client.remote_address)
        self._heartbeat, self._heartbeat_bytes = command, len(command.body)
        shared.heartbeat_bytes = kept_bytes + self._heartbeat_bytes

    def forget_heartbeat(self) -> None:
        """Begin new connections without a heartbeat, until the next one has come."""
        self._heartbeat = None

    async def close(self) -> None:
        """Close the connections to brokers, which then know that the client is gone. Idempotent."""
        self._is_closed = True
        self._shared.heartbeat_bytes -= self._heartbeat_bytes
        self._heartbeat, self._heartbeat_bytes = None, 0
        await asyncio.gather(*(link.connections.close() for link in self._links.values()))

    # -- from brokers ------------------------------------------------------------------------------------------------

    def _link(self, cluster: str) -> _Link:
        """The connections to a cluster.

        Raises:
            ClosedError: The client is gone.
        """
        if self._is_closed:
            raise ClosedError("the client is gone")
        link = self._links.get(cluster)
        if link is None:
            link = self._links[cluster] = _Link(self, self._shared, cluster)
        return link

    def broker_asks(self, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Pass a broker's request on to the client."""
        work = None if self._before is None else self._before(self, command)
        if work is not None:
            return self._pass_on_after(work, command)
        if command.is_oneway:
            self._tell_client(command)
            return None
        return self._ask_client(command)

    async def _pass_on_after(self, work: Awaitable[None], command: RemotingCommand) -> RemotingCommand | None:
        await work
        if command.is_oneway:
            self._tell_client(command)
            return None
        return await self._ask_client(command)

    def _tell_client(self, command: RemotingCommand) -> None:
        if not self.client.is_write_paused:  # a client that takes nothing gets none of what needs no answer
            self.client.send(command.renumbered())

    def notify_consumers_changed(self, group: str) -> None:
        """Have the client ask again who consumes in a group."""
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        self._tell_client(RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))

    async def _ask_client(self, command: RemotingCommand) -> RemotingCommand:
        try:
            answer = await self.client.call(command.renumbered(), timeout_ms=CLIENT_ANSWER_TIMEOUT_MS)
        except ConnectionLostError as error:
            raise UnavailableError("the client is gone") from error
        return msgspec.structs.replace(answer, opaque=command.opaque)

    def greet(self, connection: Connection) -> None:
        """Begin a connection to a broker with the heartbeat."""
        if self._heartbeat is not None:
            connection.send(self._heartbeat.renumbered())
