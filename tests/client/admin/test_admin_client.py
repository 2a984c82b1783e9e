"""The admin client against the fake broker: topics, groups, lookups, brokers, key-value configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.client.admin.group_administration import EARLIEST, LATEST
from thermocline.client.consumer.consumer_calls import PullStatus
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.push_consumer import PushConsumer
from thermocline.client.fan_out import PartialResultError
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.client.testing import FakeBroker
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.errors import (
    ConsumerOfflineError,
    GroupNotFoundError,
    InvalidRequestError,
    ObjectNotFoundError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedRequestError,
)
from thermocline.remoting.request_code import RequestCode


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(broker_names=("broker-a", "broker-b")) as broker:
        yield broker


@pytest.fixture
def admin(broker: FakeBroker) -> Iterator[AdminClient]:
    with AdminClient(namesrv=broker.namesrv_address) as admin:
        yield admin


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[Producer]:
    with Producer(namesrv=broker.namesrv_address, group="sellers") as producer:
        yield producer


def queue(queue_id: int, broker_name: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic="orders", broker_name=broker_name, queue_id=queue_id)


# -- brokers without a master ------------------------------------------------------------------------------------------


def test_a_broker_whose_master_is_away_has_failed_and_its_replica_is_read(
    broker: FakeBroker, admin: AdminClient, producer: Producer
) -> None:
    """It was passed over: a reset of offsets left it out, lags and sizes lacked its queues, and all was well."""
    admin.create_topic("orders", queue_nums=1)
    admin.create_group("billing")
    for name in ("broker-a", "broker-b"):
        producer.send(Message("orders", b"x", keys="k"), queue=queue(0, name))
        admin.set_consumer_offset("billing", queue(0, name), 0)
    broker.move_broker("broker-b", "")
    with pytest.raises(PartialResultError, match="has no master now") as caught:
        admin.reset_offsets("billing", "orders", timestamp_ms=LATEST)
    assert caught.value.result == {queue(0): 1}
    assert [failure.name for failure in caught.value.failures] == ["broker-b"]
    for change in (lambda: admin.create_topic("more"), lambda: admin.delete_topic("orders")):
        with pytest.raises(PartialResultError) as caught:
            change()
        assert caught.value.result == ["broker-a"]
    with pytest.raises(UnavailableError, match="has no master now"):
        admin.update_broker_config("broker-b", {"fileReservedTime": "1"})
    assert [row.queue.broker_name for row in admin.topic_stats("orders")] == ["broker-b"]
    assert [row.queue.broker_name for row in admin.group_progress("billing", topic="orders")] == ["broker-b"]
    assert [found.queue.broker_name for found in admin.query_by_key("orders", "k")] == ["broker-b"]


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics_are_created_changed_listed_and_deleted(admin: AdminClient) -> None:
    assert admin.create_topic("orders", queue_nums=3, attributes={"message.type": "FIFO"}) == ["broker-a", "broker-b"]
    assert admin.create_topic("local", broker="broker-b") == ["broker-b"]
    assert admin.list_topics() == ["local", "orders"]
    assert "TBW102" in admin.list_topics(include_system=True)
    configs = admin.topic_config("orders")
    assert {name: (one.read_queue_nums, one.attributes) for name, one in configs.items()} == {
        "broker-a": (3, {"message.type": "FIFO"}),
        "broker-b": (3, {"message.type": "FIFO"}),
    }
    admin.update_topic("orders", write_queue_nums=5, attributes={"message.type": None, "reserve.time": "72"})
    changed = admin.topic_config("orders")["broker-a"]
    assert (changed.read_queue_nums, changed.write_queue_nums, changed.perm) == (3, 5, 6)
    assert changed.attributes == {"reserve.time": "72"}
    assert len(admin.topic_route("orders").publish_queues) == 10
    assert admin.delete_topic("orders") == ["broker-a", "broker-b"]
    with pytest.raises(TopicNotFoundError):
        admin.topic_stats("orders")


def test_topic_stats_cover_every_queue(broker: FakeBroker, admin: AdminClient, producer: Producer) -> None:
    broker.create_topic("orders", queue_nums=2)
    producer.send(Message("orders", b"x"), queue=queue(1))
    broker.set_min_offset("orders", 1, 1)
    stats = {(one.queue.broker_name, one.queue.queue_id): one for one in admin.topic_stats("orders")}
    assert len(stats) == 4
    assert (stats["broker-a", 1].min_offset, stats["broker-a", 1].max_offset) == (1, 1)
    assert stats["broker-a", 1].last_update_timestamp_ms > 0
    assert stats["broker-b", 0].max_offset == 0


def test_impossible_requests_are_errors(admin: AdminClient) -> None:
    with pytest.raises(InvalidRequestError):
        admin.create_topic("bad name")
    with pytest.raises(InvalidRequestError):
        admin.create_topic("orders", queue_nums=0)
    with pytest.raises(ObjectNotFoundError, match="broker-x"):
        admin.create_topic("orders", broker="broker-x")
    with pytest.raises(TopicNotFoundError):
        admin.delete_topic("nowhere")


# -- groups ------------------------------------------------------------------------------------------------------------


def test_groups_are_created_listed_and_deleted(admin: AdminClient) -> None:
    admin.create_group(SubscriptionGroupConfig(group_name="billing", retry_max_times=3))
    admin.create_group("audit", broker="broker-a")
    assert admin.list_groups() == ["audit", "billing"]
    assert {name: one.retry_max_times for name, one in admin.group_config("billing").items()} == {
        "broker-a": 3,
        "broker-b": 3,
    }
    admin.delete_group("billing", clean_offsets=True)
    assert admin.list_groups() == ["audit"]
    with pytest.raises(GroupNotFoundError):
        admin.group_config("billing")


def test_progress_and_resets_of_a_group_at_rest(broker: FakeBroker, admin: AdminClient, producer: Producer) -> None:
    broker.create_topic("orders", queue_nums=1)
    sent = [producer.send(Message("orders", b"%d" % i), queue=queue(0)) for i in range(10)]
    admin.set_consumer_offset("billing", queue(0), 4)
    (row,) = admin.group_progress("billing")
    assert (row.queue, row.broker_offset, row.consumer_offset, row.lag) == (queue(0), 10, 4, 6)
    assert row.last_timestamp_ms == broker.messages("orders")[3].store_timestamp_ms
    assert admin.group_progress("billing", topic="other") == []
    assert admin.reset_offsets("billing", "orders", timestamp_ms=LATEST)[queue(0)] == 10
    assert admin.reset_offsets("billing", "orders", timestamp_ms=EARLIEST)[queue(0)] == 0
    admin.reset_offset("billing", queue(0), 7)
    assert admin.group_progress("billing")[0].lag == 3
    assert "billing" in admin.topic_consumers("orders")
    assert len(sent) == 10


def test_how_a_group_reads_a_topic(broker: FakeBroker, admin: AdminClient) -> None:
    broker.create_topic("orders")
    assert admin.request_modes() == []
    assert admin.set_request_mode("billing", "orders", "POP", pop_share_queues=3) == ["broker-a", "broker-b"]
    (mode,) = admin.request_modes()
    assert (mode.consumer_group, mode.topic, mode.mode, mode.pop_share_queue_num) == ("billing", "orders", "POP", 3)
    assert admin.set_request_mode("billing", "orders", "PULL", broker="broker-b") == ["broker-b"]
    assert [mode.mode for mode in admin.request_modes(broker="broker-b")] == ["PULL"]
    with pytest.raises(InvalidRequestError):
        admin.set_request_mode("billing", "orders", "PEEK")


def test_connections_of_producers_and_consumers(broker: FakeBroker, admin: AdminClient, producer: Producer) -> None:
    broker.create_topic("orders")
    with pytest.raises(ConsumerOfflineError):
        admin.consumer_connections("billing")
    with pytest.raises(ObjectNotFoundError):
        admin.producer_connections("missing")
    producer.send(Message("orders", b"x"))
    broker.wait_until(lambda: len(broker.requests(RequestCode.HEART_BEAT)) > 0)
    assert [one.client_id for one in admin.producer_connections("sellers")] == [producer.client_id]
    consumer = PushConsumer(
        namesrv=broker.namesrv_address,
        group="billing",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("orders", "a || b")
    consumer.register_listener(lambda messages, context: None)
    with consumer:
        found = admin.consumer_connections("billing")
        assert [one.client_id for one in found.connection_set] == [consumer.client_id]
        assert found.connection_set[0].language == "PYTHON"
        assert found.subscription_table["orders"].tags_set == {"a", "b"}
        assert found.consume_type == "CONSUME_PASSIVELY"


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_are_found_by_key_by_id_and_by_place(
    broker: FakeBroker, admin: AdminClient, producer: Producer
) -> None:
    broker.create_topic("orders", queue_nums=2)
    results = [producer.send(Message("orders", b"%d" % i, keys=["same", f"k{i}"])) for i in range(6)]
    assert sorted(m.body for m in admin.query_by_key("orders", "same")) == [b"%d" % i for i in range(6)]
    (found,) = admin.query_by_key("orders", "k3")
    assert (found.body, found.queue) == (b"3", results[3].queue)
    assert admin.query_by_key("orders", "none") == []
    (found,) = admin.query_by_unique_key("orders", results[4].message_id)
    assert found.body == b"4"
    assert admin.view_message(results[2].offset_message_id).body == b"2"
    assert admin.view_message(results[2].offset_message_id).queue == results[2].queue
    assert admin.view_by_offset(results[5].queue, results[5].queue_offset).body == b"5"
    with pytest.raises(ObjectNotFoundError):
        admin.view_by_offset(results[5].queue, 99)
    with pytest.raises(InvalidRequestError):
        admin.view_message("nonsense")
    with pytest.raises(ObjectNotFoundError):
        admin.view_message(results[0].offset_message_id[:-4] + "FFFF")


def test_reading_a_queue_from_anywhere(broker: FakeBroker, admin: AdminClient, producer: Producer) -> None:
    broker.create_topic("orders", queue_nums=1)
    for i in range(10):
        producer.send(Message("orders", b"%d" % i, tags="even" if i % 2 == 0 else "odd"), queue=queue(0))
    result = admin.pull(queue(0), 2, count_max=3)
    assert (result.status, [m.body for m in result.messages]) == (PullStatus.FOUND, [b"2", b"3", b"4"])
    assert (result.next_begin_offset, result.min_offset, result.max_offset) == (5, 0, 10)
    assert [m.body for m in admin.pull(queue(0), 0, expression="odd").messages] == [b"1", b"3", b"5", b"7", b"9"]
    assert admin.pull(queue(0), 10).status is PullStatus.NO_NEW_MESSAGE
    assert admin.pull(queue(0), 99).status is PullStatus.OFFSET_ILLEGAL
    assert (admin.min_offset(queue(0)), admin.max_offset(queue(0))) == (0, 10)
    first_ms = broker.messages("orders")[0].store_timestamp_ms
    assert admin.earliest_store_time(queue(0)) == first_ms
    assert admin.earliest_store_time(queue(0, "broker-b")) is None
    assert admin.search_offset(queue(0), first_ms) == 0
    assert admin.search_offset(queue(0), first_ms + 3_600_000) == 10


def test_a_broker_that_was_away_when_the_route_was_fetched(
    broker: FakeBroker, admin: AdminClient, producer: Producer
) -> None:
    broker.create_topic("orders", queue_nums=1)
    producer.send(Message("orders", b"one"), queue=queue(0, "broker-b"))
    broker.hide_broker("broker-b")
    assert admin.max_offset(queue(0)) == 0
    with pytest.raises(UnavailableError, match="this broker is in no route"):
        admin.max_offset(queue(0, "broker-b"))
    broker.hide_broker("broker-b", hidden=False)
    assert admin.max_offset(queue(0, "broker-b")) == 1
    assert [message.body for message in admin.pull(queue(0, "broker-b"), 0).messages] == [b"one"]


# -- brokers -----------------------------------------------------------------------------------------------------------


def test_brokers_and_their_settings(broker: FakeBroker, admin: AdminClient) -> None:
    assert [(one.broker_name, one.address) for one in admin.cluster_info()] == sorted(broker.broker_addresses.items())
    assert admin.broker_runtime_info("broker-a")["brokerVersionDesc"] == "V5_5_0"
    assert admin.broker_config(broker.broker_addresses["broker-b"])["brokerName"] == "broker-b"
    admin.update_broker_config("broker-a", {"flushDiskType": "SYNC_FLUSH"})
    assert admin.broker_config("broker-a")["flushDiskType"] == "SYNC_FLUSH"
    assert admin.broker_config("broker-b")["flushDiskType"] == "ASYNC_FLUSH"


def test_write_permission_comes_and_goes(broker: FakeBroker, admin: AdminClient) -> None:
    broker.create_topic("orders", queue_nums=1)
    assert admin.wipe_write_permission("broker-a") == 3, "with the topics that every broker has"
    assert {one.broker_name for one in admin.topic_route("orders").publish_queues} == {"broker-b"}
    assert admin.add_write_permission("broker-a") == 3
    assert len(admin.topic_route("orders").publish_queues) == 2


def test_key_value_configuration(admin: AdminClient) -> None:
    assert admin.get_kv("space", "key") is None
    assert admin.list_kv("space") == {}
    admin.put_kv("space", "key", "value")
    assert (admin.get_kv("space", "key"), admin.list_kv("space")) == ("value", {"key": "value"})
    admin.delete_kv("space", "key")
    assert admin.get_kv("space", "key") is None


def test_the_cold_tier_of_another_broker_is_unsupported(admin: AdminClient) -> None:
    with pytest.raises(UnsupportedRequestError):
        admin.tier_status()
    with pytest.raises(InvalidRequestError):
        admin.set_ttl("orders", -1)


async def test_the_asyncio_half(broker: FakeBroker) -> None:
    async with AsyncAdminClient(namesrv=broker.namesrv_address) as admin:
        await admin.create_topic("orders")
        assert await admin.list_topics() == ["orders"]


def test_an_address_that_two_names_have(admin: AdminClient, broker: FakeBroker) -> None:
    """Of a broker with a new name, while a NameServer has not noticed that it is gone by the old one: a ValueError."""
    address = broker.broker_addresses["broker-a"]
    broker.move_broker("broker-b", address)
    assert admin.broker_config(address) == admin.broker_config("broker-a")
