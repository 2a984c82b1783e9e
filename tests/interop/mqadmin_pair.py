"""Two clusters in the same state, ours and the official one, and `mqadmin` commands run against both.

Their output is compared after masking the parts that differ between runs: addresses, folders, ids, times, rates, places
in the log, and the widths of columns. Lines are compared in sorted order: the official tools and brokers keep much in
hash tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cluster import Cluster
from tests.interop.java_agent import ReceivedMessage, SendAnswer
from tests.waiting import wait_until

TOPIC, GROUP, OFFLINE_GROUP, PRODUCER_GROUP = "PairTopic", "PairGroup", "PairOffline", "PairProducers"
QUEUE_COUNT = 4
MESSAGE_COUNT = 20

_TIMES = re.compile(r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d(?:[,.:]\d+)?")
_HEXADECIMAL_IDS = re.compile(r"(?<![0-9A-F])[0-9A-F]{24,}")
_RATES = re.compile(r"-?\b\d+\.\d+\b")
_PLACES = re.compile(r"\b\d{5,}\b|(?<=CommitLog Offset: )\d+|(?<=commitLogOffset=)\d+|(?<=ID@)\d+")
_FOLDERS = re.compile(r"/\S+/(?=store/|commitlog)")
_LOCAL = re.compile(r"127\.0\.0\.1:\d+")
_PROCESS = re.compile(r"@\d+#\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two clusters, with what the state script has put there."""

    cluster: Cluster
    directory: Path
    sent: list[SendAnswer]
    received: list[ReceivedMessage]

    def values(self) -> Mapping[str, str]:
        """What stands for itself in a command's arguments."""
        first = next(message for message in self.received if message.properties["index"] == "7")
        answer = next(a for a in self.sent if (a.queue_id, a.queue_offset) == (first.queue_id, first.queue_offset))
        return {
            "broker": self.cluster.broker_address,
            "unique": first.message_id,
            "offset_id": answer.offset_message_id,
            "key": first.keys or "",
            "client": f"127.0.0.1@{self.client_name}",
            "directory": str(self.directory),
        }

    @property
    def client_name(self) -> str:
        """The instance name of the consumer that stays connected."""
        return f"{GROUP}-{self.cluster.kind}"

    def masked(self, printed: str) -> list[str]:
        """The output with the parts masked that differ between runs."""
        text = printed.replace(str(self.directory), "DIRECTORY").replace(f"-{self.cluster.kind}", "-KIND")
        for address, name in ((self.cluster.broker_address, "BROKER"), (self.cluster.namesrv, "NAMESERVER")):
            text = text.replace(address, name)
        for pattern, name in (
            (_FOLDERS, "/"),
            (_LOCAL, "CLIENT"),
            (_PROCESS, "@PROCESS"),
            (_TIMES, "TIME"),
            (_HEXADECIMAL_IDS, "ID"),
            (_RATES, "RATE"),
            (_PLACES, "N"),
        ):
            text = pattern.sub(name, text)
        lines = (" ".join(line.split()) for line in text.splitlines())
        return sorted(line for line in lines if line)


def begin(cluster: Cluster) -> list[SendAnswer]:
    """Send, and start two groups; what the sends were answered."""
    agent, namesrv = cluster.agent, cluster.namesrv
    cluster.make_topic(TOPIC, queue_count=QUEUE_COUNT)
    sent = agent.produce(
        kind="ordered",
        name=f"{PRODUCER_GROUP}-{cluster.kind}",
        group=PRODUCER_GROUP,
        namesrv=namesrv,
        topic=TOPIC,
        prefix=TOPIC,
        tags=["T0", "T1"],
        shards=QUEUE_COUNT,
        count=MESSAGE_COUNT,
    )
    for group in (OFFLINE_GROUP, GROUP):
        name = f"{group}-{cluster.kind}"
        agent.call("start_push_consumer", name=name, namesrv=namesrv, group=group, topics={TOPIC: "*"})
    return sent


def prepare(cluster: Cluster, directory: Path, *, sent: list[SendAnswer]) -> Side:
    """Return when a cluster that has begun is in the state that the commands look at: one of the groups is away."""
    agent = cluster.agent
    for group in (OFFLINE_GROUP, GROUP):
        name = f"{group}-{cluster.kind}"
        received = agent.received(name, count=MESSAGE_COUNT)
        assert len(received) == MESSAGE_COUNT
        if group == OFFLINE_GROUP:
            agent.call("stop_consumer", name=name)  # it commits
        wait_until(
            lambda group=group: "Consume Diff Total: 0" in cluster.admin("consumerProgress", "-g", group),
            what=f"{group} has committed",
        )
    directory.mkdir(parents=True, exist_ok=True)
    return Side(cluster=cluster, directory=directory, sent=sent, received=received)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both sides."""

    ours: Side
    official: Side

    def run(self, command: str, *arguments: str, until: Callable[[str], bool] | None = None) -> tuple[list[str], ...]:
        """The masked output of a command on both sides: ours, then the official one.

        `until`: whether the output is the one that is meant; for what a broker learns a moment later.
        """
        return tuple(self._run(side, command, arguments, until) for side in (self.ours, self.official))

    def _run(
        self, side: Side, command: str, arguments: tuple[str, ...], until: Callable[[str], bool] | None
    ) -> list[str]:
        values = side.values()
        filled = [argument.format_map(values) if "{" in argument else argument for argument in arguments]
        printed = side.cluster.admin(command, *filled)
        if until is not None and not until(printed):
            seen = [printed]

            def is_meant() -> bool:
                seen.append(side.cluster.admin(command, *filled))
                return until(seen[-1])

            wait_until(is_meant, what=f"{command} on {side.cluster.kind}; the last output was\n{seen[-1]}")
            printed = seen[-1]
        return side.masked(printed)
