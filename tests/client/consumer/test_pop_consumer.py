"""The POP consumer against the fake broker: receiving, acknowledging, keeping longer, order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import until
from thermocline.client.consumer.async_pop_consumer import AsyncPopConsumer
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.pop_consumer import PopConsumer
from thermocline.client.consumer.popped_message import PoppedMessage
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer
from thermocline.client.testing import FakeBroker
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import (
    BrokerBusyError,
    ClosedError,
    InvalidRequestError,
    TopicNotFoundError,
    UnavailableError,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

SHORT_MS = 50
LONG_MS = 60_000


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=4)
        yield broker


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[Producer]:
    with Producer(namesrv=broker.namesrv_address) as producer:
        yield producer


def options_of(broker: FakeBroker, **options: Any) -> dict[str, Any]:
    return {
        "group": "audit",
        "namesrv": broker.namesrv_address,
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "await_ms": 10_000,
    } | options


@pytest.fixture
def consumer(broker: FakeBroker) -> Iterator[PopConsumer]:
    with PopConsumer(**options_of(broker)) as consumer:
        consumer.subscribe("orders")
        yield consumer


def bodies(messages: list[PoppedMessage]) -> list[bytes]:
    return [message.body for message in messages]


def receive_all(consumer: PopConsumer, count: int, **options: Any) -> list[PoppedMessage]:
    messages: list[PoppedMessage] = []
    while len(messages) < count:
        received = consumer.receive(**options)
        assert received, f"{len(messages)} of {count}"
        messages += received
    return messages


def test_received_and_acknowledged(broker: FakeBroker, producer: Producer, consumer: PopConsumer) -> None:
    producer.send_many(Message("orders", b"%d" % number) for number in range(50))
    messages = receive_all(consumer, 50, invisible_ms=LONG_MS)
    assert sorted(bodies(messages)) == sorted(b"%d" % number for number in range(50))
    assert {message.topic for message in messages} == {"orders"}
    consumer.ack(messages[0])
    consumer.ack_many(messages[1:])
    consumer.ack_many([])
    assert consumer.receive(await_ms=10) == []
    assert len(broker.requests(RequestCode.ACK_MESSAGE)) == 1
    assert len(broker.requests(RequestCode.BATCH_ACK_MESSAGE)) == 1


def test_an_unacknowledged_message_is_redelivered_and_becomes_a_dead_letter(
    broker: FakeBroker, producer: Producer
) -> None:
    broker.create_group("audit", retry_max_times=2)
    producer.send(Message("orders", b"a"))
    with PopConsumer(**options_of(broker, invisible_ms=SHORT_MS)) as consumer:
        consumer.subscribe("orders")
        for tries in range(3):
            (message,) = consumer.receive()
            assert (message.body, message.topic, message.reconsume_times) == (b"a", "orders", tries)
        broker.wait_until(lambda: len(broker.messages("%DLQ%audit")) == 1)
        assert consumer.receive(await_ms=10) == []


def test_a_redelivered_message_is_acknowledged_in_its_retry_topic(
    broker: FakeBroker, producer: Producer, consumer: PopConsumer
) -> None:
    producer.send(Message("orders", b"a"))
    consumer.receive(invisible_ms=1)
    (again,) = consumer.receive(invisible_ms=SHORT_MS)
    assert again.queue.topic == "%RETRY%audit_orders"
    consumer.ack_many([again, again])
    assert consumer.receive(await_ms=2 * SHORT_MS) == []


def test_kept_longer_and_given_back(producer: Producer, consumer: PopConsumer) -> None:
    producer.send(Message("orders", b"a"))
    (message,) = consumer.receive(invisible_ms=SHORT_MS)
    before = message.receipt
    consumer.change_invisible_duration(message, LONG_MS)
    assert message.receipt != before
    assert message.visible_at_ms > before.revive_time_ms
    assert consumer.receive(await_ms=2 * SHORT_MS) == []
    consumer.change_invisible_duration(message, 0)
    (again,) = consumer.receive()
    assert again.reconsume_times == 1
    with pytest.raises(InvalidRequestError):
        consumer.change_invisible_duration(again, -1)


def test_only_the_tags_that_are_wanted(broker: FakeBroker, producer: Producer) -> None:
    # Two tags with one hash: the broker takes one for the other.
    producer.send(Message("orders", b"wanted", tags="Aa"))
    producer.send(Message("orders", b"not wanted", tags="BB"))
    producer.send(Message("orders", b"other", tags="C"))
    with PopConsumer(**options_of(broker)) as consumer:
        consumer.subscribe("orders", "Aa")
        (message,) = receive_all(consumer, 1)
        consumer.ack(message)
        while len(broker.requests(RequestCode.ACK_MESSAGE)) < 2:
            assert consumer.receive(await_ms=1) == []
        assert consumer.receive(await_ms=1) == []


def test_wanted_messages_come_although_others_cannot_be_acknowledged(broker: FakeBroker, producer: Producer) -> None:
    producer.send(Message("orders", b"wanted", tags="Aa"))
    producer.send(Message("orders", b"not wanted", tags="BB"))
    broker.refuse(RequestCode.ACK_MESSAGE, response_code=ResponseCode.SYSTEM_BUSY, times=1_000)
    broker.refuse(RequestCode.BATCH_ACK_MESSAGE, response_code=ResponseCode.SYSTEM_BUSY, times=1_000)
    with PopConsumer(**options_of(broker)) as consumer:
        consumer.subscribe("orders", "Aa")
        assert bodies(receive_all(consumer, 1)) == [b"wanted"]
    assert broker.requests(RequestCode.ACK_MESSAGE)


def test_members_share_messages(broker: FakeBroker, producer: Producer, consumer: PopConsumer) -> None:
    with PopConsumer(**options_of(broker)) as other:
        other.subscribe("orders")
        producer.send_many(Message("orders", b"%d" % number) for number in range(40))
        found: list[bytes] = []
        while len(found) < 40:
            for each in (consumer, other):
                messages = each.receive(4, await_ms=1)
                each.ack_many(messages)
                found += bodies(messages)
        assert sorted(found) == sorted(b"%d" % number for number in range(40))


def test_receiving_waits(broker: FakeBroker, producer: Producer, consumer: PopConsumer) -> None:
    received: list[PoppedMessage] = []
    thread = threading.Thread(target=lambda: received.extend(consumer.receive()))
    thread.start()
    broker.wait_until(lambda: len(broker.requests(RequestCode.POP_MESSAGE)) == 1)
    producer.send(Message("orders", b"a"))
    thread.join(10)
    assert bodies(received) == [b"a"]


def test_topics_on_several_brokers() -> None:
    with (
        FakeBroker(broker_names=["broker-a", "broker-b"]) as broker,
        Producer(namesrv=broker.namesrv_address) as producer,
        PopConsumer(**options_of(broker)) as consumer,
    ):
        for topic in ("orders", "bills"):
            broker.create_topic(topic, queue_nums=2)
            consumer.subscribe(topic)
        wanted = {b"%d-%d" % (kind, number) for kind in range(2) for number in range(20)}
        producer.send_many(Message("orders", b"0-%d" % number) for number in range(20))
        producer.send_many(Message("bills", b"1-%d" % number) for number in range(20))
        messages = receive_all(consumer, 40)
        assert set(bodies(messages)) == wanted
        assert {message.queue.broker_name for message in messages} == {"broker-a", "broker-b"}
        consumer.ack_many(messages)
        producer.send(Message("bills", b"late"))
        assert bodies(receive_all(consumer, 1)) == [b"late"]


def test_one_broker_that_fails_does_not_keep_the_others_messages() -> None:
    with (
        FakeBroker(broker_names=["broker-a", "broker-b"]) as broker,
        Producer(namesrv=broker.namesrv_address) as producer,
        PopConsumer(**options_of(broker)) as consumer,
    ):
        broker.create_topic("orders", queue_nums=1)
        consumer.subscribe("orders")
        producer.send_many(Message("orders", b"%d" % number) for number in range(10))
        broker.refuse(RequestCode.POP_MESSAGE, response_code=ResponseCode.SYSTEM_BUSY, broker_name="broker-a", times=99)
        messages = receive_all(consumer, 5)
        assert {message.queue.broker_name for message in messages} == {"broker-b"}


def test_in_order(broker: FakeBroker, producer: Producer) -> None:
    broker.create_topic("steps", queue_nums=1)
    for number in range(4):
        producer.send(Message("steps", b"%d" % number))
    with PopConsumer(**options_of(broker, in_order=True)) as consumer:
        consumer.subscribe("steps")
        first, second = consumer.receive(2)
        assert bodies([first, second]) == [b"0", b"1"]
        assert consumer.receive(2, await_ms=10) == []
        consumer.ack(first)
        assert consumer.receive(2, await_ms=10) == []
        consumer.ack(second)
        assert bodies(consumer.receive(2)) == [b"2", b"3"]


@pytest.mark.parametrize("ahead_ms", [-LONG_MS * 60, LONG_MS * 60])
def test_another_clock_at_the_broker(ahead_ms: int) -> None:
    """Where it was behind, each message was dropped, as if others had it, until it was a dead letter."""
    with (
        FakeBroker(clock_ms=lambda: wall_clock_ms() + ahead_ms) as broker,
        Producer(namesrv=broker.namesrv_address) as producer,
        PopConsumer(**options_of(broker)) as consumer,
    ):
        producer.send(Message("orders", b"a"))
        consumer.subscribe("orders")
        (message,) = consumer.receive(await_ms=100)
        consumer.ack(message)


async def test_what_arrived_too_long_ago_is_not_received(broker: FakeBroker, producer: Producer) -> None:
    """Another consumer may have it."""
    await asyncio.to_thread(producer.send, Message("orders", b"a"))
    async with AsyncPopConsumer(**options_of(broker, invisible_ms=SHORT_MS, await_ms=1)) as consumer:
        await consumer.subscribe("orders")
        receiving = asyncio.create_task(consumer.receive())
        while not consumer._polls:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0)
        receiving.cancel()
        await until(lambda: all(poll.done() for poll in consumer._polls.values()))
        await until(lambda: broker.messages("%RETRY%audit_orders"))
        # The consumer counts from the arrival, thus a little longer than the broker.
        kept = [arrived for poll in consumer._polls.values() for arrived in poll.result()]
        await until(lambda: all(arrived.until_s < asyncio.get_running_loop().time() for arrived in kept))
        messages = await consumer.receive(invisible_ms=LONG_MS)
        assert [message.reconsume_times for message in messages] == [1]


async def test_topics_may_be_subscribed_to_while_routes_are_looked_for(broker: FakeBroker) -> None:
    async with AsyncPopConsumer(**options_of(broker, await_ms=1)) as consumer:
        await consumer.subscribe("missing")
        await consumer.subscribe("missing-too")
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        subscribing = asyncio.create_task(consumer.subscribe("orders"))
        with pytest.raises(TopicNotFoundError):
            await receiving
        await subscribing


def test_errors(broker: FakeBroker, consumer: PopConsumer) -> None:
    with pytest.raises(InvalidRequestError):
        consumer.receive(33)
    with pytest.raises(InvalidRequestError):
        consumer.receive(0)
    broker.refuse(RequestCode.POP_MESSAGE, response_code=ResponseCode.SYSTEM_BUSY, times=1_000)
    with pytest.raises(BrokerBusyError):  # for the whole time
        consumer.receive(await_ms=100)
    broker.drop_connections()
    consumer.subscribe("missing")
    consumer.unsubscribe("orders")
    with pytest.raises(TopicNotFoundError):
        consumer.receive()
    consumer.unsubscribe("missing")
    with pytest.raises(InvalidRequestError):
        consumer.receive()


def test_life(broker: FakeBroker) -> None:
    consumer = PopConsumer(**options_of(broker))
    with pytest.raises(ClosedError):
        consumer.receive()
    consumer.start()
    consumer.subscribe("orders")
    broker.wait_until(lambda: broker.group_members("audit") == [consumer.client_id])
    consumer.close()
    consumer.close()
    broker.wait_until(lambda: broker.group_members("audit") == [])
    with pytest.raises(ClosedError):
        consumer.start()
    with pytest.raises(InvalidRequestError):
        PopConsumer(**options_of(broker, consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP))


async def test_the_asyncio_half(broker: FakeBroker, producer: Producer) -> None:
    async with AsyncPopConsumer(**options_of(broker)) as consumer:
        await consumer.subscribe("orders")
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        await asyncio.to_thread(producer.send, Message("orders", b"a"))
        (message,) = await receiving
        await consumer.ack(message)
        receiving = asyncio.create_task(consumer.receive())
        while not consumer._polls:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0)
        receiving.cancel()
        # What the poll finds that is still open is received by the next call.
        await asyncio.to_thread(producer.send, Message("orders", b"b"))
        (message,) = await consumer.receive()
        assert message.body == b"b"
        closing = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises((ClosedError, UnavailableError, asyncio.CancelledError)):
            await closing
