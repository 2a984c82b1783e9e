"""Where a cluster's brokers are: by the newest answer of a NameServer, whatever topic it was about.

Covers `proxy/cluster/cluster_brokers.py`, and how `proxy/cluster/cluster_messaging.py` looks up topics and groups.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.waiting import PAUSE_S, TIMEOUT_S
from thermocline.client.testing import FakeBroker
from thermocline.proxy.cluster import ClusterMessaging, ClusterOptions, cluster_brokers, cluster_messaging
from thermocline.proxy.messaging import BrokerNotFoundError, OutgoingMessage, TopicType, TransactionCheck
from thermocline.remoting.errors import PermissionDeniedError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

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


@contextlib.asynccontextmanager
async def messaging_of(cluster: FakeBroker, *, refresh_ms: int) -> AsyncIterator[ClusterMessaging]:
    options = ClusterOptions(
        namesrv=(cluster.namesrv_address,),
        cluster_name="DefaultCluster",
        client_id="proxy-under-test",
        refresh_ms=refresh_ms,
        expiry_ms=1_000_000_000,
    )
    running = ClusterMessaging(options, NoChecks())
    await running.start()
    yield running
    await running.close()


@pytest.fixture
async def messaging(cluster: FakeBroker) -> AsyncIterator[ClusterMessaging]:
    """Loads everything anew at each use."""
    async with messaging_of(cluster, refresh_ms=0) as running:
        yield running


@pytest.fixture
async def lasting(cluster: FakeBroker) -> AsyncIterator[ClusterMessaging]:
    """Loads nothing anew because of its age."""
    async with messaging_of(cluster, refresh_ms=1_000_000_000) as running:
        yield running


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
    cluster: FakeBroker, messaging: ClusterMessaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    await messaging.topic_queues("Idle")
    await asyncio.to_thread(cluster.hide_broker, "broker-b")
    for _ in range(3):  # a NameServer that has just started does not name it yet
        assert await messaging.brokers.is_reachable()
        assert await messaging.broker_address("broker-b") == cluster.broker_addresses["broker-b"]
    monkeypatch.setattr(cluster_brokers, "GONE_MS", 10)
    await becomes(messaging, "broker-b", None)
    assert await messaging.broker_address("broker-a") == cluster.broker_addresses["broker-a"]
    monkeypatch.setattr(cluster_brokers, "DOUBT_PAUSE_MS", 10)
    await asyncio.to_thread(cluster.hide_broker, "broker-b", hidden=False)
    await becomes(messaging, "broker-b", cluster.broker_addresses["broker-b"])


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


async def route_names(messaging: ClusterMessaging, topic: str, wanted: str | None) -> None:
    """Wait until a topic's route names this master of broker-a; None: none."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if (await messaging.topic_queues(topic)).brokers[0].master_address == wanted:
                return
            await asyncio.sleep(PAUSE_S)


async def test_after_a_broker_failed_another_master_is_found(cluster: FakeBroker, lasting: ClusterMessaging) -> None:
    message = OutgoingMessage(
        topic="Busy", body=b"b", properties_text="", unique_key="u", sys_flag=0, born_timestamp_ms=0
    )
    queue = (await lasting.topic_queues("Busy")).write_queues[0]
    assert queue.broker_name == "broker-a"
    await lasting.topic_queues("Idle")
    new = cluster.broker_addresses["broker-b"]
    await asyncio.to_thread(cluster.move_broker, "broker-a", new)
    code, refused = RequestCode.SEND_MESSAGE_V2, ResponseCode.NO_PERMISSION
    await asyncio.to_thread(cluster.refuse, code, response_code=refused, times=1_000, broker_name="broker-a")
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await lasting.send(queue, [message], producer_group="Busy", timeout_ms=1_000)
                break
            except PermissionDeniedError:
                await asyncio.sleep(PAUSE_S)
    for topic in ("Busy", "Idle"):
        await route_names(lasting, topic, new)


async def test_a_route_without_a_master_is_loaded_anew(
    cluster: FakeBroker, lasting: ClusterMessaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_brokers, "DOUBT_PAUSE_MS", 10)
    await asyncio.to_thread(cluster.move_broker, "broker-a", "")
    await route_names(lasting, "Busy", None)
    await asyncio.to_thread(cluster.move_broker, "broker-a", ELSEWHERE)
    await route_names(lasting, "Busy", ELSEWHERE)


async def test_what_no_broker_has_is_not_doubted(cluster: FakeBroker, lasting: ClusterMessaging) -> None:
    await lasting.topic_queues("Busy")
    for number in range(100):
        lasting.doubt(f"10.0.0.{number}:10911")
    for _ in range(100):
        lasting.doubt(cluster.broker_addresses["broker-a"])
        await lasting.topic_queues("Busy")
    assert len(lasting.brokers._doubts) == 1
    assert len(cluster.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC, broker_name="namesrv")) <= 2
