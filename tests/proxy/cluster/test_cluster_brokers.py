"""Where a cluster's brokers are: by the newest answer of a NameServer, whatever topic it was about.

Covers `proxy/cluster/cluster_brokers.py`, and how `proxy/cluster/cluster_messaging.py` looks up topics and groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.waiting import PAUSE_S, TIMEOUT_S
from thermocline.client.testing import FakeBroker
from thermocline.proxy.cluster import ClusterMessaging, ClusterOptions, cluster_messaging
from thermocline.proxy.messaging import BrokerNotFoundError, TopicType, TransactionCheck
from thermocline.remoting.request_code import RequestCode

ELSEWHERE = "127.0.0.1:1"
BROKERS = ("broker-a", "broker-b")


class NoChecks:
    def transaction_checked(self, check: TransactionCheck) -> None:
        raise AssertionError("no transaction is checked here")


@pytest.fixture
def cluster() -> Iterator[FakeBroker]:
    with FakeBroker(broker_names=BROKERS) as running:
        running.create_group("billing")
        for topic in ("Idle", "Busy"):
            running.create_topic(topic)
        yield running


@pytest.fixture
async def messaging(cluster: FakeBroker) -> AsyncIterator[ClusterMessaging]:
    """Loads everything anew at each use."""
    running = ClusterMessaging(
        ClusterOptions(
            namesrv=(cluster.namesrv_address,),
            cluster_name="DefaultCluster",
            client_id="proxy-under-test",
            refresh_ms=0,
        ),
        NoChecks(),
    )
    await running.start()
    yield running
    await running.close()


async def becomes(messaging: ClusterMessaging, broker_name: str, wanted: str | None) -> None:
    """Wait until a broker has this address; None: until it is not there."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                found = await messaging.broker_address(broker_name)
            except BrokerNotFoundError:
                found = None
            if found == wanted:
                return
            await asyncio.sleep(PAUSE_S)


async def test_a_master_that_changed_is_found_though_an_unused_topic_names_the_old_one(
    cluster: FakeBroker, messaging: ClusterMessaging
) -> None:
    await messaging.topic_queues("Idle")
    await messaging.topic_queues("Busy")
    before = cluster.broker_addresses["broker-a"]
    assert await messaging.broker_address("broker-a") == before
    await asyncio.to_thread(cluster.move_broker, "broker-a", ELSEWHERE)
    await messaging.topic_queues("Busy")  # gives the old route, and loads the new one
    await becomes(messaging, "broker-a", ELSEWHERE)
    assert messaging.brokers.name_at(ELSEWHERE) == "broker-a"
    assert messaging.brokers.name_at(before) is None


async def test_an_address_that_no_route_confirms_is_looked_up_in_the_list(
    cluster: FakeBroker, messaging: ClusterMessaging
) -> None:
    await messaging.topic_queues("Idle")
    await asyncio.to_thread(cluster.move_broker, "broker-a", ELSEWHERE)
    await becomes(messaging, "broker-a", ELSEWHERE)


async def test_a_broker_that_the_list_names_no_more_is_not_there(
    cluster: FakeBroker, messaging: ClusterMessaging
) -> None:
    await messaging.topic_queues("Idle")
    await asyncio.to_thread(cluster.hide_broker, "broker-b")
    await becomes(messaging, "broker-b", None)
    assert await messaging.broker_address("broker-a") == cluster.broker_addresses["broker-a"]


async def test_an_address_stays_while_no_name_server_answers(cluster: FakeBroker, messaging: ClusterMessaging) -> None:
    await messaging.topic_queues("Idle")
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    await asyncio.to_thread(cluster.stay_silent, code, times=100, broker_name="namesrv")
    for _ in range(3):
        assert await messaging.broker_address("broker-a") == cluster.broker_addresses["broker-a"]


async def test_a_frozen_broker_does_not_keep_topics_and_groups_from_the_others(
    cluster: FakeBroker, messaging: ClusterMessaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_messaging, "LOOK_UP_TIMEOUT_MS", 200)
    for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG):
        await asyncio.to_thread(cluster.stay_silent, code, times=100, broker_name="broker-a")
    for topic in ("Idle", "Busy"):
        assert await messaging.topic_type(topic) is TopicType.NORMAL
    config = await messaging.group_config("billing")
    assert config is not None
    assert config.group_name == "billing"
    asked = cluster.requests(RequestCode.GET_TOPIC_CONFIG, broker_name="broker-a")
    assert len(asked) == 1, "a broker that does not answer is asked last from then on"
