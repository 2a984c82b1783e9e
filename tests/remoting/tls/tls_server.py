"""A RemotingServer with a TlsGate in this process, for tests of TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.connection_limits import ConnectionLimits
from thermocline.remoting.connections.limit_counts import LimitCounts
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.settings.tls_config import TlsConfig
from thermocline.remoting.tls.client_context import ClientTls
from thermocline.remoting.tls.tls_gate import TlsGate
from thermocline.remoting.tls.tls_options import TlsOptions

ECHO, WHO, SLOW = 1, 2, 3
TIMEOUT_MS = 20_000


class Handler:
    """ECHO gives the body back, WHO the peer, SLOW the body once it is released."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.oneway_bytes = 0

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """By the code."""
        if command.is_oneway:
            self.oneway_bytes += len(command.body)
            return None
        if command.code == WHO:
            return RemotingCommand.response(
                command, body=f"{connection.remote_address} {connection.certificate_subject}".encode()
            )
        if command.code == SLOW:
            return self._slow(command)
        return RemotingCommand.response(command, body=bytes(command.body))

    async def _slow(self, command: RemotingCommand) -> RemotingCommand:
        await self.release.wait()
        return RemotingCommand.response(command, body=bytes(command.body))

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running server."""

    address: str
    server: RemotingServer
    gate: TlsGate
    handler: Handler

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def connect(self, tls: TlsOptions | None, **options: object) -> ClientConnection:
        """A connection, plain without options."""
        client = None if tls is None else ClientTls(tls)
        return await ClientConnection.open(self.address, tls=client, connect_timeout_ms=TIMEOUT_MS, **options)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def served(config: TlsConfig, *, limits: ConnectionLimits | None = None) -> AsyncIterator[Served]:
    """Serve until the block ends."""
    gate, handler = TlsGate(config, LimitCounts()), Handler()
    server = RemotingServer(handler, gate=gate, limits=limits)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    gate.open()
    try:
        yield Served(address=address, server=server, gate=gate, handler=handler)
    finally:
        handler.release.set()
        await server.close()
        gate.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """An authority with a server's certificate by it, for 127.0.0.1 and localhost."""

    authority: Authority
    certificate: Path
    key: Path

    def server(self, **changes: object) -> TlsConfig:
        """Settings of a server that uses them."""
        values = {"server_certificate_path": str(self.certificate), "server_key_path": str(self.key), **changes}
        return TlsConfig(**values)  # type: ignore[arg-type]

    def client(self, **changes: object) -> TlsOptions:
        """Options of a client that trusts the authority."""
        return TlsOptions(**{"ca_file": str(self.authority.path), **changes})  # type: ignore[arg-type]


def make_server_certificates(folder: Path) -> Certificates:
    """Make them."""
    authority = Authority(folder)
    certificate, key = authority.issue(
        "server.pem", "server.key", subject="broker", addresses=["127.0.0.1"], names=["localhost"]
    )
    return Certificates(authority=authority, certificate=certificate, key=key)


async def echo(client: ClientConnection, body: bytes = b"x") -> None:
    """One request that comes back."""
    answer = await client.call(RemotingCommand.request(ECHO, body=body), timeout_ms=TIMEOUT_MS)
    assert answer.body == body


async def who(client: ClientConnection) -> tuple[str, str]:
    """The address and the certificate's subject that the server has for this client."""
    answer = await client.call(RemotingCommand.request(WHO), timeout_ms=TIMEOUT_MS)
    address, _, subject = bytes(answer.body).decode().partition(" ")
    return address, subject


def unchecked_context(*, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A client's context that checks nothing; `version`: the only one that it speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version is not None:
        # Level 0: what OpenSSL itself refuses by default would never reach the server.
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
    return context
