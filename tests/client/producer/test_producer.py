"""The blocking producer against the fake broker: the messages and queues that receive them, retries and errors."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.client.producer.queue_selector import select_by_hash, select_by_queue_id
from thermocline.client.producer.send_many import SendManyError
from thermocline.client.send_result import SendResult, SendStatus
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import (
    BrokerBusyError,
    ClosedError,
    InvalidRequestError,
    MessageTooLargeError,
    MQError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseError,
    TopicNotFoundError,
    UnavailableError,
)
from thermocline.remoting.records.sys_flag import CompressionType, compression_type, is_compressed
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=4)
        yield broker


@pytest.fixture
def two_brokers() -> Iterator[FakeBroker]:
    with FakeBroker(broker_names=("broker-a", "broker-b")) as broker:
        broker.create_topic("orders", queue_nums=2)
        yield broker


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[Producer]:
    with Producer(group="tests", namesrv=broker.namesrv_address) as producer:
        yield producer


def test_a_message_arrives_whole(broker: FakeBroker, producer: Producer) -> None:
    message = Message(
        "orders", b"body", tags="paid", keys=["4711", "tail-7"], properties={"colour": "grün"}, flag=7, sharding_key="k"
    )
    result = producer.send(message)
    (stored,) = broker.messages("orders")
    assert stored.body == b"body"
    assert (stored.tags, stored.keys, stored.flag, stored.sharding_key) == ("paid", "4711 tail-7", 7, "k")
    assert stored.properties["colour"] == "grün"
    assert stored.message_id == result.message_id == result.transaction_id
    assert stored.offset_message_id == result.offset_message_id
    assert (result.status, result.queue, result.queue_offset) == (SendStatus.SEND_OK, stored.queue, 0)


def test_unique_ids_differ_and_have_the_official_length(producer: Producer) -> None:
    results = [producer.send(Message("orders", b"x")) for _ in range(20)]
    assert len({result.message_id for result in results}) == 20
    assert {len(result.message_id) for result in results} == {32}


def test_messages_go_round_the_queues(broker: FakeBroker, producer: Producer) -> None:
    for _ in range(8):
        producer.send(Message("orders", b"x"))
    assert Counter(message.queue.queue_id for message in broker.messages("orders")) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_a_chosen_queue_a_selector_and_a_sharding_key_decide(broker: FakeBroker, producer: Producer) -> None:
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=2)
    assert producer.send(Message("orders", b"x"), queue=queue).queue == queue
    by_id = producer.send(Message("orders", b"x"), selector=select_by_queue_id, argument=3)
    assert by_id.queue.queue_id == 3
    by_hash = producer.send(Message("orders", b"x"), selector=select_by_hash, argument="JFK")
    by_key = producer.send(Message("orders", b"x", sharding_key="JFK"))
    assert by_hash.queue == by_key.queue
    with pytest.raises(InvalidRequestError):
        producer.send(Message("orders", b"x"), argument="JFK")
    with pytest.raises(InvalidRequestError, match="queue_id=9"):
        producer.send(Message("orders", b"x"), selector=select_by_queue_id, argument=9)
    with pytest.raises(UnavailableError):
        producer.send(Message("orders", b"x"), queue=MessageQueue(topic="orders", broker_name="no", queue_id=0))


def test_the_first_message_creates_its_topic_with_the_requested_queues(broker: FakeBroker) -> None:
    with Producer(namesrv=broker.namesrv_address, default_topic_queue_nums=3) as producer:
        producer.send(Message("fresh", b"x"))
        assert len(producer.fetch_publish_queues("fresh")) == 3
    assert len(broker.messages("fresh")) == 1


def test_a_topic_that_no_broker_creates_is_an_error() -> None:
    with (
        FakeBroker(auto_create_topics=False) as broker,
        Producer(namesrv=broker.namesrv_address) as producer,
        pytest.raises(TopicNotFoundError, match="nowhere"),
    ):
        producer.send(Message("nowhere", b"x"))


@pytest.mark.parametrize("compress_type", list(CompressionType))
def test_long_bodies_travel_compressed(broker: FakeBroker, compress_type: CompressionType) -> None:
    body = b"thermocline " * 1000
    with Producer(namesrv=broker.namesrv_address, compress_type=compress_type) as producer:
        producer.send(Message("orders", body))
        producer.send(Message("orders", b"x" * 4096))
    long, short = sorted(broker.messages("orders"), key=lambda message: message.physical_offset)
    assert is_compressed(long.record.sys_flag)
    assert compression_type(long.record.sys_flag) is compress_type
    assert len(long.record.body) < len(body)
    assert long.body == body
    assert not is_compressed(short.record.sys_flag)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message("orders", b""), InvalidRequestError),
        (Message("bad topic", b"x"), InvalidRequestError),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), InvalidRequestError),
        (Message("orders", b"x", properties={"KEYS": "mine"}), InvalidRequestError),
        (Message("orders", b"x", properties={"a": "b\x02c"}), InvalidRequestError),
        (Message("orders", b"x", properties={"a": ""}), InvalidRequestError),
        (Message("orders", b"x", delay_level=1, deliver_at_ms=5), InvalidRequestError),
        (Message("orders", b"x" * 101), MessageTooLargeError),
    ],
)
def test_impossible_messages_never_leave(broker: FakeBroker, message: Message, error: type[MQError]) -> None:
    with Producer(namesrv=broker.namesrv_address, max_message_bytes=100) as producer:
        with pytest.raises(error):
            producer.send(message)
        assert broker.requests(RequestCode.SEND_MESSAGE_V2) == []


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    ],
)
def test_a_refusal_that_another_broker_may_not_share_is_retried_there(two_brokers: FakeBroker, code: int) -> None:
    for name in ("broker-a", "broker-b"):
        two_brokers.refuse(RequestCode.SEND_MESSAGE_V2, response_code=code, broker_name=name)
    # Whichever broker is tried first refuses once; so does the second; the third attempt finds one that does not.
    with Producer(namesrv=two_brokers.namesrv_address) as producer:
        assert producer.send(Message("orders", b"x")).status is SendStatus.SEND_OK
    names = [
        (name, len(two_brokers.requests(RequestCode.SEND_MESSAGE_V2, broker_name=name)))
        for name in ("broker-a", "broker-b")
    ]
    assert sorted(count for _, count in names) == [1, 2]
    assert len(two_brokers.messages("orders")) == 1


def test_other_refusals_are_final(broker: FakeBroker, producer: Producer) -> None:
    broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.MESSAGE_ILLEGAL, remark="too odd")
    with pytest.raises(InvalidRequestError, match="too odd"):
        producer.send(Message("orders", b"x"))
    assert len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1


def test_retries_end(broker: FakeBroker, producer: Producer) -> None:
    broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.SYSTEM_BUSY, times=10)
    with pytest.raises(BrokerBusyError):
        producer.send(Message("orders", b"x"))
    assert len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 3


def test_a_chosen_queue_is_not_retried_elsewhere(broker: FakeBroker, producer: Producer) -> None:
    broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.SYSTEM_ERROR)
    with pytest.raises(ResponseError):
        producer.send(Message("orders", b"x", sharding_key="JFK"))
    assert len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1


@pytest.mark.parametrize("status", [s for s in SendStatus if s is not SendStatus.SEND_OK])
def test_stored_but_not_safe_yet_is_a_status_not_an_error(
    broker: FakeBroker, producer: Producer, status: SendStatus
) -> None:
    broker.answer_sends_with(ResponseCode[status.name])
    result = producer.send(Message("orders", b"x"))
    assert (result.status, result.queue_offset) == (status, 0)


def test_not_safe_yet_is_retried_with_the_option(two_brokers: FakeBroker) -> None:
    two_brokers.answer_sends_with(ResponseCode.FLUSH_DISK_TIMEOUT, broker_name="broker-a")
    with Producer(namesrv=two_brokers.namesrv_address, retry_another_broker_when_not_store_ok=True) as producer:
        results = [producer.send(Message("orders", b"x")) for _ in range(4)]
    assert {(result.status, result.queue.broker_name) for result in results} == {(SendStatus.SEND_OK, "broker-b")}


def test_no_answer_is_a_timeout_and_the_client_goes_on(broker: FakeBroker, producer: Producer) -> None:
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
    with pytest.raises(RequestTimeoutError):
        producer.send(Message("orders", b"x"), timeout_ms=100)
    assert producer.send(Message("orders", b"y")).queue_offset >= 0


def test_a_lost_connection_is_opened_again(broker: FakeBroker, producer: Producer) -> None:
    producer.send(Message("orders", b"1"))
    broker.drop_connections()
    producer.send(Message("orders", b"2"))
    assert len(broker.messages("orders")) == 2


def test_sends_under_way_survive_a_lost_connection(broker: FakeBroker, producer: Producer) -> None:
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2, times=3)
    futures = [producer.send_async(Message("orders", b"%d" % i)) for i in range(3)]
    broker.wait_until(lambda: len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 3)
    broker.drop_connections()
    assert all(future.result(timeout=10).status is SendStatus.SEND_OK for future in futures)
    assert sorted(message.body for message in broker.messages("orders")) == [b"0", b"1", b"2"]


def test_a_dead_broker_is_left_for_a_live_one(two_brokers: FakeBroker) -> None:
    with Producer(namesrv=two_brokers.namesrv_address) as producer:
        producer.send(Message("orders", b"1"))
        two_brokers.hide_broker("broker-a")
        two_brokers.refuse(
            RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.GO_AWAY, times=9, broker_name="broker-a"
        )
        results = [producer.send(Message("orders", b"x")) for _ in range(6)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}


def test_another_name_server_is_asked_when_one_is_dead(broker: FakeBroker) -> None:
    for addresses in itertools.permutations(["127.0.0.1:1", broker.namesrv_address]):
        with Producer(namesrv=";".join(addresses)) as producer:
            producer.send(Message("orders", b"x"))
    assert len(broker.messages("orders")) == 2


def test_without_a_name_server_a_send_says_so() -> None:
    with Producer(namesrv="127.0.0.1:1") as producer, pytest.raises(UnavailableError, match="NameServer"):
        producer.send(Message("orders", b"x"))


def test_one_way_arrives_without_being_answered(broker: FakeBroker, producer: Producer) -> None:
    producer.send_one_way(Message("orders", b"x"))
    broker.wait_until(lambda: len(broker.messages("orders")) == 1)


def test_async_sends_call_back_and_complete_their_future(broker: FakeBroker, producer: Producer) -> None:
    outcomes: list[SendResult | MQError] = []
    future = producer.send_async(Message("orders", b"x"), outcomes.append)
    assert future.result(timeout=10) is outcomes[0]
    broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.MESSAGE_ILLEGAL)
    failed = producer.send_async(Message("orders", b"x"), outcomes.append)
    with pytest.raises(InvalidRequestError):
        failed.result(timeout=10)
    assert isinstance(outcomes[1], InvalidRequestError)


def test_an_async_send_cannot_be_called_back(broker: FakeBroker, producer: Producer) -> None:
    future = producer.send_async(Message("orders", b"x"))
    assert not future.cancel()
    assert isinstance(future.result(), SendResult)


def test_send_many_keeps_order_in_each_queue(broker: FakeBroker, producer: Producer) -> None:
    results = producer.send_many((Message("orders", b"%d" % i, sharding_key=str(i % 3)) for i in range(300)), window=16)
    assert len(results) == 300
    for queue_id in range(4):
        bodies = [int(message.body) for message in broker.messages("orders") if message.queue.queue_id == queue_id]
        assert bodies == sorted(bodies)
    assert len(broker.messages("orders")) == 300


def test_send_many_sends_while_its_iterable_waits(broker: FakeBroker, producer: Producer) -> None:
    """Lines of a pipe that came slowly were not sent before 256 of them were there, and timed out meanwhile."""
    threads: set[int] = set()

    def messages() -> Iterator[Message]:
        for number in range(3):
            threads.add(threading.get_ident())
            yield Message("orders", b"%d" % number)
            broker.wait_until(lambda: len(broker.messages("orders")) == number + 1)  # noqa: B023 - it is called at once

    assert len(producer.send_many(messages(), window=1)) == 3
    assert threads == {threading.get_ident()}


def test_send_many_ends_with_its_iterable_s_exception(broker: FakeBroker, producer: Producer) -> None:
    def messages() -> Iterator[Message]:
        yield Message("orders", b"0")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        producer.send_many(messages())
    assert len(broker.messages("orders")) == 1
    with pytest.raises(InvalidRequestError, match="window"):
        producer.send_many(iter([Message("orders", b"1")] * 3), window=0)
    with pytest.raises(SendManyError) as caught:
        producer.send_many((Message("orders", body) for body in (b"1", b"", *[b"never"] * 1_000)), window=2)
    assert len(caught.value.outcomes) < 10
    producer.close()
    with pytest.raises(ClosedError):
        producer.send_many(iter([Message("orders", b"2")]))


def test_a_callback_that_would_have_to_wait_for_room_gets_an_error(broker: FakeBroker) -> None:
    """It waited on the thread that gives room, and all sends with it."""
    outcomes: list[object] = []
    done = threading.Event()
    with Producer(namesrv=broker.namesrv_address, in_flight_max=1) as producer:

        def send_twice(outcome: SendResult | MQError) -> None:
            for _ in range(2):
                try:
                    outcomes.append(producer.send_async(Message("orders", b"more")))
                except InvalidRequestError as error:
                    outcomes.append(error)
            done.set()

        producer.send_async(Message("orders", b"x"), send_twice)
        assert done.wait(20)
        assert [type(outcome) for outcome in outcomes] == [concurrent.futures.Future, InvalidRequestError]
    assert len(broker.messages("orders")) == 2


def test_threads_wait_while_many_bytes_are_under_way(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count alone was bounded: 1024 messages of 4 MiB."""
    monkeypatch.setattr("thermocline.client.producer.producer.IN_FLIGHT_BYTES_MAX", 2_000)
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2, times=2)
    with Producer(namesrv=broker.namesrv_address) as producer:
        held = [producer.send_async(Message("orders", bytes(1_000))) for _ in range(2)]
        producer.send(Message("orders", b"x"), timeout_ms=60_000)
        assert all(one.done() for one in held), "the third one waited for room"


