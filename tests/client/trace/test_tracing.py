"""Producers and push consumers with tracing enabled write the outcome of each message to the trace topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from tests.waiting import until
from thermocline.client.consumer.async_push_consumer import AsyncPushConsumer
from thermocline.client.consumer.listener import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.message import Message
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.testing import FakeBroker
from thermocline.client.trace.trace_dispatcher import RECORDS_WAITING_MAX, TraceDispatcher
from thermocline.client.trace.trace_records import (
    ConsumeOutcome,
    MessageKind,
    PublishTrace,
    SubscribeAfterTrace,
    SubscribeBeforeTrace,
    TraceRecord,
    decode_trace,
)
from thermocline.remoting.topic_validation import TRACE_TOPIC

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=1)
        broker.create_topic(TRACE_TOPIC, queue_nums=1)
        yield broker


def records(broker: FakeBroker) -> list[TraceRecord]:
    return [record for message in broker.messages(TRACE_TOPIC) for record in decode_trace(message.body.decode())]


async def test_an_answer_without_a_message_id_is_traced(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a master of RocketMQ that passes the message on to another one. The send had no outcome."""
    monkeypatch.setattr("thermocline.client.testing.fake_node.encode_message_id", lambda host, offset: "")
    async with AsyncProducer(namesrv=broker.namesrv_address, group="shop", enable_trace=True) as producer:
        async with asyncio.timeout(60):
            result = await producer.send(Message("orders", b"one"))
        assert result.offset_message_id == ""
    (record,) = records(broker)
    assert isinstance(record, PublishTrace)
    assert (record.message_id, record.store_host) == (result.message_id, "")


async def test_a_producer_traces_accepted_messages(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, group="shop", enable_trace=True) as producer:
        result = await producer.send(Message("orders", b"one", tags="paid", keys="k1 k2"))
        await producer.send(Message("orders", b"two", delay_level=1))
        batch = await producer.send_batch([Message("orders", b"three"), Message("orders", b"four")])
        await producer.send_one_way(Message("orders", b"five"))
    first, second, third = records(broker)
    assert isinstance(first, PublishTrace)
    assert first.message_id == result.message_id
    assert first.offset_message_id == result.offset_message_id
    assert (first.group, first.topic, first.tags, first.keys) == ("shop", "orders", "paid", "k1 k2")
    assert (first.body_bytes, first.kind, first.succeeded) == (3, MessageKind.NORMAL, True)
    assert first.store_host == broker.broker_addresses["broker-a"]
    assert isinstance(second, PublishTrace)
    assert second.kind is MessageKind.DELAYED
    assert isinstance(third, PublishTrace)
    assert third.message_id == ",".join(each.message_id for each in batch)
    (message,) = broker.messages(TRACE_TOPIC)
    assert {result.message_id, "k1", "k2", batch[1].message_id} <= set(message.keys.split())


async def test_nothing_is_written_without_tracing(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        await producer.send(Message("orders", b"one"))
    assert broker.messages(TRACE_TOPIC) == []


async def test_a_concurrent_consumer_notes_each_call_and_its_outcome(broker: FakeBroker) -> None:
    seen: list[bytes] = []

    async def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        seen.extend(message.body for message in messages)
        if messages[0].body == b"bad":
            raise RuntimeError("on request")
        return ConsumeResult.SUCCESS

    consumer = AsyncPushConsumer(
        namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST, enable_trace=True
    )
    consumer.subscribe("orders")
    consumer.register_listener(listener)
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        good = await producer.send(Message("orders", b"good", keys="k1"))
        bad = await producer.send(Message("orders", b"bad"))
        async with consumer:
            await until(lambda: {b"good", b"bad"} <= set(seen))
    found = records(broker)
    # The bad one may have come back: that call may have been ended by the consumer's end.
    before = {each.request_id: each for each in found if isinstance(each, SubscribeBeforeTrace)}
    ended = [each for each in found if isinstance(each, SubscribeAfterTrace)]
    for record in ended:
        assert record.message_id == before[record.request_id].message_id
        assert record.group == before[record.request_id].group == "billing"
    after = {each.message_id: each for each in ended}
    assert after.keys() == {good.message_id, bad.message_id}
    assert after[good.message_id].outcome is ConsumeOutcome.SUCCESS
    assert after[good.message_id].keys == "k1"
    assert (after[bad.message_id].outcome, after[bad.message_id].succeeded) == (ConsumeOutcome.EXCEPTION, False)


async def test_an_orderly_consumer_notes_its_calls_too(broker: FakeBroker) -> None:
    calls = 0

    async def listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
        nonlocal calls
        calls += 1
        context.suspend_current_queue_ms = 1
        return OrderlyResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if calls == 1 else OrderlyResult.SUCCESS

    consumer = AsyncPushConsumer(
        namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST, enable_trace=True
    )
    consumer.subscribe("orders")
    consumer.register_orderly_listener(listener)
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        await producer.send(Message("orders", b"one"))
        async with consumer:
            await until(lambda: calls == 2)
    outcomes = [each.outcome for each in records(broker) if isinstance(each, SubscribeAfterTrace)]
    assert outcomes == [ConsumeOutcome.FAILED, ConsumeOutcome.SUCCESS]


class SlowSender:
    """A producer that takes everything and sends nothing."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    def send_async(self, message: Message, callback: object = None) -> None:
        self.messages.append(message)


async def test_records_travel_twenty_to_a_message() -> None:
    sender = SlowSender()
    traces = TraceDispatcher(sender, topic=TRACE_TOPIC)
    record = SubscribeBeforeTrace(
        timestamp_ms=1, region="r", group="g", request_id="q", message_id="m", retry_times=0, keys=""
    )
    for _ in range(45):
        traces.append(record)
    assert [len(list(decode_trace(message.body.decode()))) for message in sender.messages] == [20, 20]
    await traces.close()
    assert len(list(decode_trace(sender.messages[-1].body.decode()))) == 5
    traces.append(record)
    assert traces.dropped_count == 1
    assert RECORDS_WAITING_MAX > 20
