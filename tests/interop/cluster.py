"""A NameServer and a broker under test: the official pair, or Thermocline's `dev` command. The same tests run on both.

The official pair comes first in time, not in importance: a test that passes on it states RocketMQ's behaviour, so a
failure on the other side is ours.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_agent import JavaAgent, ReceivedMessage
from tests.waiting import wait_until
from thermocline.localstack.child_process import ChildProcess
from tooling.official_rocketmq import OfficialSoftware, official_broker, official_namesrv

OFFICIAL = "official"
THERMOCLINE = "thermocline"
CLUSTER_NAME = "DefaultCluster"
BROKER_NAME = "broker-a"
READY_TIMEOUT_S = 60.0
FREE_PORT = "127.0.0.1:0"
REGISTERED_TIMEOUT_S = 60.0
FILE_SIZES = (
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeTimerLog",
    "maxHashSlotNum",
    "maxIndexNum",
)
# Small files, so that rolling to the next one is part of every test.
OFFICIAL_PROPERTIES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}
READY_LINE = re.compile(r"^ready namesrv=(?P<namesrv>\S+) broker=(?P<broker>\S+) cold=(?P<cold>\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One NameServer with one broker, and an agent to drive clients against it."""

    kind: str
    namesrv: str
    """What clients are given: the NameServer, or a proxy in its place."""
    broker_address: str
    agent: JavaAgent
    # The process that serves; killing it is a crash of the broker (of Thermocline's NameServer too: it is in there).
    process: ChildProcess
    cluster_name: str = CLUSTER_NAME
    broker_name: str = BROKER_NAME
    name_server: str = ""
    """What tools are given where clients are given a proxy."""

    @property
    def tools_namesrv(self) -> str:
        """The NameServer itself."""
        return self.name_server or self.namesrv

    def admin(self, command: str, *arguments: str) -> str:
        """Run an mqadmin command here and return what it printed."""
        return self.agent.admin(self.tools_namesrv, command, *arguments)

    def make_topic(self, topic: str, *, queue_count: int = 4) -> str:
        """Create a topic and return its name."""
        count = str(queue_count)
        printed = self.admin("updateTopic", "-c", self.cluster_name, "-t", topic, "-r", count, "-w", count)
        assert "success" in printed, printed
        return topic


def wait_until_registered(agent: JavaAgent, namesrv: str, broker_address: str) -> None:
    """Return when the NameServer lists the broker with its topics."""
    wait_until(
        lambda: broker_address in agent.admin(namesrv, "topicRoute", "-t", "TBW102"),
        what=f"{broker_address} registers with {namesrv}",
        timeout_s=REGISTERED_TIMEOUT_S,
    )


