"""The RPCs of MessagingService, row by row: codes, fields and limits, on a real port before a fake broker.

Covers `proxy/grpc/service/application.py`, `proxy/grpc/service/context.py`, `proxy/grpc/service/routes.py`,
`proxy/grpc/service/sending.py`, `proxy/grpc/service/receiving.py`, `proxy/grpc/service/acknowledging.py`,
`proxy/grpc/service/transactions.py`, `proxy/grpc/service/telemetry.py`, `proxy/grpc/service/offsets.py`,
`proxy/grpc/service/client_settings.py`, `proxy/grpc/service/background.py`, `proxy/grpc/service/validation.py`,
`proxy/grpc/service/conversion.py`, `proxy/cluster/cluster_messaging.py`, `proxy/cluster/transaction_watch.py` and
`proxy/messaging/messaging.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.proxy.http2_peer import GrpcPeer
from tests.proxy.proxy_under_test import (
    GROUP,
    TYPES,
    ProxyUnderTest,
    consumer_settings,
    make_topics,
    message,
    producer_settings,
    proxy_before,
    resource,
    seconds,
    send_request,
)
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.proxy.grpc.messages import SERVICE, Code, enums, messages
from thermocline.proxy.http2 import ErrorCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

_ids = iter(range(1, 1 << 30))


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(property_filter=True, auto_create_topics=False) as running:
        make_topics(running)
        yield running


@pytest.fixture
async def proxy(broker: FakeBroker) -> AsyncIterator[ProxyUnderTest]:
    async with proxy_before(broker) as running:
        yield running


def fresh_topic(broker: FakeBroker) -> str:
    topic = f"Fresh{next(_ids)}"
    broker.create_topic(topic, queue_nums=1)
    return topic


# -- routes ------------------------------------------------------------------------------------------------------------


def route_request(topic: str, host: str = "proxy.example") -> Any:
    request = messages.QueryRouteRequest(topic=resource(topic, "ns"))
    request.endpoints.scheme = enums.AddressScheme.DOMAIN_NAME
    request.endpoints.addresses.add(host=host, port=443)
    return request


async def test_a_route_names_the_proxy_as_the_client_dialled_it(proxy: ProxyUnderTest) -> None:
    answer = await proxy.call("QueryRoute", route_request("Normal"))
    assert (answer.status.code, answer.status.message) == (Code.OK, "OK")
    assert [queue.id for queue in answer.message_queues] == list(range(8))
    for queue in answer.message_queues:
        assert queue.permission == enums.Permission.READ_WRITE
        assert (queue.topic.name, queue.topic.resource_namespace) == ("Normal", "ns")
        assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
        (address,) = queue.broker.endpoints.addresses
        assert (address.host, address.port) == ("proxy.example", proxy.server.app.grpc_port)
        assert queue.broker.endpoints.scheme == enums.AddressScheme.DOMAIN_NAME


async def test_a_route_keeps_the_port_where_that_is_wanted(broker: FakeBroker) -> None:
    async with proxy_before(broker, use_endpoint_port=True) as proxy:
        answer = await proxy.call("QueryRoute", route_request("Normal"))
    assert answer.message_queues[0].broker.endpoints.addresses[0].port == 443


@pytest.mark.parametrize("name", TYPES)
async def test_a_route_says_what_may_be_sent_to_a_topic_of_each_type(proxy: ProxyUnderTest, name: str) -> None:
    answer = await proxy.call("QueryRoute", route_request(name.capitalize()))
    wanted = ["NORMAL", "FIFO", "DELAY", "TRANSACTION"] if name == "MIXED" else [name]
    assert list(answer.message_queues[0].accept_message_types) == [enums.MessageType[each] for each in wanted]


TOPICS = {"TBW102": 40002, "a b": 40002, "x" * 128: 40002, " ": 40002, "rmq_sys_x": 40002, "Missing": 40402}


@pytest.mark.parametrize("topic", TOPICS)
async def test_a_route_of_a_name_that_cannot_be_or_is_not_there(proxy: ProxyUnderTest, topic: str) -> None:
    answer = await proxy.call("QueryRoute", route_request(topic))
    assert answer.status.code == TOPICS[topic]


async def test_an_assignment_is_any_queue_of_each_broker(proxy: ProxyUnderTest) -> None:
    request = messages.QueryAssignmentRequest(topic=resource("Normal"), group=resource(GROUP))
    answer = await proxy.call("QueryAssignment", request)
    assert answer.status.code == Code.OK
    assert [each.message_queue.id for each in answer.assignments] == [-1]
    assert answer.assignments[0].message_queue.broker.endpoints.addresses[0].port == proxy.server.app.grpc_port


async def test_a_topic_that_cannot_be_read_has_no_assignment(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = f"WriteOnly{next(_ids)}"
    broker.create_topic(topic, perm=2)
    request = messages.QueryAssignmentRequest(topic=resource(topic), group=resource(GROUP))
    answer = await proxy.call("QueryAssignment", request)
    assert (answer.status.code, answer.status.message) == (Code.FORBIDDEN, "no readable queue")


# -- sending -----------------------------------------------------------------------------------------------------------


def with_properties(properties: dict[str, str]) -> Any:
    made = message()
    made.user_properties.update(properties)
    return made


def in_ms(delay_ms: int) -> Any:
    return messages.Timestamp(seconds=int(time.time()) + delay_ms // 1000)


REFUSED_SENDS: dict[str, tuple[Any, int]] = {
    "no message": (send_request(), 40016),
    "two topics": (send_request(message(), message("Fifo")), 40016),
    "an illegal topic": (send_request(message("a b")), 40002),
    "a system topic": (send_request(message("TBW102")), 40002),
    "a missing topic": (send_request(message("Missing")), 40402),
    "an empty body": (send_request(message(body=b"")), 41302),
    "a body that is too large": (send_request(message(body=b"x" * (4 << 20) + b"x")), 41301),
    "too many properties": (send_request(with_properties({f"k{i}": "v" for i in range(129)})), 43101),
    "properties that are too large": (send_request(with_properties({"k": "v" * 16_384})), 43101),
    "a reserved property": (send_request(with_properties({"UNIQ_KEY": "x"})), 40007),
    "a property of retried messages": (send_request(with_properties({"ORIGIN_GROUP": "x"})), 40007),
    "a control character in a name": (send_request(with_properties({"a\x01": "x"})), 40007),
    "a control character in a value": (send_request(with_properties({"a": "\x00"})), 40007),
    "a tag with a bar": (send_request(message(tag="a|b")), 40004),
    "a tag of blanks": (send_request(message(tag="  ")), 40004),
    "a tag with a control character": (send_request(message(tag="a\x7f")), 40004),
    "a key of blanks": (send_request(message(keys=[" "])), 40005),
    "a key with a control character": (send_request(message(keys=["a\n"])), 40005),
    "a message group that is too long": (send_request(message("Fifo", message_group="g" * 64)), 40006),
    "a message group of blanks": (send_request(message("Fifo", message_group=" ")), 40006),
    "a message group with a control character": (send_request(message("Fifo", message_group="a\x02")), 40006),
    "no message id": (send_request(message(message_id=" ")), 40009),
    "a message id that ends a property": (send_request(message(message_id="a\x02b\x01c")), 40007),
    "a delay of more than a day": (send_request(message("Delay", delivery_timestamp=in_ms(90_000_000))), 40012),
    "a recovery of more than an hour": (
        send_request(
            message("Transaction", message_type=4, orphaned_transaction_recovery_duration=seconds(3_601)),
        ),
        40000,
    ),
    "fifo to a normal topic": (send_request(message(message_group="g")), 40014),
    "normal to a fifo topic": (send_request(message("Fifo")), 40014),
    "delay to a normal topic": (send_request(message(delivery_timestamp=in_ms(1_000))), 40014),
    "a transaction to a normal topic": (send_request(message(message_type=4)), 40014),
    "a batch of delayed messages": (send_request(*[message("Delay", delivery_timestamp=in_ms(1_000))] * 2), 40000),
    "a batch of two message groups": (
        send_request(message("Fifo", message_group="a"), message("Fifo", message_group="b")),
        40000,
    ),
    "a message with a priority": (send_request(message("Priority", priority=1)), 50500),
    "a message for a light topic": (send_request(message("Lite", lite_topic="l")), 50500),
}


@pytest.mark.parametrize("name", REFUSED_SENDS)
async def test_a_send_that_breaks_a_rule_is_refused_with_its_code(proxy: ProxyUnderTest, name: str) -> None:
    request, code = REFUSED_SENDS[name]
    answer = await proxy.call("SendMessage", request)
    assert answer.status.code == code, answer
    assert not answer.entries


ACCEPTED_SENDS = {
    "normal": message(),
    "the largest body": message(body=b"x" * (4 << 20)),
    "a message group of 63 bytes": message("Fifo", message_group="g" * 63),
    "a time that has passed": message("Delay", delivery_timestamp=in_ms(-20_000)),
    "fifo to a mixed topic": message("Mixed", message_group="g"),
    "a transaction": message("Transaction", message_type=4),
}


@pytest.mark.parametrize("name", ACCEPTED_SENDS)
async def test_a_send_is_answered_with_one_entry(proxy: ProxyUnderTest, name: str) -> None:
    answer = await proxy.call("SendMessage", send_request(ACCEPTED_SENDS[name]))
    assert (answer.status.code, answer.status.message) == (Code.OK, "OK"), answer
    (entry,) = answer.entries
    assert entry.status.code == Code.OK
    assert entry.message_id == "01" * 17
    assert entry.offset >= 0
    assert bool(entry.transaction_id)


async def test_a_stored_message_has_the_properties_of_the_official_proxy(
    broker: FakeBroker, proxy: ProxyUnderTest
) -> None:
    topic = fresh_topic(broker)
    made = message(topic, tag="t", keys=["a", "b"], trace_context="trace", born_host="host")
    made.user_properties["user"] = "value"
    await proxy.call("SendMessage", send_request(made))
    (stored,) = broker.messages(topic)
    properties = dict(stored.properties)
    for name in ("MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT"):  # of the broker
        properties.pop(name, None)
    assert properties == {
        "user": "value",
        "TAGS": "t",
        "KEYS": "a b",
        "UNIQ_KEY": "01" * 17,
        "RECONSUME_TIME": "0",
        "PGROUP": topic,
        "TRACE_CONTEXT": "trace",
        "__BORNHOST": "host",
        "BORN_TIMESTAMP": "1700000000000",
    }
    assert (stored.body, stored.born_timestamp_ms) == (b"body", 1_700_000_000_000)


async def test_messages_of_a_message_group_go_to_the_queue_that_the_group_chooses(
    broker: FakeBroker, proxy: ProxyUnderTest
) -> None:
    for number in range(3):
        made = message("Fifo", body=b"g1-%d" % number, message_group="g1", queue_id=number)
        assert (await proxy.call("SendMessage", send_request(made))).status.code == Code.OK
    stored = [each for each in broker.messages("Fifo") if each.body.startswith(b"g1-")]
    assert {each.queue.queue_id for each in stored} == {6}  # of 8 queues, by Java's and Guava's hashes
    assert [each.body for each in stored] == [b"g1-0", b"g1-1", b"g1-2"]


async def test_a_batch_is_stored_in_one_queue_and_has_one_entry(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    made = [message(topic, body=b"%d" % number, message_id=f"{number}" * 34) for number in range(5)]
    answer = await proxy.call("SendMessage", send_request(*made))
    (entry,) = answer.entries
    assert entry.message_id == ",".join(f"{number}" * 34 for number in range(5))
    assert [each.body for each in broker.messages(topic)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_topic_that_cannot_be_written_is_forbidden(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = f"ReadOnly{next(_ids)}"
    broker.create_topic(topic, perm=4)
    answer = await proxy.call("SendMessage", send_request(message(topic)))
    assert (answer.status.code, answer.status.message) == (Code.FORBIDDEN, "no writable queue")


RECALLS = {"Normal": 40014, "a b": 40002, "Delay": 50001}


@pytest.mark.parametrize("topic", RECALLS)
async def test_a_recall_that_cannot_be(proxy: ProxyUnderTest, topic: str) -> None:
    request = messages.RecallMessageRequest(topic=resource(topic), recall_handle="nonsense")
    assert (await proxy.call("RecallMessage", request)).status.code == RECALLS[topic]


ENDS = {"": 40008, "  ": 40008, "unknown": 50001, "A" * 2_000: 50001}


@pytest.mark.parametrize("transaction_id", ENDS)
async def test_the_end_of_a_transaction_that_is_none(proxy: ProxyUnderTest, transaction_id: str) -> None:
    request = messages.EndTransactionRequest(topic=resource("Transaction"), transaction_id=transaction_id, resolution=1)
    assert (await proxy.call("EndTransaction", request)).status.code == ENDS[transaction_id]


# -- receiving ---------------------------------------------------------------------------------------------------------


async def stored(proxy: ProxyUnderTest, topic: str, count: int = 1, **system: Any) -> None:
    for number in range(count):
        made = message(topic, body=b"%d" % number, message_id=f"{next(_ids):034d}", **system)
        assert (await proxy.call("SendMessage", send_request(made))).status.code == Code.OK


async def test_frames_of_a_receive_that_finds_messages(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    made = message(topic, tag="t", keys=["a", "b"])
    made.user_properties["user"] = "значение"
    await proxy.call("SendMessage", send_request(made))
    first, found, last = await proxy.receive(topic=topic)
    assert (first.status.code, first.status.message) == (Code.OK, "OK")
    assert last.WhichOneof("content") == "delivery_timestamp"
    received, system = found.message, found.message.system_properties
    assert (received.body, received.topic.name) == (b"body", topic)
    assert dict(received.user_properties) == {"user": "значение"}
    assert (system.tag, list(system.keys), system.message_id) == ("t", ["a", "b"], "01" * 17)
    assert system.body_digest.type == enums.DigestType.MD5
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert system.body_encoding == enums.Encoding.IDENTITY
    assert system.message_type == enums.MessageType.NORMAL
    assert (system.delivery_attempt, system.queue_id, system.queue_offset) == (1, 0, 0)
    assert system.born_timestamp.seconds == 1_700_000_000
    assert system.HasField("store_timestamp")
    assert len(system.receipt_handle.split(" ")) == 9


async def test_frames_of_a_receive_that_finds_nothing(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    first, last = await proxy.receive(topic=fresh_topic(broker))
    assert (first.status.code, first.status.message) == (Code.MESSAGE_NOT_FOUND, "no new message")
    assert last.WhichOneof("content") == "delivery_timestamp"


async def test_messages_of_another_tag_are_acknowledged_and_not_delivered(
    broker: FakeBroker, proxy: ProxyUnderTest
) -> None:
    topic = fresh_topic(broker)
    await stored(proxy, topic, tag="BBBB")  # of the same Java hash as AaAa
    expression = messages.FilterExpression(type=enums.FilterType.TAG, expression="AaAa")
    first, _ = await proxy.receive(topic=topic, filter_expression=expression)
    assert (first.status.code, first.status.message) == (Code.MESSAGE_NOT_FOUND, "no match message")


async def test_a_batch_has_at_most_32_messages(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    await proxy.receive(topic=topic)  # the group begins here: a new one gets the last message alone
    await stored(proxy, topic, 40)
    frames = await proxy.receive(topic=topic, batch_size=100)
    assert len(frames) == 32 + 2


REFUSED_RECEIVES: dict[str, tuple[dict[str, Any], int]] = {
    "an illegal topic": ({"topic": "a b"}, 40002),
    "a missing topic": ({"topic": "Missing"}, 40402),
    "an invisible time that is too short": ({"invisible_duration": seconds(9)}, 40011),
    "an invisible time that is too long": ({"invisible_duration": seconds(43_200.001)}, 40011),
    "an empty SQL expression": ({"filter_expression": messages.FilterExpression(type=2, expression="")}, 40010),
    "a tag expression of bars": ({"filter_expression": messages.FilterExpression(type=1, expression="||")}, 40010),
    "an attempt id that is too long": ({"attempt_id": "x" * 257}, 40000),
    "no deadline": ({"timeout_ms": None}, 40000),
}


@pytest.mark.parametrize("name", REFUSED_RECEIVES)
async def test_a_receive_that_breaks_a_rule(proxy: ProxyUnderTest, name: str) -> None:
    fields, code = REFUSED_RECEIVES[name]
    first, last = await proxy.receive(**fields)
    assert first.status.code == code, first
    assert last.WhichOneof("content") == "delivery_timestamp"


@pytest.mark.parametrize(("version", "code"), [("5.1.2", 40018), ("5.0.2", 40000), ("", 40000)])
async def test_a_deadline_that_is_too_near_for_a_poll(broker: FakeBroker, version: str, code: int) -> None:
    async with proxy_before(broker, polling_ms_min=5_000) as proxy:
        metadata = {"x-mq-client-version": version}
        first, _ = await proxy.receive(long_polling_timeout=seconds(3), timeout_ms=4_000, metadata=metadata)
    assert first.status.code == code


async def test_polls_over_the_limits_are_refused_and_counted(broker: FakeBroker) -> None:
    topic = fresh_topic(broker)
    async with proxy_before(broker, client_polls_max=1, polls_max=2) as proxy:
        await proxy.registered(consumer_settings())
        waiting = asyncio.create_task(proxy.receive(topic=topic, long_polling_timeout=seconds(2)))
        await until(lambda: proxy.server.app.polls == 1)
        first, _ = await proxy.receive(topic=topic)
        assert first.status.code == Code.TOO_MANY_REQUESTS
        assert proxy.server.counts.totals == {"grpcLongPollsPerClientMax": 1}
        await waiting


async def test_messages_for_a_client_that_went_become_visible_soon(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    request = messages.ReceiveMessageRequest(
        group=resource(GROUP), batch_size=1, invisible_duration=seconds(600), long_polling_timeout=seconds(20)
    )
    request.message_queue.topic.name = topic
    stream_id, _ = proxy.peer.open(f"/{SERVICE}/ReceiveMessage", request.SerializeToString(), timeout_ms=30_000)
    await until(lambda: proxy.server.app.polls == 1)
    proxy.peer.cancel(stream_id)
    await until(lambda: proxy.server.service.call_count == 0)
    await stored(proxy, topic)  # the broker answers the poll of a client that is gone
    await until(lambda: proxy.server.app.polls == 0)
    frames = await proxy.receive(topic=topic, long_polling_timeout=seconds(15))
    assert [frame.message.body for frame in frames if frame.WhichOneof("content") == "message"] == [b"0"]


# -- acknowledging -----------------------------------------------------------------------------------------------------


async def received(proxy: ProxyUnderTest, topic: str, count: int = 1, **fields: Any) -> list[Any]:
    await proxy.receive(topic=topic)  # the group begins here
    await stored(proxy, topic, count)
    frames = await proxy.receive(topic=topic, **fields)
    return [frame.message.system_properties for frame in frames if frame.WhichOneof("content") == "message"]


def ack_request(topic: str, *handles: tuple[str, str]) -> Any:
    request = messages.AckMessageRequest(group=resource(GROUP), topic=resource(topic))
    for message_id, handle in handles:
        request.entries.add(message_id=message_id, receipt_handle=handle)
    return request


async def test_acknowledged_messages_do_not_come_again(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    found = await received(proxy, topic, 3)
    assert len(found) == 3
    handles = [(each.message_id, each.receipt_handle) for each in found]
    answer = await proxy.call("AckMessage", ack_request(topic, *handles))
    assert answer.status.code == Code.OK
    assert [(entry.message_id, entry.receipt_handle) for entry in answer.entries] == handles
    assert {entry.status.code for entry in answer.entries} == {Code.OK}


async def test_entries_of_an_acknowledgement_have_their_own_codes(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    (found,) = await received(proxy, topic)
    fields = found.receipt_handle.split(" ")
    fields[1] = "1000"  # popped in 1970, so the handle's time is over
    elsewhere = found.receipt_handle.replace("broker-a", "broker-z")
    request = ack_request(
        topic,
        ("a", found.receipt_handle),
        ("b", "garbage"),
        ("c", " ".join(fields)),
        ("d", elsewhere),
        ("e", "x" * 5_000),
    )
    answer = await proxy.call("AckMessage", request)
    assert [entry.status.code for entry in answer.entries] == [20000, 50001, 40013, 40000, 50001]
    assert answer.status.code == Code.MULTIPLE_RESULTS


async def test_an_acknowledgement_of_nothing(proxy: ProxyUnderTest) -> None:
    answer = await proxy.call("AckMessage", ack_request("Normal"))
    assert (answer.status.code, answer.status.message) == (50001, "ack message result is empty")
    answer = await proxy.call("AckMessage", ack_request("Normal", *[("a", "b")] * 1_025))
    assert answer.status.code == Code.BAD_REQUEST


async def test_a_changed_handle_replaces_the_old_one(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    (found,) = await received(proxy, topic)
    request = messages.ChangeInvisibleDurationRequest(
        group=resource(GROUP),
        topic=resource(topic),
        receipt_handle=found.receipt_handle,
        message_id=found.message_id,
        invisible_duration=seconds(30),
    )
    answer = await proxy.call("ChangeInvisibleDuration", request)
    assert answer.status.code == Code.OK
    assert answer.receipt_handle != found.receipt_handle
    assert answer.receipt_handle.split(" ")[8] == found.receipt_handle.split(" ")[8]
    acked = await proxy.call("AckMessage", ack_request(topic, (found.message_id, answer.receipt_handle)))
    assert acked.status.code == Code.OK


CHANGES = {-1: 40011, 43_201: 40011}


@pytest.mark.parametrize("duration_s", CHANGES)
async def test_an_invisible_time_that_cannot_be(proxy: ProxyUnderTest, duration_s: int) -> None:
    request = messages.ChangeInvisibleDurationRequest(
        group=resource(GROUP), topic=resource("Normal"), receipt_handle="x", invisible_duration=seconds(duration_s)
    )
    assert (await proxy.call("ChangeInvisibleDuration", request)).status.code == CHANGES[duration_s]


async def test_dead_letters_need_a_handle_that_says_where_the_message_is(
    broker: FakeBroker, proxy: ProxyUnderTest
) -> None:
    topic = fresh_topic(broker)
    (found,) = await received(proxy, topic)
    request = messages.ForwardMessageToDeadLetterQueueRequest(group=resource(GROUP), topic=resource(topic))
    request.message_id = found.message_id
    request.receipt_handle = found.receipt_handle.rpartition(" ")[0]
    assert (await proxy.call("ForwardMessageToDeadLetterQueue", request)).status.code == 40013
    request.receipt_handle = found.receipt_handle
    assert (await proxy.call("ForwardMessageToDeadLetterQueue", request)).status.code == Code.OK
    (dead,) = broker.messages(f"%DLQ%{GROUP}")
    assert dead.body == b"0"


async def test_the_handle_of_a_renewed_message_stays_good_for_its_client(broker: FakeBroker) -> None:
    topic = fresh_topic(broker)
    async with proxy_before(broker, renew_ahead_ms=59_990, renew_period_ms=20) as proxy:
        await proxy.registered(consumer_settings())
        await stored(proxy, topic)
        frames = await proxy.receive(topic=topic, auto_renew=True)
        (found,) = [each.message.system_properties for each in frames if each.WhichOneof("content") == "message"]
        assert len(proxy.server.handles) == 1
        before = len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME))
        await until(lambda: len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)) >= before + 2)
        answer = await proxy.call("AckMessage", ack_request(topic, (found.message_id, found.receipt_handle)))
        assert answer.status.code == Code.OK
        assert len(proxy.server.handles) == 0


@pytest.mark.parametrize("end", ["cancelled", "cut off", "connection lost"])
async def test_messages_that_did_not_leave_the_proxy_are_renewed_for_no_client(broker: FakeBroker, end: str) -> None:
    """The client never saw them, and is heard of all the same: they would be renewed for hours."""
    topic = fresh_topic(broker)
    async with proxy_before(broker) as proxy:
        await proxy.registered(consumer_settings())
        await proxy.receive(topic=topic)  # the group begins here
        for number in range(3):
            draft = message(topic, body=bytes(40_000), message_id=f"{number:034}")
            assert (await proxy.call("SendMessage", send_request(draft))).status.code == Code.OK
        async with GrpcPeer(proxy.address) as peer:
            peer.takes = False  # its windows let 65535 bytes through
            request = messages.ReceiveMessageRequest(group=resource(GROUP), auto_renew=True, batch_size=32)
            request.message_queue.topic.name = topic
            stream_id, answer = peer.open(f"/{SERVICE}/ReceiveMessage", request.SerializeToString())
            await peer.answers(answer, 2)
            assert len(proxy.server.handles) == 3
            before = len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME))
            if end == "cancelled":
                peer.cancel(stream_id)
            elif end == "cut off":
                (call,) = [each for each in proxy.server.service._calls if each.name == "ReceiveMessage"]
                call.stream.reset(ErrorCode.CANCEL)
        await until(lambda: len(broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)) == before + 2)
        assert len(proxy.server.handles) == 1
        changed = broker.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)[-2:]
        assert [(each.fields["offset"], each.fields["invisibleTime"]) for each in changed] == [
            ("1", "1000"),
            ("2", "1000"),
        ]


# -- the life of a client ----------------------------------------------------------------------------------------------


async def test_settings_of_a_producer_are_answered_whole(proxy: ProxyUnderTest) -> None:
    answer = await proxy.registered(producer_settings("Normal", "Fifo"))
    assert answer.status.code == Code.OK
    settings = answer.settings
    assert [(topic.name, topic.resource_namespace) for topic in settings.publishing.topics] == [
        ("Normal", "space"),
        ("Fifo", "space"),
    ]
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4 << 20, True)
    policy = settings.backoff_policy
    assert policy.max_attempts == 3
    assert policy.WhichOneof("strategy") == "exponential_backoff"
    assert (policy.exponential_backoff.initial.nanos, policy.exponential_backoff.max.seconds) == (10_000_000, 1)
    assert policy.exponential_backoff.multiplier == 2
    assert settings.metric.on is False


async def test_settings_of_a_consumer_are_answered_whole(proxy: ProxyUnderTest) -> None:
    settings = (await proxy.registered(consumer_settings())).settings
    subscription, policy = settings.subscription, settings.backoff_policy
    assert (subscription.fifo, subscription.receive_batch_size) == (False, 32)
    assert subscription.long_polling_timeout.seconds == 20
    assert policy.max_attempts == 17
    assert [each.seconds for each in policy.customized_backoff.next][:4] == [1, 5, 10, 30]
    assert len(policy.customized_backoff.next) == 18
    assert settings.request_timeout.seconds == 3


def empty_settings() -> Any:
    return messages.Settings(client_type=enums.ClientType.PRODUCER)


def sql_settings() -> Any:
    settings = consumer_settings()
    settings.subscription.subscriptions[0].expression.type = enums.FilterType.SQL
    settings.subscription.subscriptions[0].expression.expression = ""
    return settings


REFUSED_SETTINGS = {
    "neither publishing nor subscription": empty_settings(),
    "an illegal topic": producer_settings("a b"),
    "an illegal group": consumer_settings("a b"),
    "a system group": consumer_settings("CID_RMQ_SYS_X"),
    "an empty SQL filter": sql_settings(),
    "a client of a kind that is not served": consumer_settings(kind="LITE_PUSH_CONSUMER"),
}
INVALID_ARGUMENT, RESOURCE_EXHAUSTED = 3, 8


@pytest.mark.parametrize("name", REFUSED_SETTINGS)
async def test_settings_that_break_a_rule_end_the_stream(proxy: ProxyUnderTest, name: str) -> None:
    _, answer = await proxy.connect(REFUSED_SETTINGS[name])
    await proxy.peer.done(answer)
    assert (answer.status, answer.payloads()) == (INVALID_ARGUMENT, [])
    assert "Traceback" not in answer.message


async def test_more_clients_than_allowed_are_refused(broker: FakeBroker) -> None:
    limits = {"clients_max": 1, "client_names_max": 2, "client_settings_bytes_max": 200}
    async with proxy_before(broker, **limits) as proxy:
        consumer, long = consumer_settings(), producer_settings("Normal")
        consumer.subscription.subscriptions.extend([consumer.subscription.subscriptions[0]] * 2)
        long.user_agent.hostname = "h" * 200
        for settings in (producer_settings("Normal", "Fifo", "Delay"), consumer, long):
            _, answer = await proxy.connect(settings)
            assert (await proxy.peer.done(answer)).status == RESOURCE_EXHAUSTED
        await proxy.registered(producer_settings("Normal"))
        await proxy.registered(producer_settings("Normal"))  # the same client
        _, answer = await proxy.connect(producer_settings("Normal"), metadata={"x-mq-client-id": "second"})
        assert (await proxy.peer.done(answer)).status == RESOURCE_EXHAUSTED
        assert [client.client_id for client in proxy.server.clients.clients()] == ["test-client"]


async def test_a_client_is_known_from_its_settings_to_its_goodbye(proxy: ProxyUnderTest) -> None:
    heartbeat = messages.HeartbeatRequest(group=resource(GROUP), client_type=enums.ClientType.PUSH_CONSUMER)
    goodbye = messages.NotifyClientTerminationRequest(group=resource(GROUP))
    assert (await proxy.call("Heartbeat", heartbeat)).status.code == 40015
    assert (await proxy.call("NotifyClientTermination", goodbye)).status.code == 40015
    await proxy.registered(consumer_settings())
    assert (await proxy.call("Heartbeat", heartbeat)).status.code == Code.OK
    illegal = messages.HeartbeatRequest(group=resource("a b"))
    assert (await proxy.call("Heartbeat", illegal)).status.code == 40003
    (client,) = proxy.server.clients.consumers_of(GROUP)
    assert (client.client_id, client.language, client.version) == ("test-client", "PYTHON", "5.1.2")
    assert (await proxy.call("NotifyClientTermination", goodbye)).status.code == Code.OK
    assert proxy.server.clients.consumers_of(GROUP) == []
    assert (await proxy.call("Heartbeat", heartbeat)).status.code == 40015


async def test_the_npm_client_gets_its_settings_again(proxy: ProxyUnderTest) -> None:
    _, answer = await proxy.connect(producer_settings("Normal"), metadata={"x-mq-language": "HTTP"})
    first, second = await proxy.peer.answers(answer, 2)
    assert first == second


# -- offsets -----------------------------------------------------------------------------------------------------------


def queue_of(topic: str) -> Any:
    queue = messages.MessageQueue(topic=resource(topic), id=0)
    queue.broker.name = "broker-a"
    return queue


async def test_a_queue_is_read_by_offsets(broker: FakeBroker, proxy: ProxyUnderTest) -> None:
    topic = fresh_topic(broker)
    await stored(proxy, topic, 3)
    queue = queue_of(topic)
    pull = messages.PullMessageRequest(group=resource(GROUP), message_queue=queue, offset=1, batch_size=10)
    first, *found, last = await proxy.peer.stream("PullMessage", pull)
    assert first.status.code == Code.OK
    assert [frame.message.body for frame in found] == [b"1", b"2"]
    assert last.next_offset == 3
    get = messages.GetOffsetRequest(group=resource(GROUP), message_queue=queue)
    assert (await proxy.call("GetOffset", get)).status.code == 40404
    update = messages.UpdateOffsetRequest(group=resource(GROUP), message_queue=queue, offset=2)
    assert (await proxy.call("UpdateOffset", update)).status.code == Code.OK
    assert (await proxy.call("GetOffset", get)).offset == 2
    for policy, offset in ((0, 0), (1, 3)):
        query = messages.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy)
        assert (await proxy.call("QueryOffset", query)).offset == offset
    query = messages.QueryOffsetRequest(message_queue=queue, query_offset_policy=2, timestamp={"seconds": 1})
    assert (await proxy.call("QueryOffset", query)).offset == 0
    for request in (
        messages.QueryOffsetRequest(message_queue=queue, query_offset_policy=2),
        messages.QueryOffsetRequest(message_queue=messages.MessageQueue(topic=resource(topic), id=-1)),
    ):
        assert (await proxy.call("QueryOffset", request)).status.code == Code.BAD_REQUEST
    negative = messages.UpdateOffsetRequest(group=resource(GROUP), message_queue=queue, offset=-1)
    assert (await proxy.call("UpdateOffset", negative)).status.code == Code.ILLEGAL_OFFSET


# -- light topics, and what every RPC has ------------------------------------------------------------------------------

LITE = {
    ("Lite", GROUP, "ok"): 50100,
    ("a b", GROUP, "ok"): 40002,
    ("Lite", "a b", "ok"): 40003,
    ("Lite", GROUP, "a b"): 40020,
}


@pytest.mark.parametrize("names", LITE)
async def test_light_subscriptions_are_checked_and_refused(proxy: ProxyUnderTest, names: tuple[str, str, str]) -> None:
    topic, group, lite_topic = names
    request = messages.SyncLiteSubscriptionRequest(
        topic=resource(topic), group=resource(group), lite_topic_set=[lite_topic]
    )
    assert (await proxy.call("SyncLiteSubscription", request)).status.code == LITE[names]


UNARY = [
    "QueryRoute",
    "QueryAssignment",
    "Heartbeat",
    "NotifyClientTermination",
    "SendMessage",
    "RecallMessage",
    "EndTransaction",
    "AckMessage",
    "ChangeInvisibleDuration",
    "ForwardMessageToDeadLetterQueue",
    "UpdateOffset",
    "GetOffset",
    "QueryOffset",
    "SyncLiteSubscription",
]


async def test_every_rpc_needs_a_client_id(broker: FakeBroker) -> None:
    async with proxy_before(broker, client_id=None) as proxy:
        for name in UNARY:
            answer = await proxy.call(name, getattr(messages, f"{name}Request")())
            assert answer.status.code == 40017, name
        (first, _) = await proxy.receive()
        assert first.status.code == 40017
        _, answer = await proxy.connect(producer_settings("Normal"))
        await proxy.peer.done(answer)
        (payload,) = answer.payloads()
        command = messages.TelemetryCommand.FromString(payload)
        assert (command.status.code, command.WhichOneof("command"), answer.status) == (40017, None, 0)


async def test_what_is_no_message_is_refused_by_grpc(proxy: ProxyUnderTest) -> None:
    for name in (*UNARY, "ReceiveMessage", "PullMessage"):
        _, answer = proxy.peer.open(f"/{SERVICE}/{name}", b"\xff\xff")
        assert (await proxy.peer.done(answer)).status == INVALID_ARGUMENT, name


async def test_a_renewed_message_stays_held_when_its_acknowledgement_fails(broker: FakeBroker) -> None:
    topic = fresh_topic(broker)
    async with proxy_before(broker) as proxy:
        await proxy.registered(consumer_settings())
        await stored(proxy, topic)
        frames = await proxy.receive(topic=topic, auto_renew=True)
        (found,) = [each.message.system_properties for each in frames if each.WhichOneof("content") == "message"]
        broker.refuse(RequestCode.ACK_MESSAGE, response_code=ResponseCode.SYSTEM_BUSY)
        request = ack_request(topic, (found.message_id, found.receipt_handle))
        assert (await proxy.call("AckMessage", request)).status.code == Code.TOO_MANY_REQUESTS
        assert len(proxy.server.handles) == 1
        assert (await proxy.call("AckMessage", request)).status.code == Code.OK
        assert len(proxy.server.handles) == 0
