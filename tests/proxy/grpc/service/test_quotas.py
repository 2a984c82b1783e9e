"""Quotas of a proxy: what is beyond them is refused so that clients try again, by kind.

Covers `proxy/access/quota_check.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.proxy.proxy_under_test import (
    GROUP,
    ProxyUnderTest,
    make_topics,
    message,
    proxy_before,
    resource,
    send_request,
)
from thermocline.client.testing import FakeBroker
from thermocline.proxy.access import QuotaCheck
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.errors import BrokerBusyError, SettingError

HOST, USER = ("10.0.0.7", 4711), "carol"


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


async def sends(proxy: ProxyUnderTest, count: int, *, topic: str = "Normal", body: bytes = b"body") -> list[int]:
    return [
        (await proxy.call("SendMessage", send_request(message(topic, body=body)))).status.code for _ in range(count)
    ]


async def test_sends_beyond_a_quota_are_told_to_come_again(broker: FakeBroker) -> None:
    quotas = "topic Normal sendRequests=1 burstSeconds=3; address 127.0.0.1 sendBytes=1 burstSeconds=1000"
    async with proxy_before(broker, quotas=quotas) as proxy:
        codes = await sends(proxy, 4)
        assert codes[:3] == [Code.OK] * 3
        assert codes[3] == Code.TOO_MANY_REQUESTS
        answer = await proxy.call("SendMessage", send_request(message()))
        assert answer.status.message == "[QUOTA]system busy, the quota of topic Normal is used up"
        assert await sends(proxy, 1, topic="Mixed", body=b"x" * 2_000) == [Code.OK]  # owed
        assert await sends(proxy, 1, topic="Mixed") == [Code.TOO_MANY_REQUESTS]
        assert proxy.server.app.quotas.refusals == {("topic", "Normal"): 2, ("address", "127.0.0.1"): 1}


async def test_receives_beyond_a_quota_are_told_to_come_again(broker: FakeBroker) -> None:
    async with proxy_before(
        broker, quotas=f"group {GROUP} readBytes=1 burstSeconds=2; group * readRequests=1"
    ) as proxy:
        await sends(proxy, 1, body=b"x" * 100)
        first, *_ = await proxy.receive()
        assert first.status.code == Code.OK
        first, *_ = await proxy.receive()
        assert first.status.code == Code.TOO_MANY_REQUESTS
        pull = messages.PullMessageRequest(group=resource("another"), batch_size=1)
        pull.message_queue.topic.name = "Normal"
        pull.message_queue.broker.name = "broker-a"
        codes = [(await proxy.peer.stream("PullMessage", pull))[0].status.code for _ in range(2)]
        assert codes[0] in (Code.OK, Code.MESSAGE_NOT_FOUND)
        assert codes[1] == Code.TOO_MANY_REQUESTS


KINDS = {
    "topic": "topic orders sendRequests=1",
    "group": "group orders sendRequests=1",
    "address": "address 10.0.0.7 sendRequests=1",
    "user": "user carol sendRequests=1",
    "each user": "user * sendRequests=1",
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_quota_counts(kind: str) -> None:
    now = itertools.count()
    check = QuotaCheck(KINDS[kind], clock_s=lambda: next(now) / 1e6)
    check.check_send("orders", size_bytes=1, host=HOST, username=USER)
    with pytest.raises(BrokerBusyError):
        check.check_send("orders", size_bytes=1, host=HOST, username=USER)
    if kind != "topic" and kind != "group":
        check.check_send("orders", size_bytes=1, host=("10.0.0.8", 1), username="dave")
    else:
        check.check_send("others", size_bytes=1, host=HOST, username=USER)


def test_reads_are_paid_when_they_are_answered() -> None:
    check = QuotaCheck("user carol readBytes=10", clock_s=lambda: 1.0)
    place = {"host": HOST, "username": USER}
    check.check_read("orders", "billing", host=HOST, username=USER)
    check.check_read("orders", "billing", host=HOST, username=USER)
    check.took("orders", "billing", size_bytes=100, **place)  # type: ignore[arg-type]
    with pytest.raises(BrokerBusyError):
        check.check_read("orders", "billing", host=HOST, username=USER)
    check.check_read("orders", "billing", host=HOST, username="")


@pytest.mark.parametrize("text", ["topic", "topic a b=1", "user carol sendBytes=1"])
def test_quotas_that_cannot_be_are_refused_at_the_start(text: str) -> None:
    with pytest.raises(SettingError, match="quota"):
        ProxyConfig(quotas=text)
    ProxyConfig(quotas="user carol sendBytes=1", authentication_enabled=True)
