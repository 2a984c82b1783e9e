"""Producers whose application fails, whose broker is frozen, or that are closed while callers wait."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from tests.waiting import until
from thermocline.client import (
    AsyncProducer,
    AsyncTransactionProducer,
    LocalTransactionState,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    SendResult,
)
from thermocline.client.producer import send_pipeline
from thermocline.client.testing import FakeBroker
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, RemotingServer
from thermocline.remoting.errors import ClosedError, InvalidRequestError, MQError, RequestTimeoutError, UnavailableError
from thermocline.remoting.headers import SendMessageResponseHeader
from thermocline.remoting.offsets import QUEUE_START
from thermocline.remoting.request_code import RequestCode

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        running.create_topic(TOPIC, queue_nums=1)
        yield running


def fail(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    raise ZeroDivisionError


def choose_nothing(queues: Sequence[MessageQueue], message: Message, argument: object) -> None:
    """As a selector that forgot to return."""


def choose_a_list(queues: Sequence[MessageQueue], message: Message, argument: object) -> list[MessageQueue]:
    return [*queues]


@pytest.mark.parametrize("selector", [fail, choose_nothing, choose_a_list])
async def test_a_selector_that_fails_is_the_callers_error(broker: FakeBroker, selector: Callable[..., object]) -> None:
    """At the first send to a topic it left the caller waiting for ever, later it left `close` waiting for ever."""
    async with asyncio.timeout(60), AsyncProducer(namesrv=broker.namesrv_address) as producer:
        for _ in range(2):
            with pytest.raises(InvalidRequestError, match="selector"):
                await producer.send(Message(TOPIC, b"x"), selector=selector)  # type: ignore[arg-type]
            await producer.send(Message(TOPIC, b"x"))


@pytest.mark.parametrize("address", ["orders-7d9f", "fe80::1%eth0", "10.0.0.7"])
async def test_the_address_of_a_client_may_be_any_name(broker: FakeBroker, address: str) -> None:
    """Java clients take any; here a start failed, as message ids are made of an address of bytes."""
    async with AsyncProducer(namesrv=broker.namesrv_address, client_ip=address) as producer:
        assert producer.client_id.startswith(f"{address}@")
        sent = await producer.send(Message(TOPIC, b"x"))
        assert sent.message_id.startswith("0A000007") == (address == "10.0.0.7")


async def test_callers_that_wait_for_room_end_with_the_producer(broker: FakeBroker) -> None:
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
    producer = AsyncProducer(namesrv=broker.namesrv_address, in_flight_max=1, send_timeout_ms=200)
    await producer.start()
    sends = [asyncio.create_task(producer.send(Message(TOPIC, b"x"))) for _ in range(5)]
    await until(lambda: broker.requests(RequestCode.SEND_MESSAGE_V2))
    await producer.close()
    done, pending = await asyncio.wait(sends, timeout=30)
    assert not pending
    assert {type(task.exception()) for task in done} == {RequestTimeoutError, ClosedError}


async def test_a_refused_caller_passes_its_turn_on(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, in_flight_max=1) as producer:
        first = producer.send_async(Message(TOPIC, b"x"))
        refused = [asyncio.create_task(producer.send(Message(TOPIC, b"y"), argument=1)) for _ in range(2)]
        last = asyncio.create_task(producer.send(Message(TOPIC, b"z")))
        await first
        async with asyncio.timeout(60):
            await last
        assert {type(error) for error in await asyncio.gather(*refused, return_exceptions=True)} == {
            InvalidRequestError
        }


IMPOSSIBLE = [
    {"body": "a text"},
    {"keys": [1]},
    {"keys": 7},
    {"keys": ["a\x02b"]},
    {"keys": "half a pair \ud83d"},
    {"tags": "half a pair \ud83d"},
    {"tags": b"paid"},
    {"properties": {"name": "half a pair \ud83d"}},
    {"unique_key": "half a pair \ud83d"},
    {"keys": "a\x02DELAY\x013"},
    {"sharding_key": "a\x01b"},
    {"flag": 1 << 31},
    {"flag": "1"},
]


def outcome_of(sent: object) -> None:
    if isinstance(sent, concurrent.futures.Future):
        sent.result(timeout=60)


@pytest.mark.parametrize("wrong", IMPOSSIBLE, ids=str)
def test_what_cannot_be_encoded_is_the_callers_error(broker: FakeBroker, wrong: dict[str, object]) -> None:
    """It was found when the frame was written: the caller waited for ever or until the time-out, and with it all that
    waited for the same connection."""
    message = Message(**({"topic": TOPIC, "body": b"x"} | wrong))  # type: ignore[arg-type]
    with Producer(namesrv=broker.namesrv_address) as producer:
        for send in (producer.send_async, lambda one: producer.send_batch([one]), producer.send_one_way):
            with pytest.raises(InvalidRequestError):
                outcome_of(send(message))
        producer.send(Message(TOPIC, b"x"))


class CancelledListener:
    """Waits for something that is cancelled."""

    def __init__(self) -> None:
        self.checks = 0

    async def execute_local_transaction(self, message: Message, transaction_id: str, argument: object) -> None:
        raise asyncio.CancelledError

    async def check_local_transaction(
        self, message: ReceivedMessage, transaction_id: str
    ) -> LocalTransactionState | None:
        self.checks += 1
        if self.checks == 1:
            raise asyncio.CancelledError
        return LocalTransactionState.COMMIT_MESSAGE


async def test_a_transaction_whose_listener_raises_cancelled_error_is_asked_about(broker: FakeBroker) -> None:
    """The caller's task counted as cancelled; of a check there was no outcome, so it held its place for ever."""
    listener = CancelledListener()
    producer = AsyncTransactionProducer(group="shop", namesrv=broker.namesrv_address, check_request_hold_max=1)
    producer.register_transaction_listener(listener)  # type: ignore[arg-type]
    async with producer:
        result = await producer.send_message_in_transaction(Message(TOPIC, b"x"))
        assert result.local_transaction_state is LocalTransactionState.UNKNOWN
        while not broker.messages(TOPIC):
            await asyncio.to_thread(broker.ask_producers)
            await asyncio.sleep(0.01)
    assert listener.checks >= 2


