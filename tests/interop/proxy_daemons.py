"""A NameServer, a broker and a proxy, by itself in front of them or in the broker's process group, as processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cluster import FREE_PORT, READY_TIMEOUT_S, Cluster, cluster_of, thermocline_daemons
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import SIGNS_OF_BUGS, daemon
from tests.interop.merged_broker import (
    PROXY_SETTINGS,
    assignments,
    merged_endpoint,
    merged_remoting_address,
    merged_words,
)
from thermocline.localstack.child_process import ChildProcess
from tooling.official_rocketmq import OfficialSoftware

READY_LINE = re.compile(r"^ready proxy=(?P<address>\S+)(?: remoting=(?P<remoting>\S+))?$", re.MULTILINE)
SEPARATE, MERGED = "separate", "merged"
DEPLOYMENTS = (SEPARATE, pytest.param(MERGED, marks=pytest.mark.full))
"""The parameters of a fixture; what differs between them is in test_merged_proxy.py."""
BROKER_SETTINGS = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "waitTimeMillsInSendQueue": "10000",  # on a busy machine clients meet no flow control
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyDaemons:
    """Where they serve."""

    namesrv: str
    endpoint: str
    """The proxy's, for gRPC."""
    remoting: str
    """The proxy's, for remoting clients."""
    process: ChildProcess
    """The proxy, with the others if it is merged."""


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
    words = assignments("--set", {**PROXY_SETTINGS, **(settings or {})})
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


def proxied_cluster(settings: Mapping[str, str], proxy_settings: Mapping[str, str] | None = None) -> Any:
    """A module's fixture: a cluster of either kind behind a proxy of ours. `settings`: the broker's."""

    @pytest.fixture(scope="module")
    def cluster(
        cluster_kind: str, official_software: OfficialSoftware, java_agent_process: JavaAgent, module_folder: Path
    ) -> Iterator[Cluster]:
        directory = module_folder / cluster_kind
        with (
            cluster_of(cluster_kind, official_software, java_agent_process, directory, settings=settings) as behind,
            through_proxy(behind, directory, settings=proxy_settings) as found,
        ):
            yield found

    return cluster


@contextlib.contextmanager
def proxy_daemons(
    directory: Path, deployment: str = SEPARATE, *, settings: Mapping[str, str] | None = None
) -> Iterator[ProxyDaemons]:
    """All three. `settings`: of the proxy."""
    if deployment == SEPARATE:
        with (
            thermocline_daemons(directory, settings=BROKER_SETTINGS) as daemons,
            running_proxy(directory, namesrv=daemons.namesrv, settings=settings) as (endpoint, process),
        ):
            yield ProxyDaemons(
                namesrv=daemons.namesrv, endpoint=endpoint, remoting=remoting_address(process), process=process
            )
    else:
        with thermocline_daemons(directory, settings=BROKER_SETTINGS, words=merged_words(settings=settings)) as daemons:
            process = daemons.process
            yield ProxyDaemons(
                namesrv=daemons.namesrv,
                endpoint=merged_endpoint(process),
                remoting=merged_remoting_address(process),
                process=process,
            )
            assert not any(sign in process.output() for sign in SIGNS_OF_BUGS)
