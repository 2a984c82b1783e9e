"""This project's SDK with a proxy as its NameServer and broker: its tests of classic clients."""

from __future__ import annotations

import pytest

from tests.interop import test_java_proxy, test_python_sdk

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("java-proxy")]

cluster = test_java_proxy.cluster
name = test_java_proxy.name

test_sends = test_python_sdk.test_every_way_to_send_is_read_back_by_the_official_client
test_lingering = test_python_sdk.test_lingering_batches_and_automatic_topics
test_tags = test_python_sdk.test_tags
test_failures = test_python_sdk.test_failures_come_again_and_end_in_the_dead_letter_topic
test_order = test_python_sdk.test_order_survives_failures_and_a_change_of_members
test_pulls = test_python_sdk.test_pull_consumers_subscribe_assign_seek_and_commit
test_reset = test_python_sdk.test_a_reset_moves_a_running_group
test_request = test_python_sdk.test_a_request_of_the_sdk_is_answered_by_the_official_client
test_reply = test_python_sdk.test_a_request_of_the_official_client_is_answered_by_the_sdk
test_no_reply = test_python_sdk.test_a_request_without_a_reply_ends_in_time
