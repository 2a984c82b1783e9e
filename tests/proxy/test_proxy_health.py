"""The HTTP port of a proxy: health, figures, clients, TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.proxy.proxy_under_test import (
    GROUP,
    ProxyUnderTest,
    consumer_settings,
    make_topics,
    message,
    producer_settings,
    proxy_before,
    seconds,
    send_request,
)
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.proxy import proxy_health
from thermocline.proxy.grpc.messages import SERVICE, Code
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.settings import TlsConfig


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


async def test_many_questions_for_health_ask_the_name_server_once(broker: FakeBroker) -> None:
    """Every client may send them, without any right."""
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    async with proxy_before(broker, report_interval_ms=0) as proxy:
        before = len(broker.requests(code, broker_name="namesrv"))
        check = b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode()
        asked = [proxy.peer.open("/grpc.health.v1.Health/Check", check)[1] for _ in range(50)]
        for answer in asked:
            assert (await proxy.peer.done(answer)).payloads() == [b"\x08\x01"]
        assert len(broker.requests(code, broker_name="namesrv")) - before == 1


async def figures(proxy: ProxyUnderTest) -> dict[str, float]:
    """Every sample of the metrics, by name and labels without those of the node."""
    _, body = await proxy.http("/metrics")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        found[name.replace(f'cluster="DefaultCluster",node_id="{proxy.server._name}",', "")] = float(value)
    return found


def count_of(found: dict[str, float], name: str, code: str, result: str = "success") -> float:
    """How many RPCs of a name had a code and a result."""
    return sum(
        value
        for key, value in found.items()
        if key.startswith("rocketmq_rpc_latency_count{")
        and f'request_code="{name}",response_code="{code}",' in key
        and f'result="{result}"' in key
    )


async def test_health_is_that_of_proxy_and_cluster() -> None:
    with FakeBroker() as alone:
        async with proxy_before(alone, health_port=0) as proxy:
            status, body = await proxy.http("/health")
            assert (status, json.loads(body)["isClusterReachable"]) == (200, True)
            proxy.server.health.is_serving = False
            assert (await proxy.http("/health"))[0] == 503
            proxy.server.health.is_serving = True
            await asyncio.to_thread(alone.close)
            while json.loads(body)["isClusterReachable"]:  # as it was a second ago
                status, body = await proxy.http("/health")
            assert status == 503
            assert (await proxy.http("/nothing"))[0] == 404


async def test_no_port_is_opened_unless_it_is_wanted(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy:
        assert proxy.server.health._server._server is None


async def test_figures_are_counted_by_rpc_code_and_result(broker: FakeBroker) -> None:
    async with proxy_before(broker, health_port=0, message_bytes_max=1_000) as proxy:
        await proxy.call("SendMessage", send_request(message()))
        await proxy.call("SendMessage", send_request(message()))
        too_large = await proxy.call("SendMessage", send_request(message(body=b"x" * 2_000)))
        assert too_large.status.code == Code.MESSAGE_BODY_TOO_LARGE
        await proxy.receive()
        await proxy.receive(topic="Fifo")
        _, answer = proxy.peer.open("/apache.rocketmq.v2.MessagingService/SendMessage", b"\xff")
        await proxy.peer.done(answer)
        stream_id, answer = await proxy.connect(consumer_settings())
        await proxy.peer.answers(answer, 1)
        poll = asyncio.create_task(proxy.receive(topic="Fifo", long_polling_timeout=seconds(10)))
        await until(lambda: proxy.server.app.polls == 1)
        found = await figures(proxy)
        assert count_of(found, "SendMessage", "ok") == 2
        assert count_of(found, "SendMessage", "message_body_too_large") == 1
        assert count_of(found, "SendMessage", "code_unspecified", "process_request_failed") == 1
        assert count_of(found, "ReceiveMessage", "ok") == 1
        assert count_of(found, "ReceiveMessage", "message_not_found") == 1
        assert not any("Telemetry" in name for name in found)
        assert found["thermocline_proxy_connections"] == 1
        assert found["thermocline_proxy_open_rpcs"] == 2
        assert found['thermocline_proxy_clients{kind="push consumer"}'] == 1
        assert found["thermocline_proxy_long_polls"] == 1
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        proxy.peer.cancel(stream_id + 2)
        await until(lambda: proxy.server.service.call_count == 1)
        assert count_of(await figures(proxy), "ReceiveMessage", "code_unspecified", "cancelled") == 1


async def clients(proxy: ProxyUnderTest, query: str = "") -> Any:
    status, body = await proxy.http(f"/clients{query}")
    assert status == 200
    return json.loads(body)


async def test_clients_are_shown_by_group(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy_before(broker, health_port=0) as proxy:
        for client_id, settings in (
            ("a", consumer_settings(kind="SIMPLE_CONSUMER")),
            ("b", producer_settings("Normal", "Fifo")),
            ("c", consumer_settings("other-group")),
        ):
            _, answer = await proxy.connect(settings, metadata={"x-mq-client-id": client_id})
            await proxy.peer.answers(answer, 1)
        found = await clients(proxy)
        assert found["total"] == 3
        assert [client["clientId"] for client in found["clients"]] == ["b", "c", "a"]
        (simple,) = (await clients(proxy, f"?group={GROUP}"))["clients"]
        assert simple.pop("address").startswith("127.0.0.1:")
        assert simple == {
            "kind": "simple consumer",
            "groups": [GROUP],
            "groupCount": 1,
            "clientId": "a",
            "language": "PYTHON",
            "version": "5.1.2",
            "user": "",
            "hasStream": True,
            "longPolls": 0,
            "settings": {"requestTimeoutMs": 3_000, "subscriptions": {"Normal": "*"}, "subscriptionCount": 1},
        }
        assert [client["clientId"] for client in (await clients(proxy, "?group=Fifo"))["clients"]] == ["b"]
        monkeypatch.setattr(proxy_health, "CLIENTS_SHOWN_MAX", 1)
        found = await clients(proxy)
        assert (found["total"], len(found["clients"])) == (3, 1)


async def test_the_port_takes_tls_of_clients_that_would_speak_http_2(broker: FakeBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("s.pem", "s.key", subject="proxy", addresses=["127.0.0.1"])
    tls = TlsConfig(server_mode="enforcing", server_certificate_path=str(certificate), server_key_path=str(key))
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_alpn_protocols(["h2", "http/1.1"])  # as Prometheus offers
    async with proxy_before(broker, health_port=0, tls=tls) as proxy:
        assert (await proxy.http("/health", tls=context))[0] == 200