def test_a_copy_of_a_full_producer_refuses_sends(broker: FakeBroker) -> None:
    """It waited for room that only the process that was forked gets."""
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
    with Producer(namesrv=broker.namesrv_address, in_flight_max=1) as producer:
        sent = producer.send_async(Message("orders", b"x"))
        process_id = os.getpid()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", lambda: process_id + 1)  # what a fork changes; the thread is not asked
            with pytest.raises(ClosedError, match="fork"):
                producer.send_async(Message("orders", b"y"))
        assert not sent.done(), "there is no room yet"
        with pytest.raises(RequestTimeoutError):
            sent.result(60)


def test_send_many_stops_at_the_first_failure_and_tells_every_outcome(broker: FakeBroker, producer: Producer) -> None:
    broken = [Message("orders", b"%d" % i) for i in range(5)] + [Message("orders", b"")]
    never = [Message("orders", b"late")] * 5
    with pytest.raises(SendManyError) as caught:
        producer.send_many(broken + never)
    outcomes = caught.value.outcomes
    assert [type(outcome) for outcome in outcomes[:5]] == [SendResult] * 5
    assert isinstance(outcomes[5], InvalidRequestError)
    assert len(outcomes) == 6
    assert len(broker.messages("orders")) == 5


def test_a_batch_is_one_request_and_one_run_of_offsets(broker: FakeBroker, producer: Producer) -> None:
    messages = [Message("orders", b"%d" % i, tags=f"t{i}", keys=f"k{i}") for i in range(5)]
    results = producer.send_batch(messages)
    assert len(broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 1
    assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
    stored = broker.messages("orders")
    assert [message.body for message in stored] == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.message_id for message in stored] == [result.message_id for result in results]
    assert [message.offset_message_id for message in stored] == [result.offset_message_id for result in results]
    assert [message.tags for message in stored] == ["t0", "t1", "t2", "t3", "t4"]
    assert producer.send_batch([]) == []


