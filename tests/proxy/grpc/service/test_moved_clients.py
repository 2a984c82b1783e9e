"""A push consumer whose proxy was lost: it receives here before it sends its settings, as the Go client does.

Covers `proxy/grpc/service/receiving.py` and `proxy/grpc/service/telemetry.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.proxy.proxy_under_test import (
    GROUP,
    ProxyUnderTest,
    consumer_settings,
    make_topics,
    message,
    proxy_before,
    resource,
    send_request,
)
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.remoting.request_code import RequestCode


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


@pytest.fixture
async def proxy(broker: FakeBroker) -> AsyncIterator[ProxyUnderTest]:
    async with proxy_before(broker, clients_max=1, renew_ahead_ms=59_990, renew_period_ms=20) as running:
        yield running


def heartbeat() -> object:
    return messages.HeartbeatRequest(client_type=enums.ClientType.PUSH_CONSUMER, group=resource(GROUP))


async def test_it_gets_messages_and_their_handles_are_renewed(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    await proxy.call("SendMessage", send_request(message()))
    frames = await proxy.receive(auto_renew=True)
    assert [each.WhichOneof("content") for each in frames] == ["status", "message", "delivery_timestamp"]
    await until(lambda: len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)) >= 2)
    assert [client.names for client in proxy.server.clients.consumers_of(GROUP)] == [(GROUP,)]


async def test_its_heartbeats_ask_for_settings_until_they_come(proxy: ProxyUnderTest) -> None:
    await proxy.receive(auto_renew=True)
    assert (await proxy.call("Heartbeat", heartbeat())).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    await proxy.registered(consumer_settings())
    assert (await proxy.call("Heartbeat", heartbeat())).status.code == Code.OK
    assert len(proxy.server.clients) == 1


async def test_it_is_shown_without_settings(broker: FakeBroker) -> None:
    async with proxy_before(broker, health_port=0) as proxy:
        await proxy.receive(auto_renew=True)
        status, body = await proxy.http(f"/clients?group={GROUP}")
    (row,) = json.loads(body)["clients"]
    assert (status, row["groups"], row["settings"]) == (200, [GROUP], {})


async def test_it_counts_as_a_client(proxy: ProxyUnderTest) -> None:
    await proxy.receive(auto_renew=True)
    first, _ = await proxy.receive(auto_renew=True, metadata={"x-mq-client-id": "another"})
    assert first.status.code == Code.TOO_MANY_REQUESTS
