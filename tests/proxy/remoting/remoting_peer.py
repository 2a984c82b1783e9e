"""A client of the remoting protocol, request by request, before a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.proxy.proxy_under_test import ProxyUnderTest
from thermocline.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, TopicRouteData
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

GROUP = "group"


class Client:
    """A client of the remoting protocol, and what the proxy asked of it."""

    def __init__(self, proxy: ProxyUnderTest, **more: Any) -> None:
        self.address = f"127.0.0.1:{proxy.server.remoting_port}"
        self.asked: list[RemotingCommand] = []
        self._connections = RemotingClient(handler=self, **more)

    def handle(self, _connection: object, command: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(command)
        return None if command.is_oneway else RemotingCommand.response(command, remark="of the client")

    def connection_opened(self, connection: object) -> None: ...

    def connection_closed(self, connection: object) -> None: ...

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        command = RemotingCommand.request(
            code, body=body, ext_fields={name: str(text) for name, text in fields.items()}
        )
        return await self._connections.call(self.address, command, timeout_ms=10_000)

    async def route(self, topic: str = "Normal") -> TopicRouteData:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return TopicRouteData.decode(answer.body)

    async def heartbeat(self, **more: Any) -> RemotingCommand:
        return await self.ask(RequestCode.HEART_BEAT, heartbeat(**more))

    async def close(self) -> None:
        await self._connections.close()


def heartbeat(
    *, client_id: str = "one", consume_type: str = "CONSUME_ACTIVELY", message_model: str = "CLUSTERING"
) -> bytes:
    consumer = ConsumerData(
        group_name=GROUP,
        consume_type=consume_type,
        message_model=message_model,
        subscription_data_set=[SubscriptionData(topic="Normal")],
    )
    return HeartbeatData(
        client_id=client_id, consumer_data_set=[consumer], producer_data_set=[ProducerData(group_name="producers")]
    ).encode()


@asynccontextmanager
async def client_of(proxy: ProxyUnderTest, **more: Any) -> AsyncIterator[Client]:
    client = Client(proxy, **more)
    try:
        yield client
    finally:
        await client.close()


def send_fields(**more: object) -> dict[str, object]:
    return {"a": "producers", "b": "Normal", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", **more}