def freeze(broker: FakeBroker) -> None:
    """Have the broker read nothing more from its connections, as when it is stopped by a signal."""

    def pause() -> None:
        for connection in broker._node(None).server.connections:
            assert connection._transport is not None
            connection._transport.pause_reading()

    broker._on_loop(pause)


async def test_a_frozen_broker_does_not_fill_the_memory(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends that timed out stay in the buffer of the connection; each wave of sends added to it."""
    monkeypatch.setattr(send_pipeline, "UNSENT_BYTES_MAX", 4 << 20)
    body = bytes(1 << 20)
    async with AsyncProducer(
        namesrv=broker.namesrv_address, send_timeout_ms=200, compress_body_over_bytes=1 << 30
    ) as producer:
        await producer.send(Message(TOPIC, b"x"))
        freeze(broker)
        outcomes: list[object] = []
        while not any("does not take what is sent" in str(outcome) for outcome in outcomes):
            assert len(outcomes) < 200
            sends = [producer.send_async(Message(TOPIC, body)) for _ in range(8)]
            outcomes += await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(outcome, MQError) for outcome in outcomes)
        assert producer._session is not None
        (connection,) = [
            one
            for address in producer._session.connections.addresses
            if address in broker.broker_addresses.values()
            for one in [producer._session.connections.connection(address)]
        ]
        assert connection is not None
        assert connection.unsent_bytes < 16 << 20

        with pytest.raises(RequestTimeoutError, match="does not take"):
            await producer.send_one_way(Message(TOPIC, b"x"))
        connection.abort()
        await producer.send(Message(TOPIC, b"thawed"), timeout_ms=10_000)


class Impostor:
    """Answers each request with the number of another one, as if that were stored."""

    opaque = 0

    def handle(self, connection: Connection, command: RemotingCommand) -> None:
        header = SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=QUEUE_START)
        connection.send(RemotingCommand.response(msgspec.structs.replace(command, opaque=self.opaque), header=header))

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do."""


async def test_an_answer_of_another_broker_confirms_no_message(broker: FakeBroker) -> None:
    """Sends were looked up by the number in the answer alone: what no broker had stored counted as acknowledged."""
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
    impostor = Impostor()
    server = RemotingServer(impostor)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    async with AsyncProducer(
        namesrv=broker.namesrv_address, retry_times_when_send_failed=0, send_timeout_ms=3_000
    ) as producer:
        sent = producer.send_async(Message(TOPIC, b"x"))
        await until(lambda: broker.requests(RequestCode.SEND_MESSAGE_V2))
        assert producer._pipeline is not None
        assert producer._session is not None
        (impostor.opaque,) = producer._pipeline._pending
        with pytest.raises(RequestTimeoutError):
            await producer._session.connections.call(address, RemotingCommand.request(1), timeout_ms=200)
        with pytest.raises(RequestTimeoutError):
            await sent
    await server.close()


async def test_a_connection_that_nothing_comes_from_is_replaced(broker: FakeBroker) -> None:
    """Its peer vanished without a word, and serves new connections: sends timed out for a quarter of an hour."""
    async with AsyncProducer(
        namesrv=broker.namesrv_address, send_timeout_ms=300, request_timeout_ms=200, heartbeat_broker_interval_ms=1_000
    ) as producer:
        await producer.send(Message(TOPIC, b"x"))
        freeze(broker)
        with pytest.raises(RequestTimeoutError):
            await producer.send(Message(TOPIC, b"y"))
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(MQError):
                    await producer.send(Message(TOPIC, b"z"))
                    break


async def test_a_name_server_that_vanished_is_asked_on_a_new_connection(broker: FakeBroker) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address, request_timeout_ms=200) as producer:
        await producer.send(Message(TOPIC, b"x"))

        def pause() -> None:
            for connection in broker._running().server.connections:
                assert connection._transport is not None
                connection._transport.pause_reading()

        broker._on_loop(pause)
        with pytest.raises(UnavailableError):
            await producer.fetch_publish_queues("new")
        assert await producer.fetch_publish_queues("new")


