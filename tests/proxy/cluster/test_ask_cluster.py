"""A request to any broker of the cluster: one of them is asked while it answers, then the next one.

Covers `proxy/cluster/cluster_brokers.py` and `proxy/cluster/cluster_options.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from thermocline.client.testing import FakeBroker
from thermocline.proxy.cluster import ClusterMessaging, ClusterOptions
from thermocline.proxy.messaging import TransactionCheck
from thermocline.remoting.errors import GroupNotFoundError, RequestTimeoutError, UnavailableError
from thermocline.remoting.headers import GetSubscriptionGroupConfigRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

CODE = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
BROKERS = ("broker-a", "broker-b")


class NoChecks:
    def transaction_checked(self, check: TransactionCheck) -> None:
        raise AssertionError("no transaction is checked here")


@pytest.fixture
async def brokers() -> AsyncIterator[FakeBroker]:
    with FakeBroker(broker_names=BROKERS) as running:
        running.create_group("billing")
        yield running


@pytest.fixture
async def messaging(brokers: FakeBroker) -> AsyncIterator[ClusterMessaging]:
    options = ClusterOptions(
        namesrv=(brokers.namesrv_address,), cluster_name="DefaultCluster", client_id="proxy-under-test"
    )
    running = ClusterMessaging(options, NoChecks())
    await running.start()
    yield running
    await running.close()


async def ask(messaging: ClusterMessaging, *, timeout_ms: int = 500) -> None:
    header = GetSubscriptionGroupConfigRequestHeader(group="billing")
    await messaging.ask_cluster(CODE, header, timeout_ms=timeout_ms)


def asked(brokers: FakeBroker) -> dict[str, int]:
    """Requests by broker."""
    return {name: len(brokers.requests(CODE, broker_name=name)) for name in BROKERS}


async def test_all_brokers_are_named(brokers: FakeBroker, messaging: ClusterMessaging) -> None:
    found = await messaging.brokers.master_addresses()
    assert found == [await messaging.broker_address(name) for name in BROKERS]
    assert len(set(found)) == len(BROKERS)


async def test_one_broker_is_asked_while_it_answers(brokers: FakeBroker, messaging: ClusterMessaging) -> None:
    for _ in range(3):
        await ask(messaging)
    assert asked(brokers) == {"broker-a": 3, "broker-b": 0}


async def test_the_next_one_is_asked_when_it_does_not_and_from_then_on(
    brokers: FakeBroker, messaging: ClusterMessaging
) -> None:
    await asyncio.to_thread(brokers.stay_silent, CODE, broker_name="broker-a")
    for _ in range(3):
        await ask(messaging, timeout_ms=200)
    assert asked(brokers) == {"broker-a": 1, "broker-b": 3}
    await asyncio.to_thread(brokers.stay_silent, CODE, broker_name="broker-b")
    await ask(messaging, timeout_ms=200)
    assert asked(brokers) == {"broker-a": 2, "broker-b": 4}


async def test_a_refusal_is_an_answer(brokers: FakeBroker, messaging: ClusterMessaging) -> None:
    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    await asyncio.to_thread(brokers.refuse, CODE, response_code=code, broker_name="broker-a")
    with pytest.raises(GroupNotFoundError):
        await ask(messaging)
    assert asked(brokers) == {"broker-a": 1, "broker-b": 0}


async def test_without_any_answer_it_is_unavailable(brokers: FakeBroker, messaging: ClusterMessaging) -> None:
    for name in BROKERS:
        await asyncio.to_thread(brokers.stay_silent, CODE, broker_name=name)
    with pytest.raises(RequestTimeoutError):
        await ask(messaging, timeout_ms=100)
    alone = ClusterMessaging(
        ClusterOptions(namesrv=(brokers.namesrv_address,), cluster_name="Another", client_id="proxy-under-test"),
        NoChecks(),
    )
    with pytest.raises(UnavailableError, match="no broker of the cluster"):
        await ask(alone)
    await alone.close()
