"""Java clients 4.9 with TLS and access control: what they have of test_access_features.py. They have no POP."""

from __future__ import annotations

import pytest

from tests.interop import (
    test_access_features,
    test_java_client,
    test_java_consumption,
    test_java_transactions,
    test_trace,
)
from tests.interop.java_agent import JavaAgent

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("secured")]


@pytest.fixture(scope="module")
def java_agent_process(secured_java_4: JavaAgent) -> JavaAgent:
    return secured_java_4


cluster = test_access_features.cluster
name = test_access_features.name
asking_cluster = test_access_features.asking_cluster

test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_lite_pull = test_java_client.test_the_lite_pull_consumer_reads_everything
test_request_and_reply = test_java_consumption.test_a_request_gets_its_reply

producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_transactions = test_java_transactions.test_committed_messages_arrive_and_others_do_not

test_traces = pytest.mark.full(test_trace.test_the_official_clients_traces_are_found)
