"""What a slave is for a master that may be gone, by the answers of a real NameServer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.broker.cluster.test_registration import name_server
from tests.broker.control_broker import control_broker
from tests.broker.slave_config import slave_config
from tests.clock import Clock
from tests.waiting import until
from thermocline.broker.cluster.member_watch import HAND_OVER_MS, LATE_MS, MemberWatch, StandIn
from thermocline.namesrv.route_registry import BrokerRegistration
from thermocline.namesrv.server import NameServer
from thermocline.remoting.bodies import DataVersion, TopicConfig

MASTER = "127.0.0.1:1"


@asynccontextmanager
async def watched(root: Path, broker_id: int = 1) -> AsyncIterator[tuple[MemberWatch, NameServer, Clock]]:
    """A slave's watch, registered; its own task does not run."""
    clock = Clock(1_000)
    async with name_server() as (server, address):
        config = slave_config(name_server_addresses=address, slave_acting_master=True)
        config = replace(config, broker_id=broker_id)
        async with control_broker(root, config=config) as broker:
            registration = broker.parts.cluster.registration
            registration.start()
            await registration.wait_registered()
            yield MemberWatch(registration, config=lambda: config, clock=clock), server, clock
            await registration.close()


def register(server: NameServer, broker_id: int, address: str) -> None:
    """Have another broker of the name."""
    topics = {name: TopicConfig(topic_name=name) for name in ("one", "two")}
    server.registry.register(
        BrokerRegistration(
            cluster="DefaultCluster",
            broker_name="broker-a",
            broker_id=broker_id,
            address=address,
            ha_address="127.0.0.1:2",
            enable_acting_master=True,
            data_version=DataVersion(),
            topics=topics,
        ),
        object(),
    )


def unregister(server: NameServer, address: str) -> None:
    server.registry.unregister(cluster="DefaultCluster", broker_name="broker-a", address=address)


async def test_a_slave_acts_while_no_master_is_registered(tmp_path: Path) -> None:
    async with watched(tmp_path) as (watch, server, _):
        states: list[StandIn] = []
        watch.add_listener(states.append)
        assert watch.state is StandIn.WAITING
        register(server, 0, MASTER)
        await watch.step()
        assert watch.master_address == MASTER
        assert not watch.is_taken_for_master
        unregister(server, MASTER)
        await watch.step()
        assert watch.is_taken_for_master
        assert watch.master_address is None
        register(server, 0, MASTER)
        await watch.step()
        assert states == [StandIn.FOLLOWING, StandIn.ACTING, StandIn.FOLLOWING]


async def test_clients_with_an_old_route_are_expected_for_a_minute(tmp_path: Path) -> None:
    async with watched(tmp_path) as (watch, server, clock):
        await watch.step()
        assert watch.state is StandIn.ACTING
        register(server, 0, MASTER)
        await watch.step()
        clock.now_ms += LATE_MS - 1
        assert watch.is_taken_for_master
        clock.now_ms += 1
        assert not watch.is_taken_for_master


async def test_a_slave_with_a_lesser_one_beside_it_waits(tmp_path: Path) -> None:
    async with watched(tmp_path, broker_id=2) as (watch, server, _):
        register(server, 1, "127.0.0.1:3")
        await watch.step()
        assert watch.state is StandIn.WAITING
        unregister(server, "127.0.0.1:3")
        await watch.step()
        assert watch.state is StandIn.ACTING


async def test_a_returning_master_is_waited_for(tmp_path: Path) -> None:
    async with watched(tmp_path) as (watch, server, clock):
        await watch.step()
        watch.master_returns(MASTER)
        assert (watch.state, watch.master_address) == (StandIn.HANDING_OVER, MASTER)
        await watch.step()
        assert watch.state is StandIn.HANDING_OVER
        register(server, 0, MASTER)
        await watch.step()
        assert watch.state is StandIn.FOLLOWING
        unregister(server, MASTER)
        await watch.step()
        watch.master_returns(MASTER)
        clock.now_ms += HAND_OVER_MS
        await watch.step()
        assert watch.state is StandIn.ACTING


async def test_the_last_answer_counts_while_none_comes(tmp_path: Path) -> None:
    async with watched(tmp_path) as (watch, server, _):
        register(server, 0, MASTER)
        await watch.step()
        await server.close()
        await watch.step()
        assert watch.state is StandIn.FOLLOWING


async def test_heartbeats_are_signs_of_life(tmp_path: Path) -> None:
    async with watched(tmp_path) as (watch, server, _):
        seen: list[str] = []
        server.registry.heartbeat = lambda **fields: seen.append(fields["address"])  # type: ignore[method-assign]
        watch.start()
        await until(lambda: seen, what="the NameServer has a heartbeat")
        assert seen[0] == "127.0.0.1:10911"
        await watch.close()
