"""Two clusters behind one proxy, by remoting: routes, and what changes on the way to a named cluster and back.

The brokers of both have one name.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.remoting.remoting_peer import GROUP, Client, client_of, send_fields
from tests.proxy.two_clusters import bodies_in, broker_with_topics, make_topic, two_clusters
from tests.waiting import until
from thermocline.client import ConsumeContext, Message, Producer, PushConsumer, ReceivedMessage
from thermocline.client.consumer.batch_acks import batch_acks
from thermocline.client.testing import FakeBroker
from thermocline.proxy.remoting.cluster_names import ClusterSide
from thermocline.proxy.routing import BrokerNames
from thermocline.remoting.bodies import (
    BatchAckMessageRequestBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    MessageQueueAssignment,
    MessageQueueForC,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    TopicRouteData,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.handles import ReceiptHandle, decode_recall_handle, parse_popped_offsets
from thermocline.remoting.headers import PopMessageResponseHeader
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import decode_record, encode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode

TO_EAST = {"topic": "Normal", "cluster": "east"}
SIDE = ClusterSide(BrokerNames(["east"]), "east")
PLAIN = MessageQueue(broker_name="broker-a", queue_id=3, topic="T")
JOINED = MessageQueue(broker_name="broker-a@east", queue_id=3, topic="T")
RECEIPT = "7 1000 60000 0 0 broker-a 3 7"


default = pytest.fixture(broker_with_topics)
east = pytest.fixture(broker_with_topics)


def names_of(route: TopicRouteData) -> dict[str, int]:
    """Permission by broker."""
    return {queues.broker_name: queues.perm for queues in route.queue_datas}


async def popped(client: Client, name: str) -> ReceiptHandle:
    """One message of the topic Normal, by the handle that a client makes of the answer."""
    fields = {"topic": "Normal", "consumerGroup": GROUP, "queueId": -1, "maxMsgNums": 1, "invisibleTime": 60_000}
    more = {"pollTime": 0, "bornTime": 0, "initMode": 0, "order": "false", "bname": name}
    answer = await client.ask(RequestCode.POP_MESSAGE, **fields, **more)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    header = answer.header(PopMessageResponseHeader)
    ((_, queue_id), queue), *_ = parse_popped_offsets(header.start_offset_info, header.msg_offset_info).items()
    return ReceiptHandle(
        start_offset=queue.start_offset,
        pop_time_ms=header.pop_time,
        invisible_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
        broker_name=name,
        queue_id=queue_id,
        queue_offset=queue.start_offset,
    )


def ack_fields(receipt: ReceiptHandle) -> dict[str, Any]:
    return {
        "topic": "Normal",
        "consumerGroup": GROUP,
        "queueId": receipt.queue_id,
        "offset": receipt.queue_offset,
        "extraInfo": receipt.text(),
        "bname": receipt.broker_name,
    }


# -- routes ------------------------------------------------------------------------------------------------------------


async def test_routes_go_by_topic_and_name_the_cluster(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    async with two_clusters(default, east, tmp_path, TO_EAST) as both, client_of(both.proxy) as client:
        route = await client.route("Normal")
        assert names_of(route) == {"broker-a@east": 6}
        assert [broker.broker_addrs for broker in route.broker_datas] == [{0: client.address}]
        assert names_of(await client.route("Mixed")) == {"broker-a": 6}
        await both.rule({**TO_EAST, "alsoRead": ["default"]})
        assert names_of(await client.route("Normal")) == {"broker-a@east": 6, "broker-a": 4}


async def test_routes_go_by_address_and_by_the_user_who_signs(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    rules = {"user": "alice", "cluster": "east"}, {"address": "127.0.0.1", "topic": "Mixed", "cluster": "east"}
    more = {"authentication_enabled": True, "inner_credentials": '{"accessKey": "p", "secretKey": "long-enough"}'}
    alice = Credentials(access_key="alice", secret_key="hers")
    async with two_clusters(default, east, tmp_path, *rules, **more) as both:
        async with client_of(both.proxy) as client:
            assert names_of(await client.route("Normal")) == {"broker-a": 6}
            assert names_of(await client.route("Mixed")) == {"broker-a@east": 6}
        async with client_of(both.proxy, credentials=alice) as client:
            assert names_of(await client.route("Normal")) == {"broker-a@east": 6}
            fields = send_fields(n="broker-a@east")
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, b"hers", **fields)).code == ResponseCode.SUCCESS
        assert bodies_in(east) == [b"hers"]
        assert east.requests(RequestCode.SEND_MESSAGE_V2)[0].fields["AccessKey"] == "alice"


async def test_a_group_counts_once_the_client_has_named_it(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    rule = {"group": GROUP, "cluster": "east"}
    async with two_clusters(default, east, tmp_path, rule) as both, client_of(both.proxy) as client:
        assert names_of(await client.route()) == {"broker-a": 6}
        assert (await client.heartbeat(consume_type="CONSUME_PASSIVELY")).code == ResponseCode.SUCCESS
        pull = {"consumerGroup": GROUP, "topic": "Normal", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1}
        more = {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
        answer = await client.ask(RequestCode.PULL_MESSAGE, **pull, **more, bname="broker-a")
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert "in another cluster: the client's next route says where" in (answer.remark or "")
        assert names_of(await client.route()) == {"broker-a@east": 6}
        answer = await client.ask(RequestCode.PULL_MESSAGE, **pull, **more, bname="broker-a@east")
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert east.group_members(GROUP) == ["one"]


async def test_retry_topics_are_read_wherever_they_are(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    make_topic(east, "%RETRY%group")
    async with two_clusters(default, east, tmp_path, TO_EAST) as both, client_of(both.proxy) as client:
        assert names_of(await client.route("%RETRY%group")) == {"broker-a@east": 4}
        make_topic(default, "%RETRY%group")
        assert names_of(await client.route("%RETRY%group")) == {"broker-a": 6, "broker-a@east": 4}


async def test_topics_are_not_made_by_use_and_requests_name_their_broker(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    async with two_clusters(default, east, tmp_path, TO_EAST) as both, client_of(both.proxy) as client:
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"body", **send_fields())
        assert (answer.code, answer.remark) == (
            ResponseCode.VERSION_NOT_SUPPORTED,
            "Request doesn't have field bname",
        )


async def test_a_group_is_assigned_queues_where_its_rule_says(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    """This request names its group, and no broker."""
    for broker, code in ((default, 4_711), (east, 4_712)):
        broker.refuse(RequestCode.QUERY_ASSIGNMENT, response_code=code, times=2)
    rule = {"group": GROUP, "cluster": "east"}
    async with two_clusters(default, east, tmp_path, rule) as both, client_of(both.proxy) as client:
        for group, code in ((GROUP, 4_712), ("other", 4_711)):
            body = QueryAssignmentRequestBody(client_id="one", consumer_group=group, topic="Normal").encode()
            assert (await client.ask(RequestCode.QUERY_ASSIGNMENT, body)).code == code
        absent = QueryAssignmentRequestBody(client_id="one", consumer_group=GROUP, topic="Absent").encode()
        answer = await client.ask(RequestCode.QUERY_ASSIGNMENT, absent)
        assert answer.code == ResponseCode.VERSION_NOT_SUPPORTED


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_brokers_get_their_own_names_and_clients_the_clusters(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    async with two_clusters(default, east, tmp_path, TO_EAST) as both, client_of(both.proxy) as client:
        name = "broker-a@east"
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"body", **send_fields(n=name))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert east.requests(RequestCode.SEND_MESSAGE_V2)[0].fields["n"] == "broker-a"
        receipt = await popped(client, name)
        await both.rule()
        assert names_of(await client.route()) == {"broker-a": 6}
        for wrong in ({"bname": "broker-a"}, {"extraInfo": RECEIPT}):
            answer = await client.ask(RequestCode.ACK_MESSAGE, **{**ack_fields(receipt), **wrong})
            assert "the handle is of another cluster than the broker" in (answer.remark or "")
        for name in ("broker-a", "broker-a@east"):
            acks = batch_acks([("Normal", receipt)], group=GROUP)
            body = BatchAckMessageRequestBody(acks=acks, broker_name=name).encode()
            other = "broker-a@east" if name == "broker-a" else "broker-a"
            answer = await client.ask(RequestCode.BATCH_ACK_MESSAGE, body, bname=other)
            assert "the handle is of another cluster than the broker" in (answer.remark or "")
        assert (await client.ask(RequestCode.ACK_MESSAGE, **ack_fields(receipt))).code == ResponseCode.SUCCESS
        (acked,) = east.requests(RequestCode.ACK_MESSAGE)
        assert acked.fields["bname"] == "broker-a"
        assert ReceiptHandle.parse(acked.fields["extraInfo"]).broker_name == "broker-a"
        assert default.requests(RequestCode.ACK_MESSAGE) == []


async def test_queues_are_locked_under_the_brokers_own_names(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    queue = MessageQueue(broker_name="broker-a@east", queue_id=0, topic="Normal")
    body = LockBatchRequestBody(client_id="one", consumer_group=GROUP, mq_set=[queue]).encode()
    async with two_clusters(default, east, tmp_path, TO_EAST) as both, client_of(both.proxy) as client:
        answer = await client.ask(RequestCode.LOCK_BATCH_MQ, body)
        assert LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == [queue]
        (locked,) = east.requests(RequestCode.LOCK_BATCH_MQ)
        assert [each.broker_name for each in LockBatchRequestBody.decode(locked.body).mq_set] == ["broker-a"]
        assert default.requests(RequestCode.LOCK_BATCH_MQ) == []


async def test_recall_handles_name_their_cluster(default: FakeBroker, east: FakeBroker, tmp_path: Path) -> None:
    rule = {"topic": "Delay", "cluster": "east"}
    async with two_clusters(default, east, tmp_path, rule) as both, client_of(both.proxy) as client:
        properties = "TIMER_DELAY_SEC\x013600\x02UNIQ_KEY\x01K\x02"
        fields = send_fields(b="Delay", n="broker-a@east", i=properties)
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"late", **fields)
        handle = (answer.ext_fields or {})["recallHandle"]
        assert decode_recall_handle(handle).broker_name == "broker-a@east"
        await both.rule()
        await client.ask(RequestCode.RECALL_MESSAGE, topic="Delay", recallHandle=handle, bname="broker-a@east")
        (recalled,) = east.requests(RequestCode.RECALL_MESSAGE)
        assert decode_recall_handle(recalled.fields["recallHandle"]).broker_name == "broker-a"


async def test_a_producer_that_is_asked_answers_the_broker_that_asked(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    rule = {"topic": "Transaction", "cluster": "east"}
    async with two_clusters(default, east, tmp_path, rule) as both, client_of(both.proxy) as client:
        fields = send_fields(b="Transaction", n="broker-a@east", i="TRAN_MSG\x01true\x02PGROUP\x01producers\x02", f=4)
        await client.route("Transaction")
        await client.heartbeat()
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, b"half", **fields)).code == ResponseCode.SUCCESS
        await until(lambda: east.ask_producers(), what="the broker has a producer to ask")
        await until(lambda: checks_of(client), what="the client is asked")
        assert (checks_of(client)[0].ext_fields or {})["bname"] == "broker-a@east"


def checks_of(client: Client) -> list[RemotingCommand]:
    return [each for each in client.asked if each.code == RequestCode.CHECK_TRANSACTION_STATE]


def test_requests_that_are_signed_pass_or_are_refused() -> None:
    credentials = Credentials(access_key="alice", secret_key="hers")
    send = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields={"n": "broker-a@east"})
    pop = RemotingCommand.request(RequestCode.POP_MESSAGE, ext_fields={"bname": "broker-a@east"})
    for command in (send, pop):
        credentials.sign(command)
    assert SIDE.to_broker(send, "broker-a") is send
    with pytest.raises(InvalidRequestError, match="a client that signs its requests cannot pop, lock or recall"):
        SIDE.to_broker(pop, "broker-a")


async def test_a_cluster_that_is_away_keeps_no_client_from_the_others(default: FakeBroker, tmp_path: Path) -> None:
    """What listens there never answers."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        port.listen()
        gone = f"127.0.0.1:{port.getsockname()[1]}"
        rule = {"topic": "Normal", "group": GROUP, "cluster": "east"}
        async with two_clusters(default, gone, tmp_path, rule) as both, client_of(both.proxy) as client:
            assert names_of(await client.route("Mixed")) == {"broker-a": 6}
            assert (await client.heartbeat()).code == ResponseCode.SUCCESS
            assert default.group_members(GROUP) == ["one"]
            fields = send_fields(b="Mixed", n="broker-a")
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, b"body", **fields)).code == ResponseCode.SUCCESS


