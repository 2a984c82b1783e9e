"""The pull consumer against the fake broker: sharing, assignment, positions, commits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clock import Clock
from thermocline.client.consumer.async_pull_consumer import AsyncPullConsumer
from thermocline.client.consumer.options import ConsumeFromWhere, MessageModel
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import (
    ClosedError,
    InvalidRequestError,
    ObjectNotFoundError,
    ResponseError,
    SubscriptionParseError,
    UnavailableError,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
HOUR_MS = 3_600_000


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=4)
        yield broker


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[Producer]:
    with Producer(namesrv=broker.namesrv_address) as producer:
        yield producer


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="orders", broker_name="broker-a", queue_id=queue_id)


def consumer_of(broker: FakeBroker, **options: object) -> PullConsumer:
    defaults: dict[str, object] = {
        "group": "audit",
        "consume_from_where": FIRST,
        "pull_time_delay_ms_when_exception": 20,
        "auto_commit_interval_ms": 20,
    }
    return PullConsumer(namesrv=broker.namesrv_address, **(defaults | options))  # type: ignore[arg-type]


def poll_all(consumer: PullConsumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        messages = consumer.poll(10_000)
        assert messages, f"{len(bodies)} of {count}"
        bodies += [message.body for message in messages]
    return bodies


@pytest.mark.parametrize("begin_ms", [None, 0])
def test_a_group_by_time_begins_where_it_began_in_queues_that_come_later(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, begin_ms: int | None
) -> None:
    """Else messages would be passed over that came to a queue since the start, and that its former owner never
    committed.
    """
    clock = Clock()
    monkeypatch.setattr("thermocline.client.consumer.async_pull_consumer.wall_clock_ms", clock)
    where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    with consumer_of(broker, consume_from_where=where, consume_timestamp_ms=begin_ms) as consumer:
        start_ms = clock.now_ms
        clock.now_ms += 2 * HOUR_MS
        consumer.assign([queue(0)])
        broker.wait_until(lambda: bool(broker.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)))
    wanted_ms = start_ms - HOUR_MS // 2 if begin_ms is None else begin_ms
    asked = broker.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert {request.fields["timestamp"] for request in asked} == {str(wanted_ms)}


def test_subscribers_get_everything_and_commit_by_asking_for_more(broker: FakeBroker, producer: Producer) -> None:
    producer.send_many(Message("orders", b"%d" % i) for i in range(100))
    with consumer_of(broker) as consumer:
        consumer.subscribe("orders")
        bodies = poll_all(consumer, 99)
        last_poll = [] if len(bodies) == 100 else consumer.poll(10_000)
        bodies += [message.body for message in last_poll]
        assert Counter(bodies) == Counter(b"%d" % i for i in range(100))
        broker.wait_until(lambda: 0 < broker.committed_total("audit", "orders") < 100)
        assert consumer.poll(0) == []
        broker.wait_until(lambda: broker.committed_total("audit", "orders") == 100)


def test_closing_commits_the_last_poll_and_an_exception_does_not(broker: FakeBroker, producer: Producer) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(10)])

    def consume_and_fail() -> None:
        with consumer_of(broker, auto_commit_interval_ms=60_000) as consumer:
            consumer.subscribe("orders")
            poll_all(consumer, 10)
            raise RuntimeError("the application failed")

    with pytest.raises(RuntimeError):
        consume_and_fail()
    assert broker.committed_total("audit", "orders") == 0
    with consumer_of(broker, auto_commit_interval_ms=60_000) as consumer:
        consumer.subscribe("orders")
        assert poll_all(consumer, 10) == [b"%d" % i for i in range(10)]
    assert broker.committed_total("audit", "orders") == 10
    assert broker.group_members("audit") == []


def test_without_auto_commit_only_commit_commits(broker: FakeBroker, producer: Producer) -> None:
    sent = producer.send_batch([Message("orders", b"%d" % i) for i in range(10)])[0].queue
    with consumer_of(broker, auto_commit=False) as consumer:
        consumer.subscribe("orders")
        poll_all(consumer, 10)
        assert consumer.committed(sent) is None
        consumer.commit({sent: 3})
        assert consumer.committed(sent) == 3
        consumer.commit()
        assert consumer.committed(sent) == 10
    assert broker.committed_total("audit", "orders") == 10


def test_a_commit_that_is_refused_raises(broker: FakeBroker) -> None:
    with consumer_of(broker, auto_commit=False) as consumer:
        consumer.assign([queue(0)])
        broker.wait_until(lambda: consumer.assignment() == [queue(0)])
        broker.refuse(RequestCode.UPDATE_CONSUMER_OFFSET, response_code=ResponseCode.SYSTEM_BUSY)
        with pytest.raises(UnavailableError):
            consumer.commit()


def test_members_share_and_take_over(broker: FakeBroker, producer: Producer) -> None:
    with consumer_of(broker) as first:
        first.subscribe("orders")
        with consumer_of(broker) as second:
            second.subscribe("orders")
            broker.wait_until(lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2)
            assert sorted(first.assignment() + second.assignment()) == [queue(i) for i in range(4)]
        broker.wait_until(lambda: len(first.assignment()) == 4)


def test_assigned_queues_begin_where_asked_and_only_those_are_read(broker: FakeBroker, producer: Producer) -> None:
    for queue_id in range(4):
        for i in range(5):
            producer.send(Message("orders", b"%d-%d" % (queue_id, i)), queue=queue(queue_id))
    with consumer_of(broker) as consumer:
        assert consumer.fetch_message_queues("orders") == [queue(i) for i in range(4)]
        consumer.assign([queue(1), queue(2)])
        assert sorted(poll_all(consumer, 10)) == sorted(b"%d-%d" % (q, i) for q in (1, 2) for i in range(5))
        consumer.assign([queue(3)])
        assert poll_all(consumer, 5) == [b"3-%d" % i for i in range(5)]
        assert consumer.assignment() == [queue(3)]
    assert broker.group_members("audit") == []


@pytest.mark.parametrize("has_come", [False, True])
def test_messages_of_an_interrupted_poll_are_given_again(
    broker: FakeBroker, producer: Producer, monkeypatch: pytest.MonkeyPatch, has_come: bool
) -> None:
    """They were handed out, to a caller that had gone, and the next poll counted them as consumed."""

    def interrupted(future: concurrent.futures.Future[object]) -> None:
        if has_come:
            future.result()
        raise KeyboardInterrupt

    with consumer_of(broker) as consumer:
        consumer.assign([queue(0)])
        if has_come:
            producer.send_batch([Message("orders", b"%d" % i) for i in range(3)], queue=queue(0))
        with monkeypatch.context() as patch:
            patch.setattr(consumer._loop, "wait_for", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(60_000)
        if not has_come:
            producer.send_batch([Message("orders", b"%d" % i) for i in range(3)], queue=queue(0))
        assert poll_all(consumer, 3) == [b"0", b"1", b"2"]


def test_seek_moves_and_drops_fetched_messages(broker: FakeBroker, producer: Producer) -> None:
    for i in range(20):
        producer.send(Message("orders", b"%d" % i), queue=queue(0))
    with consumer_of(broker) as consumer:
        consumer.assign([queue(0)])
        assert poll_all(consumer, 10) == [b"%d" % i for i in range(10)]
        assert consumer.position(queue(0)) == 10
        consumer.seek(queue(0), 3)
        assert consumer.position(queue(0)) == 3
        assert consumer.poll(10_000, count_max=2)[0].queue_offset == 3
        assert consumer.position(queue(0)) == 5
        consumer.seek_to_end(queue(0))
        assert consumer.poll(0) == []
        broker.set_min_offset("orders", 0, 7)
        consumer.seek_to_begin(queue(0))
        assert consumer.poll(10_000)[0].queue_offset == 7
        consumer.seek(queue(0), 0)
        assert consumer.poll(10_000)[0].queue_offset == 7, "the broker corrects what is gone"
        with pytest.raises(ObjectNotFoundError):
            consumer.seek(queue(1), 0)
        with pytest.raises(InvalidRequestError):
            consumer.seek(queue(0), -1)


def test_offsets_by_time(broker: FakeBroker, producer: Producer) -> None:
    producer.send(Message("orders", b"x"), queue=queue(0))
    stored_ms = broker.messages("orders")[0].store_timestamp_ms
    with consumer_of(broker) as consumer:
        consumer.fetch_message_queues("orders")
        assert consumer.offset_for_timestamp(queue(0), stored_ms) == 0
        assert consumer.offset_for_timestamp(queue(0), stored_ms + 1) == 1


def test_paused_queues_give_nothing(broker: FakeBroker, producer: Producer) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([queue(0), queue(1)])
        consumer.pause([queue(0)])
        producer.send(Message("orders", b"paused"), queue=queue(0))
        producer.send(Message("orders", b"open"), queue=queue(1))
        assert [m.body for m in consumer.poll(10_000)] == [b"open"]
        assert consumer.poll(0) == []
        consumer.resume([queue(0)])
        assert [m.body for m in consumer.poll(10_000)] == [b"paused"]


def test_tags_and_iteration(broker: FakeBroker, producer: Producer) -> None:
    for tag in ("a", "b", "a"):
        producer.send(Message("orders", tag.encode(), tags=tag), queue=queue(0))
    seen = []
    with consumer_of(broker) as consumer:
        consumer.subscribe("orders", "a")
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 2:
                break
    assert seen == [b"a", b"a"]


def test_failed_pulls_are_repeated(broker: FakeBroker, producer: Producer) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(10)])
    broker.refuse(RequestCode.LITE_PULL_MESSAGE, response_code=ResponseCode.SYSTEM_BUSY, times=8)
    with consumer_of(broker) as consumer:
        consumer.subscribe("orders")
        assert poll_all(consumer, 10) == [b"%d" % i for i in range(10)]


def test_either_subscribe_or_assign(broker: FakeBroker) -> None:
    with consumer_of(broker) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(InvalidRequestError):
            consumer.assign([queue(0)])
    with consumer_of(broker) as consumer:
        consumer.assign([queue(0)])
        with pytest.raises(InvalidRequestError):
            consumer.subscribe("orders")


def test_broadcasting_keeps_offsets_here(broker: FakeBroker, producer: Producer, tmp_path: Path) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(3)])
    options: dict[str, object] = {
        "message_model": MessageModel.BROADCASTING,
        "local_offset_directory": tmp_path,
        "instance_name": "one",
    }
    with consumer_of(broker, **options) as consumer:
        consumer.subscribe("orders")
        poll_all(consumer, 3)
    producer.send(Message("orders", b"new"))
    with consumer_of(broker, **options) as consumer:
        consumer.subscribe("orders")
        assert poll_all(consumer, 1) == [b"new"]
    assert broker.committed_total("audit", "orders") == 0


def test_a_poll_that_waits_ends_with_the_consumer(broker: FakeBroker) -> None:
    consumer = consumer_of(broker)
    consumer.start()
    ended = threading.Event()

    def poll() -> None:
        with pytest.raises(ClosedError):
            consumer.poll(60_000)
        ended.set()

    thread = threading.Thread(target=poll)
    thread.start()
    broker.wait_until(lambda: consumer._inner._arrived is not None)
    consumer.close()
    assert ended.wait(10)
    thread.join()


async def test_the_asyncio_half(broker: FakeBroker, producer: Producer) -> None:
    await asyncio.to_thread(producer.send_batch, [Message("orders", b"%d" % i) for i in range(5)])
    seen = []
    async with AsyncPullConsumer(namesrv=broker.namesrv_address, group="audit", consume_from_where=FIRST) as consumer:
        await consumer.subscribe("orders")
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 5:
                break
    assert seen == [b"%d" % i for i in range(5)]


# -- choosing by properties --------------------------------------------------------------------------------------------


@pytest.fixture
def filtering_broker() -> Iterator[FakeBroker]:
    with FakeBroker(property_filter=True) as broker:
        broker.create_topic("orders", queue_nums=4)
        with Producer(namesrv=broker.namesrv_address) as producer:
            for price in range(20):
                producer.send(Message("orders", b"%d" % price, properties={"price": str(price)}))
        yield broker


def test_subscribers_choose_by_an_sql_expression(filtering_broker: FakeBroker) -> None:
    with consumer_of(filtering_broker) as consumer:
        consumer.subscribe("orders", "price BETWEEN 3 AND 5 OR price = 19", expression_type="SQL92")
        assert sorted(poll_all(consumer, 4)) == [b"19", b"3", b"4", b"5"]
        assert consumer.poll(0) == []


@pytest.mark.parametrize("starts_first", [True, False])
def test_assigned_queues_are_chosen_from_too(filtering_broker: FakeBroker, starts_first: bool) -> None:
    queues = [queue(queue_id) for queue_id in range(4)]

    async def consume() -> list[bytes]:
        consumer = AsyncPullConsumer(
            group="replay", namesrv=filtering_broker.namesrv_address, consume_from_where=FIRST, auto_commit=False
        )
        if not starts_first:
            await consumer.assign(queues, expression="price > 16", expression_type="SQL92")
        async with consumer:
            if starts_first:
                await consumer.assign(queues, expression="price > 16", expression_type="SQL92")
            bodies: list[bytes] = []
            while len(bodies) < 3:
                bodies += [message.body for message in await consumer.poll(10_000)]
            return sorted(bodies)

    assert asyncio.run(consume()) == [b"17", b"18", b"19"]
    assert len(filtering_broker.requests(RequestCode.CHECK_CLIENT_CONFIG)) == 1


def test_a_broken_expression_changes_nothing(filtering_broker: FakeBroker) -> None:
    """A running consumer raises the error at once, and so does one that starts; a running one continues as before."""
    with consumer_of(filtering_broker) as consumer:
        consumer.subscribe("orders", "price = 7", expression_type="SQL92")
        with pytest.raises(SubscriptionParseError, match="not complete"):
            consumer.subscribe("orders", "price =", expression_type="SQL92")
        assert poll_all(consumer, 1) == [b"7"]

    async def start_broken() -> None:
        broken = AsyncPullConsumer(group="broken", namesrv=filtering_broker.namesrv_address)
        await broken.subscribe("orders", "price =", expression_type="SQL92")
        with pytest.raises(SubscriptionParseError, match="not complete"):
            await broken.start()
        with pytest.raises(ClosedError):
            await broken.start()

    asyncio.run(start_broken())
    assert filtering_broker.group_members("broken") == []


def test_a_broker_with_tags_only_refuses_expressions(broker: FakeBroker) -> None:
    with (
        consumer_of(broker) as consumer,
        pytest.raises(ResponseError, match="does not support consumer to filter message by SQL92"),
    ):
        consumer.subscribe("orders", "price = 7", expression_type="SQL92")
