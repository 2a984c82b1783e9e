"""What a gRPC client gets by the name of another topic than the one that it has the right to.

Covers `proxy/grpc/service/transactions.py` and `proxy/grpc/service/grpc_rights.py`.
"""

from __future__ import annotations

import base64

from tests.auth.broker_with_users import entry
from tests.proxy.access.fake_users import ADDRESS, PUB_ORDERS, Checked, proof_of
from tests.proxy.proxy_under_test import make_topics, proxy_before, resource
from thermocline.auth.actions import Action
from thermocline.auth.resources import topic_resource
from thermocline.auth.rights import Right
from thermocline.client.message_queue import MessageQueue
from thermocline.client.testing import FakeBroker
from thermocline.proxy.access import RequestName
from thermocline.proxy.clients import ClientKind, ProxyClient
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.proxy.grpc.service.grpc_rights import rights_of
from thermocline.proxy.messaging import Messaging, OutgoingMessage, TransactionHandle
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.records.sys_flag import TRANSACTION_PREPARED

TELEMETRY = RequestName("apache.rocketmq.v2.TelemetryCommand", "Telemetry")


async def test_a_question_about_another_topics_message_is_not_for_a_producer_of_its_groups_name() -> None:
    """A remoting producer's group may have the name of a topic: its half messages may be of any topic."""
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    permit = await checked.check.check(
        TELEMETRY, proof_of("carol"), [Right(topic_resource("orders"), (Action.PUB,))], ADDRESS
    )
    client = ProxyClient(
        client_id="c",
        kind=ClientKind.PRODUCER,
        language="JAVA",
        version="1",
        remote_address=ADDRESS,
        names=("orders",),
        permit=permit,
    )
    with FakeBroker() as broker:
        make_topics(broker)
        async with proxy_before(broker) as proxy:
            transactions = proxy.server._transactions
            proxy.server.app.access = checked.check
            assert await transactions._may_answer(client, "orders")
            assert not await transactions._may_answer(client, "payments")
            checked.users.put("carol", PUB_ORDERS, entry("Topic:payments", Action.PUB))
            checked.users.now_ms += 2_000
            assert await transactions._may_answer(client, "payments")


async def test_a_transaction_of_another_topic_is_not_ended_by_its_groups_name() -> None:
    """A broker ends what a proxy names, by the proxy's rights; a transaction id is a text of the client's."""
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    with FakeBroker() as broker:
        make_topics(broker)
        broker.create_topic("orders")
        async with proxy_before(broker) as proxy:
            proxy.server.app.access = checked.check
            signed = metadata_of("carol")
            for topic, code, open_count in (("Transaction", Code.INVALID_TRANSACTION_ID, 1), ("orders", Code.OK, 0)):
                handle = await half_message(proxy.server.app.messaging, topic, producer_group="orders")
                request = messages.EndTransactionRequest(
                    topic=resource("orders"),
                    transaction_id=handle.text(),
                    resolution=enums.TransactionResolution.ROLLBACK,
                )
                answer = await proxy.call("EndTransaction", request, metadata=signed)
                assert answer.status.code == code, answer.status.message
                assert broker.open_transactions(topic) == open_count


async def half_message(messaging: Messaging, topic: str, *, producer_group: str) -> TransactionHandle:
    """As a remoting producer sends it."""
    properties = {PropertyName.TRANSACTION_PREPARED: "true", PropertyName.PRODUCER_GROUP: producer_group}
    half = OutgoingMessage(
        topic=topic,
        body=b"half",
        properties_text=encode_properties(properties).decode(),
        unique_key="AC11",
        sys_flag=TRANSACTION_PREPARED,
        born_timestamp_ms=0,
    )
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    stored = await messaging.send(queue, [half], producer_group=producer_group, timeout_ms=10_000)
    return TransactionHandle(
        unique_key="AC11",
        broker_name="broker-a",
        queue_offset=stored.queue_offset,
        physical_offset=stored.physical_offset,
    )


def metadata_of(username: str) -> dict[str, str]:
    """What a user of `fake_users` sends with a request."""
    proof = proof_of(username)
    signature = base64.b64decode(proof.signature).hex()
    text = f"MQv2-HMAC-SHA1 Credential={username}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": text, "x-mq-date-time": proof.content.decode()}


def test_a_change_of_an_invisible_time_needs_the_right_to_the_topic() -> None:
    """It names a topic beside the group, and ends a delivery of it, as an acknowledgement does."""
    request = messages.ChangeInvisibleDurationRequest(group=resource("G"), topic=resource("T"))
    assert {right.resource.key for right in rights_of("ChangeInvisibleDuration", request)} == {"Group:G", "Topic:T"}
