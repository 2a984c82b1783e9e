"""Brokers, NameServers and consumers come and go, gracefully and by `kill -9`, while producers and consumers run:
nothing acknowledged is lost, and no client is started anew.

    clients      an official Java producer and push consumer, a producer and a push consumer of the Python SDK: from the
                 beginning to the end, the same objects
    a cycle      a consumer more in each group; a broker more, which gets messages and has them consumed; a NameServer
                 stops and comes back; the other is killed and comes back; a consumer of each group leaves; the newest
                 broker is emptied and stops; a broker is killed and comes back; a consumer of each group is killed

Every change waits until its effect is seen at the clients, and for messages of both producers after it. The list of
NameServers is what clients and brokers were started with: `NameServerList` takes one out of use, and puts it back, by
ending and starting the process at its address.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.elastic_member import INTERVAL_MS, READY, elastic_consumer
from tests.interop.java_agent import JavaAgent, java_agent
from tests.interop.killable_broker import KillableBroker, KillableNameServer
from tests.interop.load_journal import JournalTail, Received, Sent
from tests.waiting import wait_until
from thermocline.client import AdminClient, Message, MessageQueue, Producer
from thermocline.remoting.errors import MQError
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [
    pytest.mark.java,
    pytest.mark.crash,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("elasticity"),
]

TOPIC = "Elastic"
QUEUES = 2
"""On each broker."""
GROUPS = JAVA, SDK = "elastic-java", "elastic-sdk"
RATE = 40.0
BODY_BYTES = 100
SEEN_TIMEOUT_S = 90.0
"""A NameServer lists a broker again after its registration, a client gets its route with its next request."""
REGISTER_PERIOD_MS = 1_000
JAVA_OPTIONS = (f"-Drocketmq.client.rebalance.waitInterval={INTERVAL_MS}",)
BROKER_SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "registerNameServerPeriod": str(REGISTER_PERIOD_MS),
    "flushConsumerOffsetInterval": "500",
    "coldSealAgeMs": "1000",
}


class SdkLoad:
    """A producer of the SDK in a thread. `acknowledged`: names of messages that a broker has taken."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged: set[str] = set()
        self._finished = threading.Event()
        self._producer = Producer(
            group="elastic-producers",
            namesrv=namesrv,
            poll_name_server_interval_ms=INTERVAL_MS,
            heartbeat_broker_interval_ms=INTERVAL_MS,
        )
        self._thread = threading.Thread(target=self._run, name="sdk-load")

    def start(self) -> None:
        self._producer.start()
        self._thread.start()

    def finish(self) -> None:
        self._finished.set()
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        number = 0
        while not self._finished.wait(1 / RATE):
            name = f"sdk-{number}"
            number += 1
            with contextlib.suppress(MQError):  # it is not acknowledged, and may be there or not
                self._producer.send(Message(TOPIC, name.encode().ljust(BODY_BYTES, b".")))
                self.acknowledged.add(name)


@dataclass(eq=False)
class Progress:
    """The answers that producers got, and the messages that each group consumed, from the journals as they grow."""

    java_sent: JournalTail
    sdk_load: SdkLoad
    java_acknowledged: set[str] = field(default_factory=set)
    taken: dict[str, set[str]] = field(default_factory=lambda: {group: set() for group in GROUPS})
    sdk_tails: list[JournalTail] = field(default_factory=list)
    java_tails: list[JournalTail] = field(default_factory=list)

    def read(self) -> None:
        """Read on."""
        for sent in map(Sent.read, self.java_sent.new_lines()):
            if sent.is_acknowledged:
                self.java_acknowledged.add(f"java-{sent.number}")
        for tail in self.sdk_tails:
            self.taken[SDK].update(line for line in tail.new_lines() if line != READY)
        for tail in self.java_tails:
            self.taken[JAVA].update(each.name for each in map(Received.read, tail.new_lines()) if each.is_taken)

    @property
    def acknowledged(self) -> set[str]:
        return self.java_acknowledged | set(self.sdk_load.acknowledged)

    def missing(self) -> dict[str, int]:
        """Group -> acknowledged messages that it has not taken."""
        self.read()
        return {group: len(self.acknowledged - taken) for group, taken in self.taken.items()}

    def wait_for_more(self, *, after: str) -> None:
        """Until both producers had messages acknowledged from now on, and both groups have all sent until then."""
        self.wait_for_sends(after=after)
        wanted = self.acknowledged
        wait_until(
            lambda: self.read() or all(wanted <= taken for taken in self.taken.values()),
            what=f"both groups have what was sent before {after}",
            timeout_s=SEEN_TIMEOUT_S,
        )

    def wait_for_sends(self, *, after: str) -> None:
        """Until both producers had messages acknowledged from now on."""
        self.read()
        java, sdk = len(self.java_acknowledged), len(self.sdk_load.acknowledged)
        wait_until(
            lambda: (self.read() or len(self.java_acknowledged) > java) and len(self.sdk_load.acknowledged) > sdk,
            what=f"both producers go on after {after}",
            timeout_s=SEEN_TIMEOUT_S,
        )