async def test_a_close_that_is_cancelled_goes_on(broker: FakeBroker) -> None:
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
    producer = AsyncProducer(namesrv=broker.namesrv_address, send_timeout_ms=300)
    await producer.start()
    future = producer.send_async(Message(TOPIC, b"x"))
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, future, return_exceptions=True)
    await producer.close()
    assert producer._session is not None
    assert not producer._session._tasks
    assert producer._session.connections.addresses == ()


@pytest.mark.parametrize("waits_for", ["a route", "a connection"])
async def test_a_callback_of_a_time_out_may_send(waits_for: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A send of another topic, or to another broker, ended the sweep: from then on no send timed out."""
    with FakeBroker(broker_names=["broker-a", "broker-b"]) as broker:
        broker.create_topic(TOPIC, queue_nums=1)
        async with AsyncProducer(namesrv=broker.namesrv_address, request_timeout_ms=600_000) as producer:
            queues: Sequence[MessageQueue | None] = [None, None]
            topics = [TOPIC, "other"]
            if waits_for == "a route":
                broker.stay_silent(RequestCode.GET_ROUTEINFO_BY_TOPIC, times=1_000, broker_name="namesrv")
            else:
                queues, topics = await producer.fetch_publish_queues(TOPIC), [TOPIC, TOPIC]
                assert producer._session is not None
                connections = producer._session.connections
                monkeypatch.setattr(connections, "connection", lambda address: None)
                monkeypatch.setattr(connections, "connect", lambda address: asyncio.Event().wait())
            again: list[asyncio.Future[SendResult]] = []

            def send_again(outcome: SendResult | MQError) -> None:
                assert isinstance(outcome, RequestTimeoutError)
                again.append(producer.send_async(Message(topics[1], b"x"), queue=queues[1], timeout_ms=100))

            with pytest.raises(RequestTimeoutError):
                await producer.send_async(Message(topics[0], b"x"), send_again, queue=queues[0], timeout_ms=100)
            async with asyncio.timeout(60):
                with pytest.raises(RequestTimeoutError):
                    await again[0]