@pytest.mark.parametrize(
    "other",
    [
        Message("bills", b"x"),
        Message("orders", b"x", delay_level=1),
        Message("orders", b"x", wait_store_ok=False),
        Message("orders", b"x", sharding_key="k"),
        Message("orders", b"x" * 5_000_000),
    ],
)
def test_a_batch_refuses_messages_of_different_kinds(producer: Producer, other: Message) -> None:
    with pytest.raises(InvalidRequestError):
        producer.send_batch([Message("orders", b"x"), other])


def test_a_batch_to_a_chosen_queue_may_have_several_sharding_keys(broker: FakeBroker, producer: Producer) -> None:
    queue = producer.fetch_publish_queues("orders")[2]
    producer.send_batch([Message("orders", b"x", sharding_key=key) for key in ("a", "b", "")], queue=queue)
    stored = broker.messages("orders")
    assert [(message.sharding_key, message.queue) for message in stored] == [("a", queue), ("b", queue), ("", queue)]


def test_a_message_may_bring_its_unique_id(broker: FakeBroker, producer: Producer) -> None:
    queue = producer.fetch_publish_queues("orders")[0]
    alone = producer.send(Message("orders", b"x", unique_key="MINE"), queue=queue)
    batch = [Message("orders", b"x", unique_key="MINE TOO"), Message("orders", b"x")]
    results = producer.send_batch(batch, queue=queue)
    ids = [alone.message_id, *(result.message_id for result in results)]
    assert ids[:2] == ["MINE", "MINE TOO"]
    assert [message.message_id for message in broker.messages("orders")] == ids
    with pytest.raises(InvalidRequestError, match="unique id"):
        producer.send(Message("orders", b"x", unique_key="a\x01b"))