# -- what is in bodies -------------------------------------------------------------------------------------------------


def answer_with(body: bytes) -> RemotingCommand:
    return RemotingCommand.response(RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT), body=body)


def test_assignments_and_resets_name_the_cluster() -> None:
    body = QueryAssignmentResponseBody(message_queue_assignments=[MessageQueueAssignment(message_queue=PLAIN)])
    answer = SIDE.to_client(RequestCode.QUERY_ASSIGNMENT, answer_with(body.encode()))
    (assignment,) = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments or []
    assert assignment.message_queue == JOINED
    for reset in (
        ResetOffsetBody(offset_table={PLAIN: QueueOffset(5)}).encode(),
        ResetOffsetBodyForC(
            offset_table=[MessageQueueForC(broker_name="broker-a", queue_id=3, topic="T", offset=QueueOffset(5))]
        ).encode(),
    ):
        asked = RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, body=reset)
        body_then = SIDE.asked_of_client(asked, "broker-a").body
        assert body_then == reset.replace(b"broker-a", b"broker-a@east")


def test_a_direct_consumption_names_the_cluster() -> None:
    asked = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields={"brokerName": "broker-a"})
    assert SIDE.asked_of_client(asked, "").ext_fields == {"brokerName": "broker-a@east"}
    other = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields={"consumerGroup": GROUP})
    assert SIDE.asked_of_client(other, "broker-a") is other


