"""The official Java client 5.x through a proxy that passes pulls on: all its tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import (
    test_java_client,
    test_java_consumption,
    test_java_filters,
    test_java_pop,
    test_java_proxy,
    test_java_transactions,
    test_trace,
)
from tests.interop.cluster import Cluster
from tests.interop.java_agent import JavaAgent
from tests.interop.proxy_daemons import cluster_through_proxy
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-proxy-full")]

PROXY_SETTINGS = {"remotingPushByPop": "false"}


@pytest.fixture(scope="module")
def cluster(
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    module_folder: Path,
) -> Iterator[Cluster]:
    """A NameServer, a broker, and a proxy in front."""
    with cluster_through_proxy(
        cluster_kind,
        official_software,
        java_agent_process,
        module_folder / cluster_kind,
        settings=test_java_proxy.SETTINGS,
        proxy_settings=PROXY_SETTINGS,
    ) as found:
        yield found


asking_cluster = test_java_proxy.asking_cluster
name = test_java_proxy.name

test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_order = test_java_client.test_an_orderly_consumer_sees_each_queue_in_order
test_retry = test_java_client.test_a_refused_message_comes_again_by_the_retry_topic
test_batches = test_java_client.test_a_batch_takes_consecutive_offsets_of_one_queue
test_the_first_send_creates_the_topic = test_java_client.test_the_first_send_creates_the_topic
test_large_bodies = test_java_client.test_large_bodies_are_compressed_by_the_client_and_come_back_whole
test_two_consumers = test_java_client.test_two_push_consumers_share_the_queues_and_one_takes_over
test_continues = test_java_client.test_a_consumer_continues_where_its_group_stopped
test_tags = test_java_client.test_tags_are_filtered
test_delay_level = test_java_client.test_a_delayed_message_is_not_early
test_lite_pull = test_java_client.test_the_lite_pull_consumer_reads_everything
test_offsets_by_time = test_java_client.test_offsets_are_found_by_time

test_dead_letters = test_java_consumption.test_a_message_that_always_fails_ends_as_a_dead_letter
test_orderly_retry = test_java_consumption.test_an_orderly_queue_waits_for_its_failed_message
test_order_taken_over = test_java_consumption.test_order_is_kept_when_another_consumer_takes_over
test_broadcast = test_java_consumption.test_each_broadcasting_consumer_gets_everything
test_request_and_reply = test_java_consumption.test_a_request_gets_its_reply
test_no_reply = test_java_consumption.test_a_request_without_an_answer_ends_in_time
test_compression = test_java_consumption.test_bodies_come_back_whole_however_they_are_compressed
test_largest_body = test_java_consumption.test_the_largest_body_is_taken_and_one_byte_more_is_not
test_beginnings = test_java_consumption.test_a_new_group_begins_where_it_asks_to
test_back_to_a_time = test_java_consumption.test_a_live_group_goes_back_to_a_time

test_sql_push = test_java_filters.test_the_official_example
test_sql_examples = test_java_filters.test_the_examples_of_the_official_documentation
test_sql_pull = test_java_filters.test_pull_consumers
test_sql_retries = test_java_filters.test_messages_that_come_back_do_so_whatever_the_expression
test_sql_change = test_java_filters.test_a_group_may_change_its_expression
test_invalid_expression = test_java_filters.test_an_invalid_expression_is_an_error_when_the_consumer_starts

producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_transactions = test_java_transactions.test_committed_messages_arrive_and_others_do_not
test_checks = test_java_transactions.test_an_undecided_transaction_is_checked_until_it_is_decided
test_another_producer = test_java_transactions.test_another_producer_of_the_group_is_asked
test_immunity = test_java_transactions.test_an_immunity_time_of_its_own_is_waited_for

test_traces = test_trace.test_the_official_clients_traces_are_found

start_pop = test_java_pop.start_pop
test_pop_mode = test_java_pop.test_a_push_consumer_in_pop_mode_acknowledges_and_retries
test_pop_shares = test_java_pop.test_four_consumers_share_three_queues
test_pop_stuck = test_java_pop.test_a_stuck_consumer_delays_only_its_own_messages
test_pop_redelivery = test_java_pop.test_an_unacknowledged_message_is_redelivered_after_its_invisible_time
test_pop_batch_ack = test_java_pop.test_many_are_acknowledged_at_once
test_pop_invisible_time = test_java_pop.test_the_invisible_time_can_be_changed
test_pop_wait = test_java_pop.test_a_wait_ends_when_a_message_arrives
test_pop_tags = test_java_pop.test_tags_are_filtered
test_pop_order = test_java_pop.test_ordered_pop_gives_nothing_of_a_queue_until_all_before_is_acknowledged
test_pop_order_goes_on = test_java_pop.test_ordered_pop_goes_on_when_all_is_acknowledged