class NameServerList:
    """The NameServers that clients and brokers were started with.

    Where the list can be changed while they run (`broker config set`), that belongs into `take_out` and
    `put_back`: everything else of the test stays as it is.
    """

    def __init__(self, name_servers: Sequence[KillableNameServer]) -> None:
        self._name_servers = name_servers

    def __iter__(self) -> Iterator[KillableNameServer]:
        return iter(self._name_servers)

    @property
    def text(self) -> str:
        """As `namesrvAddr` has it."""
        return ";".join(each.address for each in self._name_servers)

    @staticmethod
    def take_out(name_server: KillableNameServer, *, by_kill: bool) -> None:
        """No client or broker reaches it any more."""
        if by_kill:
            name_server.kill()
        else:
            name_server.stop()

    @staticmethod
    def put_back(name_server: KillableNameServer) -> None:
        """The NameServer serves again, with an empty route table."""
        name_server.start()


class ElasticCluster:
    """All processes of the test, and what can happen to them."""

    def __init__(self, stack: ExitStack, software: OfficialSoftware, directory: Path) -> None:
        self._stack, self._software, self._directory = stack, software, directory
        self.name_servers = NameServerList(
            [stack.enter_context(KillableNameServer(directory / f"namesrv-{number}")) for number in range(2)]
        )
        self.namesrv = self.name_servers.text
        self.brokers = {name: self.add_broker(name) for name in ("broker-a", "broker-b")}
        self.admin = stack.enter_context(AdminClient(namesrv=self.namesrv))
        self.agent = stack.enter_context(java_agent(software, directory / "java", options=JAVA_OPTIONS))
        sdk_load = SdkLoad(self.namesrv)
        self.progress = Progress(java_sent=JournalTail(directory / "sent-java"), sdk_load=sdk_load)
        self._member_count = 0

    def add_broker(self, name: str) -> KillableBroker:
        """One more, of a new name."""
        broker = KillableBroker(self._directory / name, self.namesrv, name=name, settings=BROKER_SETTINGS)
        return self._stack.enter_context(broker)

    def make_topic(self, *brokers: str) -> None:
        for name in brokers:
            wait_until(lambda name=name: name in self.known_brokers(), what=f"{name} is registered")
            self.admin.create_topic(TOPIC, queue_nums=QUEUES, broker=name)

    def known_brokers(self) -> set[str]:
        """By whichever NameServer answers."""
        with contextlib.suppress(MQError):
            return {each.broker_name for each in self.admin.cluster_info()}
        return set()

    def wait_until_served(self, name_server: KillableNameServer, brokers: set[str]) -> None:
        """Until this NameServer alone gives the topic's route to these brokers."""

        def has_route() -> bool:
            with contextlib.suppress(MQError), AdminClient(namesrv=name_server.address) as admin:
                return {each.broker_name for each in admin.topic_route(TOPIC).brokers} == brokers
            return False

        wait_until(has_route, what=f"{name_server.address} has the route", timeout_s=SEEN_TIMEOUT_S)

    def start_load(self) -> None:
        self.agent.call(
            "start_load",
            name="java",
            namesrv=self.namesrv,
            group="elastic-java-producers",
            topic=TOPIC,
            prefix="java",
            kind="sync",
            rate=RATE,
            body_bytes=BODY_BYTES,
            journal=str(self._directory / "sent-java"),
            heartbeat_ms=INTERVAL_MS,
            poll_namesrv_ms=INTERVAL_MS,
        )
        self.progress.sdk_load.start()

    def finish_load(self) -> None:
        self.agent.call("finish_load", name="java")
        self.progress.sdk_load.finish()

    # -- consumers -----------------------------------------------------------------------------------------------------

    def add_java_member(self, agent: JavaAgent) -> str:
        name = self._member_name()
        journal = self._directory / name
        self.progress.java_tails.append(JournalTail(journal))
        agent.call(
            "start_push_consumer",
            name=name,
            namesrv=self.namesrv,
            group=JAVA,
            topics={TOPIC: "*"},
            journal=str(journal),
            heartbeat_ms=INTERVAL_MS,
            **{"from": "CONSUME_FROM_FIRST_OFFSET"},
        )
        return name

    def sdk_journal(self) -> Path:
        journal = self._directory / self._member_name()
        self.progress.sdk_tails.append(JournalTail(journal))
        return journal

    @contextlib.contextmanager
    def sdk_member(self) -> Iterator[subprocess.Popen[bytes]]:
        """A member of the SDK's group in a process of its own, running; ended at the end, if it was not before."""
        journal = self.sdk_journal()
        arguments = [sys.executable, "-m", "tests.interop.elastic_member", self.namesrv, SDK, TOPIC, str(journal)]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE) as process:
            try:
                wait_until(lambda: journal.exists() and READY in journal.read_text(), what="the member runs")
                yield process
            finally:
                process.kill()

    def wait_for_members(self, count: int) -> None:
        """Wait until every broker has this number of members of both groups."""

        def are_known() -> bool:
            with contextlib.suppress(MQError):
                return all(len(self.admin.consumer_connections(group).connection_set) == count for group in GROUPS)
            return False

        wait_until(are_known, what=f"{count} members of each group", timeout_s=SEEN_TIMEOUT_S)

    def _member_name(self) -> str:
        self._member_count += 1
        return f"member-{self._member_count}"

    # -- brokers -------------------------------------------------------------------------------------------------------

    def wait_until_used(self, broker: str) -> None:
        """Until both producers send to a broker, and both groups consume all of it so far."""

        def is_used() -> bool:
            with contextlib.suppress(MQError):
                ends = {queue: self.admin.max_offset(queue) for queue in self._queues(broker)}
                rows = [row for group in GROUPS for row in self.admin.group_progress(group, topic=TOPIC)]
                reached = {row.queue for row in rows if row.consumer_offset}
                return all(ends.values()) and reached >= ends.keys()
            return False

        wait_until(is_used, what=f"{broker} has messages that both groups consume", timeout_s=SEEN_TIMEOUT_S)

    def drain(self, broker: str) -> None:
        """Return when no producer sends to a broker any more, and both groups have consumed what it holds."""
        self.admin.wipe_write_permission(broker)
        ends: dict[MessageQueue, int] = {}
        since_s = time.monotonic()

        def is_drained() -> bool:
            nonlocal ends, since_s
            with contextlib.suppress(MQError):
                now = {queue: self.admin.max_offset(queue) for queue in self._queues(broker)}
                if now != ends:
                    ends, since_s = now, time.monotonic()
                rows = [row for group in GROUPS for row in self.admin.group_progress(group, topic=TOPIC)]
                behind = [row for row in rows if row.queue in ends and row.lag]
                return not behind and time.monotonic() - since_s > 3 * INTERVAL_MS / 1_000
            return False

        wait_until(is_drained, what=f"{broker} is drained", timeout_s=SEEN_TIMEOUT_S)

    @staticmethod
    def _queues(broker: str) -> list[MessageQueue]:
        return [MessageQueue(topic=TOPIC, broker_name=broker, queue_id=queue_id) for queue_id in range(QUEUES)]


