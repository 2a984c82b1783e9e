"""What was there while mqadmin's dialogues were recorded: a topic with messages, a group at work, one that is away.

A consumer and a producer stay connected. They are one connection here, played by the test: what the broker asks the
consumer is answered as it was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.dialogues.replay import Peer
from thermocline.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.topic_validation import TRACE_TOPIC

TOPIC, GROUP, OFFLINE_GROUP, PRODUCER_GROUP = "AdminTopic", "AdminGroup", "OfflineGroup", "AdminProducer"
CLIENT_ID = "10.7.0.1@live"
QUEUES = 4
MESSAGES = 20
UNIQUE_KEY = "0A0700017B554E0E2F2A68B956BA{:04X}"
"""Of message number n; the recorded queries name them."""
TRACED_KEY = "0A070001119A4E0E2F2A68BC8B2D0006"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """The connection, and the offset message id of a message."""

    peer: Peer
    message_id: str


async def live_cluster(addresses: Mapping[str, str]) -> LiveCluster:
    """Make it."""
    peer = await Peer.open(addresses["broker"])

    async def ask(code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
        command = RemotingCommand.request(code, ext_fields=fields, body=body)
        command.language = LanguageCode.JAVA
        answer = await peer.connection.call(command, timeout_ms=10_000)
        assert answer.code == 0, answer.remark
        return answer

    async def send(topic: str, queue_id: int, properties: str, body: bytes) -> str:
        fields = {"a": PRODUCER_GROUP, "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0"}
        fields |= {"g": str(wall_clock_ms()), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false"}
        return ((await ask(310, fields, body)).ext_fields or {})["msgId"]

    count = str(QUEUES)
    topic = {
        "topic": TOPIC,
        "readQueueNums": count,
        "writeQueueNums": count,
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    await ask(17, topic | {"defaultTopic": "TBW102", "topicSysFlag": "0", "order": "false", "attributes": ""})
    ids = [
        await send(
            TOPIC,
            number % QUEUES,
            f"colour\x01blue\x02KEYS\x01key{number}\x02i\x01{number}\x02UNIQ_KEY\x01{UNIQUE_KEY.format(number)}\x02"
            f"WAIT\x01true\x02TAGS\x01T{number % 2}\x02",
            b"body-%d" % number,
        )
        for number in range(MESSAGES)
    ]
    await send(
        TRACE_TOPIC, 0, f"KEYS\x01{TRACED_KEY}\x02UNIQ_KEY\x01{UNIQUE_KEY.format(99)}\x02WAIT\x01true\x02", b"Pub"
    )
    subscriptions = [
        SubscriptionData(topic=name, sub_string="*", sub_version=wall_clock_ms()) for name in (TOPIC, f"%RETRY%{GROUP}")
    ]
    data = HeartbeatData(
        client_id=CLIENT_ID,
        consumer_data_set=[
            ConsumerData(
                group_name=GROUP,
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                subscription_data_set=subscriptions,
            )
        ],
        producer_data_set=[ProducerData(group_name=PRODUCER_GROUP), ProducerData(group_name="CLIENT_INNER_PRODUCER")],
    )
    await ask(34, body=data.encode())
    for queue_id in range(QUEUES):
        pull = {"topic": TOPIC, "consumerGroup": GROUP, "queueId": str(queue_id), "queueOffset": "0", "sysFlag": "0"}
        await ask(11, pull | {"maxMsgNums": "32", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"})
    await ask(200, body=SubscriptionGroupConfig(group_name=OFFLINE_GROUP).encode())
    for group, offset in ((GROUP, MESSAGES // QUEUES), (OFFLINE_GROUP, 2)):
        for queue_id in range(QUEUES):
            fields = {"topic": TOPIC, "consumerGroup": group, "queueId": str(queue_id), "commitOffset": str(offset)}
            await ask(15, fields)
    return LiveCluster(peer=peer, message_id=ids[0])
