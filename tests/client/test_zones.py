"""Clients that are in a zone use the brokers there; a producer others, before it would not send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from thermocline.client import AdminClient, ConsumeFromWhere, Message, Producer, PullConsumer
from thermocline.client.testing import FakeBroker


@pytest.fixture
def brokers() -> Iterator[FakeBroker]:
    zones = {"broker-a": "north", "broker-b": "south", "broker-c": "south"}
    with FakeBroker(broker_names=tuple(zones), zones=zones) as brokers:
        brokers.create_topic("orders", queue_nums=2)
        yield brokers


def sent_to(brokers: FakeBroker, zone_name: str) -> set[str]:
    with Producer(namesrv=brokers.namesrv_address, zone_name=zone_name) as producer:
        return {producer.send(Message("orders", b"x")).queue.broker_name for _ in range(12)}


def test_a_producer_sends_to_its_zone(brokers: FakeBroker) -> None:
    assert sent_to(brokers, "north") == {"broker-a"}
    assert sent_to(brokers, "south") == {"broker-b", "broker-c"}
    assert sent_to(brokers, "") == {"broker-a", "broker-b", "broker-c"}


def test_a_producer_leaves_a_zone_that_has_no_broker(brokers: FakeBroker) -> None:
    assert sent_to(brokers, "west") == {"broker-a", "broker-b", "broker-c"}
    with AdminClient(namesrv=brokers.namesrv_address) as admin:
        admin.wipe_write_permission("broker-a")
    assert sent_to(brokers, "north") == {"broker-b", "broker-c"}


def test_a_topic_is_created_in_the_producers_zone(brokers: FakeBroker) -> None:
    with Producer(namesrv=brokers.namesrv_address, zone_name="north") as producer:
        assert producer.send(Message("new", b"x")).queue.broker_name == "broker-a"


def test_a_consumer_reads_its_zone_and_nothing_else(brokers: FakeBroker) -> None:
    with Producer(namesrv=brokers.namesrv_address) as producer:
        for queue in producer.fetch_publish_queues("orders"):
            producer.send(Message("orders", queue.broker_name.encode()), queue=queue)
    for zone_name, wanted in (("north", [b"broker-a"] * 2), ("south", [b"broker-b"] * 2 + [b"broker-c"] * 2)):
        with PullConsumer(
            namesrv=brokers.namesrv_address,
            group=f"readers-{zone_name}",
            zone_name=zone_name,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            consumer.subscribe("orders")
            bodies: list[bytes] = []
            while len(bodies) < len(wanted):
                bodies += [message.body for message in consumer.poll()]
            assert sorted(bodies) == wanted
            assert {queue.broker_name for queue in consumer.assignment()} == set(map(bytes.decode, wanted))
