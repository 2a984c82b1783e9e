"""Two clusters behind one proxy, by gRPC: each RPC reaches the cluster that a rule or a handle says.

The brokers of both have one name.

Covers `proxy/routing/ask_clusters.py`, `proxy/messaging/caller.py`, `proxy/messaging/cluster_parts.py`.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.proxy_under_test import (
    GROUP,
    consumer_settings,
    make_topics,
    message,
    producer_settings,
    proxy_before,
    resource,
    seconds,
    send_request,
)
from tests.proxy.two_clusters import TwoClusters, bodies_in, broker_with_topics, make_topic, two_clusters
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.remoting.handles import decode_recall_handle
from thermocline.remoting.request_code import RequestCode

TO_EAST = {"topic": "Normal", "cluster": "east"}
ENDS = (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)


default = pytest.fixture(broker_with_topics)
east = pytest.fixture(broker_with_topics)


async def send(both: TwoClusters, body: bytes, topic: str = "Normal", **system: Any) -> Any:
    answer = await both.proxy.call("SendMessage", send_request(message(topic, body=body, **system)))
    assert answer.status.code == Code.OK, answer.status
    return answer.entries[0]


async def received(both: TwoClusters, topic: str = "Normal", **fields: Any) -> list[Any]:
    """The messages of one receive."""
    answers = await both.proxy.receive(topic=topic, **fields)
    return [answer.message for answer in answers if answer.WhichOneof("content") == "message"]


async def ack(both: TwoClusters, held: Any) -> Any:
    request = messages.AckMessageRequest(topic=resource(held.topic.name), group=resource(GROUP))
    properties = held.system_properties
    request.entries.add(message_id=properties.message_id, receipt_handle=properties.receipt_handle)
    return await both.proxy.call("AckMessage", request)


def acks_of(broker: FakeBroker) -> int:
    """How many requests acknowledged something."""
    return sum(len(broker.requests(code)) for code in ENDS)


# -- by topic, group, user, address ------------------------------------------------------------------------------------


async def test_a_topic_goes_to_its_cluster(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    async with two_clusters(default, east, tmp_path, TO_EAST) as both:
        await send(both, b"there")
        await send(both, b"here", "Mixed")
        assert (bodies_in(east), bodies_in(default)) == ([b"there"], [])
        assert (bodies_in(east, "Mixed"), bodies_in(default, "Mixed")) == ([], [b"here"])
        (held,) = await received(both)
        assert held.body == b"there"
        assert (await ack(both, held)).status.code == Code.OK
        assert (acks_of(default), acks_of(east)) == (0, 1)
        assert await received(both) == []


async def test_a_route_names_the_cluster(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    async with two_clusters(default, east, tmp_path, TO_EAST) as both:
        for topic, name in (("Normal", "broker-a@east"), ("Mixed", "broker-a")):
            answer = await both.proxy.call("QueryRoute", messages.QueryRouteRequest(topic=resource(topic)))
            assert {queue.broker.name for queue in answer.message_queues} == {name}


async def test_a_consumer_group_goes_to_its_cluster(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    make_topic(east, "OnlyEast")
    async with two_clusters(default, east, tmp_path, {"group": GROUP, "cluster": "east"}) as both:
        await send(both, b"for others")
        assert await received(both) == []
        assert [held.body for held in await received_by(both, "other")] == [b"for others"]
        # Before its settings have come a client has no group: a topic is found where a group's rule may lead, too.
        route = messages.QueryRouteRequest(topic=resource("OnlyEast"))
        answer = await both.proxy.call("QueryRoute", route)
        assert answer.message_queues[0].broker.name == "broker-a@east"
        await both.proxy.registered(producer_settings("OnlyEast"))
        assert (await both.proxy.call("QueryRoute", route)).status.code == Code.TOPIC_NOT_FOUND
        await both.proxy.registered(consumer_settings(topic="Normal"))
        answer = await both.proxy.call("QueryRoute", messages.QueryRouteRequest(topic=resource("Normal")))
        assert answer.message_queues[0].broker.name == "broker-a@east"
        asked = messages.QueryAssignmentRequest(topic=resource("Normal"), group=resource(GROUP))
        answer = await both.proxy.call("QueryAssignment", asked)
        assert [each.message_queue.broker.name for each in answer.assignments] == ["broker-a@east"]


async def received_by(both: TwoClusters, group: str) -> list[Any]:
    request = messages.ReceiveMessageRequest(
        group=resource(group), invisible_duration=seconds(30), batch_size=32, long_polling_timeout=seconds(0.2)
    )
    request.message_queue.topic.name = "Normal"
    answers = await both.proxy.peer.stream("ReceiveMessage", request, timeout_ms=20_000)
    return [answer.message for answer in answers if answer.WhichOneof("content") == "message"]


async def test_a_clients_address_decides(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    async with two_clusters(default, east, tmp_path, {"address": "127.0.0.0/8", "cluster": "east"}) as both:
        await send(both, b"there")
        await both.rule({"address": "10.0.0.0/8", "cluster": "east"})
        await send(both, b"here")
        assert (bodies_in(east), bodies_in(default)) == ([b"there"], [b"here"])


# -- rules that change -------------------------------------------------------------------------------------------------


async def test_what_was_delivered_before_a_change_is_ended_where_it_is(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    async with two_clusters(default, east, tmp_path, TO_EAST) as both:
        for number in range(3):
            await send(both, b"%d" % number)
        first, second, third = await received(both)
        await both.rule()
        await send(both, b"here")
        assert (await ack(both, first)).status.code == Code.OK
        change = messages.ChangeInvisibleDurationRequest(
            topic=resource("Normal"),
            group=resource(GROUP),
            receipt_handle=second.system_properties.receipt_handle,
            message_id=second.system_properties.message_id,
            invisible_duration=seconds(20),
        )
        changed = await both.proxy.call("ChangeInvisibleDuration", change)
        assert changed.status.code == Code.OK
        second.system_properties.receipt_handle = changed.receipt_handle
        assert (await ack(both, second)).status.code == Code.OK
        forward = messages.ForwardMessageToDeadLetterQueueRequest(
            topic=resource("Normal"),
            group=resource(GROUP),
            receipt_handle=third.system_properties.receipt_handle,
            message_id=third.system_properties.message_id,
        )
        assert (await both.proxy.call("ForwardMessageToDeadLetterQueue", forward)).status.code == Code.OK
        assert bodies_in(east, f"%DLQ%{GROUP}") == [third.body]
        assert (acks_of(default), acks_of(east)) == (0, 3)
        assert [held.body for held in await received(both)] == [b"here"]


async def test_what_is_left_behind_is_read_beside_what_is_new(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    async with two_clusters(default, east, tmp_path) as both:
        await send(both, b"old")
        await both.rule({**TO_EAST, "alsoRead": ["default"]})
        await send(both, b"new")
        assert (bodies_in(east), bodies_in(default)) == ([b"new"], [b"old"])
        answer = await both.proxy.call("QueryRoute", messages.QueryRouteRequest(topic=resource("Normal")))
        permissions = {queue.broker.name: queue.permission for queue in answer.message_queues}
        assert permissions == {"broker-a": enums.Permission.READ, "broker-a@east": enums.Permission.READ_WRITE}
        found = [held.body for _ in range(2) for held in await received(both)]
        assert sorted(found) == [b"new", b"old"]
        asked = messages.QueryAssignmentRequest(topic=resource("Normal"), group=resource(GROUP))
        answer = await both.proxy.call("QueryAssignment", asked)
        assert sorted(each.message_queue.broker.name for each in answer.assignments) == ["broker-a", "broker-a@east"]


async def test_queues_go_by_their_broker_whatever_the_rules_say(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    async with two_clusters(default, east, tmp_path, TO_EAST) as both:
        await send(both, b"there")
        await both.rule()
        for name, ends in (("broker-a@east", 1), ("broker-a", 0)):
            total = 0
            for queue_id in range(8):
                queue = messages.MessageQueue(topic=resource("Normal"), id=queue_id)
                queue.broker.name = name
                request = messages.QueryOffsetRequest(message_queue=queue, query_offset_policy="END")
                total += (await both.proxy.call("QueryOffset", request)).offset
                await both.proxy.call(
                    "UpdateOffset",
                    messages.UpdateOffsetRequest(message_queue=queue, group=resource(GROUP), offset=queue_id + ends),
                )
                got = messages.GetOffsetRequest(message_queue=queue, group=resource(GROUP))
                assert (await both.proxy.call("GetOffset", got)).offset == queue_id + ends
            assert total == ends
        assert east.committed_offset(GROUP, "Normal", 3) == 4
        assert default.committed_offset(GROUP, "Normal", 3) == 3


# -- transactions and recalls ------------------------------------------------------------------------------------------


async def test_a_transaction_ends_where_its_half_message_is(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    rule = {"topic": "Transaction", "cluster": "east"}
    half = {"message_type": enums.MessageType.TRANSACTION}
    async with two_clusters(default, east, tmp_path, rule) as both:
        there = await send(both, b"there", "Transaction", **half)
        await both.rule()
        here = await send(both, b"here", "Transaction", **half)
        assert (east.open_transactions("Transaction"), default.open_transactions("Transaction")) == (1, 1)
        for entry in (there, here):
            request = messages.EndTransactionRequest(
                topic=resource("Transaction"),
                message_id=entry.message_id,
                transaction_id=entry.transaction_id,
                resolution=enums.TransactionResolution.COMMIT,
                source=enums.TransactionSource.SOURCE_CLIENT,
            )
            assert (await both.proxy.call("EndTransaction", request)).status.code == Code.OK
        assert bodies_in(east, "Transaction") == [b"there"]
        assert bodies_in(default, "Transaction") == [b"here"]


async def test_every_cluster_asks_about_transactions(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    half = {"message_type": enums.MessageType.TRANSACTION}
    async with two_clusters(default, east, tmp_path) as both:
        _, answer = await both.proxy.connect(producer_settings("Transaction"))
        await both.proxy.peer.answers(answer, 1)
        await send(both, b"here", "Transaction", **half)
        await both.rule({"topic": "Transaction", "cluster": "east"})
        await send(both, b"there", "Transaction", **half)
        await until(lambda: default.ask_producers() and east.ask_producers(), what="both brokers have a producer")
        payloads = await both.proxy.peer.answers(answer, 3)
        commands = [messages.TelemetryCommand.FromString(payload) for payload in payloads]
        asked = [
            command.recover_orphaned_transaction_command
            for command in commands
            if command.WhichOneof("command") == "recover_orphaned_transaction_command"
        ]
        for each in {each.message.body: each for each in asked}.values():
            request = messages.EndTransactionRequest(
                topic=resource("Transaction"),
                message_id=each.message.system_properties.message_id,
                transaction_id=each.transaction_id,
                resolution=enums.TransactionResolution.COMMIT,
                source=enums.TransactionSource.SOURCE_SERVER_CHECK,
            )
            assert (await both.proxy.call("EndTransaction", request)).status.code == Code.OK
        assert bodies_in(east, "Transaction") + bodies_in(default, "Transaction") == [b"there", b"here"]


async def test_a_recall_reaches_the_cluster_of_its_handle(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    make_topic(east, "OnlyEast", "DELAY")
    rule = {"topic": "OnlyEast", "cluster": "east"}
    async with two_clusters(default, east, tmp_path, rule) as both:
        draft = message("OnlyEast", body=b"late", message_type=enums.MessageType.DELAY)
        draft.system_properties.delivery_timestamp.seconds = int(time.time()) + 3_600
        answer = await both.proxy.call("SendMessage", send_request(draft))
        assert answer.status.code == Code.OK, answer.status
        handle = answer.entries[0].recall_handle
        assert decode_recall_handle(handle).broker_name == "broker-a@east"
        await both.rule()
        request = messages.RecallMessageRequest(topic=resource("OnlyEast"), recall_handle=handle)
        await both.proxy.call("RecallMessage", request)
        assert len(east.requests(RequestCode.RECALL_MESSAGE)) == 1
        assert default.requests(RequestCode.RECALL_MESSAGE) == []


# -- clusters that are away, or have no part in it ---------------------------------------------------------------------


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_cluster_that_is_away_fails_what_is_routed_to_it_alone(
    default: FakeBroker, tmp_path: Path, *, is_silent: bool
) -> None:
    """Away: nothing listens there, or what does never answers."""
    also = {"topic": "Mixed", "cluster": "default", "alsoRead": ["east"]}
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        if is_silent:
            port.listen()
        gone = f"127.0.0.1:{port.getsockname()[1]}"
        await fails_alone(default, gone, tmp_path, also)


async def fails_alone(default: FakeBroker, gone: str, tmp_path: Path, also: dict[str, Any]) -> None:
    async with two_clusters(default, gone, tmp_path, TO_EAST, also, health_port=0) as both:
        answer = await both.proxy.call("SendMessage", send_request(message()))
        assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        await send(both, b"here", "Mixed")
        assert [held.body for held in await received(both, "Mixed")] == [b"here"]
        status, body = await both.proxy.http("/health")
        assert status == 200
        assert json.loads(body)["clusters"] == {"default": True, "east": False}
        _, body = await both.proxy.http("/metrics")
        assert b'thermocline_proxy_cluster_reachable{cluster="east"} 0' in body
        assert b'thermocline_proxy_cluster_reachable{cluster="default"} 1' in body


async def test_brokers_of_other_cluster_names_are_no_part_of_a_named_cluster(tmp_path: Path) -> None:
    with FakeBroker(auto_create_topics=False, cluster="Blue", broker_names=("broker-b",)) as shared:
        make_topics(shared)
        for name, code in (("Blue", Code.OK), ("DefaultCluster", Code.TOPIC_NOT_FOUND)):
            path = tmp_path / "rules.json"
            path.write_text(json.dumps({"rules": [TO_EAST]}))
            cluster = {"name": "east", "namesrvAddr": shared.namesrv_address, "rocketMQClusterName": name}
            settings = {"routing_clusters": json.dumps([cluster]), "routing_rules_path": str(path)}
            async with proxy_before(shared, **settings) as proxy:
                answer = await proxy.call("SendMessage", send_request(message()))
                assert answer.status.code == code, name
