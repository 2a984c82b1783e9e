"""The official Java clients 4.9 through a proxy that passes pulls on: all their tests but those that kill brokers."""

from __future__ import annotations

import pytest

from tests.interop import (
    test_java_4_clients,
    test_java_4_proxy,
    test_java_client,
    test_java_consumption,
    test_java_filters,
    test_java_transactions,
    test_trace,
)
from tests.interop.proxy_daemons import proxied_cluster
from tests.interop.test_java_proxy_full import PROXY_SETTINGS

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-4")]

java_agent_process = test_java_4_clients.java_agent_process
asking_cluster = test_java_4_proxy.asking_cluster
name = test_java_4_proxy.name


cluster = proxied_cluster(test_java_4_clients.SETTINGS, PROXY_SETTINGS)


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
