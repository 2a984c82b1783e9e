"""Message properties of features that are not built: the message is stored in its topic, the property changes nothing.

The official broker does the same by its default settings, in topics that are ordinary ones (`--official-peer`).
"""

from __future__ import annotations

import asyncio

import pytest

from tests.interop.cluster import Cluster
from thermocline import AdminClient
from thermocline.remoting.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.send import SendMessageRequestHeaderV2
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

pytestmark = pytest.mark.java

QUEUE_ID = 2
TIMEOUT_MS = 15_000
PROPERTIES = {"INNER_MULTI_DISPATCH": "%LMQ%alpha,%LMQ%beta", "_SYS_MSG_PRIORITY_": "7", "__LITE_TOPIC": "alpha"}


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_message_with_the_property_is_an_ordinary_one(cluster: Cluster, name: str) -> None:
    topic = f"MessageFeatures{sorted(PROPERTIES).index(name)}"
    with AdminClient(namesrv=cluster.namesrv, request_timeout_ms=TIMEOUT_MS) as admin:
        admin.create_topic(topic, queue_nums=4)
    properties = {"UNIQ_KEY": f"7F00000100002A9F0000{len(name):012X}", name: PROPERTIES[name]}
    header = SendMessageRequestHeaderV2(
        producer_group="message-features",
        topic=topic,
        queue_id=QUEUE_ID,
        properties="".join(f"{key}\x01{value}\x02" for key, value in properties.items()),
    )

    async def send() -> RemotingCommand:
        connection = await ClientConnection.open(cluster.broker_address)
        try:
            request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header=header, body=b"body")
            return await connection.call(request, timeout_ms=TIMEOUT_MS)
        finally:
            connection.close()

    answer = asyncio.run(send())
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (message,) = cluster.agent.read_topic(cluster.namesrv, topic)
    assert (message.queue_id, message.queue_offset, message.body) == (QUEUE_ID, 0, b"body")
    assert message.properties[name] == PROPERTIES[name]
