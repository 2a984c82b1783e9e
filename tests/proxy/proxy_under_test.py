"""A proxy in the test's own loop, in front of a FakeBroker, and a gRPC client of it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from tests.proxy.http2_peer import CLIENT_ID, GrpcPeer, RpcAnswer
from thermocline.client import AdminClient
from thermocline.client.testing import FakeBroker
from thermocline.proxy.grpc.messages import SERVICE, enums, messages
from thermocline.proxy.proxy_server import ProxyServer
from thermocline.proxy.settings import ProxyConfig

TELEMETRY = f"/{SERVICE}/Telemetry"
GROUP = "rows-group"
CONFIG = ProxyConfig(grpc_port=0, remoting_port=0, polling_ms_min=100, shutdown_s=5)
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE")


def make_topics(broker: FakeBroker) -> None:
    """One topic of each type, by its name."""
    with AdminClient(namesrv=broker.namesrv_address) as admin:
        for name in TYPES:
            admin.create_topic(name.capitalize(), queue_nums=8, attributes={"message.type": name})


class ProxyUnderTest:
    """The proxy, and a client that has one connection to it."""

    def __init__(self, server: ProxyServer, address: str, peer: GrpcPeer) -> None:
        self.server = server
        self.address = address
        self.peer = peer

    async def call(self, name: str, request: Any, **more: Any) -> Any:
        return await self.peer.call(name, request, **more)

    async def receive(self, **fields: Any) -> list[Any]:
        """ReceiveMessage on the topic Normal, unless `topic` says another."""
        topic = fields.pop("topic", "Normal")
        timeout_ms = fields.pop("timeout_ms", 20_000)
        metadata = fields.pop("metadata", None)
        values = {"invisible_duration": seconds(30), "batch_size": 32, "long_polling_timeout": seconds(0.2), **fields}
        request = messages.ReceiveMessageRequest(group=resource(GROUP), **values)
        request.message_queue.topic.name = topic
        return await self.peer.stream("ReceiveMessage", request, timeout_ms=timeout_ms, metadata=metadata)

    async def connect(self, settings: Any, *, metadata: dict[str, str] | None = None) -> tuple[int, RpcAnswer]:
        """Open a Telemetry stream with settings; its stream and its answers."""
        command = messages.TelemetryCommand(settings=settings).SerializeToString()
        return self.peer.open(TELEMETRY, command, ends=False, timeout_ms=None, metadata=metadata)

    @property
    def health_address(self) -> str:
        """Of its HTTP port, if it has one."""
        server = self.server.health._server._server
        assert server is not None
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def http(
        self, path: str, keys: tuple[str, str] | None = None, *, tls: ssl.SSLContext | None = None
    ) -> tuple[int, bytes]:
        """GET of its HTTP port by a user with these keys: status and body."""
        host, port = self.health_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        user = None if keys is None else base64.b64encode(":".join(keys).encode()).decode()
        header = "" if user is None else f"Authorization: Basic {user}\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split(b" ")[1]), body

    async def registered(self, settings: Any) -> Any:
        """Open a Telemetry stream, and return its first answer."""
        _, answer = await self.connect(settings)
        (payload, *_) = await self.peer.answers(answer, 1)
        return messages.TelemetryCommand.FromString(payload)


@contextlib.asynccontextmanager
async def proxy_before(
    broker: FakeBroker | str, *, client_id: str | None = CLIENT_ID, **settings: Any
) -> AsyncIterator[ProxyUnderTest]:
    """A proxy with these settings in front of a broker, or behind a NameServer's address."""
    namesrv = broker if isinstance(broker, str) else broker.namesrv_address
    server = ProxyServer(replace(CONFIG, namesrv=namesrv, **settings))
    try:
        port = await server.start()
        address = f"127.0.0.1:{port}"
        async with GrpcPeer(address, client_id=client_id) as peer:
            yield ProxyUnderTest(server, address, peer)
    finally:
        await server.close()


def resource(name: str, namespace: str = "") -> Any:
    return messages.Resource(name=name, resource_namespace=namespace)


def seconds(count: float) -> Any:
    return messages.Duration(seconds=int(count), nanos=round(count % 1 * 1_000_000_000))


def message(topic: str = "Normal", *, body: bytes = b"body", **system: Any) -> Any:
    """A message as clients send it."""
    values = {"message_id": "01" * 17, "message_type": enums.MessageType.NORMAL, "body_encoding": 1, **system}
    made = messages.Message(topic=resource(topic), body=body, system_properties=messages.SystemProperties(**values))
    made.system_properties.born_timestamp.seconds = 1_700_000_000
    return made


def send_request(*made: Any) -> Any:
    return messages.SendMessageRequest(messages=made)


def consumer_settings(group: str = GROUP, topic: str = "Normal", *, kind: str = "PUSH_CONSUMER") -> Any:
    settings = messages.Settings(client_type=enums.ClientType[kind], request_timeout=seconds(3))
    settings.subscription.group.name = group
    entry = settings.subscription.subscriptions.add(topic=resource(topic))
    entry.expression.expression = "*"
    return settings


def producer_settings(*topics: str) -> Any:
    settings = messages.Settings(client_type=enums.ClientType.PRODUCER)
    settings.publishing.topics.extend(resource(topic, "space") for topic in topics)
    return settings
