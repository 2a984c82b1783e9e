"""Consuming, as users write it: types that the checker must infer, and mistakes that it must find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_type

from thermocline import (
    AllocateByConsistentHash,
    AllocationStrategy,
    AsyncPopConsumer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    MessageModel,
    MessageQueue,
    OrderlyContext,
    OrderlyResult,
    PopConsumer,
    PoppedMessage,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)


def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
    assert_type(messages[0].body, bytes)
    assert_type(messages[0].properties, Mapping[str, str])
    assert_type(messages[0].queue, MessageQueue)
    context.delay_level_when_next_consume = 3
    return ConsumeResult.SUCCESS


def silent_listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
    assert messages


def orderly_listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
    return OrderlyResult.SUCCESS


async def coroutine_listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
    assert messages


def push() -> None:
    consumer = PushConsumer(
        group="billing",
        namesrv="127.0.0.1:9876",
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        allocation=AllocateByConsistentHash(),
    )
    consumer.subscribe("orders", "paid || refunded")
    consumer.register_listener(listener)
    consumer.register_listener(silent_listener)
    consumer.register_orderly_listener(orderly_listener)
    with consumer as running:
        assert_type(running, PushConsumer)
        assert_type(running.assigned_queues(), list[MessageQueue])


async def push_asynchronously(consumer: AsyncPushConsumer) -> None:
    consumer.register_listener(coroutine_listener)
    async with consumer as running:
        assert_type(running, AsyncPushConsumer)
        assert_type(await running.fetch_subscribe_queues("orders"), list[MessageQueue])


def pull() -> None:
    with PullConsumer(group="audit", auto_commit=False) as consumer:
        consumer.subscribe("orders")
        assert_type(consumer.poll(1_000, count_max=5), list[ReceivedMessage])
        queue = consumer.assignment()[0]
        consumer.seek(queue, 7)
        assert_type(consumer.position(queue), int)
        assert_type(consumer.committed(queue), int | None)
        consumer.commit({queue: 8})
        for message in consumer:
            assert_type(message, ReceivedMessage)


async def pull_asynchronously(consumer: AsyncPullConsumer) -> None:
    assert_type(await consumer.poll(), list[ReceivedMessage])
    async for message in consumer:
        assert_type(message, ReceivedMessage)


def pop() -> None:
    with PopConsumer(group="resizers", invisible_ms=30_000, in_order=True) as consumer:
        assert_type(consumer, PopConsumer)
        consumer.subscribe("orders", "paid || refunded")
        messages = consumer.receive(16, await_ms=1_000, invisible_ms=10_000)
        assert_type(messages, list[PoppedMessage])
        assert_type(messages[0].body, bytes)
        consumer.change_invisible_duration(messages[0], 60_000)
        consumer.ack(messages[0])
        consumer.ack_many(messages[1:])


async def pop_asynchronously(consumer: AsyncPopConsumer) -> None:
    await consumer.subscribe("orders")
    for message in await consumer.receive():
        assert_type(message, PoppedMessage)
        await consumer.ack(message)


class OwnStrategy:
    """A strategy of the application's own."""

    name = "OWN"

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return [queue for queue in queues if client_id == client_ids[0]]


def own_strategy() -> None:
    strategy: AllocationStrategy = OwnStrategy()
    PushConsumer(group="billing", allocation=strategy)


def mistakes(consumer: PushConsumer, asynchronous: AsyncPushConsumer) -> None:
    consumer.register_listener(coroutine_listener)  # type: ignore[arg-type]
    asynchronous.register_listener(listener)  # type: ignore[arg-type]
    consumer.register_orderly_listener(listener)  # type: ignore[arg-type]
    PushConsumer(group="billing", message_model="CLUSTERING")  # type: ignore[arg-type]
    PopConsumer(group="billing", message_model=MessageModel.CLUSTERING)  # type: ignore[call-arg]