def test_messages_that_came_back_have_handles_of_the_cluster() -> None:
    """Brokers write the handle of such a message into it; clients take it as it is."""

    def record(properties_text: bytes) -> bytes:
        return encode_record(
            topic="T",
            queue_id=3,
            queue_offset=QueueOffset(7),
            physical_offset=PhysicalOffset(99),
            body=b"body",
            properties_text=properties_text,
            born_timestamp_ms=1,
            born_host=("10.0.0.1", 1),
            store_timestamp_ms=2,
            store_host=("10.0.0.2", 2),
        )

    for text in (b"POP_CK\x01%s" % RECEIPT.encode(), b"A\x011\x02POP_CK\x01%s\x02B\x012\x02" % RECEIPT.encode()):
        plain = record(text)
        answer = SIDE.to_client(RequestCode.POP_MESSAGE, answer_with(plain + record(b"A\x011")))
        first = decode_record(answer.body)
        before = decode_record(plain).properties
        assert first.properties == {**before, "POP_CK": RECEIPT.replace("broker-a", "broker-a@east")}
        assert (first.body, first.queue_offset, first.physical_offset) == (b"body", 7, 99)
        second = decode_record(answer.body, first.size_bytes)
        assert second.properties == {"A": "1"}
    untouched = record(b"A\x011")
    assert SIDE.to_client(RequestCode.POP_MESSAGE, answer_with(untouched)).body == untouched


# -- a classic push consumer -------------------------------------------------------------------------------------------


async def test_a_push_consumer_by_pop_works_in_a_named_cluster(
    default: FakeBroker, east: FakeBroker, tmp_path: Path
) -> None:
    """Also messages that fail once: they come back in the cluster that they are in."""
    async with two_clusters(default, east, tmp_path, TO_EAST) as both:
        address = f"127.0.0.1:{both.proxy.server.remoting_port}"
        tries: Counter[bytes] = Counter()

        def listen(found: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            context.delay_level_when_next_consume = 1
            for each in found:
                tries[each.body] += 1
                if each.body == b"3" and tries[each.body] == 1:
                    raise ValueError("once more")

        def run() -> None:
            consumer = PushConsumer(group="pushed", namesrv=address)
            consumer.subscribe("Normal")
            consumer.register_listener(listen)
            with Producer(group="senders", namesrv=address) as producer, consumer:
                for number in range(10):
                    producer.send(Message("Normal", b"%d" % number))
                east.wait_until(lambda: len(tries) == 10 and tries[b"3"] > 1, timeout_s=60)

        await asyncio.to_thread(run)
        assert tries[b"3"] == 2
        assert len(bodies_in(east)) == 10
        assert bodies_in(default) == []
