"""What a gRPC client gets by the name of another topic than the one that it has the right to.

Covers `proxy/grpc/service/transactions.py` and `proxy/grpc/service/grpc_rights.py`.
"""

from __future__ import annotations

from tests.auth.broker_with_users import entry
from tests.proxy.access.fake_users import ADDRESS, PUB_ORDERS, Checked, proof_of
from tests.proxy.proxy_under_test import make_topics, proxy_before, resource
from thermocline.auth.actions import Action
from thermocline.auth.resources import topic_resource
from thermocline.auth.rights import Right
from thermocline.client.testing import FakeBroker
from thermocline.proxy.access import RequestName
from thermocline.proxy.clients import ClientKind, ProxyClient
from thermocline.proxy.grpc.messages import messages
from thermocline.proxy.grpc.service.grpc_rights import rights_of

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


def test_a_change_of_an_invisible_time_needs_the_right_to_the_topic() -> None:
    """It names a topic beside the group, and ends a delivery of it, as an acknowledgement does."""
    request = messages.ChangeInvisibleDurationRequest(group=resource("G"), topic=resource("T"))
    assert {right.resource.key for right in rights_of("ChangeInvisibleDuration", request)} == {"Group:G", "Topic:T"}