@contextlib.contextmanager
def official_cluster(
    software: OfficialSoftware,
    agent: JavaAgent,
    directory: Path,
    *,
    store_directory: Path | None = None,
    properties: Mapping[str, str] = OFFICIAL_PROPERTIES,
    ends_cleanly: bool = False,
) -> Iterator[Cluster]:
    """The official NameServer and broker, over a store directory of theirs or over one that is there already."""
    with official_daemons(
        software, directory, store_directory=store_directory, properties=properties, ends_cleanly=ends_cleanly
    ) as daemons:
        wait_until_registered(agent, daemons.namesrv, daemons.broker_address)
        yield Cluster(
            kind=OFFICIAL,
            namesrv=daemons.namesrv,
            broker_address=daemons.broker_address,
            agent=agent,
            process=daemons.process,
        )
        agent.call("stop_producers", namesrv=daemons.namesrv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemons:
    """Where a NameServer and a broker serve, and the process to end."""

    namesrv: str
    broker_address: str
    process: ChildProcess


@contextlib.contextmanager
def official_daemons(
    software: OfficialSoftware,
    directory: Path,
    *,
    store_directory: Path | None = None,
    properties: Mapping[str, str] = OFFICIAL_PROPERTIES,
    ends_cleanly: bool = False,
) -> Iterator[Daemons]:
    """The official pair; it may not have registered yet."""
    with (
        official_namesrv(software, directory / "namesrv") as namesrv,
        official_broker(
            software,
            directory / "broker",
            namesrv_address=namesrv.address,
            store_directory=store_directory or directory / "store",
            properties=properties,
            ends_cleanly=ends_cleanly,
        ) as broker,
    ):
        yield Daemons(namesrv=namesrv.address, broker_address=broker.address, process=broker.process)


@contextlib.contextmanager
def thermocline_daemons(
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    namesrv: str = FREE_PORT,
    listen: str = FREE_PORT,
    words: Sequence[str] = (),
) -> Iterator[Daemons]:
    """`thermocline dev` with a `file://` cold tier, and further options; its store is in `directory`/data.

    With addresses of its own it can be started again where clients look for it.
    """
    (directory / "data").mkdir(parents=True, exist_ok=True)
    (directory / "cold").mkdir(exist_ok=True)
    process = ChildProcess(
        [
            str(Path(sys.executable).parent / "thermocline"),
            "dev",
            *("--data", str(directory / "data")),
            *("--namesrv", namesrv),
            *("--listen", listen),
            *("--cold", (directory / "cold").as_uri()),
            *words,
        ],
        log_path=directory / "dev.log",
        working_directory=directory,
        environment=settings_environment(settings or {}),
    )
    try:
        process.wait_until(lambda: READY_LINE.search(process.output()) is not None, timeout_s=READY_TIMEOUT_S)
        ready = READY_LINE.search(process.output())
        assert ready is not None
        yield Daemons(namesrv=ready["namesrv"], broker_address=ready["broker"], process=process)
    finally:
        process.stop()


@contextlib.contextmanager
def thermocline_broker(directory: Path, *, name: str, namesrv: str) -> Iterator[ChildProcess]:
    """One more broker for a NameServer; its store is in `directory`/store and outlives it."""
    directory.mkdir(parents=True, exist_ok=True)
    process = ChildProcess(
        [
            *(str(Path(sys.executable).parent / "thermocline"), "broker", "--name", name, "--namesrv", namesrv),
            *("--data", str(directory / "store"), "--listen", FREE_PORT, "--cold", (directory / "cold").as_uri()),
        ],
        log_path=directory / "broker.log",
        working_directory=directory,
    )
    try:
        process.wait_until(lambda: "ready broker=" in process.output(), timeout_s=READY_TIMEOUT_S)
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def cluster_with(daemons: Daemons, agent: JavaAgent) -> Iterator[Cluster]:
    """Our daemons that run, with an agent to drive clients against them."""
    wait_until_registered(agent, daemons.namesrv, daemons.broker_address)
    yield Cluster(
        kind=THERMOCLINE,
        namesrv=daemons.namesrv,
        broker_address=daemons.broker_address,
        agent=agent,
        process=daemons.process,
    )
    agent.call("stop_producers", namesrv=daemons.namesrv)


@contextlib.contextmanager
def thermocline_cluster(
    agent: JavaAgent, directory: Path, *, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """`thermocline_daemons` with an agent to drive clients against them."""
    with thermocline_daemons(directory, settings=settings) as daemons, cluster_with(daemons, agent) as cluster:
        yield cluster


@contextlib.contextmanager
def cluster_of(
    kind: str,
    software: OfficialSoftware,
    agent: JavaAgent,
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    official_settings: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster of either kind; `settings` go to both, `official_settings` to the official broker besides."""
    settings = settings or {}
    if kind == OFFICIAL:
        properties = {**OFFICIAL_PROPERTIES, **settings, **(official_settings or {})}
        with official_cluster(software, agent, directory, properties=properties) as official:
            yield official
    else:
        with thermocline_cluster(agent, directory, settings=settings) as ours:
            yield ours


def settings_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Broker settings by property name, as environment variables."""
    return {
        "THERMOCLINE_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace(".", "_").upper(): value
        for name, value in settings.items()
    }


def broker_config(cluster: Cluster) -> dict[str, str]:
    """The broker's settings as it shows them to mqadmin."""
    printed = cluster.admin("getBrokerConfig", "-b", cluster.broker_address)
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in printed.splitlines())}


def store_directory_of(cluster: Cluster) -> tuple[Path, dict[str, str]]:
    """The directory of the cluster's store, and the file sizes with which a broker must open it."""
    config = broker_config(cluster)
    return Path(config["storePathRootDir"]), {name: config[name] for name in FILE_SIZES}


def read_store_with_official_broker(
    software: OfficialSoftware,
    agent: JavaAgent,
    directory: Path,
    *,
    store_directory: Path,
    topics: Sequence[str],
    properties: Mapping[str, str],
) -> dict[str, list[ReceivedMessage]]:
    """Start the official broker on a store that another program wrote and read every message of the topics with it.

    `properties` must hold the file sizes that the store was written with, or the broker refuses the files.
    """
    with official_cluster(
        software, agent, directory, store_directory=store_directory, properties=properties
    ) as cluster:
        return {topic: agent.read_topic(cluster.namesrv, topic) for topic in topics}
