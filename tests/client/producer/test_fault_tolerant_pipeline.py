"""Sends with latency fault tolerance: brokers that fail or are slow are left alone, and chosen again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from thermocline.client import AsyncProducer, InvalidRequestError, Message, SendResult, UnavailableError
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.testing import FakeBroker
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

ONE, OTHER = "broker-a", "broker-b"
FOR_LONG = (600_000,)
ALWAYS_SLOW = (0,)


@pytest.fixture
def brokers() -> Iterator[FakeBroker]:
    with FakeBroker(broker_names=(ONE, OTHER)) as brokers:
        brokers.create_topic("orders", queue_nums=4)
        yield brokers


def careful_producer(brokers: FakeBroker, **options: object) -> AsyncProducer:
    return AsyncProducer(namesrv=brokers.namesrv_address, send_latency_fault_enable=True, **options)  # type: ignore[arg-type]


async def send(producer: AsyncProducer, count: int) -> Counter[str]:
    """Send so many messages one by one; how many each broker got."""
    results = [await producer.send(Message("orders", b"x")) for _ in range(count)]
    return Counter(result.queue.broker_name for result in results)


async def test_healthy_brokers_share(brokers: FakeBroker) -> None:
    async with careful_producer(brokers) as producer:
        assert await send(producer, 16) == {ONE: 8, OTHER: 8}


async def test_a_broker_that_refuses_is_left_alone(brokers: FakeBroker) -> None:
    async with careful_producer(brokers) as producer:
        await send(producer, 8)
        brokers.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.SYSTEM_BUSY, broker_name=ONE)
        await send(producer, 8)
        assert await send(producer, 40) == {OTHER: 40}, "one refusal, and it is spared for ten seconds"
        assert len(brokers.requests(RequestCode.SEND_MESSAGE_V2, broker_name=ONE)) <= 9


async def test_without_it_every_round_tries_again(brokers: FakeBroker) -> None:
    async with AsyncProducer(namesrv=brokers.namesrv_address) as producer:
        brokers.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.SYSTEM_BUSY, broker_name=ONE)
        await send(producer, 8)
        assert (await send(producer, 16))[ONE] == 8


async def test_a_message_that_is_wrong_says_nothing_about_the_broker(brokers: FakeBroker) -> None:
    async with careful_producer(brokers) as producer:
        brokers.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.MESSAGE_ILLEGAL, broker_name=ONE)
        with pytest.raises(InvalidRequestError):
            await send(producer, 8)
        assert await send(producer, 16) == {ONE: 8, OTHER: 8}


async def test_a_slow_broker_is_left_alone(brokers: FakeBroker) -> None:
    async with careful_producer(brokers, latency_max_ms=ALWAYS_SLOW, not_available_duration_ms=FOR_LONG) as producer:
        first, second = [await producer.send(Message("orders", b"x")) for _ in range(2)]
        assert first.queue.broker_name != second.queue.broker_name
        assert (await send(producer, 8)).keys() == {ONE, OTHER}, "when all are slow, any will do"


async def test_a_broker_whose_connection_breaks_is_left_alone(brokers: FakeBroker) -> None:
    async with careful_producer(brokers, poll_name_server_interval_ms=3_600_000) as producer:
        await send(producer, 8)
        brokers.stay_silent(RequestCode.SEND_MESSAGE_V2, broker_name=ONE)
        queues = await producer.fetch_publish_queues("orders")
        stuck = producer.send_async(Message("orders", b"x"), queue=queues[0])
        await asyncio.to_thread(
            brokers.wait_until, lambda: len(brokers.requests(RequestCode.SEND_MESSAGE_V2, broker_name=ONE)) == 5
        )
        brokers.drop_connections(broker_name=ONE)
        with pytest.raises(UnavailableError):
            await stuck
        assert await send(producer, 16) == {OTHER: 16}


async def test_a_send_to_a_chosen_queue_goes_there_all_the_same(brokers: FakeBroker) -> None:
    async with careful_producer(brokers, latency_max_ms=ALWAYS_SLOW, not_available_duration_ms=FOR_LONG) as producer:
        queue = (await producer.fetch_publish_queues("orders"))[0]
        results = [await producer.send(Message("orders", b"x"), queue=queue) for _ in range(4)]
        assert {result.queue for result in results} == {queue}
        by_key = [await producer.send(Message("orders", b"x", sharding_key="k")) for _ in range(4)]
        assert len({result.queue for result in by_key}) == 1


async def test_batches_and_windows_learn_too(brokers: FakeBroker) -> None:
    async with careful_producer(brokers) as producer:
        brokers.refuse(RequestCode.SEND_BATCH_MESSAGE, response_code=ResponseCode.SYSTEM_BUSY, broker_name=ONE)
        while True:
            batch: list[SendResult] = await producer.send_batch([Message("orders", b"x")] * 2)
            if brokers.requests(RequestCode.SEND_BATCH_MESSAGE, broker_name=ONE):
                break
        assert batch[0].queue.broker_name == OTHER
        results = await producer.send_many(Message("orders", b"x") for _ in range(100))
        assert {result.queue.broker_name for result in results} == {OTHER}


async def test_the_detector_asks_until_a_broker_answers(brokers: FakeBroker) -> None:
    async with careful_producer(
        brokers,
        start_detector_enable=True,
        detect_interval_ms=10,
        detect_timeout_ms=1_000,
        retry_times_when_send_failed=0,
    ) as producer:
        await send(producer, 8)
        brokers.refuse(RequestCode.GET_MAX_OFFSET, times=3, broker_name=ONE)
        brokers.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.SYSTEM_BUSY, broker_name=ONE)
        with pytest.raises(UnavailableError):
            await send(producer, 8)
        await asyncio.to_thread(
            brokers.wait_until, lambda: len(brokers.requests(RequestCode.GET_MAX_OFFSET, broker_name=ONE)) == 4
        )
        assert not brokers.requests(RequestCode.GET_MAX_OFFSET, broker_name=OTHER)
        assert await send(producer, 8) == {OTHER: 8}, "there again, but its time is not up"


def test_the_detector_needs_send_latency_fault_enable() -> None:
    with pytest.raises(InvalidRequestError, match="send_latency_fault_enable"):
        ProducerOptions(start_detector_enable=True)


async def test_in_need_a_reachable_broker_comes_before_an_unreachable_one() -> None:
    names = ("broker-a", "broker-b", "broker-c")
    with FakeBroker(broker_names=names) as brokers:
        brokers.create_topic("orders", queue_nums=1)
        async with careful_producer(
            brokers,
            latency_max_ms=ALWAYS_SLOW,
            not_available_duration_ms=FOR_LONG,
            retry_times_when_send_failed=0,
        ) as producer:
            brokers.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.SYSTEM_BUSY, broker_name="broker-c")
            for _ in names:
                await asyncio.gather(producer.send(Message("orders", b"x")), return_exceptions=True)
            assert await send(producer, 8) == {"broker-a": 4, "broker-b": 4}
