"""Requests and replies: over one broker and several, without a replier, and while connections open and close."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from thermocline.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ClosedError,
    ConsumeContext,
    ConsumeFromWhere,
    InvalidRequestError,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    ReplyTimeoutError,
    ResponseError,
    TopicNotFoundError,
)
from thermocline.client.testing import FakeBroker
from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("questions")
        yield broker


@asynccontextmanager
async def replier(broker: FakeBroker) -> AsyncIterator[AsyncProducer]:
    """Run a replier that answers every request with its own body behind "re: "."""
    async with AsyncProducer(group="answers", namesrv=broker.namesrv_address) as producer:

        async def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            for message in messages:
                await producer.reply(message, b"re: " + message.body, properties={"by": "python"})

        consumer = AsyncPushConsumer(
            group="experts",
            namesrv=broker.namesrv_address,
            consume_from_where=FIRST,
            pull_time_delay_ms_when_exception=20,
        )
        consumer.subscribe("questions")
        consumer.register_listener(listener)
        async with consumer:
            yield producer


async def test_a_request_gets_its_own_reply(broker: FakeBroker) -> None:
    async with replier(broker), AsyncProducer(group="askers", namesrv=broker.namesrv_address) as producer:
        texts = [b"question %d" % number for number in range(20)]
        replies = await asyncio.gather(*(producer.request(Message("questions", text)) for text in texts))
        assert [reply.body for reply in replies] == [b"re: " + text for text in texts]
        reply = replies[0]
        assert (reply.topic, reply.properties["by"], reply.properties["MSG_TYPE"]) == (REPLY_TOPIC, "python", "reply")
        assert reply.properties.keys() >= {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME"}
        assert reply.properties["REPLY_TO_CLIENT"] == producer.client_id
    (asked, *_) = [message for message in broker.messages("questions") if message.body == texts[0]]
    assert asked.properties["CORRELATION_ID"] == reply.properties["CORRELATION_ID"]
    assert asked.properties["TTL"] == "3000"
    assert len(broker.messages(REPLY_TOPIC)) == 20


async def test_long_bodies_travel_compressed_both_ways(broker: FakeBroker) -> None:
    text = b"much " * 4_000
    async with replier(broker), AsyncProducer(namesrv=broker.namesrv_address) as producer:
        reply = await producer.request(Message("questions", text))
    assert reply.body == b"re: " + text
    (request,) = broker.requests(RequestCode.SEND_REPLY_MESSAGE_V2)
    assert len(request.body) < 1_000


def test_the_blocking_half(broker: FakeBroker) -> None:
    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for message in messages:
            answers.reply(message, message.body.upper())

    consumer = PushConsumer(group="experts", namesrv=broker.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe("questions")
    consumer.register_listener(listener)
    with (
        Producer(group="answers", namesrv=broker.namesrv_address) as answers,
        Producer(group="askers", namesrv=broker.namesrv_address) as producer,
        consumer,
    ):
        assert producer.request(Message("questions", b"why", sharding_key="k")).body == b"WHY"


async def test_an_auto_batching_producer_asks_one_by_one(broker: FakeBroker) -> None:
    async with replier(broker), AsyncProducer(namesrv=broker.namesrv_address, auto_batch=True) as producer:
        assert (await producer.request(Message("questions", b"x"))).body == b"re: x"
    assert not broker.requests(RequestCode.SEND_BATCH_MESSAGE)


async def test_no_reply_in_time_is_an_error_of_its_own(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        with pytest.raises(ReplyTimeoutError, match="is_stored=True"):
            await producer.request(Message("questions", b"x"), timeout_ms=200)
        broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
        with pytest.raises(ReplyTimeoutError, match="is_stored=False"):
            await producer.request(Message("questions", b"x"), timeout_ms=200)


async def test_a_request_that_cannot_be_sent_fails_as_a_send_does() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
            with pytest.raises(TopicNotFoundError):
                await producer.request(Message("nowhere", b"x"))
            with pytest.raises(InvalidRequestError):
                await producer.request(Message("nowhere", b""))
            broker.create_topic("questions")
            broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(InvalidRequestError):
                await producer.request(Message("questions", b"x"))
        with pytest.raises(ClosedError):
            await producer.request(Message("questions", b"x"))


async def test_closing_ends_the_wait(broker: FakeBroker) -> None:
    producer = AsyncProducer(namesrv=broker.namesrv_address)
    await producer.start()
    asking = asyncio.create_task(producer.request(Message("questions", b"x"), timeout_ms=60_000))
    await asyncio.to_thread(broker.wait_until, lambda: len(broker.messages("questions")) == 1)
    await producer.close()
    with pytest.raises(ClosedError):
        await asking


async def test_a_connection_made_anew_is_announced_before_the_next_request(broker: FakeBroker) -> None:
    """Without that the broker would not know the requester for a second, and the reply would be lost."""
    async with replier(broker), AsyncProducer(namesrv=broker.namesrv_address) as producer:
        for number in range(3):
            text = b"%d" % number
            reply = await producer.request(Message("questions", text), timeout_ms=10_000)
            assert reply.body == b"re: " + text
            broker.drop_connections()


async def test_a_broker_that_is_silent_does_not_cost_a_request_its_time() -> None:
    with FakeBroker(broker_names=("broker-a", "broker-b")) as broker:
        broker.create_topic("questions", queue_nums=1)
        async with replier(broker), AsyncProducer(namesrv=broker.namesrv_address) as producer:
            (queue, _) = await producer.fetch_publish_queues("questions")
            broker.stay_silent(RequestCode.HEART_BEAT, times=100, broker_name="broker-b")
            for _ in range(3):
                reply = await producer.request(Message("questions", b"x"), queue=queue, timeout_ms=2_500)
                assert reply.body == b"re: x"


async def test_only_who_asks_gets_a_reply(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        await producer.send(Message("questions", b"no question"))
        (message,) = broker.messages("questions")
        with pytest.raises(InvalidRequestError, match="asks for no reply"):
            await producer.reply(message, b"yes")


async def test_a_reply_without_a_requester_is_refused(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address) as requester:
        with pytest.raises(ReplyTimeoutError):
            await requester.request(Message("questions", b"x"), timeout_ms=100)
        late = broker.messages("questions")[0]
        async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
            assert (await producer.reply(late, b"late")).queue.topic == REPLY_TOPIC  # it is there, and throws it away
            await requester.close()
            with pytest.raises(ResponseError, match="not found"):
                await producer.reply(late, b"later")


async def test_another_broker_hands_a_reply_on() -> None:
    with FakeBroker(broker_names=("broker-a", "broker-b")) as broker:
        broker.create_topic("questions", queue_nums=1)
        async with replier(broker), AsyncProducer(namesrv=broker.namesrv_address) as producer:
            (queue, _) = await producer.fetch_publish_queues("questions")
            broker.refuse(RequestCode.SEND_REPLY_MESSAGE_V2, broker_name="broker-a")
            assert (await producer.request(Message("questions", b"x"), queue=queue)).body == b"re: x"
        by_broker = {
            name: [
                decode_properties(request.fields["i"])["CORRELATION_ID"]
                for request in broker.requests(RequestCode.SEND_REPLY_MESSAGE_V2, broker_name=name)
            ]
            for name in ("broker-a", "broker-b")
        }
        assert by_broker["broker-a"] == by_broker["broker-b"]
        assert len(by_broker["broker-a"]) == 1


def test_many_threads_share_one_producer(broker: FakeBroker) -> None:
    def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for message in messages:
            answers.reply(message, message.body)

    got: list[tuple[bytes, bytes]] = []

    def ask(number: int) -> None:
        text = b"%d" % number
        got.append((text, producer.request(Message("questions", text), timeout_ms=10_000).body))

    consumer = PushConsumer(group="experts", namesrv=broker.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe("questions")
    consumer.register_listener(listener)
    with (
        Producer(group="answers", namesrv=broker.namesrv_address) as answers,
        Producer(group="askers", namesrv=broker.namesrv_address, in_flight_max=2) as producer,
        consumer,
    ):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got) == sorted((b"%d" % number, b"%d" % number) for number in range(8))
