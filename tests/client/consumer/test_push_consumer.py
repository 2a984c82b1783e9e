"""The blocking push consumer against the fake broker: delivery, sharing, retries, order, commits, closing."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.consumer.concurrent_dispatcher import ConcurrentDispatcher
from thermocline.client.consumer.listener import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from thermocline.client.consumer.options import ConsumeFromWhere, MessageModel
from thermocline.client.consumer.push_consumer import PushConsumer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import ClosedError, InvalidRequestError, ResponseError, SubscriptionParseError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Recorder:
    """A listener that remembers what it got, in order of arrival."""

    def __init__(self, answer: Callable[[ReceivedMessage], object] | None = None) -> None:
        self._lock = threading.Lock()
        self._answer = answer
        self.messages: list[ReceivedMessage] = []

    def __call__(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        with self._lock:
            self.messages += messages
        answer = self._answer(messages[0]) if self._answer else None
        assert answer is None or isinstance(answer, ConsumeResult)
        return answer

    @property
    def bodies(self) -> list[bytes]:
        with self._lock:
            return [message.body for message in self.messages]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=4)
        yield broker


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[Producer]:
    with Producer(namesrv=broker.namesrv_address) as producer:
        yield producer


def consumer_of(broker: FakeBroker, listener: Recorder, **options: object) -> PushConsumer:
    defaults: dict[str, object] = {
        "group": "billing",
        "consume_from_where": FIRST,
        "pull_time_delay_ms_when_exception": 20,
        "persist_consumer_offset_interval_ms": 50,
    }
    consumer = PushConsumer(namesrv=broker.namesrv_address, **(defaults | options))  # type: ignore[arg-type]
    consumer.subscribe("orders")
    consumer.register_listener(listener)
    return consumer


def queues_of(consumer: PushConsumer, topic: str = "orders") -> list[int]:
    return [queue.queue_id for queue in consumer.assigned_queues() if queue.topic == topic]


# -- delivery ----------------------------------------------------------------------------------------------------------


def test_every_message_is_delivered_and_committed(broker: FakeBroker, producer: Producer) -> None:
    producer.send_many(Message("orders", b"%d" % i) for i in range(200))
    listener = Recorder()
    with consumer_of(broker, listener):
        broker.wait_until(lambda: len(listener.bodies) == 200)
        producer.send(Message("orders", b"later"))
        broker.wait_until(lambda: b"later" in listener.bodies)
    assert Counter(listener.bodies) == Counter([b"%d" % i for i in range(200)] + [b"later"])
    assert broker.committed_total("billing", "orders") == 201


def test_tags_are_filtered_by_the_broker_and_again_by_text(broker: FakeBroker, producer: Producer) -> None:
    # "Aa" and "BB" have one hash in Java.
    for tag in ("Aa", "BB", "paid", ""):
        producer.send(Message("orders", tag.encode() or b"none", tags=tag))
    listener = Recorder()
    consumer = consumer_of(broker, listener)
    consumer.subscribe("orders", "Aa || paid")
    with consumer:
        broker.wait_until(lambda: broker.committed_total("billing", "orders") == 4)
    assert sorted(listener.bodies) == [b"Aa", b"paid"]


def test_batches_hold_at_most_the_requested_count(broker: FakeBroker, producer: Producer) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(50)])
    sizes: list[int] = []
    consumer = PushConsumer(
        namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST, consume_message_batch_max_size=8
    )
    consumer.subscribe("orders")
    consumer.register_listener(lambda messages, context: sizes.append(len(messages)))
    with consumer:
        broker.wait_until(lambda: sum(sizes) == 50)
    assert max(sizes) == 8


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, [b"new"]),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, [b"new", b"old"]),
    ],
)
def test_a_new_group_begins_at_the_configured_offset(
    broker: FakeBroker, producer: Producer, where: ConsumeFromWhere, expected: list[bytes]
) -> None:
    producer.send(Message("orders", b"old"))
    listener = Recorder()
    with consumer_of(broker, listener, consume_from_where=where) as consumer:
        broker.wait_until(lambda: len(queues_of(consumer)) == 4)
        producer.send(Message("orders", b"new"))
        broker.wait_until(lambda: sorted(listener.bodies) == expected)


def test_a_new_group_begins_at_a_time(broker: FakeBroker, producer: Producer) -> None:
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
    producer.send(Message("orders", b"old"), queue=queue)
    stored_ms = broker.messages("orders")[0].store_timestamp_ms
    broker.wait_until(
        lambda: (
            producer.send(Message("orders", b"new"), queue=queue) is not None
            and broker.messages("orders")[-1].store_timestamp_ms > stored_ms
        )
    )
    listener = Recorder()
    options = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, "consume_timestamp_ms": stored_ms + 1}
    with consumer_of(broker, listener, **options):
        broker.wait_until(lambda: b"new" in listener.bodies)
    assert b"old" not in listener.bodies


def test_a_group_may_begin_at_1970(broker: FakeBroker, producer: Producer) -> None:
    """0 is a time as any other, not the lack of one."""
    producer.send(Message("orders", b"old"))
    listener = Recorder()
    options = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, "consume_timestamp_ms": 0}
    with consumer_of(broker, listener, **options):
        broker.wait_until(lambda: b"old" in listener.bodies)
    asked = broker.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert {request.fields["timestamp"] for request in asked} == {"0"}


def test_a_known_group_goes_on_where_it_was(broker: FakeBroker, producer: Producer) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(3)])
    first = Recorder()
    with consumer_of(broker, first):
        broker.wait_until(lambda: len(first.bodies) == 3)
    producer.send(Message("orders", b"new"))
    second = Recorder()
    with consumer_of(broker, second, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET):
        broker.wait_until(lambda: second.bodies == [b"new"])


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_two_members_share_the_queues_and_one_takes_over(broker: FakeBroker, producer: Producer) -> None:
    listeners = [Recorder(), Recorder()]
    first, second = (consumer_of(broker, listener) for listener in listeners)
    with first:
        with second:
            broker.wait_until(lambda: (queues_of(first), queues_of(second)) in (([0, 1], [2, 3]), ([2, 3], [0, 1])))
            sent = producer.send_many(Message("orders", b"%d" % i) for i in range(100))
            ids = {result.message_id for result in sent}
            broker.wait_until(
                lambda: {m.message_id for listener in listeners for m in listener.messages} == ids, what="shared"
            )
            assert all(len(listener.messages) == 50 for listener in listeners)
        broker.wait_until(lambda: queues_of(first) == [0, 1, 2, 3], what="take over")
        ids = {result.message_id for result in producer.send_many(Message("orders", b"x") for _ in range(40))}
        broker.wait_until(lambda: ids <= {m.message_id for m in listeners[0].messages}, what="after take over")
    assert broker.group_members("billing") == []
    assert broker.committed_total("billing", "orders") == 140


def test_a_silent_death_is_noticed_by_the_broker_and_shared_out(broker: FakeBroker) -> None:
    first, second = consumer_of(broker, Recorder()), consumer_of(broker, Recorder())
    with first, second:
        broker.wait_until(lambda: len(queues_of(first)) == 2)
        broker.drop_connections()
        # Both come back by heartbeat, and share again.
        broker.wait_until(lambda: len(broker.group_members("billing")) == 2)
        broker.wait_until(lambda: sorted(queues_of(first) + queues_of(second)) == [0, 1, 2, 3])


def test_broadcasting_gives_every_member_everything(broker: FakeBroker, producer: Producer, tmp_path: Path) -> None:
    listeners = [Recorder(), Recorder()]
    options: dict[str, object] = {"message_model": MessageModel.BROADCASTING, "local_offset_directory": tmp_path}
    members = [
        consumer_of(broker, listener, instance_name=f"member-{i}", client_ip="10.0.0.1", **options)
        for i, listener in enumerate(listeners)
    ]
    with members[0], members[1]:
        producer.send_many(Message("orders", b"%d" % i) for i in range(20))
        for listener in listeners:
            broker.wait_until(lambda listener=listener: len(listener.bodies) == 20)  # type: ignore[misc]
    assert broker.committed_total("billing", "orders") == 0
    assert (tmp_path / "10.0.0.1@member-0" / "billing" / "offsets.json").exists()
    again = Recorder()
    with consumer_of(broker, again, instance_name="member-0", client_ip="10.0.0.1", **options):
        producer.send(Message("orders", b"new"))
        broker.wait_until(lambda: again.bodies == [b"new"])


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failed_message_comes_again_under_its_own_topic(broker: FakeBroker, producer: Producer) -> None:
    sent = producer.send(Message("orders", b"x"))
    listener = Recorder(lambda m: ConsumeResult.RECONSUME_LATER if m.reconsume_times < 2 else None)
    with consumer_of(broker, listener):
        broker.wait_until(lambda: len(listener.messages) == 3)
        broker.wait_until(lambda: broker.committed_total("billing", "%RETRY%billing") == 2)
    assert [m.reconsume_times for m in listener.messages] == [0, 1, 2]
    assert {m.topic for m in listener.messages} == {"orders"}
    assert {m.message_id for m in listener.messages} == {sent.message_id}
    assert listener.messages[2].queue.topic == "%RETRY%billing"
    assert broker.committed_total("billing", "orders") == 1


def test_an_exception_is_a_failure_and_the_limit_ends_in_the_dead_letter_topic(
    broker: FakeBroker, producer: Producer
) -> None:
    def fail(message: ReceivedMessage) -> object:
        raise RuntimeError("broken listener")

    producer.send(Message("orders", b"x"))
    listener = Recorder(fail)
    with consumer_of(broker, listener, max_reconsume_times=2):
        broker.wait_until(lambda: len(broker.messages("%DLQ%billing")) == 1)
    assert len(listener.messages) == 3


def test_a_listener_may_bury_a_message_and_acknowledge_part_of_a_batch(broker: FakeBroker, producer: Producer) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(4)])

    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        context.ack_index = 1
        context.delay_level_when_next_consume = -1

    consumer = PushConsumer(
        namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST, consume_message_batch_max_size=4
    )
    consumer.subscribe("orders")
    consumer.register_listener(listener)
    with consumer:
        broker.wait_until(lambda: [m.body for m in broker.messages("%DLQ%billing")] == [b"2", b"3"])


def test_when_sending_back_fails_a_copy_goes_to_the_retry_topic(broker: FakeBroker, producer: Producer) -> None:
    producer.send(Message("orders", b"x"))
    broker.refuse(RequestCode.CONSUMER_SEND_MSG_BACK)
    listener = Recorder(lambda m: ConsumeResult.RECONSUME_LATER if m.reconsume_times == 0 else None)
    with consumer_of(broker, listener):
        broker.wait_until(lambda: len(listener.messages) == 2)
    assert [(m.topic, m.reconsume_times, m.body) for m in listener.messages] == [
        ("orders", 0, b"x"),
        ("orders", 1, b"x"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FLOW_CONTROL,
    ],
)
def test_a_failed_pull_is_repeated_at_the_same_offset(broker: FakeBroker, producer: Producer, code: int) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(10)])
    listener = Recorder()
    consumer = consumer_of(broker, listener)
    broker.refuse(RequestCode.PULL_MESSAGE, response_code=code, times=20)
    with consumer:
        broker.wait_until(lambda: len(listener.bodies) == 10)
    assert sorted(listener.bodies) == [b"%d" % i for i in range(10)]


def test_an_offset_below_the_minimum_goes_on_at_the_first_message(broker: FakeBroker, producer: Producer) -> None:
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=1)
    for i in range(10):
        producer.send(Message("orders", b"%d" % i), queue=queue)
    broker.set_min_offset("orders", 1, 6)
    listener = Recorder()
    with consumer_of(broker, listener):
        broker.wait_until(lambda: listener.bodies == [b"6", b"7", b"8", b"9"])
        broker.wait_until(lambda: broker.committed_offset("billing", "orders", 1) == 10)


def test_unknown_offsets_are_queried_again_not_guessed(broker: FakeBroker, producer: Producer) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(10)])
    broker.refuse(RequestCode.QUERY_CONSUMER_OFFSET, response_code=ResponseCode.SYSTEM_BUSY, times=6)
    listener = Recorder()
    with consumer_of(broker, listener):
        broker.wait_until(lambda: len(listener.bodies) == 10)


# -- order -------------------------------------------------------------------------------------------------------------


def test_orderly_listeners_see_each_queue_in_order_even_after_failures(broker: FakeBroker, producer: Producer) -> None:
    producer.send_many(Message("orders", b"%d" % i, sharding_key=str(i % 5)) for i in range(200))
    seen: dict[int, list[int]] = defaultdict(list)
    failed: set[tuple[int, int]] = set()
    at_work: Counter[int] = Counter()

    def listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
        place = (context.queue.queue_id, messages[0].queue_offset)
        at_work[place[0]] += 1
        assert at_work[place[0]] == 1, "one listener a queue"
        at_work[place[0]] -= 1
        if place[1] % 10 == 3 and place not in failed:
            failed.add(place)
            return OrderlyResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
        seen[place[0]] += [message.queue_offset for message in messages]
        return OrderlyResult.SUCCESS

    consumer = PushConsumer(
        namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST, suspend_current_queue_ms=5
    )
    consumer.subscribe("orders")
    consumer.register_orderly_listener(listener)
    with consumer:
        broker.wait_until(lambda: sum(map(len, seen.values())) == 200)
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())
    assert failed
    assert broker.committed_total("billing", "orders") == 200
    assert len(broker.requests(RequestCode.LOCK_BATCH_MQ)) >= 4
    assert len(broker.requests(RequestCode.UNLOCK_BATCH_MQ)) == 1


def test_an_orderly_queue_moves_only_after_its_listener_is_done(broker: FakeBroker, producer: Producer) -> None:
    producer.send_many(Message("orders", b"%d" % i, sharding_key=str(i)) for i in range(20))
    release = threading.Event()
    seen: list[tuple[str, MessageQueue, int]] = []

    def member(name: str) -> PushConsumer:
        def listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> None:
            seen.append((name, context.queue, messages[0].queue_offset))
            assert release.wait(20)

        consumer = PushConsumer(namesrv=broker.namesrv_address, group="billing", consume_from_where=FIRST)
        consumer.subscribe("orders")
        consumer.register_orderly_listener(listener)
        return consumer

    first, second = member("first"), member("second")
    with first:
        broker.wait_until(lambda: len(queues_of(first)) == 4 and len(seen) > 0)
        busy = {queue for _, queue, _ in seen}
        with second:
            broker.wait_until(lambda: len(queues_of(first)) == 2)
            assert not busy & set(second.assigned_queues())
            release.set()
            broker.wait_until(lambda: len(queues_of(second)) == 2)
            broker.wait_until(lambda: len(seen) == 20)
    places = [(queue, offset) for _, queue, offset in seen]
    assert len(set(places)) == 20, "nothing came twice"


def test_an_orderly_limit_buries_the_batch_and_the_queue_goes_on(broker: FakeBroker, producer: Producer) -> None:
    producer.send_batch([Message("orders", b"%d" % i) for i in range(3)])
    done: list[bytes] = []

    def listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
        if messages[0].topic == "orders" and messages[0].body == b"1":
            raise RuntimeError("never")
        done.append(messages[0].body)
        return OrderlyResult.SUCCESS

    consumer = PushConsumer(
        namesrv=broker.namesrv_address,
        group="billing",
        consume_from_where=FIRST,
        suspend_current_queue_ms=5,
        max_reconsume_times=2,
    )
    consumer.subscribe("orders")
    consumer.register_orderly_listener(listener)
    with consumer:
        broker.wait_until(lambda: done == [b"0", b"2"])
        broker.wait_until(lambda: [m.body for m in broker.messages("%DLQ%billing")] == [b"1"])
    assert broker.committed_total("billing", "orders") == 3
    (buried,) = [r for r in broker.requests(RequestCode.SEND_MESSAGE_V2) if r.fields["b"] == "%RETRY%billing"]
    assert (buried.fields["j"], buried.fields["l"]) == ("3", "2")


# -- bounds, closing, lifecycle ----------------------------------------------------------------------------------------


def test_flow_control_bounds_held_messages(broker: FakeBroker, producer: Producer) -> None:
    producer.send_many(Message("orders", b"x") for _ in range(400))
    release = threading.Event()

    def wait(message: ReceivedMessage) -> None:
        assert release.wait(20)

    listener = Recorder(wait)
    options = {"consume_threads": 2, "pull_batch_size": 8, "pull_threshold_for_queue": 16, "pull_threshold_for_all": 40}
    with consumer_of(broker, listener, **options) as consumer:
        broker.wait_until(lambda: len(listener.messages) == 2)
        running = {"group": "billing", "client_id": consumer.client_id}
        with AdminClient(namesrv=broker.namesrv_address) as admin:

            def held() -> list[int]:
                table = admin.consumer_running_info(**running).mq_table
                return [info.cached_msg_count for queue, info in table.items() if queue.topic == "orders"]

            broker.wait_until(lambda: sum(held()) >= 40)
            # The last pull of each queue may land on top of a bound.
            assert max(held()) <= 16 + 8
            assert sum(held()) <= 40 + 4 * 8
        release.set()
        broker.wait_until(lambda: len(listener.messages) == 400)


def test_closing_lets_listeners_finish_and_commits_them_only(broker: FakeBroker, producer: Producer) -> None:
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
    for i in range(10):
        producer.send(Message("orders", b"%d" % i), queue=queue)
    begun, release = threading.Event(), threading.Event()

    def wait(message: ReceivedMessage) -> None:
        begun.set()
        assert release.wait(20)

    listener = Recorder(wait)
    consumer = consumer_of(broker, listener, consume_threads=1)
    consumer.start()
    assert begun.wait(10)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    parts = consumer._inner._parts
    assert parts is not None
    dispatcher = parts.dispatcher
    assert isinstance(dispatcher, ConcurrentDispatcher)
    broker.wait_until(lambda: dispatcher._stopped)
    release.set()
    closing.join(10)
    assert not closing.is_alive()
    assert broker.committed_offset("billing", "orders", 0) == len(listener.messages) < 10
    assert broker.group_members("billing") == []


def test_suspend_and_resume(broker: FakeBroker, producer: Producer) -> None:
    listener = Recorder()
    with consumer_of(broker, listener) as consumer:
        broker.wait_until(lambda: len(queues_of(consumer)) == 4)
        consumer.suspend()
        consumer.resume()
        producer.send(Message("orders", b"x"))
        broker.wait_until(lambda: listener.bodies == [b"x"])


def test_topics_may_come_and_go_while_it_runs(broker: FakeBroker, producer: Producer) -> None:
    broker.create_topic("bills", queue_nums=1)
    producer.send(Message("bills", b"bill"))
    listener = Recorder()
    with consumer_of(broker, listener) as consumer:
        consumer.subscribe("bills")
        broker.wait_until(lambda: listener.bodies == [b"bill"])
        consumer.unsubscribe("orders")
        broker.wait_until(lambda: queues_of(consumer) == [])


def test_a_consumer_needs_a_listener_and_starts_once(broker: FakeBroker) -> None:
    with pytest.raises(InvalidRequestError):
        PushConsumer(namesrv=broker.namesrv_address, group="g").start()
    consumer = consumer_of(broker, Recorder())
    consumer.start()
    with pytest.raises(ClosedError):
        consumer.start()
    with pytest.raises(ClosedError):
        consumer.register_listener(Recorder())
    consumer.close()
    consumer.close()


# -- choosing by properties --------------------------------------------------------------------------------------------


@pytest.fixture
def filtering_broker() -> Iterator[FakeBroker]:
    with FakeBroker(property_filter=True) as broker:
        broker.create_topic("orders", queue_nums=4)
        yield broker


def send_prices(broker: FakeBroker, prices: Sequence[int]) -> None:
    with Producer(namesrv=broker.namesrv_address) as producer:
        for price in prices:
            producer.send(Message("orders", b"%d" % price, properties={"price": str(price)}))


def test_messages_are_chosen_by_an_sql_expression(filtering_broker: FakeBroker) -> None:
    """Those that are there, those that come, and those that come back."""
    broker, listener = filtering_broker, Recorder()
    refused: list[ReceivedMessage] = []

    def refuse_once(message: ReceivedMessage) -> object:
        if message.body == b"6" and not refused:
            refused.append(message)
            return ConsumeResult.RECONSUME_LATER
        return None

    listener = Recorder(refuse_once)
    send_prices(broker, range(8))
    consumer = consumer_of(broker, listener)
    consumer.subscribe("orders", "price > 4", expression_type="SQL92")
    with consumer:
        broker.wait_until(lambda: Counter(listener.bodies) == Counter([b"5", b"6", b"6", b"7"]))
        send_prices(broker, [1, 9])
        broker.wait_until(lambda: b"9" in listener.bodies)
        consumer.subscribe("orders", "price < 3", expression_type="SQL92")
        broker.wait_until(lambda: len(broker.requests(RequestCode.HEART_BEAT)) > 1)
        broker.wait_until(lambda: b"price < 3" in broker.requests(RequestCode.HEART_BEAT)[-1].body)
        send_prices(broker, [2, 8])
        broker.wait_until(lambda: b"2" in listener.bodies)
    assert Counter(listener.bodies) == Counter([b"5", b"6", b"6", b"7", b"9", b"2"])


def test_an_invalid_expression_is_an_error_at_the_start(filtering_broker: FakeBroker) -> None:
    consumer = consumer_of(filtering_broker, Recorder())
    consumer.subscribe("orders", "price >", expression_type="SQL92")
    with pytest.raises(SubscriptionParseError, match="the expression is not complete") as caught:
        consumer.start()
    assert caught.value.context["code"] == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    filtering_broker.wait_until(lambda: filtering_broker.group_members("billing") == [])
    with pytest.raises(ClosedError):
        consumer.assigned_queues()


def test_a_broker_with_tags_only_refuses_expressions_at_the_start(broker: FakeBroker) -> None:
    consumer = consumer_of(broker, Recorder())
    consumer.subscribe("orders", "price > 4", expression_type="SQL92")
    with pytest.raises(ResponseError, match="does not support consumer to filter message by SQL92"):
        consumer.start()


def test_a_topic_that_is_not_there_yet_is_no_reason_not_to_start(filtering_broker: FakeBroker) -> None:
    """Its brokers are asked by the pulls."""
    consumer = consumer_of(filtering_broker, Recorder())
    consumer.subscribe("later", "price > 4", expression_type="SQL92")
    with consumer:
        assert filtering_broker.requests(RequestCode.CHECK_CLIENT_CONFIG) == []


def test_tags_are_not_looked_at_by_a_broker(broker: FakeBroker) -> None:
    consumer = consumer_of(broker, Recorder())
    consumer.subscribe("orders", "paid || refunded")
    with consumer:
        assert broker.requests(RequestCode.CHECK_CLIENT_CONFIG) == []
