"""The connecting half of the remoting protocol: one connection, and a set of them by address.

Both belong to one event loop and its thread. Requests that the peer makes of us go to the handler given; without one
they are answered "not supported". With credentials every request is signed.
Source: NettyRemotingClient.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import (
    RECEIVE_BYTES,
    ChunkHandler,
    Connection,
    ConnectionLimits,
    RequestHandler,
    Traffic,
    close_all,
    is_loopback,
)
from thermocline.remoting.errors import (
    ClosedError,
    ConnectionLostError,
    RequestTimeoutError,
    ResponseError,
    UnavailableError,
    UnsupportedRequestError,
)
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.socket_address import is_unix_address, parse_address
from thermocline.remoting.tls import ClientTls

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 3_000


class RefuseRequests:
    """The handler of a client that serves nothing."""

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Answer that the code is not supported, with RocketMQ's sentence."""
        raise UnsupportedRequestError(f" request type {command.code} not supported")

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do."""


class ClientConnection(Connection):
    """One connection that this side made."""

    __slots__ = ("address", "credentials")

    address: str
    credentials: Credentials | None

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        handler: RequestHandler | None = None,
        chunk_handler: ChunkHandler | None = None,
        limits: ConnectionLimits | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        on_closed: Callable[[Connection], None] | None = None,
        receive_buffer: memoryview | None = None,
        traffic: Traffic | None = None,
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
        local_hosts: Sequence[str] = (),
    ) -> ClientConnection:
        """Connect to `host:port` or to the path of a unix socket, which is never TLS. Cancelling is safe.

        `local_hosts`: addresses of this machine, of which one that fits is the connection's own; else the system
        chooses.

        Raises:
            ConnectionLostError: The connection could not be made in time, or the server's certificate is not trusted.
            InvalidParameterError: The address is none.
        """
        loop = asyncio.get_running_loop()

        def make() -> ClientConnection:
            connection = cls(
                loop=loop,
                handler=handler or RefuseRequests(),
                chunk_handler=chunk_handler,
                limits=limits,
                receive_buffer=receive_buffer,
                is_server=False,
                on_closed=on_closed,
                traffic=traffic,
            )
            connection.address = address
            connection.credentials = credentials
            return connection

        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                if is_unix_address(address):
                    _, connection = await loop.create_unix_connection(make, address)
                else:
                    connection = await _open_tcp(
                        make, address, tls=tls, timeout_ms=connect_timeout_ms, local_hosts=local_hosts
                    )
        except TimeoutError as error:
            raise ConnectionLostError("no connection in time", address=address) from error
        except ssl.SSLCertVerificationError as error:
            raise ConnectionLostError(
                "the server's certificate is not trusted", address=address, reason=error.verify_message
            ) from error
        except ssl.SSLError as error:
            raise ConnectionLostError("the TLS handshake failed", address=address, reason=error.reason) from error
        except (OSError, ValueError) as error:  # ValueError: the host is none, a label is too long for one
            raise ConnectionLostError("the connection was refused", address=address, reason=error) from error
        connection.drop_unacknowledged(after_ms=connection._limits.drain_timeout_ms)
        return connection

    def drop_unacknowledged(self, *, after_ms: int) -> None:
        """Have the operating system drop the connection when the peer's machine acknowledges nothing for so long.

        Without this it sends again for a quarter of an hour, in growing intervals: to a machine without power, or past
        a gateway that has forgotten the connection. `drain_timeout_ms` of each connection, unless it is called again.
        """
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, after_ms)

    def send(self, command: RemotingCommand) -> None:
        """Send a request, signed if there are credentials, without waiting for an answer; or an answer."""
        if self.credentials is not None and not command.is_response:
            self.credentials.sign(command)
        super().send(command)

    async def call(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """Send a request as soon as the peer takes it, and wait for the answer, whatever its code. Cancelling is safe.

        Raises:
            RequestTimeoutError: No answer in time.
            ConnectionLostError: The connection is closed, or closes meanwhile.
            BrokerBusyError: Too many calls are pending.
        """
        if not self.is_write_paused:
            return await self.start_call(command, timeout_ms=timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.wait_writable()
                return await self.start_call(command, timeout_ms=timeout_ms)
        except TimeoutError as error:
            raise RequestTimeoutError("the peer takes no request", address=self.remote_address) from error

    async def request(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """As `call`, for an answer that must be SUCCESS.

        Raises:
            ResponseError: The peer answered another code.
        """
        response = await self.call(command, timeout_ms=timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(code=response.code, remark=response.remark, address=self.remote_address)
        return response

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that is not answered. To go easy on memory, `await wait_writable()` before.

        Raises:
            ConnectionLostError: The connection is closed.
            BrokerBusyError: Too much is unsent.
        """
        assert command.is_oneway
        self.check_can_send()
        self.send(command)


async def _open_tcp(
    make: Callable[[], ClientConnection],
    address: str,
    *,
    tls: ClientTls | None,
    timeout_ms: int,
    local_hosts: Sequence[str],
) -> ClientConnection:
    """Connect to the first address of a host that takes the connection; each may take its share of the time left.

    Without shares the time is over at an address that answers nothing, such as that of a route for IPv6 to nowhere.

    Raises:
        OSError: None takes it; the last error. An error of TLS at once: a server was there.
        ValueError: The host is none.
    """
    loop = asyncio.get_running_loop()
    host, port = parse_address(address)
    deadline_s = loop.time() + timeout_ms / 1000
    context = None if tls is None else tls.context()
    name = None if tls is None else tls.server_name(host)
    hosts = await _hosts(host)
    for place, one in enumerate(hosts, start=1):
        local = next(((local, 0) for local in local_hosts if _fits(local, one)), None)
        share_s = (deadline_s - loop.time()) / (len(hosts) - place + 1)
        try:
            async with asyncio.timeout(share_s):
                _, connection = await loop.create_connection(
                    make, one, port, ssl=context, server_hostname=name, local_addr=local
                )
                return connection
        except ssl.SSLError:
            raise
        except OSError as error:  # TimeoutError is one
            if place == len(hosts):
                raise
            logger.info("an address of a host takes no connection host=%s address=%s error=%r", host, one, error)
    raise AssertionError("a host has an address, or its lookup fails")


