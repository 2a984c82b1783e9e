"""A master with a slave that may stand in for it, and a second master: brokers as processes behind one NameServer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.interop.cluster import BROKER_NAME
from tests.interop.killable_broker import KillableBroker
from tests.interop.replica_brokers import FAST, FILE_SIZES, ReplicaBroker, wait_copied
from tests.interop.test_slave_metadata import ask
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.remoting.bodies import BrokerData, QueueData, TopicRouteData
from thermocline.remoting.errors import MQError
from thermocline.remoting.json_dialect import loads_dialect
from thermocline.remoting.request_code import RequestCode

ACTING = {
    **FILE_SIZES,
    **FAST,
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerNotActiveTimeoutMillis": "5000",
}
TOPIC, QUEUES = "Acted", 2
OTHER = "broker-b"


def answer_to(address: str, code: int, **fields: str) -> bytes:
    """The body of a successful answer."""
    return bytes(asyncio.run(ask(address, code, fields)).body)


class ActingSet:
    """`master` and `slave` are one replica set, `other` is a master by itself; the topic has QUEUES queues at both."""

    def __init__(self, namesrv: str, master: ReplicaBroker, slave: ReplicaBroker, other: KillableBroker) -> None:
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
        """Return when the slave is shown as the master, and delivers."""
        self.wait_route({0: self.slave.address}, 4)
        wait_until(lambda: self._begun_count() > 0, what="the slave delivers")

    def wait_ended(self) -> None:
        """Return when the slave delivers no longer."""
        wait_until(lambda: self._begun_count() == 0, what="the slave delivers no longer")

    def _begun_count(self) -> int:
        log = self.slave.log_text()
        return log.count("go to other masters from now on") - log.count("are the master's again")

    def wait_whole(self) -> None:
        """Return when the NameServer shows master and slave."""
        self.wait_route({0: self.master.address, 1: self.slave.address}, 6)

    def wait_followed(self) -> None:
        """Return when it does, and the slave has the master's log."""
        self.wait_whole()
        wait_copied(self.master.log_folder, self.slave.log_folder)

    def committed(self, broker: ReplicaBroker, group: str, topic: str = TOPIC) -> dict[int, int]:
        """The group's offsets at a broker, by queue id."""
        offsets = loads_dialect(answer_to(broker.address, RequestCode.GET_ALL_CONSUMER_OFFSET))
        return {int(queue): offset for queue, offset in offsets["offsetTable"].get(f"{topic}@{group}", {}).items()}


@contextlib.contextmanager
def acting_set(directory: Path, namesrv: str) -> Iterator[ActingSet]:
    """The brokers, started; every one of them has the topic."""
    with (
        KillableBroker(directory / "other", namesrv, name=OTHER) as other,
        ReplicaBroker(directory / "master", namesrv, "ASYNC_MASTER", **ACTING) as master,
        ReplicaBroker(directory / "slave", namesrv, "SLAVE", 1, **ACTING) as slave,
    ):
        found = ActingSet(namesrv, master, slave, other)
        with AdminClient(namesrv=namesrv) as admin:
            admin.create_topic(TOPIC, queue_nums=QUEUES)
        wait_until(
            lambda: (
                TOPIC in loads_dialect(answer_to(slave.address, RequestCode.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
            ),
            what="the slave has the topic",
        )
        found.wait_whole()
        yield found
        for broker in (master, slave, other):
            broker.check_log()
