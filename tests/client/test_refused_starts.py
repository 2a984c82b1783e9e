"""A client whose start fails closes what it has opened: no connection and no task is left.

Covers the starts of producers and consumers, `client/session.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from thermocline.client import (
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    PushConsumer,
)
from thermocline.client.consumer.async_pop_consumer import AsyncPopConsumer
from thermocline.client.session import ClientSession
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import MQError, PermissionDeniedError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

TOPIC = "orders"


class WatchedProducer(AsyncProducer):
    """Has its topic from the start, as producers of transactions do."""

    def watched_topics(self) -> tuple[str, ...]:
        return (TOPIC,)


async def push(**options: Any) -> Any:
    consumer = AsyncPushConsumer(**options)
    consumer.subscribe(TOPIC)
    consumer.register_listener(lambda messages, context: None)
    return consumer


async def pull(**options: Any) -> Any:
    consumer = AsyncPullConsumer(**options)
    await consumer.subscribe(TOPIC)
    return consumer


async def pop(**options: Any) -> Any:
    consumer = AsyncPopConsumer(**options)
    await consumer.subscribe(TOPIC)
    return consumer


async def produce(**options: Any) -> Any:
    return WatchedProducer(**options)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic(TOPIC)
        broker.refuse(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            response_code=ResponseCode.NO_PERMISSION,
            remark="check signature failed.",
            times=100,
            broker_name="namesrv",
        )
        yield broker


@pytest.mark.parametrize("make", [push, pull, pop, produce])
async def test_nothing_is_left_of_a_start_that_fails(
    broker: FakeBroker, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[ClientSession] = []
    start = ClientSession.start

    async def noted(session: ClientSession) -> None:
        sessions.append(session)
        await start(session)

    monkeypatch.setattr(ClientSession, "start", noted)
    before = asyncio.all_tasks()
    client = await make(namesrv=broker.namesrv_address, group="readers")
    with pytest.raises(PermissionDeniedError, match="check signature failed"):
        await client.start()
    assert sessions
    for session in sessions:
        assert not session.connections.addresses
    assert asyncio.all_tasks() == before
    with pytest.raises(MQError):
        await client.start()
    await client.close()


def test_the_blocking_half_ends_its_thread(broker: FakeBroker) -> None:
    consumer = PushConsumer(namesrv=broker.namesrv_address, group="readers")
    consumer.subscribe(TOPIC)
    consumer.register_listener(lambda messages, context: None)
    threads = set(threading.enumerate())
    with pytest.raises(PermissionDeniedError):
        consumer.start()
    assert set(threading.enumerate()) <= threads
