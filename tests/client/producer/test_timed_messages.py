"""Messages with a time of delivery, and taking them back; on the fake broker, which keeps them like a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clock import now_ms
from thermocline.client import AsyncProducer, Message, Producer
from thermocline.client.testing import FakeBroker
from thermocline.remoting.errors import IllegalOperationError, InvalidRequestError, MQError, UnavailableError
from thermocline.remoting.handles.recall_handle import RecallHandle, decode_recall_handle
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

FAR_MS = 3_600_000
FAR_TIMESTAMP = "9999999999999"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(broker_names=("broker-a", "broker-b"), delays_messages=True) as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[Producer]:
    with Producer(group="shop", namesrv=broker.namesrv_address) as producer:
        yield producer


@pytest.mark.parametrize("kind", ["delay_ms", "deliver_at_ms"])
def test_a_message_comes_at_its_time(broker: FakeBroker, producer: Producer, kind: str) -> None:
    sent_ms = now_ms()
    message = Message("orders", b"later", **{kind: 200 if kind == "delay_ms" else sent_ms + 200})
    result = producer.send(message)
    assert result.recall_handle is not None
    assert broker.messages("orders") == []
    broker.wait_until(lambda: broker.messages("orders") != [])
    (received,) = broker.messages("orders")
    assert received.body == b"later"
    assert received.message_id == result.message_id
    assert received.store_timestamp_ms >= sent_ms + 195


def test_properties_are_those_of_the_official_client(broker: FakeBroker, producer: Producer) -> None:
    producer.send(Message("orders", b"x", delay_ms=1))
    producer.send(Message("orders", b"x", deliver_at_ms=5))
    texts = [
        request.fields["i"]
        for name in ("broker-a", "broker-b")
        for request in broker.requests(RequestCode.SEND_MESSAGE_V2, broker_name=name)
    ]
    assert sorted(piece for text in texts for piece in text.split("\x02") if "TIMER" in piece) == [
        "TIMER_DELAY_MS\x011",
        "TIMER_DELIVER_MS\x015",
    ]


def test_an_ordinary_message_has_no_handle(producer: Producer) -> None:
    assert producer.send(Message("orders", b"x")).recall_handle is None
    assert producer.send(Message("orders", b"x", delay_level=1)).recall_handle is None
    assert producer.send(Message("orders", b"x", deliver_at_ms=5)).recall_handle is None


def test_a_recalled_message_does_not_come(broker: FakeBroker, producer: Producer) -> None:
    """Whichever broker has it: the handle says so."""
    results = [producer.send(Message("orders", b"%d" % number, delay_ms=2_000)) for number in range(8)]
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
    for result in results[:7]:
        assert result.recall_handle is not None
        assert producer.recall(result.recall_handle) == result.message_id
    broker.wait_until(lambda: broker.messages("orders") != [])
    assert [message.body for message in broker.messages("orders")] == [b"7"]


async def test_the_asyncio_half_recalls_too(broker: FakeBroker) -> None:
    async with AsyncProducer(group="shop", namesrv=broker.namesrv_address) as producer:
        result = await producer.send(Message("orders", b"x", delay_ms=FAR_MS))
        assert result.recall_handle is not None
        assert await producer.recall(result.recall_handle) == result.message_id
    name = result.queue.broker_name
    (request,) = broker.requests(RequestCode.RECALL_MESSAGE, broker_name=name)
    assert (request.fields["producerGroup"], request.fields["topic"]) == ("shop", "orders")
    assert request.fields["recallHandle"] == result.recall_handle


def test_messages_that_cannot_be_recalled(broker: FakeBroker, producer: Producer) -> None:
    result = producer.send(Message("orders", b"x", delay_ms=FAR_MS))
    assert result.recall_handle is not None
    handle = decode_recall_handle(result.recall_handle)
    past = RecallHandle(topic="orders", broker_name=handle.broker_name, timestamp_text="1", unique_key="id")
    gone = RecallHandle(topic="orders", broker_name="broker-z", timestamp_text=FAR_TIMESTAMP, unique_key="id")
    refused: list[tuple[str, type[MQError]]] = [
        ("nonsense", IllegalOperationError),
        (past.encode(), IllegalOperationError),
        (gone.encode(), UnavailableError),
    ]
    for text, error in refused:
        with pytest.raises(error):
            producer.recall(text)
    broker.refuse(
        RequestCode.RECALL_MESSAGE,
        response_code=ResponseCode.NO_PERMISSION,
        remark="recall failed, operation is forbidden",
        broker_name=handle.broker_name,
    )
    with pytest.raises(InvalidRequestError, match="operation is forbidden"):
        producer.recall(result.recall_handle)


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"x", delay_ms=1, delay_level=1),
        Message("orders", b"x", delay_ms=1, deliver_at_ms=5),
        Message("orders", b"x", delay_level=1, deliver_at_ms=0),
    ],
)
def test_one_time_is_enough(producer: Producer, message: Message) -> None:
    with pytest.raises(InvalidRequestError, match="choose one of"):
        producer.send(message)


def test_timed_messages_travel_alone(broker: FakeBroker, producer: Producer) -> None:
    with pytest.raises(InvalidRequestError, match="travel alone"):
        producer.send_batch([Message("orders", b"x", delay_ms=1)])
    with Producer(namesrv=broker.namesrv_address, auto_batch=True, batch_max_delay_ms=10_000) as lingering:
        assert lingering.send(Message("orders", b"x", delay_ms=1)).recall_handle is not None


def test_a_fake_broker_does_not_make_tests_wait() -> None:
    with FakeBroker() as broker, Producer(group="shop", namesrv=broker.namesrv_address) as producer:
        result = producer.send(Message("orders", b"at once", delay_ms=FAR_MS))
        assert [message.body for message in broker.messages("orders")] == [b"at once"]
        assert result.recall_handle is not None
        assert producer.recall(result.recall_handle) == result.message_id
