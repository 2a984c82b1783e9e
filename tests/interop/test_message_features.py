"""Message properties of features that are not built, and of priorities: what they change in an ordinary topic.

On the official broker too (`--official-peer`), by its default settings.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from tests.interop.cluster import Cluster
from thermocline import AdminClient
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.send import SendMessageRequestHeaderV2
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

pytestmark = pytest.mark.java

QUEUE_COUNT, QUEUE_ID = 4, 2
TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True)
class Feature:
    """Properties of a message that is sent to queue QUEUE_ID, its queue then, and the names that are gone."""

    properties: dict[str, str]
    queue_id: int = QUEUE_ID
    removed: frozenset[str] = frozenset()


PRIORITY = "_SYS_MSG_PRIORITY_"
REMOVED = frozenset({PRIORITY})
FEATURES = {
    "LightMessageQueue": Feature({"INNER_MULTI_DISPATCH": "%LMQ%alpha,%LMQ%beta"}),
    "LiteTopic": Feature({"__LITE_TOPIC": "alpha"}),
    "Priority": Feature({PRIORITY: "1"}, 1),
    "PriorityBeyond": Feature({PRIORITY: "7"}, QUEUE_COUNT - 1),
    "PriorityBelow": Feature({PRIORITY: "-1"}),
    "PriorityNoNumber": Feature({PRIORITY: "high"}),
    "PriorityTooLarge": Feature({PRIORITY: "2147483648"}),
    "PriorityInOrder": Feature({PRIORITY: "1", "__SHARDINGKEY": "k"}, removed=REMOVED),
    "PriorityLevelZero": Feature({PRIORITY: "1", "DELAY": "0"}, removed=REMOVED),
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_message_with_the_properties_is_stored_as_rocketmq_stores_it(cluster: Cluster, name: str) -> None:
    feature = FEATURES[name]
    topic = f"MessageFeature{name}"
    with AdminClient(namesrv=cluster.tools_namesrv, request_timeout_ms=TIMEOUT_MS) as admin:
        admin.create_topic(topic, queue_nums=QUEUE_COUNT)
    properties = {"UNIQ_KEY": f"7F00000100002A9F0000{len(name):012X}"} | feature.properties
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
    assert answer.ext_fields is not None
    (message,) = cluster.agent.read_topic(cluster.namesrv, topic)
    assert message.body == b"body"
    assert (answer.ext_fields["queueId"], message.queue_id) == (str(feature.queue_id), feature.queue_id)
    kept = {key: value for key, value in properties.items() if key not in feature.removed}
    assert {key: message.properties.get(key) for key in properties} == {**dict.fromkeys(properties), **kept}
