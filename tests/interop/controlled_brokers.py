"""A replica set of ours as processes: controllers, a NameServer, and brokers that elect their master by themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.controller.controller_group import ControllerGroup, controller_group
from tests.interop.killable_broker import daemon, name_server, ready_address
from tests.interop.merged_broker import assignments
from tests.interop.replica_brokers import TOPIC, ReplicaBroker, log_bodies, wait_copied
from tests.waiting import wait_until
from thermocline.client import Message, MQError, Producer, SendStatus
from thermocline.client.admin.admin_client import AdminClient
from thermocline.localstack.loopback_port import LOOPBACK, free_port
from thermocline.remoting.bodies.replica import ReplicasInfo
from tooling.official_rocketmq import free_broker_port

NAME = "broker-a"
TIMEOUT_S = 120.0
QUEUES = 4
PROBE = b"probe"
"""The body of a message that shows whether a queue takes messages."""
SILENCE_MS = "3000"
"""After so long without heartbeats a broker is replaced: more than what a busy machine delays."""
ELECTIONS: Mapping[str, str] = {
    "newLeaderElectionWaitMs": SILENCE_MS,
    "scanNotActiveBrokerInterval": "200",
    "scanInactiveMasterInterval": "200",
}
WAITS_FOR_ALL: Mapping[str, str] = {"allAckInSyncStateSet": "true"}


@dataclass(slots=True, kw_only=True)
class ControlledBrokers:
    """See the module. Brokers by their number at the controllers, which is that of their first start."""

    directory: Path
    namesrv: str
    controller_addresses: str
    """As brokers and tools are given them."""
    settings: Mapping[str, str]
    group: ControllerGroup | None = None
    """Of processes of their own."""
    brokers: dict[int, ReplicaBroker] = field(default_factory=dict)

    @property
    def controllers(self) -> ControllerGroup:
        """The processes of the controllers."""
        assert self.group is not None
        return self.group

    def start(self, count: int, **settings: str) -> None:
        """Start so many brokers, one after the other, so that their numbers are those of their folders."""
        for number in range(1, count + 1):
            self.start_one(number, **settings)

    def start_one(self, number: int, **settings: str) -> ReplicaBroker:
        """Start one more broker, with the next number."""
        broker = self.make_broker(number, **settings)
        broker.start()
        wait_until(lambda: number in self.members(alive=True) | self.outside(), what=f"{number} is registered")
        return broker

    def make_broker(self, number: int, **settings: str) -> ReplicaBroker:
        """One more broker, not started."""
        port = free_broker_port()
        broker = self.brokers[number] = ReplicaBroker(
            self.directory / f"broker-{number}",
            self.namesrv,
            "SLAVE",
            -1,
            enableControllerMode="true",
            controllerAddr=self.controller_addresses,
            brokerHeartbeatInterval="200",
            controllerHeartBeatTimeoutMills=SILENCE_MS,
            syncBrokerMetadataPeriod="500",
            slaveReadEnable="true",
            listenPort=str(port),
            **{**self.settings, **settings},
        )
        broker.name = NAME
        (broker._directory / "cold").mkdir(parents=True)
        return broker

    def close(self) -> None:
        """Kill what runs."""
        for broker in self.brokers.values():
            with contextlib.suppress(ProcessLookupError):
                broker.thaw()
            broker.kill()

    # -- what the controllers have -------------------------------------------------------------------------------------

    def info(self) -> ReplicasInfo:
        """The set as the controllers have it; empty while none answers."""
        with contextlib.suppress(MQError), AdminClient(namesrv=self.namesrv) as admin:
            return admin.replica_sets(self.controller_addresses, [NAME]).get(NAME, ReplicasInfo())
        return ReplicasInfo()

    def members(self, *, alive: bool = False) -> set[int]:
        """The numbers in the SyncStateSet."""
        return {each.broker_id for each in self.info().in_sync_replicas if each.alive or not alive}

    def outside(self) -> set[int]:
        """The other living numbers."""
        return {each.broker_id for each in self.info().not_in_sync_replicas if each.alive}

    def wait_for(self, members: set[int], *, not_master: int = 0) -> int:
        """Return the master when these are in sync and alive, and another one than `not_master` leads them."""
        found: list[int] = []

        def is_so() -> bool:
            info = self.info()
            present = {each.broker_id for each in info.in_sync_replicas if each.alive}
            if present != members or info.master_broker_id in (None, not_master):
                return False
            assert info.master_broker_id is not None
            found.append(info.master_broker_id)
            return True

        wait_until(is_so, what=f"{members} are in sync: {self.info()}", timeout_s=TIMEOUT_S, interval_s=0.05)
        return found[-1]

    # -- messages ------------------------------------------------------------------------------------------------------

    def make_topic(self) -> None:
        """Make the topic at the master, and return when every broker has it: slaves follow tables now and then."""

        def make() -> bool:
            with contextlib.suppress(MQError), AdminClient(namesrv=self.namesrv) as admin:
                admin.create_topic(TOPIC, queue_nums=QUEUES)
                return True
            return False

        wait_until(make, what="the topic is made", timeout_s=TIMEOUT_S)
        self.wait_writable()
        for broker in self.brokers.values():
            table = broker.log_folder.parent / "config" / "topics.json"
            wait_until(
                lambda table=table: table.exists() and TOPIC in table.read_text(),  # type: ignore[misc]
                what="the topic is followed",
            )

    def wait_writable(self) -> None:
        """Return when every queue has taken a message."""
        with Producer(
            group="writable", namesrv=self.namesrv, send_timeout_ms=1_000, retry_times_when_send_failed=0
        ) as producer:
            taken: set[int] = set()

            def is_writable() -> bool:
                with contextlib.suppress(MQError):
                    result = producer.send(Message(TOPIC, PROBE))
                    if result.status is SendStatus.SEND_OK:
                        taken.add(result.queue.queue_id)
                return len(taken) == QUEUES

            wait_until(is_writable, what="every queue takes messages", timeout_s=TIMEOUT_S, interval_s=0.01)

    def check_logs(self, acknowledged: set[bytes]) -> None:
        """Return when all logs are the same byte by byte; fail unless each has every acknowledged message."""
        master = self.wait_for(set(self.brokers))
        for number, broker in self.brokers.items():
            if number != master:
                wait_copied(self.brokers[master].log_folder, broker.log_folder)
            assert acknowledged <= log_bodies(broker.log_folder), number

    def check(self) -> None:
        """Fail on reports of bugs in the logs of the brokers."""
        for broker in self.brokers.values():
            broker.check_log()


@contextlib.contextmanager
def controlled_brokers(
    directory: Path, *, controllers: int = 1, access: Mapping[str, str] | None = None, **settings: str
) -> Iterator[ControlledBrokers]:
    """No broker is started. `settings`: of each broker. `access`: of each broker and controller."""
    of_controllers = {**ELECTIONS, **(access or {})}
    with (
        name_server(directory / "namesrv") as namesrv,
        controller_group(directory / "controllers", size=controllers, settings=of_controllers) as group,
        contextlib.closing(
            ControlledBrokers(
                directory=directory,
                namesrv=namesrv,
                controller_addresses=group.text,
                settings={**settings, **(access or {})},
                group=group,
            )
        ) as found,
    ):
        yield found


@contextlib.contextmanager
def brokers_of_one_name_server(directory: Path, **settings: str) -> Iterator[ControlledBrokers]:
    """The same, with the controller inside the NameServer."""
    address = f"{LOOPBACK}:{free_port()}"
    controller = {
        **ELECTIONS,
        "enableControllerInNamesrv": "true",
        "controllerDLegerPeers": f"n0-{address}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(directory / "controller"),
    }
    server = daemon(
        "namesrv", "--listen", f"{LOOPBACK}:0", *assignments("--set", controller), directory=directory / "namesrv"
    )
    try:
        namesrv = ready_address(server)
        with contextlib.closing(
            ControlledBrokers(directory=directory, namesrv=namesrv, controller_addresses=address, settings=settings)
        ) as found:
            yield found
    finally:
        server.kill()