@pytest.mark.full
def test_nothing_is_lost_while_everything_comes_and_goes(
    tmp_path: Path, case_count: Callable[..., int], official_software: OfficialSoftware
) -> None:
    with ExitStack() as stack:
        cluster = ElasticCluster(stack, official_software, tmp_path)
        cluster.make_topic(*cluster.brokers)
        cluster.add_java_member(cluster.agent)
        stack.enter_context(elastic_consumer(cluster.namesrv, SDK, TOPIC, cluster.sdk_journal()))
        cluster.start_load()
        try:
            cluster.wait_for_members(1)
            cluster.progress.wait_for_more(after="the start")
            for number in range(case_count(quick=1, soak=12)):
                cycle(cluster, official_software, tmp_path / f"cycle-{number}", number)
        finally:
            cluster.finish_load()
        progress = cluster.progress
        wait_until(
            lambda: not any(progress.missing().values()),
            what=f"everything acknowledged is received: {progress.missing()}",
            timeout_s=SEEN_TIMEOUT_S,
        )
        assert len(progress.java_acknowledged) > 100
        assert len(progress.sdk_load.acknowledged) > 100
        for broker in cluster.brokers.values():
            broker.check_log()


def cycle(cluster: ElasticCluster, software: OfficialSoftware, directory: Path, number: int) -> None:
    """Each kind of change once; the cluster is afterwards what it was before."""
    progress = cluster.progress
    with ExitStack() as stack:
        second_agent = stack.enter_context(java_agent(software, directory / "java", options=JAVA_OPTIONS))
        cluster.add_java_member(second_agent)
        sdk_victim = stack.enter_context(cluster.sdk_member())
        leaving = cluster.add_java_member(cluster.agent)
        with elastic_consumer(cluster.namesrv, SDK, TOPIC, cluster.sdk_journal()):
            cluster.wait_for_members(3)
            added = f"broker-{number}-added"
            cluster.brokers[added] = cluster.add_broker(added)
            cluster.make_topic(added)
            cluster.wait_until_used(added)
            broker_names = {"broker-a", "broker-b", added}
            for name_server, by_kill in zip(cluster.name_servers, (False, True), strict=True):
                cluster.name_servers.take_out(name_server, by_kill=by_kill)
                progress.wait_for_more(after="a NameServer is gone")
                cluster.name_servers.put_back(name_server)
                cluster.wait_until_served(name_server, broker_names)
                progress.wait_for_more(after="a NameServer is back")
        cluster.agent.stop_consumer(leaving)
        cluster.wait_for_members(2)
        progress.wait_for_more(after="consumers have left")
        cluster.drain(added)
        cluster.brokers[added].stop()
        progress.wait_for_more(after=f"{added} has left")
        cluster.brokers["broker-b"].kill()
        progress.wait_for_sends(after="broker-b is killed")
        cluster.brokers["broker-b"].start()
        cluster.wait_until_used("broker-b")
        second_agent.kill()
        sdk_victim.kill()
        cluster.wait_for_members(1)
        progress.wait_for_more(after="consumers are killed")
        assert cluster.known_brokers() == {"broker-a", "broker-b"}
