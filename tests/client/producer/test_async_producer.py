"""The asyncio producer: concurrency, bounds, cancelling, async iterables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.send_result import SendResult
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import (
    BrokerBusyError,
    ClosedError,
    InvalidRequestError,
    MessageTooLargeError,
    MQError,
    NotLeaderForQueueError,
    RequestTimeoutError,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=4)
        yield broker


async def test_many_tasks_share_one_producer(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        results = await asyncio.gather(*(producer.send(Message("orders", b"%d" % i)) for i in range(500)))
    assert len({result.message_id for result in results}) == 500
    assert len(broker.messages("orders")) == 500


async def test_send_waits_for_room_and_send_async_is_refused(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, in_flight_max=4) as producer:
        broker.stay_silent(RequestCode.SEND_MESSAGE_V2, times=4)
        stuck = [producer.send_async(Message("orders", b"x"), timeout_ms=200) for _ in range(4)]
        with pytest.raises(BrokerBusyError):
            producer.send_async(Message("orders", b"x"))
        waiting = asyncio.create_task(producer.send(Message("orders", b"late")))
        outcomes = await asyncio.gather(*stuck, return_exceptions=True)
        assert all(isinstance(outcome, MQError) for outcome in outcomes)
        assert isinstance(await waiting, SendResult)


async def test_a_cancelled_wait_gives_its_turn_to_the_next(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, in_flight_max=1) as producer:
        broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
        stuck = producer.send_async(Message("orders", b"x"), timeout_ms=150)
        tasks = [asyncio.create_task(producer.send(Message("orders", b"%d" % i))) for i in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        results = await asyncio.gather(*tasks[1:])
        assert len(results) == 2
        assert isinstance((await asyncio.gather(stuck, return_exceptions=True))[0], MQError)


async def test_cancelling_a_send_leaves_the_producer_whole(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        await producer.send(Message("orders", b"first"))
        task = asyncio.create_task(producer.send(Message("orders", b"x")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.send(Message("orders", b"last"))


async def test_send_many_takes_async_iterables(broker: FakeBroker) -> None:
    async def messages() -> AsyncIterator[Message]:
        for i in range(50):
            await asyncio.sleep(0)
            yield Message("orders", b"%d" % i)

    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        assert len(await producer.send_many(messages(), window=8)) == 50
        with pytest.raises(InvalidRequestError):
            await producer.send_many([], window=0)


async def test_an_iterable_that_fails_raises_after_the_sent_messages(broker: FakeBroker) -> None:
    def messages() -> Iterator[Message]:
        yield Message("orders", b"1")
        raise KeyError("source")

    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        with pytest.raises(KeyError):
            await producer.send_many(messages())
        assert [message.body for message in broker.messages("orders")] == [b"1"]


async def test_callbacks_get_every_outcome(broker: FakeBroker) -> None:
    outcomes: list[SendResult | MQError] = []
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        await producer.send_async(Message("orders", b"x"), outcomes.append)
        broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.MESSAGE_ILLEGAL)
        producer.send_async(Message("orders", b"y"), outcomes.append)
    assert [type(outcome).__name__ for outcome in outcomes] == ["SendResult", "MessageIllegalError"]


async def test_a_callback_that_fails_costs_no_connection(broker: FakeBroker) -> None:
    def fail(outcome: SendResult | MQError) -> None:
        raise KeyError("application")

    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        sent = [producer.send_async(Message("orders", b"%d" % i), fail) for i in range(5)]
        assert len(await asyncio.gather(*sent)) == 5
    assert len(broker.messages("orders")) == 5


async def test_a_lingering_batch_that_is_too_large_is_sent_in_halves(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, auto_batch=True, max_message_bytes=2_000) as producer:
        wordy = [Message("orders", b"%d" % i, properties={"text": "x" * 500}) for i in range(10)]
        hopeless = Message("orders", b"y", properties={"text": "x" * 3_000})
        results = await asyncio.gather(*(producer.send(one) for one in [*wordy, hopeless]), return_exceptions=True)
    assert [type(result) for result in results] == [SendResult] * 10 + [MessageTooLargeError]
    assert sorted(message.body for message in broker.messages("orders")) == [b"%d" % i for i in range(10)]
    assert len(broker.requests(RequestCode.SEND_BATCH_MESSAGE)) > 1


async def test_compressed_messages_do_not_linger(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, auto_batch=True) as producer:
        await producer.send(Message("orders", b"long" * 2_000))
    assert not broker.requests(RequestCode.SEND_BATCH_MESSAGE)
    assert broker.messages("orders")[0].body == b"long" * 2_000


async def test_a_message_with_a_time_out_of_its_own_does_not_linger(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, auto_batch=True) as producer:
        broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
        with pytest.raises(RequestTimeoutError):
            await producer.send(Message("orders", b"x"), timeout_ms=50)
    assert not broker.requests(RequestCode.SEND_BATCH_MESSAGE)


async def test_lifecycle() -> None:
    producer = AsyncProducer(namesrv="127.0.0.1:1")
    with pytest.raises(ClosedError):
        await producer.send(Message("orders", b"x"))
    await producer.start()
    with pytest.raises(ClosedError):
        await producer.start()
    await producer.close()
    await producer.close()
    with pytest.raises(ClosedError):
        await producer.send(Message("orders", b"x"))


async def test_a_send_to_a_former_leader_is_tried_again_on_the_same_queue(broker: FakeBroker) -> None:
    """The queue of a static topic has moved; nothing was stored, and the route will say where it is."""
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=2)
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        await producer.send(Message("orders", b"first"))
        asked = len(broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC, broker_name="namesrv"))
        broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.NOT_LEADER_FOR_QUEUE, times=2)
        assert (await producer.send(Message("orders", b"x"), queue=queue)).queue == queue
        assert len(broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC, broker_name="namesrv")) > asked
        broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.NOT_LEADER_FOR_QUEUE, times=3)
        with pytest.raises(NotLeaderForQueueError):
            await producer.send(Message("orders", b"y"), queue=queue)
    assert len(broker.messages("orders")) == 2
