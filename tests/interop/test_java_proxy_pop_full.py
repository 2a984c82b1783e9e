"""The official Java client 5.x through a proxy that serves push consumers by POP: more of its tests.

Left out is what POP does otherwise: consumers do not share out the queues, and a dead letter names another topic.
"""

from __future__ import annotations

import pytest

from tests.interop import test_java_client, test_java_consumption, test_java_filters, test_java_proxy

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-proxy-pop")]

cluster = test_java_proxy.cluster
name = test_java_proxy.name

test_the_first_send_creates_the_topic = test_java_client.test_the_first_send_creates_the_topic
test_large_bodies = test_java_client.test_large_bodies_are_compressed_by_the_client_and_come_back_whole
test_continues = test_java_client.test_a_consumer_continues_where_its_group_stopped
test_tags = test_java_client.test_tags_are_filtered
test_delay_level = test_java_client.test_a_delayed_message_is_not_early

test_orderly_retry = test_java_consumption.test_an_orderly_queue_waits_for_its_failed_message
test_order_taken_over = test_java_consumption.test_order_is_kept_when_another_consumer_takes_over
test_compression = test_java_consumption.test_bodies_come_back_whole_however_they_are_compressed
test_beginnings = test_java_consumption.test_a_new_group_begins_where_it_asks_to
test_back_to_a_time = test_java_consumption.test_a_live_group_goes_back_to_a_time

test_sql_push = test_java_filters.test_the_official_example
test_sql_retries = test_java_filters.test_messages_that_come_back_do_so_whatever_the_expression
test_sql_change = test_java_filters.test_a_group_may_change_its_expression
