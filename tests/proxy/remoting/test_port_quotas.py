"""Quotas of a proxy hold for remoting clients: a client does not get past them by the other protocol.

Covers `proxy/remoting/quotas.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.proxy_under_test import GROUP as GRPC_GROUP
from tests.proxy.proxy_under_test import make_topics, message, proxy_before, send_request
from tests.proxy.remoting.remoting_peer import client_of, send_fields
from thermocline.client.testing import FakeBroker
from thermocline.proxy.grpc.messages import Code
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

BUSY = ResponseCode.SYSTEM_BUSY
PULL: dict[str, Any] = {
    "topic": "Normal",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
}
PULL |= {"suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "bname": "broker-a"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


async def test_sends_and_replies_of_both_protocols_have_one_quota(broker: FakeBroker) -> None:
    quotas = "topic Normal sendRequests=1 burstSeconds=4"
    async with proxy_before(broker, quotas=quotas) as proxy, client_of(proxy) as client:
        assert (await proxy.call("SendMessage", send_request(message()))).status.code == Code.OK
        long_fields = {"producerGroup": "p", "topic": "Normal", "queueId": 0, "bname": "broker-a"}
        for code, fields in (
            (RequestCode.SEND_MESSAGE_V2, send_fields(n="broker-a")),
            (RequestCode.SEND_REPLY_MESSAGE_V2, send_fields(n="broker-a")),
            (RequestCode.SEND_MESSAGE, long_fields),
        ):
            assert (await client.ask(code, b"x", **fields)).code != BUSY
        refused = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields(n="broker-a"))
        assert (refused.code, refused.remark) == (BUSY, "[QUOTA]system busy, the quota of topic Normal is used up")
        assert (await proxy.call("SendMessage", send_request(message()))).status.code == Code.TOO_MANY_REQUESTS
        other = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields(b="Mixed", n="broker-a"))
        assert other.code == ResponseCode.SUCCESS


async def test_what_a_remoting_client_is_given_counts_by_its_bytes(broker: FakeBroker) -> None:
    quotas = f"group {GRPC_GROUP} readBytes=1; group * readRequests=1 burstSeconds=2"
    async with proxy_before(broker, quotas=quotas) as proxy, client_of(proxy) as client:
        sent = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x" * 1_000, **send_fields(n="broker-a"))
        assert sent.code == ResponseCode.SUCCESS
        codes = [
            (await client.ask(RequestCode.PULL_MESSAGE, consumerGroup=group, **PULL)).code
            for group in (GRPC_GROUP, GRPC_GROUP, "another", "another", "another")
        ]
        assert codes == [ResponseCode.SUCCESS, BUSY, ResponseCode.SUCCESS, ResponseCode.SUCCESS, BUSY]
