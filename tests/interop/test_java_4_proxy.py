"""The official Java clients 4.9 with a proxy as their NameServer and broker: a part of their tests.

The others: test_java_4_proxy_full.py.
"""

from __future__ import annotations

import itertools

import pytest

from tests.interop import test_java_4_clients, test_java_client, test_java_transactions
from tests.interop.cluster import Cluster
from tests.interop.proxy_daemons import proxied_cluster

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-4")]

_numbers = itertools.count(1)

java_agent_process = test_java_4_clients.java_agent_process


cluster = proxied_cluster(test_java_4_clients.SETTINGS)


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