async def _hosts(host: str) -> list[str]:
    """The addresses of a host, in the resolver's order.

    Raises:
        OSError, ValueError: It has none.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(place[0]) for *_, place in found))
    return [host]


def _fits(local: str, remote: str) -> bool:
    """Whether a connection from one address to the other is possible: both of one family, and both loopback or none."""
    return (":" in local, is_loopback(local)) == (":" in remote, is_loopback(remote))


class RemotingClient:
    """Connections by address, opened when needed and kept; one an address.

    A broken connection is forgotten, so that the next call opens another. Bound: as many connections as there are
    addresses; the caller gets them from routes, and drops those it does not need by `disconnect`.
    """

    def __init__(
        self,
        *,
        handler: RequestHandler | None = None,
        chunk_handler: ChunkHandler | None = None,
        limits: ConnectionLimits | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        on_closed: Callable[[ClientConnection], None] | None = None,
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
        receive_buffer: memoryview | None = None,
    ) -> None:
        """`tls`: None for plain connections. `credentials`: sign each request; None: requests are not signed.
        `receive_buffer`: what this and other clients of the loop share; None: one of its own."""
        self._tls = tls
        self._credentials = credentials
        self._handler = handler
        self._chunk_handler = chunk_handler
        self._limits = limits
        self._connect_timeout_ms = connect_timeout_ms
        self._on_closed = on_closed
        self._connections: dict[str, ClientConnection] = {}
        self._opening: dict[str, asyncio.Task[ClientConnection]] = {}
        self._receive_buffer = memoryview(bytearray(RECEIVE_BYTES)) if receive_buffer is None else receive_buffer
        self._closed = False
        self._is_sealed = False
        self.traffic = Traffic()

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def connection(self, address: str) -> ClientConnection | None:
        """The open connection to an address, if there is one."""
        return self._connections.get(address)

    @property
    def speaks_tls(self) -> bool:
        """Whether its connections are TLS."""
        return self._tls is not None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that a connection is open to."""
        return tuple(self._connections)

    async def connect(self, address: str) -> ClientConnection:
        """The connection to an address, opened if need be; callers at the same time share it. Cancelling is safe.

        Raises:
            ConnectionLostError: It could not be made.
            ClosedError: This client is closed.
        """
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        if self._closed:
            raise ClosedError("the client is closed")
        if self._is_sealed:
            raise ConnectionLostError("there is no connection, and this client makes no more", address=address)
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(address))
            self._opening[address] = opening
            opening.add_done_callback(lambda task: self._opened(address, task))
        return await asyncio.shield(opening)

    async def call(self, address: str, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for the answer, whatever its code. Cancelling is safe.

        Raises:
            ConnectionLostError: No connection could be made, or it broke before the answer.
            RequestTimeoutError: No answer in time.
            BrokerBusyError: Too many calls are pending.
        """
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            connection = await self.connect(address)
        try:
            return await connection.call(command, timeout_ms=timeout_ms)
        except UnavailableError as error:
            error.context.setdefault("address", address)
            raise

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """As `call`, for an answer that must be SUCCESS; else ResponseError."""
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            connection = await self.connect(address)
        return await connection.request(command, timeout_ms=timeout_ms)

    async def send_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request that is not answered, as soon as the peer takes it; errors of `connect`."""
        connection = await self.connect(address)
        await connection.wait_writable()
        connection.send_oneway(command)

    def seal(self) -> None:
        """Open no more connections: one that is lost from now on stays lost, and nothing follows what it carried."""
        self._is_sealed = True

    def disconnect(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def drop_silent(self, address: str, *, since_s: float) -> None:
        """Drop the connection to an address if it was open at that time of the loop and nothing has come since.

        For a caller whose request had no answer: a peer that vanished without closing (a power cut, a gateway that
        forgot the connection) keeps it open for a quarter of an hour, as far as the operating system can tell.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.received_at < since_s:
            logger.warning("connection dropped, nothing comes any more address=%s", address)
            connection.abort()

    async def close(self, *, timeout_ms: int = 1_000) -> None:
        """Close every connection; pending calls fail, what is not sent within `timeout_ms` is lost. Idempotent."""
        self._closed = True
        opening = tuple(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        await close_all(tuple(self._connections.values()), timeout_ms=timeout_ms)

    async def _open(self, address: str) -> ClientConnection:
        connection = await ClientConnection.open(
            address,
            handler=self._handler,
            chunk_handler=self._chunk_handler,
            limits=self._limits,
            connect_timeout_ms=self._connect_timeout_ms,
            on_closed=self._forget,
            receive_buffer=self._receive_buffer,
            traffic=self.traffic,
            tls=self._tls,
            credentials=self._credentials,
        )
        if not connection.is_closed:  # the peer may have closed it while this task was waiting for its turn
            self._connections[address] = connection
        return connection

    def _opened(self, address: str, task: asyncio.Task[ClientConnection]) -> None:
        self._opening.pop(address, None)
        if not task.cancelled():
            task.exception()  # the waiting callers get it; without any, asyncio must not report it

    def _forget(self, connection: Connection) -> None:
        assert isinstance(connection, ClientConnection)
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        if self._on_closed is not None:
            self._on_closed(connection)
