"""Which brokers get no further sends: those that do not answer, refuse, or take too long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.proxy.fake_messaging import FakeMessaging
from tests.virtual_loop import run_virtually
from thermocline.client.message_queue import MessageQueue
from thermocline.proxy.flow.broker_traffic import BrokerTraffic
from thermocline.proxy.messaging import BrokerNotFoundError
from thermocline.remoting.errors import ConnectionLostError, MQError, RequestTimeoutError, ServiceUnavailableError

A = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)

Case = Callable[[BrokerTraffic, FakeMessaging], Awaitable[None]]


def run(case: Case) -> None:
    async def main() -> None:
        messaging, loop = FakeMessaging(), asyncio.get_running_loop()
        traffic = BrokerTraffic(messaging, clock_ms=lambda: loop.time() * 1000)
        await case(traffic, messaging)
        await traffic.close()

    run_virtually(main)


def fail(traffic: BrokerTraffic, error: MQError) -> None:
    with pytest.raises(type(error)), traffic.sending(A):
        raise error


@pytest.mark.parametrize("error", [RequestTimeoutError("away"), ConnectionLostError("lost")])
def test_a_broker_that_does_not_answer_gets_sends_again_when_it_answers_a_request(error: MQError) -> None:
    async def case(traffic: BrokerTraffic, messaging: FakeMessaging) -> None:
        messaging.failures["queue_offset"] = [RequestTimeoutError("away")] * 5
        fail(traffic, error)
        fail(traffic, error)  # sent before the first one failed: no second task asks
        for _ in range(5):
            assert not traffic.is_fit("broker-a")
            assert traffic.is_fit("broker-b")
            await asyncio.sleep(1)
        await asyncio.sleep(1.1)
        assert traffic.is_fit("broker-a")
        assert messaging.names() == ["queue_offset"] * 6
        assert not len(traffic)

    run(case)


def test_a_broker_that_no_route_names_is_asked_no_more() -> None:
    async def case(traffic: BrokerTraffic, messaging: FakeMessaging) -> None:
        messaging.failures["queue_offset"] = [BrokerNotFoundError("gone")]
        fail(traffic, RequestTimeoutError("away"))
        await asyncio.sleep(10)
        assert messaging.names() == ["queue_offset"]
        assert not len(traffic)

    run(case)


def test_a_broker_that_refuses_is_passed_over_for_a_while_and_not_asked() -> None:
    async def case(traffic: BrokerTraffic, messaging: FakeMessaging) -> None:
        fail(traffic, ServiceUnavailableError("it stops"))
        await asyncio.sleep(2.9)
        assert not traffic.is_fit("broker-a")
        await asyncio.sleep(0.2)
        assert traffic.is_fit("broker-a")
        with traffic.sending(A):
            pass
        assert not len(traffic)
        assert messaging.names() == []

    run(case)


def test_a_broker_whose_oldest_send_waits_for_a_second_gets_no_other_until_it_is_answered() -> None:
    async def case(traffic: BrokerTraffic, _: FakeMessaging) -> None:
        with traffic.sending(A):
            with traffic.sending(A):
                await asyncio.sleep(0.9)
                assert traffic.is_fit("broker-a")
            await asyncio.sleep(0.2)
            assert not traffic.is_fit("broker-a")
        assert traffic.is_fit("broker-a")
        assert not len(traffic)

    run(case)


def test_an_error_that_says_nothing_about_the_broker_leaves_it_fit() -> None:
    async def case(traffic: BrokerTraffic, _: FakeMessaging) -> None:
        fail(traffic, MQError("the message is illegal"))
        assert traffic.is_fit("broker-a")
        assert not len(traffic)

    run(case)
