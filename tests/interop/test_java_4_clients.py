"""The official Java clients 4.9: the tests of clients 5.x, each feature once, that both generations have.

What 4.9 has not is left out: POP, timed messages, recall. One broker with the settings of all these tests serves them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop import (
    test_java_client,
    test_java_consumption,
    test_java_filters,
    test_java_load_balancing,
    test_java_transactions,
    test_trace,
)
from tests.interop.cluster import Cluster, cluster_of
from tests.interop.java_agent import JavaAgent, JavaClients, java_agent
from tests.interop.transaction_producers import OFFICIAL_NOTES
from tooling.java_libraries import find_jars
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-4")]

SETTINGS = {**test_java_filters.SETTING, **test_java_transactions.SETTINGS, "traceTopicEnable": "true"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def java_agent_process(
    official_software: OfficialSoftware, new_module_folder: Callable[[str], Path]
) -> Iterator[JavaAgent]:
    """The JVM with clients 4.9 in it."""
    software = replace(official_software, jars=have(lambda: find_jars(JavaClients.V4.jars_name)))
    with java_agent(software, new_module_folder("java-4"), clients=JavaClients.V4) as agent:
        yield agent


@pytest.fixture(scope="module")
def cluster(
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    module_folder: Path,
) -> Iterator[Cluster]:
    """A NameServer and a broker of today, with mqadmin 4.9 beside the clients."""
    directory = module_folder / cluster_kind
    with cluster_of(
        cluster_kind,
        official_software,
        java_agent_process,
        directory,
        settings=SETTINGS,
        official_settings=OFFICIAL_NOTES,
    ) as found:
        yield found


@pytest.fixture
def asking_cluster(cluster: Cluster) -> Cluster:
    return cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Java4x{next(_numbers)}x{request.node.originalname[5:35]}"


test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_the_first_send_creates_the_topic = test_java_client.test_the_first_send_creates_the_topic
test_two_consumers = test_java_client.test_two_push_consumers_share_the_queues_and_one_takes_over
test_tags = test_java_client.test_tags_are_filtered
test_order = test_java_client.test_an_orderly_consumer_sees_each_queue_in_order
test_retry = test_java_client.test_a_refused_message_comes_again_by_the_retry_topic
test_delay_level = test_java_client.test_a_delayed_message_is_not_early
test_lite_pull = test_java_client.test_the_lite_pull_consumer_reads_everything
test_offsets_by_time = test_java_client.test_offsets_are_found_by_time

test_dead_letters = test_java_consumption.test_a_message_that_always_fails_ends_as_a_dead_letter
test_orderly_retry = test_java_consumption.test_an_orderly_queue_waits_for_its_failed_message
test_broadcast = test_java_consumption.test_each_broadcasting_consumer_gets_everything
test_request_and_reply = test_java_consumption.test_a_request_gets_its_reply
test_compression = test_java_consumption.test_bodies_come_back_whole_however_they_are_compressed
test_largest_body = test_java_consumption.test_the_largest_body_is_taken_and_one_byte_more_is_not
test_beginnings = test_java_consumption.test_a_new_group_begins_where_it_asks_to
test_back_to_a_time = test_java_consumption.test_a_live_group_goes_back_to_a_time

test_sql_push = test_java_filters.test_the_official_example
test_sql_pull = test_java_filters.test_pull_consumers

producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_transactions = test_java_transactions.test_committed_messages_arrive_and_others_do_not
test_checks = test_java_transactions.test_an_undecided_transaction_is_checked_until_it_is_decided

test_traces = test_trace.test_the_official_clients_traces_are_found

start = test_java_load_balancing.start
test_a_dead_broker = test_java_load_balancing.test_a_producer_goes_round_a_broker_that_has_died


@pytest.mark.full
def test_order_through_a_crash(java_agent_process: JavaAgent, tmp_path: Path, name: str) -> None:
    """Not by assignment, which would take its worker along: the client here is another one.

    A client 4.9 waits 30 s for the answer to the pull that the crash has cut off.
    """
    test_java_consumption.test_order_is_kept_when_the_broker_is_killed(java_agent_process, tmp_path, name)
