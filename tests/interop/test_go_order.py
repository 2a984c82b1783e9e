"""Messages in order with the official Go client: through failures, a change of consumers, and a broker's crash."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.interop.cluster import thermocline_daemons
from tests.interop.go_agent import GoAgent
from tests.interop.go_driver import GoCluster, GoDriver, check_order, indexes
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.localstack.loopback_port import free_port

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]


def test_an_orderly_consumer_sees_each_shard_in_order(go: GoDriver) -> None:
    go.make_topic()
    consumer = go.push(orderly=True)
    go.produce(kind="ordered", count=40, shards=4)
    received = go.received(consumer, count=40)
    assert len(received) == 40
    check_order(received, shards=4, count=40)
    for shard in range(4):
        assert len({message.queue_id for message in received if indexes([message])[0] % 4 == shard}) == 1


def test_a_queue_waits_for_its_failed_message(go: GoDriver) -> None:
    go.make_topic(queue_nums=1)
    go.produce(count=10)
    received = go.received(go.push(orderly=True, refuse_first=1), count=10)
    assert indexes(received) == list(range(10))
    assert [message.reconsume_times for message in received] == [1] + [0] * 9


def test_a_message_that_always_fails_is_given_up_and_the_queue_goes_on(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=1)
    sent = go.produce(count=5)
    consumer = go.push(orderly=True, refuse_always=["1"], max_reconsume_times=1)
    received = go.received(consumer, count=7)
    assert indexes(received) == [0, 1, 1, 1, 2, 3, 4]
    assert [message.reconsume_times for message in received] == [0, 0, 1, 2, 0, 0, 0]
    buried = f"%DLQ%{go.group}"
    wait_until(lambda: buried in go.admin.list_topics(include_system=True), what="the dead-letter topic")
    (grave,) = go.agent.pull_topic(go.namesrv, buried, name=f"{topic}-dead", count=1)
    assert indexes([grave]) == [1]
    assert grave.message_id == sent[1].message_id
    assert grave.properties["RETRY_TOPIC"] == topic
    assert grave.properties["ORIGIN_MESSAGE_ID"] == sent[1].offset_message_id


def test_order_is_kept_when_another_consumer_takes_over(go: GoDriver) -> None:
    """Both want every queue. The locks belong to the first until it stops; the second waits and gets nothing."""
    go.make_topic()
    first = go.push("first", orderly=True, strategy="all")
    go.produce(kind="ordered", shards=4, count=40)
    received = go.received(first, count=20)
    second = go.push("second", orderly=True, strategy="all")
    wait_until(lambda: len(go.admin.consumer_connections(go.group).connection_set) == 2, what="the second is known")
    go.produce(kind="ordered", shards=4, count=40, start=40)
    received = go.received_to_the_end(first, received, count=80)
    assert (go.queues_of(first), go.queues_of(second)) == ({0, 1, 2, 3}, set())
    assert go.received(second, count=0) == []
    go.produce(kind="ordered", shards=4, count=40, start=80)
    received += go.stop(first)
    go.produce(kind="ordered", shards=4, count=40, start=120)
    check_order(go.received_to_the_end(second, received, count=160), shards=4, count=160)


@pytest.mark.full
def test_order_is_kept_when_the_broker_is_killed(go_agent_process: GoAgent, go_name: str, tmp_path: Path) -> None:
    namesrv, listen = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(AdminClient(namesrv=namesrv))
        cluster = GoCluster(namesrv=namesrv, agent=go_agent_process, admin=admin)
        go = stack.enter_context(contextlib.closing(GoDriver(cluster, go_name)))
        with thermocline_daemons(tmp_path, namesrv=namesrv, listen=listen) as daemons:
            go.make_topic()
            go.produce(kind="ordered", shards=4, count=60)
            # Killed between two of its pulls: the client waits half a minute for the answer to one that is open.
            consumer = go.push(orderly=True, pull_count=5, pull_interval_ms=1_000)
            received = go.received(consumer, count=20)
            assert len(received) < 60
            daemons.process.kill()
        stack.enter_context(thermocline_daemons(tmp_path, namesrv=namesrv, listen=listen))
        wait_until(lambda: go.broker_count() == 1, what="the NameServer has the topic's route again")
        # The client tells a broker of its consumers every 30 s, and whenever one of its consumers starts.
        go.push("other", instance=consumer, group=f"{go.topic}-other-group")
        go.produce(kind="ordered", shards=4, count=60, start=60)
        received = go.received_to_the_end(consumer, received, count=120)
        check_order(received, shards=4, count=120)
