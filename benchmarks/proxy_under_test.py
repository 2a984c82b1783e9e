"""A proxy for gRPC with all that is behind it: ours in both deployments, and the official one in both of its modes.

merged            `thermocline dev --proxy`: NameServer, broker and proxy in one process group
separate          `thermocline dev`, and `thermocline proxy`
routed            the same with a second cluster and 200 routing rules, of which the last one matches
official local    the official NameServer; broker and proxy in one JVM
official cluster  the official NameServer, broker and proxy, a JVM each
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_under_test import (
    OFFICIAL,
    READY_TIMEOUT_S,
    BrokerUnderTest,
    awake_at_the_end,
    start_thermocline,
)
from thermocline.client import AdminClient
from thermocline.localstack.child_process import ChildProcess
from thermocline.remoting.bodies import SubscriptionGroupConfig
from tooling.java_libraries import OFFICIAL_ROCKETMQ_PROXY, find_jars
from tooling.official_rocketmq import OfficialSoftware, official_broker, official_namesrv, official_proxy
from tooling.system_packages import find_java_home

MERGED, SEPARATE, ROUTED, LOCAL, CLUSTER = "merged", "separate", "routed", "official local", "official cluster"
OURS = (MERGED, SEPARATE, ROUTED)
DEPLOYMENTS = (*OURS, LOCAL, CLUSTER)
PEERS = {MERGED: LOCAL, SEPARATE: CLUSTER, ROUTED: SEPARATE}
"""What each of ours is compared with."""
RULES = 200
JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g")
READY_PROXY = re.compile(r"^ready .*\bproxy=(?P<address>\S+)", re.MULTILINE)
QUEUES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyUnderTest:
    """A deployment. `broker`: all of its processes, the NameServer's and the proxy's among them."""

    name: str
    endpoint: str
    broker: BrokerUnderTest
    proxy_process: ChildProcess
    """The proxy's, or the one whose group it is in."""

    def make_topic(self, topic: str) -> None:
        """Make a topic for NORMAL messages."""
        with AdminClient(namesrv=self.broker.namesrv) as admin:
            admin.create_topic(topic, queue_nums=QUEUES, attributes={"message.type": "NORMAL"})

    def make_group(self, group: str) -> None:
        """Make a consumer group."""
        with AdminClient(namesrv=self.broker.namesrv) as admin:
            admin.create_group(SubscriptionGroupConfig(group_name=group))

    def proxy_ids(self) -> list[int]:
        """The processes that serve gRPC."""
        if self.name == MERGED:
            return self.broker.helper_ids("thermocline.broker.proxy_process")
        return [self.proxy_process.process_id]


def named_deployments(parser: argparse.ArgumentParser, text: str) -> list[str]:
    """The deployments of an option's value, which names them with commas between; the program ends on another name."""
    names = [name.strip() for name in text.split(",")]
    if unknown := {*names} - {*DEPLOYMENTS}:
        parser.error(f"no deployment: {', '.join(sorted(unknown))}; there are: {', '.join(DEPLOYMENTS)}")
    return names


def software_for(names: Iterable[str]) -> OfficialSoftware | None:
    """The official software, if one of these deployments needs it.

    Raises:
        ToolMissingError: It is missing, or Java is.
    """
    if {*names} <= {*OURS}:
        return None
    return OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ_PROXY))


