"""The sole producer against the fake broker: who may start, and what a lost connection means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from thermocline.client.message import Message
from thermocline.client.producer.async_sole_producer import AnotherProducerError, AsyncSoleProducer
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError, UnavailableError


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=2)
        yield broker


def sole(broker: FakeBroker, **options: str) -> AsyncSoleProducer:
    return AsyncSoleProducer(group="task", namesrv=broker.namesrv_address, topics=("orders",), **options)


async def test_only_one_of_a_group_starts_until_it_has_left(broker: FakeBroker) -> None:
    async with sole(broker) as first:
        assert [queue.queue_id for queue in first.queues("orders")] == [0, 1]
        for _ in range(2):
            with pytest.raises(AnotherProducerError):
                await sole(broker).start()
        await first.send(Message("orders", b"one"), queue=first.queues("orders")[1])
    async with sole(broker) as second:
        await second.send(Message("orders", b"two", unique_key="ID-2"), queue=second.queues("orders")[1])
    stored = broker.messages("orders")
    assert [message.body for message in stored] == [b"one", b"two"]
    assert stored[1].message_id == "ID-2"


async def test_of_many_that_start_together_never_two_are_in(broker: FakeBroker) -> None:
    inside = 0

    async def enter() -> None:
        nonlocal inside
        try:
            async with sole(broker):
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1
        except AnotherProducerError:
            pass

    for _ in range(5):
        await asyncio.gather(*(enter() for _ in range(4)))
    async with sole(broker):
        inside += 1
    assert inside == 1


async def test_after_a_lost_connection_nothing_is_sent_any_more(broker: FakeBroker) -> None:
    async with sole(broker) as producer:
        queue = producer.queues("orders")[0]
        await producer.send(Message("orders", b"before"), queue=queue)
        session = producer._started()[0]
        (broker_address,) = {one.address for one in session.routes.brokers()}
        session.connections.disconnect(broker_address)
        for _ in range(3):
            with pytest.raises(UnavailableError):
                await producer.send(Message("orders", b"behind"), queue=queue)
            with pytest.raises(UnavailableError):
                await producer.send_batch([Message("orders", b"a"), Message("orders", b"b")], queue=queue)
        async with sole(broker) as successor:
            await successor.send(Message("orders", b"after"), queue=queue)
    assert [message.body for message in broker.messages("orders")] == [b"before", b"after"]


async def test_the_target_topic_must_exist(broker: FakeBroker) -> None:
    with pytest.raises(InvalidRequestError, match="says which topics"):
        AsyncSoleProducer(group="task", namesrv=broker.namesrv_address)
    with pytest.raises(TopicNotFoundError):
        await AsyncSoleProducer(group="task", namesrv=broker.namesrv_address, topics=("nowhere",)).start()


def test_a_unique_key_holds_no_separator() -> None:
    with pytest.raises(InvalidRequestError, match="unique id"):
        Message("orders", b"x", unique_key="a\x01b").check(message_bytes_max=10)
