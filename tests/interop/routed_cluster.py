"""A cluster behind a proxy of ours whose rule sends everything to it, as a named one.

The default cluster is a NameServer without brokers, so what does not go by the rule fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cluster import Cluster, cluster_of
from tests.interop.java_agent import JavaAgent
from tests.interop.killable_broker import name_server
from tests.interop.proxy_daemons import remoting_address, running_proxy
from tests.proxy.two_clusters import write_rules
from tooling.official_rocketmq import OfficialSoftware


def routed_cluster(settings: Mapping[str, str], proxy_settings: Mapping[str, str]) -> Any:
    """A module's fixture. `settings`: the broker's."""

    @pytest.fixture(scope="module")
    def cluster(
        cluster_kind: str, official_software: OfficialSoftware, java_agent_process: JavaAgent, module_folder: Path
    ) -> Iterator[Cluster]:
        directory = module_folder / cluster_kind
        rules_path = module_folder / f"{cluster_kind}-rules.json"
        write_rules(rules_path, {"topic": "*", "cluster": "east"})
        with (
            cluster_of(cluster_kind, official_software, java_agent_process, directory, settings=settings) as behind,
            name_server(module_folder / f"{cluster_kind}-empty") as empty,
        ):
            values = {
                "enableTopicMessageTypeCheck": "false",
                "routingClusters": json.dumps([{"name": "east", "namesrvAddr": behind.namesrv}]),
                "routingRulesPath": str(rules_path),
                **proxy_settings,
            }
            with running_proxy(directory / "proxy", namesrv=empty, settings=values) as (_, process):
                proxied = replace(behind, namesrv=remoting_address(process), name_server=behind.namesrv)
                yield proxied
                java_agent_process.call("stop_producers", namesrv=proxied.namesrv)

    return cluster
