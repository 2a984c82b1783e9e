"""Offsets that a broker corrects while messages wait in the consumer: none of them is left out.

A queue's first messages expire while a slow consumer holds messages that were in front of them; or the queue ends
earlier than it did, as after a power cut at its broker, or where a slave that lagged is the master now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from thermocline.client.consumer.listener import ConsumeContext, OrderlyContext
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.consumer.push_consumer import PushConsumer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.testing import FakeBroker
from thermocline.remoting.request_code import RequestCode

TOPIC, GROUP = "orders", "audit"
QUEUE = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
COUNT, HELD, MIN, END = 40, 20, 35, 15
"""Messages, those that the consumer holds, where the queue begins after some have expired, where it ends once cut."""
OPTIONS: dict[str, object] = {
    "group": GROUP,
    "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "pull_threshold_for_queue": HELD,
    "pull_batch_size": HELD // 2,
}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker, Producer(namesrv=broker.namesrv_address) as producer:
        broker.create_topic(TOPIC, queue_nums=1)
        producer.send_batch([Message(TOPIC, b"%d" % i) for i in range(COUNT)])
        yield broker


def expire(broker: FakeBroker) -> int:
    """Let the queue begin later; where a consumer goes on that asks for what is gone."""
    broker.set_min_offset(TOPIC, 0, MIN)
    return MIN


def cut(broker: FakeBroker) -> int:
    """Let the queue end earlier; where a consumer goes on that asks for what is gone."""

    def change() -> None:
        del broker._node(None).store.topic(TOPIC).queues[0][END:]

    broker._on_loop(change)
    return END


def is_asked_for(broker: FakeBroker, code: RequestCode, offset: int) -> bool:
    return any(request.fields["queueOffset"] == str(offset) for request in broker.requests(code))


def bodies(*ranges: range) -> list[bytes]:
    return [b"%d" % number for each in ranges for number in each]


@pytest.mark.parametrize(
    ("move", "wanted"), [(expire, bodies(range(HELD), range(MIN, COUNT))), (cut, bodies(range(END)))]
)
def test_a_pull_consumer_gives_what_it_holds(
    broker: FakeBroker, move: Callable[[FakeBroker], int], wanted: list[bytes]
) -> None:
    with PullConsumer(namesrv=broker.namesrv_address, **OPTIONS) as consumer:  # type: ignore[arg-type]
        consumer.assign([QUEUE])
        broker.wait_until(lambda: is_asked_for(broker, RequestCode.LITE_PULL_MESSAGE, HELD // 2))
        offset = move(broker)
        # Now there is room for the pull that the broker corrects.
        found = [message.body for message in consumer.poll(10_000, count_max=1)]
        broker.wait_until(lambda: is_asked_for(broker, RequestCode.LITE_PULL_MESSAGE, offset))
        assert consumer.position(QUEUE) == 1
        while len(found) < len(wanted):
            messages = consumer.poll(10_000)
            assert messages, found
            found += [message.body for message in messages]
        assert found == wanted
        assert consumer.poll(0) == []
        consumer.commit()
        assert broker.committed_offset(GROUP, TOPIC, 0) == int(wanted[-1]) + 1


def test_a_cut_queue_s_new_messages_are_given(broker: FakeBroker) -> None:
    """They have the offsets of messages that the application was given, and committed."""
    with (
        PullConsumer(namesrv=broker.namesrv_address, **OPTIONS) as consumer,  # type: ignore[arg-type]
        Producer(namesrv=broker.namesrv_address) as producer,
    ):
        consumer.assign([QUEUE])
        found: list[bytes] = []
        while len(found) < COUNT:
            found += [message.body for message in consumer.poll(10_000)]
        consumer.commit()
        cut(broker)
        broker.drop_connections()  # the pull that waits at the old end asks again
        broker.wait_until(lambda: is_asked_for(broker, RequestCode.LITE_PULL_MESSAGE, END))
        consumer.commit()
        assert broker.committed_offset(GROUP, TOPIC, 0) == END
        producer.send(Message(TOPIC, b"new"))
        assert [message.body for message in consumer.poll(10_000)] == [b"new"]


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(
    ("move", "wanted"), [(expire, bodies(range(HELD), range(MIN, COUNT))), (cut, bodies(range(END)))]
)
def test_a_push_consumer_consumes_what_it_holds(
    broker: FakeBroker, move: Callable[[FakeBroker], int], wanted: list[bytes], in_order: bool
) -> None:
    found: list[bytes] = []
    begun, moved, seen = threading.Event(), threading.Event(), threading.Event()

    def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        if messages[0].queue.topic != TOPIC:
            return
        if not found:
            begun.set()
            assert moved.wait(60)
        elif len(found) == 1:
            assert seen.wait(60)
        found.extend(message.body for message in messages)

    def listen_in_order(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> None:
        listen(messages, context)

    def listen_concurrently(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        listen(messages, context)

    consumer = PushConsumer(
        namesrv=broker.namesrv_address,
        consume_threads=1,
        persist_consumer_offset_interval_ms=20,
        **OPTIONS,  # type: ignore[arg-type]
    )
    consumer.subscribe(TOPIC)
    if in_order:
        consumer.register_orderly_listener(listen_in_order)
    else:
        consumer.register_listener(listen_concurrently)
    with consumer:
        assert begun.wait(60)
        broker.wait_until(lambda: is_asked_for(broker, RequestCode.PULL_MESSAGE, HELD // 2))
        move(broker)
        moved.set()
        # There is room for the pull that the broker corrects.
        broker.wait_until(lambda: is_asked_for(broker, RequestCode.PULL_MESSAGE, HELD))
        seen.set()
        last = int(wanted[-1]) + 1
        broker.wait_until(lambda: broker.committed_offset(GROUP, TOPIC, 0) == last and set(found) >= set(wanted))
    # It may have consumed more of what it held, before it heard that this is gone at the broker.
    assert [body for body in dict.fromkeys(found) if body in wanted] == wanted
