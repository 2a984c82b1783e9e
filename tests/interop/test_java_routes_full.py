"""The official Java client 5.x before a proxy whose rule sends everything to a named cluster: tests of classic clients.

Push consumers are served by POP.
"""

from __future__ import annotations

import pytest

from tests.interop import test_java_client, test_java_consumption, test_java_proxy, test_java_transactions
from tests.interop.routed_cluster import routed_cluster

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-proxy")]

cluster = routed_cluster(test_java_proxy.SETTINGS, test_java_proxy.PROXY_SETTINGS)
asking_cluster = test_java_proxy.asking_cluster
name = test_java_proxy.name
producers = test_java_transactions.producers
consumer = test_java_transactions.consumer

test_sends = test_java_proxy.test_sends
test_order = test_java_proxy.test_order
test_retry = test_java_proxy.test_retry
test_broadcast = test_java_proxy.test_broadcast
test_request_and_reply = test_java_proxy.test_request_and_reply
test_checks = test_java_proxy.test_checks
test_orderly_retry = test_java_consumption.test_an_orderly_queue_waits_for_its_failed_message
test_order_taken_over = test_java_consumption.test_order_is_kept_when_another_consumer_takes_over
test_back_to_a_time = test_java_consumption.test_a_live_group_goes_back_to_a_time
test_lite_pull = test_java_client.test_the_lite_pull_consumer_reads_everything
test_transactions = test_java_transactions.test_committed_messages_arrive_and_others_do_not
test_stuck = test_java_proxy.test_a_stuck_consumer_delays_only_its_own_messages
