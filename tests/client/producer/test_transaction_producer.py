"""Transaction producers: half messages, local transactions, checks, and the errors that callers get."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from thermocline import (
    AdminClient,
    AsyncTransactionProducer,
    ClosedError,
    InvalidRequestError,
    LocalTransactionState,
    Message,
    ReceivedMessage,
    ResponseError,
    SendStatus,
    TransactionProducer,
    UnavailableError,
)
from thermocline.client.testing import FakeBroker
from thermocline.remoting.records.properties import PropertyName, decode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

COMMIT, ROLL_BACK, UNKNOWN = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOWN,
)
TOPIC = "orders"
END = RequestCode.END_TRANSACTION


class Listener:
    """Decides as the test says, and remembers what it was asked."""

    def __init__(self, local: object = COMMIT, check: object = COMMIT) -> None:
        self.local = local
        self.check = check
        self.executed: list[tuple[bytes, str, object]] = []
        self.checked: list[tuple[ReceivedMessage, str]] = []
        self.threads: set[str] = set()

    def execute_local_transaction(self, message: Message, transaction_id: str, argument: object) -> Any:
        self.executed.append((message.body, transaction_id, argument))
        self.threads.add(threading.current_thread().name)
        return self._decide(self.local)

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> Any:
        self.checked.append((message, transaction_id))
        self.threads.add(threading.current_thread().name)
        return self._decide(self.check)

    def _decide(self, state: object) -> object:
        if isinstance(state, Exception):
            raise state
        return state


class AsyncListener(Listener):
    """The same for the asyncio half."""

    async def execute_local_transaction(self, message: Message, transaction_id: str, argument: object) -> Any:
        return super().execute_local_transaction(message, transaction_id, argument)

    async def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> Any:
        return super().check_local_transaction(message, transaction_id)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.fixture
def make(broker: FakeBroker) -> Iterator[Callable[..., TransactionProducer]]:
    """`make(listener, ...)` starts a producer that is closed after the test."""
    started: list[TransactionProducer] = []

    def start(listener: Listener, **options: Any) -> TransactionProducer:
        producer = TransactionProducer(group="shop", namesrv=broker.namesrv_address, **options)
        producer.register_transaction_listener(listener)
        producer.start()
        started.append(producer)
        return producer

    yield start
    for producer in started:
        producer.close()


def wait_for_heartbeat(broker: FakeBroker) -> None:
    """Wait until the broker has registered the producer, which may happen after the first message was sent."""
    broker.wait_until(lambda: bool(broker.requests(RequestCode.HEART_BEAT)), what="a heartbeat")


def bodies(broker: FakeBroker) -> list[bytes]:
    return [message.body for message in broker.messages(TOPIC)]


# -- sending -----------------------------------------------------------------------------------------------------------


def test_a_commit_shows_the_message(broker: FakeBroker, make: Callable[..., TransactionProducer]) -> None:
    listener = Listener()
    result = make(listener).send_message_in_transaction(Message(TOPIC, b"paid", tags="red", keys="4711"), "argument")
    assert (result.status, result.local_transaction_state, result.is_confirmed) == (SendStatus.SEND_OK, COMMIT, True)
    assert listener.executed == [(b"paid", result.message_id, "argument")]
    assert listener.threads == {threading.main_thread().name}
    (message,) = broker.messages(TOPIC)
    assert (message.body, message.tags, message.keys, message.message_id) == (b"paid", "red", "4711", result.message_id)
    assert broker.open_transactions(TOPIC) == 0


def test_requests_equal_those_of_the_official_client(
    broker: FakeBroker, make: Callable[..., TransactionProducer]
) -> None:
    result = make(Listener()).send_message_in_transaction(Message(TOPIC, b"paid"))
    (half,) = broker.requests(RequestCode.SEND_MESSAGE_V2)
    assert half.fields["f"] == "4"
    properties = decode_properties(half.fields["i"])
    assert properties[PropertyName.TRANSACTION_PREPARED] == "true"
    assert properties[PropertyName.PRODUCER_GROUP] == "shop"
    (end,) = broker.requests(END)
    assert end.fields == {
        "producerGroup": "shop",
        "bname": "broker-a",
        "commitLogOffset": "0",
        "topic": TOPIC,
        "msgId": result.message_id,
        "tranStateTableOffset": "0",
        "commitOrRollback": "8",
        "transactionId": result.message_id,
        "fromTransactionCheck": "false",
    }


@pytest.mark.parametrize("local", [ROLL_BACK, UNKNOWN, None, ValueError("no"), "commit"])
def test_nothing_else_shows_it(broker: FakeBroker, make: Callable[..., TransactionProducer], local: object) -> None:
    result = make(Listener(local)).send_message_in_transaction(Message(TOPIC, b"paid"))
    assert result.local_transaction_state is (local if local is ROLL_BACK else UNKNOWN)
    assert result.is_confirmed is (local is ROLL_BACK)
    assert bodies(broker) == []
    assert broker.open_transactions(TOPIC) == (0 if local is ROLL_BACK else 1)


def test_a_half_message_that_is_not_safe_is_rolled_back(
    broker: FakeBroker, make: Callable[..., TransactionProducer]
) -> None:
    broker.answer_sends_with(ResponseCode.FLUSH_DISK_TIMEOUT)
    listener = Listener()
    producer = make(listener, retry_another_broker_when_not_store_ok=True)
    result = producer.send_message_in_transaction(Message(TOPIC, b"paid"))
    assert (result.status, result.local_transaction_state) == (SendStatus.FLUSH_DISK_TIMEOUT, ROLL_BACK)
    assert listener.executed == []
    assert len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1
    assert broker.open_transactions(TOPIC) == 0


def test_a_half_message_that_is_refused_is_sent_again(
    broker: FakeBroker, make: Callable[..., TransactionProducer]
) -> None:
    broker.refuse(RequestCode.SEND_MESSAGE_V2, response_code=ResponseCode.SYSTEM_BUSY)
    result = make(Listener()).send_message_in_transaction(Message(TOPIC, b"paid"))
    assert result.is_confirmed
    assert bodies(broker) == [b"paid"]


def test_a_half_message_whose_answer_was_lost_is_not(
    broker: FakeBroker, make: Callable[..., TransactionProducer]
) -> None:
    """The first may be stored: both would be asked about, and commit."""
    listener = Listener()
    producer = make(listener)
    broker.stay_silent(RequestCode.SEND_MESSAGE_V2)
    outcome: list[BaseException] = []

    def send() -> None:
        try:
            producer.send_message_in_transaction(Message(TOPIC, b"paid"))
        except UnavailableError as error:
            outcome.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    broker.wait_until(lambda: len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1, what="the half message")
    broker.drop_connections()
    thread.join(10)
    assert outcome
    assert len(broker.requests(RequestCode.SEND_MESSAGE_V2)) == 1
    assert listener.executed == []
    producer.send(Message(TOPIC, b"an ordinary one"))
    assert bodies(broker) == [b"an ordinary one"]


def test_an_unconfirmed_decision_is_reported(broker: FakeBroker, make: Callable[..., TransactionProducer]) -> None:
    producer = make(Listener())
    broker.refuse(END)
    result = producer.send_message_in_transaction(Message(TOPIC, b"paid"))
    assert (result.local_transaction_state, result.is_confirmed) == (COMMIT, False)
    assert broker.open_transactions(TOPIC) == 1


def test_messages_that_cannot_be_sent(make: Callable[..., TransactionProducer]) -> None:
    listener = Listener()
    producer = make(listener)
    for message in (
        Message(TOPIC, b"later", delay_level=1),
        Message(TOPIC, b"then", deliver_at_ms=5),
        Message(TOPIC, b""),
        Message("no such/topic", b"x"),
    ):
        with pytest.raises(InvalidRequestError):
            producer.send_message_in_transaction(message)
    assert listener.executed == []


def test_a_listener_comes_before_the_start(broker: FakeBroker, make: Callable[..., TransactionProducer]) -> None:
    with pytest.raises(InvalidRequestError, match="listener first"):
        TransactionProducer(group="shop", namesrv=broker.namesrv_address).start()
    producer = make(Listener())
    with pytest.raises(ClosedError):
        producer.register_transaction_listener(Listener())
    with pytest.raises(ClosedError):
        producer.start()
    producer.close()
    with pytest.raises(ClosedError):
        producer.send_message_in_transaction(Message(TOPIC, b"late"))
    producer.close()


def test_half_messages_do_not_linger(broker: FakeBroker, make: Callable[..., TransactionProducer]) -> None:
    producer = make(Listener(), auto_batch=True, batch_max_delay_ms=60_000)
    producer.send_message_in_transaction(Message(TOPIC, b"paid"))
    assert bodies(broker) == [b"paid"]


# -- checks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "expected", "still_open"),
    [(COMMIT, [b"paid"], 0), (ROLL_BACK, [], 0), (UNKNOWN, [], 1), (None, [], 1), (ValueError("no"), [], 1)],
)
def test_a_check_of_the_broker_is_answered(
    broker: FakeBroker,
    make: Callable[..., TransactionProducer],
    check: object,
    expected: list[bytes],
    still_open: int,
) -> None:
    listener = Listener(UNKNOWN, check)
    producer = make(listener)
    result = producer.send_message_in_transaction(Message(TOPIC, b"paid" * 2_000, tags="red"))
    wait_for_heartbeat(broker)
    assert broker.ask_producers() == 1
    broker.wait_until(lambda: len(broker.requests(END)) == 2, what="the answer")
    (message, transaction_id) = listener.checked[0]
    assert transaction_id == result.message_id == message.message_id
    assert (message.topic, message.body, message.tags) == (TOPIC, b"paid" * 2_000, "red")
    assert (message.queue.broker_name, message.queue.queue_id) == ("broker-a", result.queue.queue_id)
    assert [body[:4] for body in bodies(broker)] == expected
    assert broker.open_transactions(TOPIC) == still_open
    answer = broker.requests(END)[1].fields
    assert answer["fromTransactionCheck"] == "true"
    assert answer["msgId"] == answer["transactionId"] == result.message_id
    assert threading.main_thread().name in listener.threads
    assert any(name.startswith("thermocline check") for name in listener.threads)


def test_an_end_that_cannot_be_told_is_not_confirmed(
    broker: FakeBroker, make: Callable[..., TransactionProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local transaction has committed: an error would say that it had not."""
    monkeypatch.setattr("thermocline.client.testing.fake_node.encode_message_id", lambda host, offset: "")
    result = make(Listener()).send_message_in_transaction(Message(TOPIC, b"paid"))
    assert (result.local_transaction_state, result.is_confirmed) == (COMMIT, False)


