"""A master with a slave that may stand in for it, and a second master: brokers as processes behind one NameServer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self, TypeAlias

from tests.interop.cluster import BROKER_NAME
from tests.interop.killable_broker import KillableBroker, name_server
from tests.interop.replica_brokers import FAST, FILE_SIZES, ReplicaBroker, wait_copied
from tests.interop.test_slave_metadata import ask
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.localstack.loopback_port import LOOPBACK
from thermocline.remoting.bodies import BrokerData, QueueData, TopicRouteData
from thermocline.remoting.errors import MQError
from thermocline.remoting.json_dialect import loads_dialect
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import OfficialSoftware, free_broker_port, official_broker

ACTING = {
    **FILE_SIZES,
    **FAST,
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerNotActiveTimeoutMillis": "5000",
}
TOPIC, QUEUES = "Acted", 2
SLAVE_TIMEOUT_S = 240.0
"""A slave of RocketMQ fetches tables once a minute."""
OTHER = "broker-b"


def answer_to(address: str, code: int, **fields: str) -> bytes:
    """The body of a successful answer."""
    return bytes(asyncio.run(ask(address, code, fields)).body)


class OfficialReplica:
    """A broker of RocketMQ in the place of one of ours; each start has another address, and the same store."""

    def __init__(
        self,
        software: OfficialSoftware,
        directory: Path,
        namesrv: str,
        role: str,
        broker_id: int = 0,
        *,
        name: str = BROKER_NAME,
    ) -> None:
        self.address = ""
        self._software = software
        self._directory = directory
        self._namesrv = namesrv
        self._settings = {
            **ACTING,
            "brokerRole": role,
            "brokerId": str(broker_id),
            "brokerName": name,
            "slaveReadEnable": "true",  # a slave of RocketMQ serves no pull without it
            "totalReplicas": "2",  # nor does a master of RocketMQ take anything back
            "brokerIP2": LOOPBACK,  # it waits for a slave by the address that it has
        }
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._running.close()

    def start(self) -> None:
        """Start it, and return when it listens."""
        daemon = self._running.enter_context(
            official_broker(
                self._software,
                self._directory,
                namesrv_address=self._namesrv,
                store_directory=self._directory / "store",
                properties=self._settings,
            )
        )
        self.address = daemon.address

    def kill(self) -> None:
        """`kill -9`."""
        self._running.close()

    @property
    def log_folder(self) -> Path:
        return self._directory / "store" / "commitlog"

    def check_log(self) -> None:
        """Its log says nothing about bugs of ours."""


Replica: TypeAlias = ReplicaBroker | OfficialReplica


class ActingSet:
    """`master` and `slave` are one replica set, `other` is a master by itself; the topic has QUEUES queues at both."""

    def __init__(self, namesrv: str, master: Replica, slave: Replica, other: KillableBroker | OfficialReplica) -> None:
        self.namesrv = namesrv
        self.master = master
        self.slave = slave
        self.other = other

    def route(self) -> tuple[BrokerData, QueueData] | None:
        """What the NameServer shows of the set's part of the topic; None: nothing."""
        try:
            body = answer_to(self.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC)
        except MQError:
            return None
        route = TopicRouteData.decode(body)
        brokers = [data for data in route.broker_datas if data.broker_name == BROKER_NAME]
        queues = [data for data in route.queue_datas if data.broker_name == BROKER_NAME]
        return (brokers[0], queues[0]) if brokers and queues else None

    def wait_route(self, addresses: dict[int, str], perm: int) -> None:
        """Return when the NameServer shows the set with these addresses and this permission."""
        wait_until(
            lambda: (
                (found := self.route()) is not None
                and (dict(found[0].broker_addrs), found[1].perm) == (addresses, perm)
            ),
            what=f"the route is {addresses} with permission {perm}",
        )

    def wait_acting(self) -> None:
        """Return when the slave is shown as the master, and, if it is ours, delivers."""
        self.wait_route({0: self.slave.address}, 4)
        if isinstance(self.slave, OfficialReplica):
            return
        wait_until(lambda: self._delivers(), what="the slave delivers")

    def wait_ended(self) -> None:
        """Return when the slave delivers no longer."""
        wait_until(lambda: not self._delivers(), what="the slave delivers no longer")

    def _delivers(self) -> bool:
        assert isinstance(self.slave, ReplicaBroker)
        log = self.slave.log_text()
        return log.count("goes to other masters from now on") > log.count("is the master's again")

    def wait_whole(self) -> None:
        """Return when the NameServer shows master and slave."""
        self.wait_route({0: self.master.address, 1: self.slave.address}, 6)

    def wait_followed(self) -> None:
        """Return when it does, and the slave has the master's log."""
        self.wait_whole()
        wait_copied(self.master.log_folder, self.slave.log_folder)

    def committed(self, broker: Replica, group: str, topic: str = TOPIC) -> dict[int, int]:
        """The group's offsets at a broker, by queue id."""
        offsets = loads_dialect(answer_to(broker.address, RequestCode.GET_ALL_CONSUMER_OFFSET))
        return {int(queue): offset for queue, offset in offsets["offsetTable"].get(f"{topic}@{group}", {}).items()}


@contextlib.contextmanager
def acting_set(
    directory: Path,
    namesrv: str,
    *,
    official: OfficialSoftware | None = None,
    official_role: str = "",
    settings: Mapping[str, str] | None = None,
    other_settings: Mapping[str, str] | None = None,
) -> Iterator[ActingSet]:
    """The brokers, started; every one of them has the topic.

    `official_role`: that of the set that is RocketMQ's, or OTHER. `settings`: of brokers of ours in the set, too.
    `other_settings`: of the other master.
    """

    def replica(role: str, broker_id: int = 0) -> Replica:
        if role != official_role:
            broker = ReplicaBroker(directory / role, namesrv, role, broker_id, **ACTING, **(settings or {}))
            broker.address = f"{LOOPBACK}:{free_broker_port()}"  # a slave of RocketMQ needs the VIP port beside it
            return broker
        assert official is not None
        return OfficialReplica(official, directory / role, namesrv, role, broker_id)

    def other_master() -> KillableBroker | OfficialReplica:
        if official_role == OTHER:
            assert official is not None
            return OfficialReplica(official, directory / "other", namesrv, "ASYNC_MASTER", name=OTHER)
        settings = {**FILE_SIZES, **(other_settings or {})}
        return KillableBroker(directory / "other", namesrv, name=OTHER, settings=settings)

    with (
        other_master() as other,
        replica("ASYNC_MASTER") as master,
        AdminClient(namesrv=namesrv) as admin,
    ):
        wait_until(lambda: len(admin.cluster_info()) == 2, what="the masters are registered")
        admin.create_topic(TOPIC, queue_nums=QUEUES)
        with replica("SLAVE", 1) as slave:
            found = ActingSet(namesrv, master, slave, other)
            wait_until(
                lambda: (
                    TOPIC
                    in loads_dialect(answer_to(slave.address, RequestCode.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
                ),
                what="the slave has the topic",
                timeout_s=SLAVE_TIMEOUT_S,
            )
            found.wait_whole()
            yield found
            for broker in (master, slave, other):
                broker.check_log()


@contextlib.contextmanager
def mixed_acting_set(directory: Path, software: OfficialSoftware, *, official_role: str) -> Iterator[ActingSet]:
    """A set of which one broker is official, behind a NameServer of ours. `official_role`: see `acting_set`."""
    with (
        name_server(directory / "namesrv", supportActingMaster="true") as namesrv,
        acting_set(directory, namesrv, official=software, official_role=official_role) as found,
    ):
        yield found
