"""Proxy process: serves gRPC clients beside the hot process, so that none of its computing meets a send.

    HELLO -> settings -> the port is taken -> PROXY_STATE -> serves until its stop -> drains (proxy/proxy_server.py)

Requests of its own broker leave by the unix socket of that broker's port, those of others by the network. What keeps
it from serving (the port is taken, a certificate cannot be used, protobuf is not installed) is reported before it ends:
a start of the broker fails then, a broker that runs starts the proxy again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

import msgspec

from thermocline.broker.helpers import (
    PROXY_ROLE,
    HelperOptions,
    HelperRequestCode,
    ProxySettings,
    ProxyState,
    SharedPage,
    introduce,
)
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.clients import ClientConnection, RefuseRequests
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import raise_descriptor_limit
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.remoting.request_signature import Credentials

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 1_000


async def serve(options: HelperOptions, stop: asyncio.Event) -> None:
    """Run the proxy until `stop`, or until the hot process goes away.

    Raises:
        UnavailableError: It cannot serve. The hot process has the reason, unless it may serve later.
    """
    page = SharedPage.attach(options.page_path)
    connection, answer = await introduce(options, page, role=PROXY_ROLE, handler=RefuseRequests(), on_closed=stop.set)
    page.close()
    try:
        await _run(connection, msgspec.msgpack.decode(answer, type=ProxySettings), stop)
    finally:
        connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await connection.wait_closed()


async def _run(connection: ClientConnection, settings: ProxySettings, stop: asyncio.Event) -> None:
    server = None
    try:
        # Here, so that a missing extra of the package is reported as everything else is.
        from thermocline.proxy.cluster import OwnBroker
        from thermocline.proxy.main import DESCRIPTORS_FOR_FILES, DESCRIPTORS_MIN
        from thermocline.proxy.proxy_server import ProxyServer

        raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
        config = msgspec.msgpack.decode(settings.config, type=ProxyConfig)
        if settings.port:
            config = replace(config, grpc_port=settings.port)
        if settings.remoting_port:
            config = replace(config, remoting_port=settings.remoting_port)
        credentials = None
        if settings.credentials is not None:
            access_key, secret_key, security_token = settings.credentials
            credentials = Credentials(access_key=access_key, secret_key=secret_key, security_token=security_token)
        own = OwnBroker(name=settings.broker_name, socket_path=settings.socket_path)
        server = ProxyServer(config, own_broker=own, credentials=credentials)
        port = await server.start()
    except (MQError, OSError) as error:
        if server is not None:
            await server.close()
        if isinstance(error, UnavailableError):  # not now: the hot process starts this one again
            raise
        _tell(connection, ProxyState(refusal=f"the proxy cannot serve: {error}"))
        raise UnavailableError("the proxy cannot serve", reason=error) from error
    try:
        _tell(connection, ProxyState(host=config.bind_address, port=port, remoting_port=server.remoting_port))
        await stop.wait()
    finally:
        await server.close()


def _tell(connection: ClientConnection, state: ProxyState) -> None:
    body = msgspec.msgpack.encode(state)
    connection.send_oneway(RemotingCommand.request(HelperRequestCode.PROXY_STATE, body=body, oneway=True))
