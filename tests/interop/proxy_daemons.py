"""A NameServer, a broker and a proxy in front of them, as processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.interop.cluster import FREE_PORT, READY_TIMEOUT_S, Cluster, cluster_of, thermocline_daemons
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import SIGNS_OF_BUGS, daemon
from thermocline.localstack.child_process import ChildProcess
from tooling.official_rocketmq import OfficialSoftware

READY_LINE = re.compile(r"^ready proxy=(?P<address>\S+)(?: remoting=(?P<remoting>\S+))?$", re.MULTILINE)
BROKER_SETTINGS = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
}

PROXY_SETTINGS = {
    "remotingListenPort": "0",
    "grpcShutdownTimeSeconds": "5",
    "topicRouteServiceCacheRefreshSeconds": "1",
    "grpcClientConsumerMinLongPollingTimeoutMillis": "500",
    "grpcClientConsumerMaxLongPollingTimeoutMillis": "1000",
}
"""Short polls: a Java push consumer waits for its polls when it is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyDaemons:
    """Where they serve."""

    namesrv: str
    endpoint: str
    """The proxy's, for gRPC."""
    remoting: str
    """The proxy's, for remoting clients."""
    process: ChildProcess
    """The proxy."""


@contextlib.contextmanager
def running_proxy(
    directory: Path,
    *,
    namesrv: str,
    settings: Mapping[str, str] | None = None,
    config: Path | None = None,
    listen: str = FREE_PORT,
    is_killed: bool = False,
) -> Iterator[tuple[str, ChildProcess]]:
    """`thermocline proxy`, ended at last by SIGTERM, or killed: its address and process.

    Fails when it logged a bug of ours.
    """
    directory.mkdir(parents=True, exist_ok=True)
    assignments = {**PROXY_SETTINGS, **(settings or {})}
    words = [word for name, value in assignments.items() for word in ("--set", f"{name}={value}")]
    if config is not None:
        words += ["--config", str(config)]
    process = daemon("proxy", "--namesrv", namesrv, "--listen", listen, *words, directory=directory)
    try:
        process.wait_until(lambda: READY_LINE.search(process.output()) is not None, timeout_s=READY_TIMEOUT_S)
        ready = READY_LINE.search(process.output())
        assert ready is not None
        yield ready["address"], process
        if is_killed:
            process.kill()
        else:
            assert process.stop() == 0, process.output()[-3_000:]
        assert not any(sign in process.output() for sign in SIGNS_OF_BUGS), process.output()[-5_000:]
    finally:
        process.kill()


def remoting_address(process: ChildProcess) -> str:
    """Where a running proxy serves remoting clients."""
    ready = READY_LINE.search(process.output())
    assert ready is not None
    return ready["remoting"]


@contextlib.contextmanager
def through_proxy(cluster: Cluster, directory: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """The same cluster, whose clients are given a proxy in place of the NameServer.

    Delayed and transactional messages go to topics of any type, as tests of brokers make them.
    """
    assignments = {"enableTopicMessageTypeCheck": "false", **(settings or {})}
    with running_proxy(directory / "proxy", namesrv=cluster.namesrv, settings=assignments) as (_, process):
        proxied = replace(cluster, namesrv=remoting_address(process), name_server=cluster.namesrv)
        yield proxied
        cluster.agent.call("stop_producers", namesrv=proxied.namesrv)


@contextlib.contextmanager
def cluster_through_proxy(
    kind: str,
    software: OfficialSoftware,
    agent: JavaAgent,
    directory: Path,
    *,
    settings: Mapping[str, str],
    proxy_settings: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster of either kind behind a proxy of ours; `settings`: the brokers'."""
    with (
        cluster_of(kind, software, agent, directory, settings=settings) as behind,
        through_proxy(behind, directory, settings=proxy_settings) as found,
    ):
        yield found


@contextlib.contextmanager
def proxy_daemons(directory: Path) -> Iterator[ProxyDaemons]:
    """All three."""
    with (
        thermocline_daemons(directory, settings=BROKER_SETTINGS) as daemons,
        running_proxy(directory, namesrv=daemons.namesrv) as (endpoint, process),
    ):
        yield ProxyDaemons(
            namesrv=daemons.namesrv, endpoint=endpoint, remoting=remoting_address(process), process=process
        )
