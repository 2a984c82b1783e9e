"""Where the mixed load runs: brokers that can be killed, and clients in processes of their own.

producers    one process of each language; they live throughout
victims      one process of each language with a member of each group that shares its queues; killed in the middle
survivors    one process of each language with another member of each, and the one that broadcasts
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.interop.go_agent import go_agent
from tests.interop.java_agent import JavaAgent, java_agent
from tests.interop.killable_broker import KillableBroker, name_server
from tests.interop.load_mix import (
    BODY_BYTES,
    GROUPS,
    HEARTBEAT_MS,
    POP_INVISIBLE_MS,
    PRODUCERS,
    QUEUES,
    TAGS,
    TOPICS,
    GroupPlan,
    ProducerPlan,
)
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.remoting.errors import MQError
from tooling.official_rocketmq import OfficialSoftware

LANGUAGES = ("java", "go")
VICTIM, SURVIVOR = "victim", "survivor"
SHARED_TIMEOUT_S = 120.0
NOTED_MS = 1_000
"""How often a broker here writes positions down."""
BROKER_SETTINGS: Mapping[str, str] = {
    # Small files that go as soon as the cold tier has what is in them: what is read again comes from there.
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "fileReservedTime": "0",
    "deleteWhen": "",
    "coldSegmentBytes": str(512 << 10),
    "coldFrameBytes": str(64 << 10),
    "coldSealAgeMs": "1000",
    "flushConsumerOffsetInterval": str(NOTED_MS),
    "flushDelayOffsetInterval": str(NOTED_MS),
    "timerFlushIntervalMs": str(NOTED_MS),
    "enablePropertyFilter": "true",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "2000",
}


class LoadCluster:
    """The clients, and the operations on them. Made by `load_clients`."""

    def __init__(
        self,
        directory: Path,
        *,
        namesrv: str,
        producers: Mapping[str, JavaAgent],
        members: Mapping[tuple[str, str], JavaAgent],
        plans: Sequence[ProducerPlan],
        groups: Sequence[GroupPlan],
    ) -> None:
        """`producers` by language; `members` by VICTIM or SURVIVOR, and language."""
        self.namesrv = namesrv
        self.plans = plans
        self.groups = groups
        self.parts = tuple(dict.fromkeys(part for part, _ in members))
        self._directory = directory
        self._producers = producers
        self._members = members

    def journal_of_producer(self, name: str) -> Path:
        return self._directory / f"sent-{name}"

    def journal_of_member(self, group: GroupPlan, part: str) -> Path:
        return self._directory / f"received-{group.name}-{part}"

    def start_consumers(self, *, waits_for_locks: bool) -> None:
        """Make topics and groups, start all members, and wait until each group has shared its queues.

        The Go client never unlocks a queue that it leaves to another member, who has to wait until the lock has ended,
        for a minute. Without `waits_for_locks` the load begins before that.
        """
        with AdminClient(namesrv=self.namesrv) as admin:
            wait_until(lambda: bool(admin.cluster_info()), what="the broker is registered")
            for topic in TOPICS:
                admin.create_topic(topic, queue_nums=QUEUES)
            for group in self.groups:
                admin.create_group(group.name)
                # A consumer that starts before its retry topic is known looks for it again only after 20 s.
                admin.create_topic(f"%RETRY%{group.name}", queue_nums=1)
                if group.is_pop:
                    for topic in group.topics:
                        admin.set_request_mode(group.name, topic, "POP", pop_share_queues=QUEUES)
            for part in self.parts:
                for group in self.groups:
                    if part == SURVIVOR or not group.is_broadcast:
                        self._start_member(group, part)
            for group in self.groups:
                has_late_locks = group.is_orderly and group.language == "go" and not waits_for_locks
                members = 1 if group.is_broadcast else len(self.parts)
                wait_until(
                    lambda group=group, members=members, has_late_locks=has_late_locks: is_shared(
                        admin, group, members=members, has_late_locks=has_late_locks
                    ),
                    what=f"{group.name} has shared its queues",
                    timeout_s=SHARED_TIMEOUT_S,
                )

    def _start_member(self, group: GroupPlan, part: str) -> None:
        self._members[part, group.language].call(
            "start_push_consumer" if group.language == "java" else "start_load_consumer",
            name=f"{group.name}-{part}",
            namesrv=self.namesrv,
            group=group.name,
            topics=dict.fromkeys(group.topics, group.expression),
            journal=str(self.journal_of_member(group, part)),
            orderly=group.is_orderly,
            broadcast=group.is_broadcast,
            client_rebalance=not group.is_pop,
            pop_invisible_ms=POP_INVISIBLE_MS,
            refuse_every=group.refuse_every,
            heartbeat_ms=HEARTBEAT_MS,
        )

    def start_producers(self) -> None:
        """From here on all of them send."""
        for plan in self.plans:
            self._producers[plan.language].call(
                "start_load",
                name=plan.name,
                namesrv=self.namesrv,
                group=f"producers-{plan.name}",
                topic=plan.topic,
                prefix=plan.name,
                kind=plan.kind,
                rate=plan.rate,
                tags=TAGS,
                body_bytes=BODY_BYTES,
                journal=str(self.journal_of_producer(plan.name)),
                heartbeat_ms=HEARTBEAT_MS,
                **plan.more,
            )

    def finish_producers(self) -> dict[str, int]:
        """Have all of them send no more; how many messages each has begun to send. They can still be asked."""
        return {
            plan.name: int(self._producers[plan.language].call("finish_load", name=plan.name)) for plan in self.plans
        }

    def kill_victims(self) -> None:
        for language in LANGUAGES:
            self._members[VICTIM, language].kill()

    def journal_topic(self, topic: str) -> Path:
        """Read a topic by offsets; the journal of what is there."""
        path = self._directory / f"stored-{topic}"
        self._producers["java"].call(
            "journal_topic", namesrv=self.namesrv, topic=topic, group="load-reader", journal=str(path), timeout_s=600
        )
        return path


def is_shared(admin: AdminClient, group: GroupPlan, *, members: int, has_late_locks: bool) -> bool:
    """Whether each of `members` has its part of each topic's queues; by POP each has all of them.

    `has_late_locks`: it is enough that the first one has left what is not its own.
    """
    try:
        clients = [client.client_id for client in admin.consumer_connections(group.name).connection_set]
        if len(clients) < members:
            return False
        infos = [admin.consumer_running_info(group.name, client) for client in clients]
    except MQError:
        return False
    for topic in group.topics:
        if group.is_pop:
            if not all(any(queue.topic == topic for queue in info.mq_pop_table) for info in infos):
                return False
            continue
        shares = [sum(queue.topic == topic for queue in info.mq_table) for info in infos]
        wanted = [QUEUES // members] * members
        if shares != wanted and not (has_late_locks and sorted(shares) == [0, QUEUES // members]):
            return False
    return True


@contextlib.contextmanager
def load_clients(
    software: OfficialSoftware,
    directory: Path,
    *,
    namesrv: str,
    plans: Sequence[ProducerPlan] = PRODUCERS,
    groups: Sequence[GroupPlan] = GROUPS,
    parts: Sequence[str] = (VICTIM, SURVIVOR),
) -> Iterator[LoadCluster]:
    """The processes of the clients; no producer or consumer runs yet."""
    with ExitStack() as stack:

        def agent(language: str, part: str) -> JavaAgent:
            place = directory / f"{language}-{part}"
            return stack.enter_context(java_agent(software, place) if language == "java" else go_agent(place))

        yield LoadCluster(
            directory,
            namesrv=namesrv,
            producers={language: agent(language, "producers") for language in LANGUAGES},
            members={(part, language): agent(language, part) for part in parts for language in LANGUAGES},
            plans=plans,
            groups=groups,
        )


@contextlib.contextmanager
def load_cluster(software: OfficialSoftware, directory: Path) -> Iterator[tuple[LoadCluster, KillableBroker]]:
    """The clients, and a broker that serves."""
    with (
        name_server(directory / "namesrv") as namesrv,
        KillableBroker(directory / "broker", namesrv, settings=BROKER_SETTINGS) as broker,
        load_clients(software, directory, namesrv=namesrv) as cluster,
    ):
        yield cluster, broker
