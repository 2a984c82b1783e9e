"""Routes that are fetched anew, borrowed ones too: those of topics that do not exist yet. A real NameServer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.broker.cluster.test_registration import name_server
from tests.namesrv.test_route_registry import MASTER, registration, topic
from tests.waiting import until
from thermocline.client.options import ClientOptions
from thermocline.client.route_table import REFRESH_PAUSE_S, RouteTable
from thermocline.client.session import ClientSession
from thermocline.client.testing import FakeBroker
from thermocline.client.topic_route import TopicRoute
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

TEMPLATE, OTHER, NEW = topic("TBW102", queues=8, perm=7), topic("other"), "orders"
SLAVE = "10.0.0.2:10911"


class Owner:
    """A client that belongs to no group."""

    def producer_groups(self) -> list[str]:
        return []

    def consumer_data(self) -> list[object]:
        return []

    def connection_closed(self, connection: object) -> None:
        """Not of interest."""


@contextlib.asynccontextmanager
async def routes_of(address: str) -> AsyncIterator[RouteTable]:
    session = ClientSession(ClientOptions(namesrv=address), Owner())  # type: ignore[arg-type]
    await session.start()
    try:
        yield session.routes
    finally:
        await session.close()


async def borrow(routes: RouteTable) -> TopicRoute:
    return await routes.get_for_sending(NEW, template_topic=TEMPLATE.topic_name, queue_nums_max=4)


def cached(routes: RouteTable) -> TopicRoute:
    route = routes.cached(NEW)
    assert route is not None
    return route


async def refresh_in_time(routes: RouteTable) -> None:
    await routes.refresh_all()


async def refresh_after_failure(routes: RouteTable) -> None:
    before = cached(routes)

    def is_changed() -> bool:
        routes.refresh_soon(NEW)
        return cached(routes) != before

    await until(is_changed)


@pytest.mark.parametrize("refresh", [refresh_in_time, refresh_after_failure])
async def test_a_borrowed_route_gets_the_master_that_comes_later(
    refresh: Callable[[RouteTable], Awaitable[None]],
) -> None:
    """A producer that found a slave alone did not send to its new topic for as long as it ran."""
    async with name_server() as (server, address), routes_of(address) as routes:
        slave = registration(TEMPLATE, OTHER, broker_id=1, address=SLAVE, enable_acting_master=False)
        server.registry.register(slave, connection="slave")
        assert (await borrow(routes)).publish_queues == ()
        server.registry.register(registration(TEMPLATE, OTHER), connection="master")

        await refresh(routes)
        assert len(cached(routes).publish_queues) == 4
        server.registry.unregister(cluster=slave.cluster, broker_name=slave.broker_name, address=MASTER)
        await refresh(routes)
        assert cached(routes).publish_queues == ()


async def test_a_topic_that_exists_now_has_its_own_route() -> None:
    async with name_server() as (server, address), routes_of(address) as routes:
        server.registry.register(registration(TEMPLATE, OTHER), connection="master")
        assert len((await borrow(routes)).publish_queues) == 4
        server.registry.register(registration(TEMPLATE, topic(NEW, queues=2), counter=2), connection="master")
        await routes.refresh_all()
        route = cached(routes)
        assert (len(route.publish_queues), route.is_borrowed) == (2, False)


async def test_failures_at_once_fetch_once() -> None:
    with FakeBroker() as broker:
        broker.create_topic(NEW, queue_nums=2)

        def fetches() -> int:
            return len(broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC, broker_name="namesrv"))

        async with routes_of(broker.namesrv_address) as routes:
            for _ in range(100):
                routes.refresh_soon(NEW)
            await until(lambda: fetches() == 1)
            routes.refresh_soon(NEW)
            await asyncio.sleep(REFRESH_PAUSE_S / 2)
            assert fetches() == 1, "it was fetched just now"
        routes.refresh_soon(NEW)
        await asyncio.sleep(0)
        assert fetches() == 1


async def test_the_newest_route_says_where_a_broker_is() -> None:
    with FakeBroker(broker_names=["broker-a"]) as broker:
        for name in ("deleted", "used"):
            broker.create_topic(name)
        async with routes_of(broker.namesrv_address) as routes:
            for name in ("deleted", "used"):
                await routes.refresh(name)
            assert routes.master("broker-a") == broker.broker_addresses["broker-a"]
            await asyncio.to_thread(broker.move_broker, "broker-a", MASTER)
            gone = RequestCode.GET_ROUTEINFO_BY_TOPIC
            refused = ResponseCode.TOPIC_NOT_EXIST
            await asyncio.to_thread(broker.refuse, gone, response_code=refused, broker_name="namesrv")
            await routes.refresh_all()  # "deleted" is asked for first, and not found
            assert routes.master("broker-a") == routes.reader("broker-a") == MASTER
