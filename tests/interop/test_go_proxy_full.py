"""The official Go client through a proxy that passes pulls on: all its tests but those that kill brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop import (
    test_go_beginnings,
    test_go_client,
    test_go_consumption,
    test_go_order,
    test_go_proxy,
    test_go_transactions,
)
from tests.interop.go_agent import go_agent
from tests.interop.go_driver import GoCluster
from tests.interop.proxy_daemons import remoting_address, running_proxy

pytestmark = [pytest.mark.go, pytest.mark.full, pytest.mark.xdist_group("interop-go")]

go = test_go_proxy.go


@pytest.fixture(scope="module")
def go_proxy(go_cluster: GoCluster, module_folder: Path) -> Iterator[GoCluster]:
    """The shared broker with a proxy in front: clients are given the proxy, tools the NameServer.

    A process of its own has the clients: this client has one writer of traces a process, and ends the process when
    another NameServer is asked.
    """
    settings = test_go_proxy.PROXY_SETTINGS | {"remotingPushByPop": "false"}
    with (
        running_proxy(module_folder, namesrv=go_cluster.namesrv, settings=settings) as (_, process),
        go_agent(module_folder / "agent") as agent,
    ):
        yield replace(go_cluster, namesrv=remoting_address(process), agent=agent)


test_sends = test_go_client.test_every_kind_of_send_arrives_exactly_once
test_pulls = test_go_client.test_a_queue_is_pulled_from_an_offset
test_order = test_go_order.test_an_orderly_consumer_sees_each_shard_in_order
test_broadcast = test_go_consumption.test_each_broadcasting_consumer_gets_everything

test_properties_and_flags = test_go_client.test_properties_and_flags_come_as_they_were_sent
test_the_first_send_creates_the_topic = test_go_client.test_a_topic_is_made_by_its_first_message
test_large_bodies = test_go_client.test_large_bodies_are_compressed_and_come_back_whole
test_largest_body = test_go_client.test_the_largest_body_is_taken_and_one_byte_more_is_not
test_tags = test_go_client.test_tags_are_filtered
test_sql = test_go_client.test_properties_are_filtered
test_sql_pull = test_go_client.test_a_pull_is_filtered_by_properties
test_broken_expression = test_go_client.test_a_broken_expression_is_refused
test_pull_consumer = test_go_client.test_the_pull_consumer_reads_everything
test_traces = test_go_client.test_traces_are_found_by_message

test_delay_level = test_go_consumption.test_a_delayed_message_is_not_early
test_times = test_go_consumption.test_every_way_to_say_when
test_dead_letters = test_go_consumption.test_a_message_that_always_fails_comes_later_each_time_and_ends_as_a_dead_letter
test_chosen_delay = test_go_consumption.test_a_message_comes_again_after_the_delay_that_its_consumer_asks_for
test_two_consumers = test_go_consumption.test_two_consumers_share_the_queues_and_one_takes_over
test_request_and_reply = test_go_consumption.test_a_request_gets_its_reply
test_no_reply = test_go_consumption.test_a_request_without_an_answer_ends_in_time

test_orderly_retry = test_go_order.test_a_queue_waits_for_its_failed_message
test_orderly_end = test_go_order.test_a_message_that_always_fails_is_given_up_and_the_queue_goes_on
test_order_taken_over = test_go_order.test_order_is_kept_when_another_consumer_takes_over

test_transactions = test_go_transactions.test_committed_messages_arrive_and_others_do_not
test_checks = test_go_transactions.test_an_undecided_transaction_is_checked_until_it_is_decided
test_another_producer = test_go_transactions.test_another_producer_of_the_group_is_asked
test_immunity = test_go_transactions.test_an_immunity_time_of_its_own_is_waited_for

test_goes_on = test_go_beginnings.test_a_group_goes_on_where_its_offsets_say