def test_lingering_messages_travel_together(broker: FakeBroker) -> None:
    with Producer(namesrv=broker.namesrv_address, auto_batch=True, batch_max_delay_ms=50) as producer:
        futures = [producer.send_async(Message("orders", b"%d" % i)) for i in range(50)]
        alone = producer.send_async(Message("orders", b"keyed", sharding_key="k"))
        results = [future.result(timeout=10) for future in futures]
        assert alone.result(timeout=10).status is SendStatus.SEND_OK
    assert len(broker.requests(RequestCode.SEND_BATCH_MESSAGE)) < 10
    assert len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1
    by_id = {message.message_id: message for message in broker.messages("orders")}
    assert [by_id[result.message_id].body for result in results] == [b"%d" % i for i in range(50)]
    assert all(by_id[result.message_id].queue_offset == result.queue_offset for result in results)


def test_many_threads_share_one_producer(broker: FakeBroker, producer: Producer) -> None:
    def work(n: int) -> None:
        for i in range(25):
            producer.send(Message("orders", b"%d-%d" % (n, i)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({message.body for message in broker.messages("orders")}) == 200


def test_closing_waits_for_sends_in_flight_and_unregisters(broker: FakeBroker) -> None:
    producer = Producer(group="leaving", namesrv=broker.namesrv_address)
    producer.start()
    futures = [producer.send_async(Message("orders", b"%d" % i)) for i in range(100)]
    producer.close()
    assert all(future.done() for future in futures)
    assert len(broker.messages("orders")) == 100
    (request,) = broker.requests(RequestCode.UNREGISTER_CLIENT)
    assert request.fields["producerGroup"] == "leaving"
    with pytest.raises(ClosedError):
        producer.send(Message("orders", b"x"))


def test_a_producer_announces_its_group(broker: FakeBroker, producer: Producer) -> None:
    producer.send(Message("orders", b"x"))
    broker.wait_until(lambda: len(broker.requests(RequestCode.HEART_BEAT)) > 0)
    assert b'"groupName":"tests"' in broker.requests(RequestCode.HEART_BEAT)[0].body


def test_a_read_only_topic_takes_nothing(broker: FakeBroker, producer: Producer) -> None:
    broker.create_topic("frozen", perm=4)
    with pytest.raises(MQError) as caught:
        producer.send(Message("frozen", b"x"))
    assert isinstance(caught.value, PermissionDeniedError | UnavailableError)


def test_options_are_checked_and_frozen() -> None:
    with pytest.raises(InvalidRequestError):
        Producer(namesrv="nonsense")
    with pytest.raises(InvalidRequestError):
        Producer(group="bad group")
    with pytest.raises(InvalidRequestError):
        Producer(send_timeout_ms=0)
    assert Producer(group="g", send_timeout_ms=5).send_timeout_ms == 5
