"""More of test_access_features.py: what takes seconds each."""

from __future__ import annotations

import pytest

from tests.interop import (
    test_access_features,
    test_java_client,
    test_java_consumption,
    test_java_pop,
    test_python_sdk,
    test_trace,
)

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("secured")]

java_agent_process = test_access_features.java_agent_process
cluster = test_access_features.cluster
name = test_access_features.name
asking_cluster = test_access_features.asking_cluster

test_retry = test_java_client.test_a_refused_message_comes_again_by_the_retry_topic
test_large_bodies = test_java_client.test_large_bodies_are_compressed_by_the_client_and_come_back_whole
test_dead_letters = test_java_consumption.test_a_message_that_always_fails_ends_as_a_dead_letter

start_pop = test_java_pop.start_pop
test_pop_push = test_java_pop.test_a_push_consumer_in_pop_mode_acknowledges_and_retries
test_batch_acknowledgement = test_java_pop.test_many_are_acknowledged_at_once
test_invisible_time = test_java_pop.test_the_invisible_time_can_be_changed

test_traces = test_trace.test_the_official_clients_traces_are_found

test_order = test_java_client.test_an_orderly_consumer_sees_each_queue_in_order
test_sdk_sends = test_python_sdk.test_every_way_to_send_is_read_back_by_the_official_client
test_sdk_request = test_python_sdk.test_a_request_of_the_sdk_is_answered_by_the_official_client
