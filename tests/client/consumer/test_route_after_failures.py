"""Consumers fetch a topic's route soon after a broker failed: another one may be the master since."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from tests.waiting import until
from thermocline.client import AsyncPopConsumer, AsyncPullConsumer, AsyncPushConsumer, ReceivedMessage
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import MQError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        running.create_topic(TOPIC, queue_nums=2)
        yield running


def fetches(broker: FakeBroker) -> int:
    """How often the topic's route was fetched."""
    requests = broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC, broker_name="namesrv")
    return sum(request.fields["topic"] == TOPIC for request in requests)


@contextlib.asynccontextmanager
async def pushing(broker: FakeBroker, *, in_order: bool) -> AsyncIterator[None]:
    consumer = AsyncPushConsumer(group="group", namesrv=broker.namesrv_address, pull_time_delay_ms_when_exception=10)

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        """They are done."""

    consumer.subscribe(TOPIC)
    if in_order:
        consumer.register_orderly_listener(listen)
    else:
        consumer.register_listener(listen)
    async with consumer:
        yield


@contextlib.asynccontextmanager
async def pulling(broker: FakeBroker) -> AsyncIterator[None]:
    consumer = AsyncPullConsumer(group="group", namesrv=broker.namesrv_address, pull_time_delay_ms_when_exception=10)
    await consumer.subscribe(TOPIC)
    async with consumer:
        yield


@contextlib.asynccontextmanager
async def popping(broker: FakeBroker) -> AsyncIterator[None]:
    async def receive() -> None:
        while True:
            with contextlib.suppress(MQError):
                await consumer.receive(await_ms=1_000)

    consumer = AsyncPopConsumer(group="group", namesrv=broker.namesrv_address)
    await consumer.subscribe(TOPIC)
    async with consumer:
        task = asyncio.create_task(receive())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("push", RequestCode.PULL_MESSAGE),
        ("push", RequestCode.GET_CONSUMER_LIST_BY_GROUP),
        ("push in order", RequestCode.LOCK_BATCH_MQ),
        ("pull", RequestCode.LITE_PULL_MESSAGE),
        ("pop", RequestCode.POP_MESSAGE),
    ],
)
@pytest.mark.parametrize("response_code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY])
async def test_a_request_that_fails(broker: FakeBroker, kind: str, code: RequestCode, response_code: int) -> None:
    consumers = {"pull": pulling, "pop": popping}
    make = consumers[kind](broker) if kind in consumers else pushing(broker, in_order="order" in kind)
    broker.refuse(code, response_code=response_code, times=1_000_000)
    async with make:
        before = fetches(broker)
        await until(lambda: fetches(broker) >= before + 3)
