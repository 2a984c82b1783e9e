"""Our broker and the official one, both with access control, and a JVM whose mqadmin signs as super user of both."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.interop.cluster import (
    OFFICIAL,
    OFFICIAL_PROPERTIES,
    THERMOCLINE,
    Cluster,
    official_cluster,
    thermocline_cluster,
    wait_until_registered,
)
from tests.interop.java_agent import java_agent
from tooling.official_rocketmq import OfficialSoftware

ROOT, ROOT_KEY = "root", "the-key-of-root"
SETTINGS: Mapping[str, str] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationMetadataProvider": (
        "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
    "initAuthenticationUser": json.dumps({"username": ROOT, "password": ROOT_KEY}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "the-key-of-brokers"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPair:
    """Both clusters."""

    ours: Cluster
    official: Cluster

    def run(self, line: str) -> tuple[list[str], ...]:
        return tuple(run(cluster, line) for cluster in (self.ours, self.official))


def run(cluster: Cluster, line: str) -> list[str]:
    """The lines that a command prints, without addresses, times and places in source."""
    printed = cluster.admin(*line.format(broker=cluster.broker_address).split())
    printed = printed.replace(cluster.broker_address, "BROKER").replace(cluster.namesrv, "NAMESERVER")
    lines = (" ".join(one.split()) for one in printed.splitlines())
    return sorted(re.sub(r"\d{4}-\d\d-\d\d[ T][\d:.,]+", "TIME", one) for one in lines if one)


@pytest.fixture(scope="module")
def access_pair(running_access_pair: AccessPair) -> Iterator[AccessPair]:
    """The pair, awake while a module uses it: this official broker spins on half a core after its first commit."""
    official = running_access_pair.official
    os.kill(official.process.process_id, signal.SIGCONT)
    wait_until_registered(official.agent, official.namesrv, official.broker_address)
    yield running_access_pair
    os.kill(official.process.process_id, signal.SIGSTOP)


@pytest.fixture(scope="session")
def running_access_pair(
    official_software: OfficialSoftware, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AccessPair]:
    """The running pair."""
    folder = tmp_path_factory.mktemp("access-pair")
    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ROOT}\nsecretKey: {ROOT_KEY}\n")
    users = {"authConfigPath": str(folder / "official-users")}
    with (
        java_agent(official_software, folder / "agent", options=[f"-Drocketmq.home.dir={home}"]) as agent,
        official_cluster(
            official_software, agent, folder / OFFICIAL, properties={**OFFICIAL_PROPERTIES, **SETTINGS, **users}
        ) as official,
        thermocline_cluster(agent, folder / THERMOCLINE, settings=SETTINGS) as ours,
    ):
        yield AccessPair(ours=ours, official=official)
        os.kill(official.process.process_id, signal.SIGCONT)
