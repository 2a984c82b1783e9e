"""The asyncio push consumer: coroutine listeners, concurrent and orderly."""

from __future__ import annotations

import asyncio
from collections import defaultdict
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

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=4)
        yield broker


async def test_coroutine_listeners_run_concurrently_and_failures_come_again(broker: FakeBroker) -> None:
    seen: list[bytes] = []
    failed: set[bytes] = set()
    at_work = most = 0

    async def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.001)
        at_work -= 1
        for message in messages:
            if message.body.endswith(b"7") and message.body not in failed:
                failed.add(message.body)
                raise RuntimeError("once")
            seen.append(message.body)
        return ConsumeResult.SUCCESS

    consumer = AsyncPushConsumer(
        namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST, consume_threads=8
    )
    consumer.subscribe("orders")
    consumer.register_listener(listener)
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer, consumer:
        await producer.send_many(Message("orders", b"%d" % i) for i in range(100))
        await until(lambda: len(seen) == 100)
        assert len(await consumer.fetch_subscribe_queues("orders")) == 4
        consumer.suspend()
        consumer.resume()
    assert sorted(seen, key=int) == [b"%d" % i for i in range(100)]
    assert 2 <= most <= 8
    assert broker.committed_total("billing", "orders") == 100


async def test_orderly_coroutine_listeners_keep_order(broker: FakeBroker) -> None:
    seen: dict[int, list[int]] = defaultdict(list)

    async def listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult | None:
        await asyncio.sleep(0)
        seen[context.queue.queue_id] += [message.queue_offset for message in messages]
        return None

    consumer = AsyncPushConsumer(
        namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST, consume_message_batch_max_size=3
    )
    consumer.subscribe("orders")
    consumer.register_orderly_listener(listener)
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer, consumer:
        await producer.send_many(Message("orders", b"%d" % i) for i in range(100))
        await until(lambda: sum(map(len, seen.values())) == 100)
        consumer.unsubscribe("orders")
        await until(lambda: not [queue for queue in consumer.assigned_queues() if queue.topic == "orders"])
    assert all(offsets == list(range(25)) for offsets in seen.values())
