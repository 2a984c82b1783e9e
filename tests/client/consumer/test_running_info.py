"""How consumers that the application drives are doing, asked through the broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.pop_consumer import PopConsumer
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer
from thermocline.client.testing import FakeBroker

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=1)
        with Producer(namesrv=broker.namesrv_address) as producer:
            producer.send_many(Message("orders", b"%d" % number) for number in range(10))
        yield broker


def test_a_pull_consumer_tells_its_queues(broker: FakeBroker) -> None:
    namesrv = broker.namesrv_address
    with (
        AdminClient(namesrv=namesrv) as admin,
        PullConsumer(group="audit", namesrv=namesrv, consume_from_where=FIRST, auto_commit=False) as consumer,
    ):
        consumer.subscribe("orders")
        assert len(consumer.poll(10_000, count_max=4)) == 4
        info = admin.consumer_running_info("audit", consumer.client_id, with_stacks=True)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert info.properties["PROP_NAMESERVER_ADDR"] == namesrv
        assert [one.topic for one in info.subscription_set] == ["orders"]
        ((queue, queue_info),) = info.mq_table.items()
        assert (queue.topic, queue.queue_id) == ("orders", 0)
        assert (queue_info.commit_offset, queue_info.cached_msg_min_offset) == (0, 4)
        assert queue_info.cached_msg_count == queue_info.cached_msg_max_offset - 4
        assert "test_a_pull_consumer_tells_its_queues" in (info.jstack or "")


def test_a_pop_consumer_has_no_queues_of_its_own(broker: FakeBroker) -> None:
    namesrv = broker.namesrv_address
    with (
        AdminClient(namesrv=namesrv) as admin,
        PopConsumer(group="audit", namesrv=namesrv, consume_from_where=FIRST) as consumer,
    ):
        consumer.subscribe("orders")
        assert consumer.receive(await_ms=10_000)
        info = admin.consumer_running_info("audit", consumer.client_id)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_POP"
        assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
        assert [one.topic for one in info.subscription_set] == ["orders"]
        assert info.mq_table == {}
        assert info.jstack is None
