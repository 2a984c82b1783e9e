"""The official Java clients 4.9 with a proxy as their NameServer and broker: a part of their tests.

The others: test_java_4_proxy_full.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import test_java_4_clients, test_java_client, test_java_transactions
from tests.interop.cluster import Cluster
from tests.interop.java_agent import JavaAgent
from tests.interop.proxy_daemons import cluster_through_proxy
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-4")]

_numbers = itertools.count(1)

java_agent_process = test_java_4_clients.java_agent_process


@pytest.fixture(scope="module")
def cluster(
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    module_folder: Path,
) -> Iterator[Cluster]:
    """A NameServer and a broker of today, and a proxy in front."""
    with cluster_through_proxy(
        cluster_kind,
        official_software,
        java_agent_process,
        module_folder / cluster_kind,
        settings=test_java_4_clients.SETTINGS,
    ) as found:
        yield found


@pytest.fixture
def asking_cluster(cluster: Cluster) -> Cluster:
    return cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Java4P{next(_numbers)}x{request.node.originalname[5:35]}"


test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_retry = test_java_client.test_a_refused_message_comes_again_by_the_retry_topic
test_order = test_java_client.test_an_orderly_consumer_sees_each_queue_in_order

producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_checks = test_java_transactions.test_an_undecided_transaction_is_checked_until_it_is_decided