def test_a_broker_that_does_not_name_itself_is_answered(
    broker: FakeBroker, make: Callable[..., TransactionProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As RocketMQ's before 5.1.4: no check was answered, and the message was parked in the end."""
    monkeypatch.setattr(broker._node(None).transactions, "_broker_name", None)
    make(Listener(UNKNOWN)).send_message_in_transaction(Message(TOPIC, b"paid"))
    wait_for_heartbeat(broker)
    assert broker.ask_producers() == 1
    broker.wait_until(lambda: bodies(broker) == [b"paid"], what="the answer")


def test_a_producer_is_asked_about_transactions_from_before(
    broker: FakeBroker, make: Callable[..., TransactionProducer]
) -> None:
    first = make(Listener(UNKNOWN))
    first.send_message_in_transaction(Message(TOPIC, b"paid"))
    first.close()
    assert broker.ask_producers() == 0
    make(Listener(), topics=(TOPIC,))
    broker.wait_until(lambda: broker.ask_producers() == 1, what="the new producer is known")
    broker.wait_until(lambda: bodies(broker) == [b"paid"], what="its answer")


def test_checks_beyond_the_bound_are_left_to_the_next_time(
    broker: FakeBroker, make: Callable[..., TransactionProducer]
) -> None:
    go_on = threading.Event()

    class Slow(Listener):
        def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> Any:
            assert go_on.wait(10)
            return super().check_local_transaction(message, transaction_id)

    listener = Slow(UNKNOWN)
    producer = make(listener, check_request_hold_max=3)
    for number in range(5):
        producer.send_message_in_transaction(Message(TOPIC, b"%d" % number))
    wait_for_heartbeat(broker)
    assert broker.ask_producers() == 5
    producer.fetch_publish_queues(TOPIC)  # the questions came before the answer to this
    producer.send(Message("other", b"x"))
    go_on.set()
    broker.wait_until(lambda: broker.open_transactions(TOPIC) == 2, what="three answers")
    assert len(listener.checked) == 3
    assert broker.ask_producers() == 2
    broker.wait_until(lambda: broker.open_transactions(TOPIC) == 0, what="the others")


def test_resume_goes_to_the_broker_of_the_id(broker: FakeBroker, make: Callable[..., TransactionProducer]) -> None:
    result = make(Listener(UNKNOWN)).send_message_in_transaction(Message(TOPIC, b"paid"))
    with AdminClient(namesrv=broker.namesrv_address) as admin:
        admin.resume_check_half_message(result.offset_message_id)
        with pytest.raises(ResponseError):
            admin.resume_check_half_message(result.offset_message_id[:-4] + "FFFF")
        with pytest.raises(InvalidRequestError):
            admin.resume_check_half_message("nonsense")
    (request, _) = broker.requests(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    assert request.fields == {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "msgId": result.offset_message_id}


# -- the asyncio half --------------------------------------------------------------------------------------------------


async def test_the_asyncio_half_does_the_same(broker: FakeBroker) -> None:
    listener = AsyncListener(UNKNOWN)
    producer = AsyncTransactionProducer(group="shop", namesrv=broker.namesrv_address)
    producer.register_transaction_listener(listener)
    async with producer:
        undecided = await producer.send_message_in_transaction(Message(TOPIC, b"asked about"))
        assert (undecided.local_transaction_state, undecided.is_confirmed) == (UNKNOWN, False)
        listener.local = COMMIT
        results = await asyncio.gather(
            *(producer.send_message_in_transaction(Message(TOPIC, b"%d" % number), number) for number in range(20))
        )
        assert all(result.is_confirmed for result in results)
        await asyncio.to_thread(wait_for_heartbeat, broker)
        assert await asyncio.to_thread(broker.ask_producers) == 1
        await asyncio.to_thread(broker.wait_until, lambda: broker.open_transactions(TOPIC) == 0)
    assert sorted(bodies(broker)) == sorted([b"asked about", *(b"%d" % number for number in range(20))])
    assert [message.body for message, _ in listener.checked] == [b"asked about"]
    with pytest.raises(ClosedError):
        await producer.send_message_in_transaction(Message(TOPIC, b"late"))
