"""Figures of remoting clients: how their requests ended, and what they sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from tests.proxy.proxy_under_test import ProxyUnderTest, make_topics, proxy_before
from tests.proxy.remoting.remoting_peer import client_of, send_fields
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


async def figures(proxy: ProxyUnderTest, name: str) -> dict[tuple[str, ...], str]:
    """The samples of one name of the remoting port, by their labels without those of the node."""
    _, body = await proxy.http("/metrics")
    found = {}
    for line in body.decode().splitlines():
        if line.startswith(f"{name}{{") and 'protocol_type="remoting"' in line:
            labels = re.findall(r'(\w+)="([^"]*)"', line)
            node = ("node_type", "cluster", "node_id", "proxy_mode", "protocol_type")
            found[tuple(value for label, value in labels if label not in node)] = line.rpartition(" ")[2]
    return found


async def test_requests_are_measured_by_name_code_and_result(broker: FakeBroker) -> None:
    async with proxy_before(broker, health_port=0) as proxy, client_of(proxy) as client:
        await client.route()
        assert (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Missing")).code != ResponseCode.SUCCESS
        assert (await client.ask(9_999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields(b="Fifo"))).code != 0
        fields = {name: str(value) for name, value in send_fields().items()}
        oneway = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, body=b"one", ext_fields=fields, oneway=True)
        await client._connections.send_oneway(client.address, oneway)
        poll = {"consumerGroup": "g", "topic": "Mixed", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6}
        poll |= {"commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*", "subVersion": 0}
        waiting = asyncio.create_task(client.ask(RequestCode.LITE_PULL_MESSAGE, bname="broker-a", **poll))
        await until(lambda: broker.requests(RequestCode.LITE_PULL_MESSAGE), what="the broker is asked")
        latency = proxy.server.health.latency

        def measured_count() -> int:
            return sum(sum(series.counts) for _, series in latency.series())

        await until(lambda: measured_count() == 5, what="all but the pull are measured")
        await client.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: measured_count() == 6, what="all are measured")
        found = await figures(proxy, "rocketmq_rpc_latency_count")
    assert found == {
        ("get_routeinfo_by_topic", "success", "false", "success"): "1",
        ("get_routeinfo_by_topic", "topic_not_exist", "false", "success"): "1",
        ("other", "request_code_not_supported", "false", "success"): "1",
        ("send_message_v2", "message_illegal", "false", "success"): "1",
        ("send_message_v2", "", "false", "oneway"): "1",
        ("lite_pull_message", "service_not_available", "true", "write_channel_failed"): "1",
    }


async def test_sends_are_counted_when_they_are_stored(broker: FakeBroker) -> None:
    batch = encode_batch([BatchMessage(b"one", b"", 0), BatchMessage(b"three", b"", 0)])
    delayed = "DELAY\x011\x02"
    async with proxy_before(broker, health_port=0) as proxy, client_of(proxy) as client:
        for code, body, fields in (
            (RequestCode.SEND_MESSAGE_V2, b"body", send_fields()),
            (RequestCode.SEND_MESSAGE_V2, b"refused", send_fields(b="Delay")),
            (RequestCode.SEND_MESSAGE_V2, b"later", send_fields(b="Delay", i=delayed)),
            (RequestCode.SEND_BATCH_MESSAGE, batch, send_fields(m="true")),
        ):
            await client.ask(code, body, **fields)
        messages = await figures(proxy, "rocketmq_messages_in_total")
        size_bytes = await figures(proxy, "rocketmq_throughput_in_total")
    assert messages == {("Normal", "normal", "false"): "3", ("Delay", "delay", "false"): "1"}
    assert size_bytes == {("Normal", "normal", "false"): "12", ("Delay", "delay", "false"): "5"}
