"""A set of one broker of RocketMQ and one of ours, under our controllers: the master changes from one to the other and
back while official Java and Go clients and our SDK send and consume. Nothing acknowledged is lost, nothing is stored or
received twice without a cause, and both logs are the same byte by byte in the end.

The clients send everything: batches, ordered, delayed, timed and transactional messages (load_mix.py); what is allowed
is in load_rules.py.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clock import now_ms
from tests.fixtures_tools import have
from tests.interop.controlled_brokers import NAME, WAITS_FOR_ALL, ControlledBrokers, controlled_brokers
from tests.interop.go_agent import built_agent
from tests.interop.load_check import check_load
from tests.interop.load_cluster import SURVIVOR, load_clients
from tests.interop.load_progress import LoadProgress
from tests.interop.load_rules import Events, Outage
from tests.interop.replica_brokers import FILE_SIZES, TOPIC, log_bodies, wait_copied
from tests.interop.test_kills_under_clients import DRAIN_TIMEOUT_S, NOT_POP, PLANS, QUIET_S, SdkClients
from tests.waiting import wait_until
from thermocline.broker.replicas.followed_table import PERIOD_MS
from thermocline.client import AdminClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.request_code import RequestCode
from thermocline.timers import timer_checkpoint
from tooling.official_rocketmq import OfficialSoftware, free_broker_port, official_broker

pytestmark = [pytest.mark.java, pytest.mark.go, pytest.mark.timeout(1_800)]

CLUSTER = "DefaultCluster"
OURS, OFFICIAL = 1, 2
BOTH = {OURS, OFFICIAL}
SHARED = {
    **WAITS_FOR_ALL,
    "flushConsumerOffsetInterval": "1000",
    "flushDelayOffsetInterval": "1000",
    "timerFlushIntervalMs": "1000",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "2000",
}
OF_OFFICIAL = {
    **FILE_SIZES,
    "enableControllerMode": "true",
    "controllerHeartBeatTimeoutMills": "3000",
    "syncBrokerMetadataPeriod": "1000",
    "checkSyncStateSetPeriod": "1000",
    "haSendHeartbeatInterval": "500",
    # By default 3 s, as long as a check waits here: RocketMQ would ask for what was decided before it has its note.
    "transactionOpBatchInterval": "500",
}
FOLLOWED_TIMEOUT_S = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OfficialMember:
    """The broker of RocketMQ."""

    store: Path

    @property
    def log_folder(self) -> Path:
        return self.store / "commitlog"

    def has_topics(self) -> bool:
        """Whether it has fetched the topics of its master."""
        path = self.store / "config" / "topics.json"
        return path.exists() and TOPIC in path.read_text()


@contextlib.contextmanager
def official_member(found: ControlledBrokers, software: OfficialSoftware, directory: Path) -> Iterator[OfficialMember]:
    """Start it as the second of the set, and return when it is in sync."""
    store = directory / "store"
    properties = {
        **SHARED,
        **OF_OFFICIAL,
        "brokerName": NAME,
        "brokerClusterName": CLUSTER,
        "controllerAddr": found.controller_addresses,
        "haListenPort": str(free_broker_port()),
        "storePathEpochFile": str(store / "epochFileCheckpoint"),
        "storePathBrokerIdentity": str(store / "brokerIdentity"),
    }
    with official_broker(
        software, directory, namesrv_address=found.namesrv, store_directory=store, properties=properties
    ):
        found.wait_for(BOTH)
        yield OfficialMember(store)


@pytest.mark.full
def test_the_master_is_java_and_ours_in_turn_under_all_clients(
    tmp_path: Path, case_count: Callable[..., int], official_software: OfficialSoftware
) -> None:
    have(built_agent)
    with (
        controlled_brokers(tmp_path, controllers=3, **SHARED) as found,
        load_clients(
            official_software, tmp_path, namesrv=found.namesrv, plans=PLANS, groups=NOT_POP, parts=(SURVIVOR,)
        ) as cluster,
    ):
        found.start(OURS)
        with official_member(found, official_software, tmp_path / "official") as official:
            found.make_topic()
            wait_until(official.has_topics, what="RocketMQ has the topic", timeout_s=FOLLOWED_TIMEOUT_S)
            progress, sdk = LoadProgress(cluster), SdkClients(found.namesrv)
            started_ms = now_ms()
            cluster.start_consumers(waits_for_locks=True)
            cluster.start_producers()
            with sdk.running():
                outages = [switch(found, sdk) for _ in range(case_count(quick=2, soak=20))]
            begun = cluster.finish_producers()
            away_s = sorted((outage.back_ms - outage.killed_ms) / 1_000 for outage in outages)
            logger.info("every queue is writable after, in s: median %.2f, %s", statistics.median(away_s), away_s)
            progress.drain(timeout_s=DRAIN_TIMEOUT_S, quiet_s=QUIET_S)
            events = Events(
                consumers_started_ms=started_ms,
                consumers_killed_ms=None,
                outages=outages,
                noted_ms=PERIOD_MS,
                is_queued_twice=True,
            )
            check_load(cluster, progress, begun, events)
            sdk.check()
            folders = {OURS: found.brokers[OURS].log_folder, OFFICIAL: official.log_folder}
            master = folders.pop(found.wait_for(BOTH))
            (slave,) = folders.values()
            wait_copied(master, slave)
            assert sdk.load.acknowledged <= log_bodies(slave)
            found.check()


def switch(found: ControlledBrokers, sdk: SdkClients) -> Outage:
    """Have the other broker elected, as an operator does, and return when all queues take messages and both are in
    sync."""
    master = found.wait_for(BOTH)
    (other,) = BOTH - {master}
    sdk.load.wait_for(200)
    with AdminClient(namesrv=found.namesrv) as admin:
        if other == OFFICIAL:
            wait_progress_followed(admin, found)
        begun_ms = now_ms()
        admin.elect_master(found.controller_addresses, cluster=CLUSTER, broker_name=NAME, broker_id=other)
    found.wait_writable()
    outage = Outage(killed_ms=begun_ms, back_ms=now_ms(), is_switch=True)
    found.wait_for(BOTH, not_master=master)
    return outage


def wait_progress_followed(admin: AdminClient, found: ControlledBrokers) -> None:
    """Return when RocketMQ knows which delayed and timed messages its master has delivered.

    A broker of RocketMQ that is made a slave first ends its transaction checks, for up to a minute, and asks its master
    only then, 3 s after its log is in sync. Elected before that, it delivers again what is due since it was master.
    """
    addresses = {each.broker_id: each.broker_address for each in found.info().in_sync_replicas}
    wanted, wanted_offsets = checkpoint(admin, addresses[OURS]), delay_offsets(admin, addresses[OURS])

    def has_followed() -> bool:
        present, offsets = checkpoint(admin, addresses[OFFICIAL]), delay_offsets(admin, addresses[OFFICIAL])
        return (
            present[0] >= wanted[0]
            and present[1] >= wanted[1]
            and all(offsets.get(level, 0) >= offset for level, offset in wanted_offsets.items())
        )

    wait_until(has_followed, what="RocketMQ has its master's progress", timeout_s=FOLLOWED_TIMEOUT_S)


def delay_offsets(admin: AdminClient, address: str | None) -> dict[str, int]:
    """How far a broker has delivered each delay level."""
    assert address
    answer = admin.invoke(address, RemotingCommand.request(RequestCode.GET_ALL_DELAY_OFFSET))
    offsets: dict[str, int] = loads_as(bytes(answer.body), dict[str, Any])["offsetTable"]
    return offsets


def checkpoint(admin: AdminClient, address: str | None) -> tuple[int, int]:
    """How far a broker's timed messages are, ms, and the master's offset in their queue."""
    assert address
    answer = admin.invoke(address, RemotingCommand.request(RequestCode.GET_TIMER_CHECK_POINT))
    read_time_ms, _, _, queue_offset, _, _, _ = timer_checkpoint.SHARED.unpack_from(bytes(answer.body))
    return read_time_ms, queue_offset
