"""The official Java client 5.x before a proxy whose rule sends everything to a named cluster: pulls, and its own POP.

What it acknowledges it names by handles that brokers wrote, or that it made of their answers.
"""

from __future__ import annotations

import pytest

from tests.interop import test_java_client, test_java_consumption, test_java_pop, test_java_proxy
from tests.interop.routed_cluster import routed_cluster

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-proxy")]

cluster = routed_cluster(test_java_proxy.SETTINGS, {"remotingPushByPop": "false"})
name = test_java_proxy.name
start_pop = test_java_pop.start_pop

test_retry = test_java_client.test_a_refused_message_comes_again_by_the_retry_topic
test_continues = test_java_client.test_a_consumer_continues_where_its_group_stopped
test_dead_letters = test_java_consumption.test_a_message_that_always_fails_ends_as_a_dead_letter
test_back_to_a_time = test_java_consumption.test_a_live_group_goes_back_to_a_time
test_pop_mode = test_java_pop.test_a_push_consumer_in_pop_mode_acknowledges_and_retries
test_pop_redelivery = test_java_pop.test_an_unacknowledged_message_is_redelivered_after_its_invisible_time
test_pop_batch_ack = test_java_pop.test_many_are_acknowledged_at_once
test_pop_invisible_time = test_java_pop.test_the_invisible_time_can_be_changed
test_pop_order = test_java_pop.test_ordered_pop_goes_on_when_all_is_acknowledged