@contextlib.contextmanager
def start_proxy(
    name: str,
    directory: Path,
    *,
    software: OfficialSoftware | None,
    properties: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[ProxyUnderTest]:
    """Start a deployment. `software`: for the official ones. `properties` of the broker; `settings` of our proxy."""
    directory.mkdir(parents=True, exist_ok=True)
    if name in OURS:
        with _start_ours(name, directory, properties or {}, settings or {}) as ours:
            yield ours
    else:
        assert software is not None
        with _start_official(name, directory, software, properties or {}) as theirs:
            yield theirs


@contextlib.contextmanager
def _start_ours(
    name: str, directory: Path, properties: Mapping[str, str], settings: Mapping[str, str]
) -> Iterator[ProxyUnderTest]:
    values = {"grpcServerPort": "0", "remotingListenPort": "-1", **settings}
    merged: Sequence[str] = ["--proxy", *_words("--proxy-set", values)] if name == MERGED else []
    with start_thermocline(directory / "broker", properties=properties, cold_url="none", words=merged) as broker:
        if name == MERGED:
            (process,) = broker.processes
            yield ProxyUnderTest(name=name, endpoint=_ready(process), broker=broker, proxy_process=process)
            return
        if name == ROUTED:
            values.update(_routing_settings(directory, broker.namesrv))
        program = str(Path(sys.executable).parent / "thermocline")
        process = ChildProcess(
            [program, "proxy", "--namesrv", broker.namesrv, *_words("--set", values)],
            log_path=directory / "proxy.log",
            working_directory=directory,
        )
        try:
            process.wait_until(lambda: READY_PROXY.search(process.output()) is not None, timeout_s=READY_TIMEOUT_S)
            both = BrokerUnderTest(
                kind=broker.kind,
                address=broker.address,
                namesrv=broker.namesrv,
                processes=(*broker.processes, process),
            )
            with awake_at_the_end(both):
                yield ProxyUnderTest(name=name, endpoint=_ready(process), broker=both, proxy_process=process)
        finally:
            process.stop()


@contextlib.contextmanager
def _start_official(
    name: str, directory: Path, software: OfficialSoftware, properties: Mapping[str, str]
) -> Iterator[ProxyUnderTest]:
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(official_namesrv(software, directory / "namesrv"))
        processes = [namesrv.process]
        store: Path | None = directory / "store"
        if name == CLUSTER:
            broker = stack.enter_context(
                official_broker(
                    software,
                    directory / "broker",
                    namesrv_address=namesrv.address,
                    store_directory=directory / "store",
                    properties=properties,
                    jvm_options=JVM_OPTIONS,
                )
            )
            processes.append(broker.process)
            store = None
            _wait_registered(broker.process, namesrv.address)
        proxy = stack.enter_context(
            official_proxy(
                software,
                directory / "proxy",
                namesrv_address=namesrv.address,
                store_directory=store,
                properties=properties,
                jvm_options=JVM_OPTIONS,
            )
        )
        both = BrokerUnderTest(
            kind=OFFICIAL,
            address=_broker_address(namesrv.address),
            namesrv=namesrv.address,
            processes=(proxy.process, *processes),
        )
        with awake_at_the_end(both):
            yield ProxyUnderTest(name=name, endpoint=proxy.address, broker=both, proxy_process=proxy.process)


def _routing_settings(directory: Path, namesrv: str) -> dict[str, str]:
    """A second cluster, for which the first one's NameServer stands, and rules."""
    path = directory / "rules.json"
    rules = [{"topic": f"Other{number}*", "group": f"team{number}*", "cluster": "other"} for number in range(RULES - 1)]
    path.write_text(json.dumps({"rules": [*rules, {"topic": "Proxy*", "cluster": "default"}]}))
    clusters = json.dumps([{"name": "other", "namesrvAddr": namesrv}])
    return {"routingClusters": clusters, "routingRulesPath": str(path)}


def _wait_registered(broker: ChildProcess, namesrv: str) -> None:
    """Return when the broker has registered: the official proxy ends at once where no cluster is there."""
    with AdminClient(namesrv=namesrv) as admin:
        broker.wait_until(lambda: bool(admin.cluster_info()), timeout_s=READY_TIMEOUT_S)


def _broker_address(namesrv: str) -> str:
    with AdminClient(namesrv=namesrv) as admin:
        (broker,) = admin.cluster_info()
        return broker.address


def _ready(process: ChildProcess) -> str:
    found = READY_PROXY.search(process.output())
    assert found is not None
    return found["address"]


def _words(option: str, values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (option, f"{name}={value}")]
