"""A replica set that a benchmark drives: a NameServer, a controller, and brokers that are started, killed and frozen.

Ours or RocketMQ's: each with its own NameServer and controller, and otherwise with the same settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE, cpu_seconds, with_their_groups
from thermocline import AdminClient, Message, MQError, Producer, SendStatus
from thermocline.localstack.child_process import ChildProcess
from thermocline.localstack.loopback_port import LOOPBACK, free_port
from thermocline.remoting.bodies.replica import ReplicasInfo
from tooling.official_rocketmq import (
    OfficialSoftware,
    free_broker_port,
    official_broker,
    official_controller,
    official_namesrv,
)

NAME, TOPIC, QUEUES = "broker-a", "ReplicaBench", 4
TIMEOUT_S = 180.0
JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
"""Of official brokers: upstream's 8 GB each are more than three brokers on one machine may have."""
CONTROLLED: Mapping[str, str] = {"enableControllerMode": "true", "allAckInSyncStateSet": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A broker that runs."""

    process: ChildProcess
    address: str


Launch = Callable[[int], AbstractContextManager[Member]]
"""Start a broker by its number, on the store that this number has; it is killed at the end."""


@dataclass(slots=True, kw_only=True)
class ReplicaSetUnderTest:
    """See the module. Brokers have the numbers that the controller gave them at their first start: 1, 2, 3."""

    kind: str
    namesrv: str
    controller: str
    launch: Launch
    members: dict[int, Member] = field(default_factory=dict)
    _running: dict[int, ExitStack] = field(default_factory=dict)

    def start(self, number: int) -> None:
        """Start a broker, and return when it is in sync."""
        stack = self._running[number] = ExitStack()
        self.members[number] = stack.enter_context(self.launch(number))
        self.wait_for(lambda info: number in in_sync(info), f"broker {number} is in sync")

    def kill(self, number: int) -> None:
        """Kill a broker with all of its processes."""
        self._signal(number, signal.SIGKILL)
        del self.members[number]
        self._running.pop(number).close()

    def freeze(self, number: int) -> None:
        """Stop a broker where it is (SIGSTOP); its connections stay."""
        self._signal(number, signal.SIGSTOP)

    def close(self) -> None:
        """Kill all brokers."""
        for number in list(self.members):
            self._signal(number, signal.SIGCONT)
            self.kill(number)

    def cpu_s(self, *numbers: int) -> float:
        """CPU time that all processes of these brokers have used; of all of its brokers, if none is named."""
        leaders = [self.members[number].process.process_id for number in numbers or self.members]
        return sum(cpu_seconds(process_id) for process_id in with_their_groups(leaders))

    def master(self) -> int:
        """The number of the master."""
        return self.wait_for(lambda info: bool(info.master_broker_id), "there is a master").master_broker_id or 0

    def make_topic(self) -> None:
        """Make the topic, and return when every queue takes messages."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                with AdminClient(namesrv=self.namesrv) as admin:
                    admin.create_topic(TOPIC, queue_nums=QUEUES)
                break
            except MQError as error:
                if time.monotonic() > deadline_s:
                    raise SystemExit(f"the {self.kind} set makes no topic: {error}") from error
                time.sleep(0.2)
        self.until_writable()

    def until_writable(self) -> float:
        """Send until every queue has taken a message; how many seconds that took."""
        begun_s, taken = time.monotonic(), set[int]()
        with Producer(
            group="writable", namesrv=self.namesrv, send_timeout_ms=1_000, retry_times_when_send_failed=0
        ) as producer:
            while len(taken) < QUEUES:
                if time.monotonic() > begun_s + TIMEOUT_S:
                    raise SystemExit(f"the {self.kind} set is not writable after {TIMEOUT_S:.0f} s")
                with contextlib.suppress(MQError):
                    result = producer.send(Message(TOPIC, b"probe"))
                    if result.status is SendStatus.SEND_OK:
                        taken.add(result.queue.queue_id)
                        continue
                time.sleep(0.01)
        return time.monotonic() - begun_s

    def wait_for(self, condition: Callable[[ReplicasInfo], bool], what: str) -> ReplicasInfo:
        """Return what the controller has of the set, once `condition` holds; exit with `what` if it never does."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            info = ReplicasInfo()
            with contextlib.suppress(MQError), AdminClient(namesrv=self.namesrv) as admin:
                info = admin.replica_sets(self.controller, [NAME]).get(NAME, info)
            if condition(info):
                return info
            if time.monotonic() > deadline_s:
                raise SystemExit(f"not within {TIMEOUT_S:.0f} s, at the {self.kind} set: {what}")
            time.sleep(0.05)

    def _signal(self, number: int, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.members[number].process.process_id, what)


def in_sync(info: ReplicasInfo) -> set[int | None]:
    """The numbers of living brokers that have all that is acknowledged."""
    return {replica.broker_id for replica in info.in_sync_replicas if replica.alive}


@contextlib.contextmanager
def official_set(
    software: OfficialSoftware, directory: Path, *, size: int, properties: Mapping[str, str]
) -> Iterator[ReplicaSetUnderTest]:
    """RocketMQ's, all of its brokers in sync. `properties`: of each broker."""

    @contextlib.contextmanager
    def launch(number: int) -> Iterator[Member]:
        home = directory / f"broker-{number}"
        own = {
            "haListenPort": str(free_broker_port()),
            "storePathEpochFile": str(home / "store" / "epochFileCheckpoint"),
            "storePathBrokerIdentity": str(home / "store" / "brokerIdentity"),
        }
        with official_broker(
            software,
            home,
            namesrv_address=namesrv.address,
            store_directory=home / "store",
            properties={**CONTROLLED, "controllerAddr": controller.address, **own, **properties},
            jvm_options=JVM_OPTIONS,
        ) as broker:
            yield Member(process=broker.process, address=broker.address)

    with (
        official_namesrv(software, directory / "namesrv") as namesrv,
        official_controller(software, directory / "controller", properties={}) as controller,
        _all_started(OFFICIAL, namesrv.address, controller.address, launch, size) as found,
    ):
        yield found


@contextlib.contextmanager
def thermocline_set(
    directory: Path, *, size: int, properties: Mapping[str, str], cold_url: str = "none"
) -> Iterator[ReplicaSetUnderTest]:
    """Ours, all of its brokers in sync. `properties`: of each broker, read at each of its starts. `cold_url`: their
    cold tier."""
    namesrv, controller = (f"{LOOPBACK}:{free_port()}" for _ in range(2))

    @contextlib.contextmanager
    def launch(number: int) -> Iterator[Member]:
        port = free_broker_port()
        settings = {"haListenPort": str(port + 1), **CONTROLLED, "controllerAddr": controller, **properties}
        words = ("--listen", f"{LOOPBACK}:{port}", "--namesrv", namesrv, "--name", NAME, "--cold", cold_url)
        assignments = (word for name, value in settings.items() for word in ("--set", f"{name}={value}"))
        with _daemon(directory / f"broker-{number}", "broker", *words, *assignments) as process:
            yield Member(process=process, address=f"{LOOPBACK}:{port}")

    with (
        _daemon(directory / "namesrv", "namesrv", "--listen", namesrv),
        _daemon(directory / "controller", "controller", "--peers", f"n0-{controller}", "--id", "n0"),
        _all_started(THERMOCLINE, namesrv, controller, launch, size) as found,
    ):
        yield found


@contextlib.contextmanager
def _all_started(kind: str, namesrv: str, controller: str, launch: Launch, size: int) -> Iterator[ReplicaSetUnderTest]:
    with contextlib.closing(
        ReplicaSetUnderTest(kind=kind, namesrv=namesrv, controller=controller, launch=launch)
    ) as found:
        for number in range(1, size + 1):
            found.start(number)
        found.make_topic()
        yield found


@contextlib.contextmanager
def _daemon(directory: Path, *words: str) -> Iterator[ChildProcess]:
    """A daemon of ours that serves; killed at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    data = () if words[0] == "namesrv" else ("--data", str(directory / "store"))
    process = ChildProcess(
        [str(Path(sys.executable).parent / "thermocline"), *words[:1], *data, *words[1:]],
        log_path=directory / "daemon.log",
        working_directory=directory,
    )
    try:
        process.wait_until(
            lambda: re.search("^ready ", process.output(), re.MULTILINE) is not None, timeout_s=TIMEOUT_S
        )
        yield process
    finally:
        process.kill()
