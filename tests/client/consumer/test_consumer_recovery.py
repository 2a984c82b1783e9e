"""Consumers whose brokers, routes, listeners or callers fail: which recover, which close, what is handed over once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.waiting import until
from thermocline.client import (
    AsyncPopConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Message,
    PullConsumer,
)
from thermocline.client.consumer import queue_workers
from thermocline.client.consumer.allocation import AllocateAveragely
from thermocline.client.consumer.concurrent_dispatcher import ConcurrentDispatcher
from thermocline.client.consumer.listener import ConsumeResult
from thermocline.client.consumer.options import ConsumeFromWhere, MessageModel
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.testing import FakeBroker
from thermocline.remoting.bodies import ResetOffsetBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ClosedError, UnavailableError
from thermocline.remoting.request_code import RequestCode

TOPIC, GROUP = "orders", "billing"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Listener = Callable[[Sequence[ReceivedMessage], object], Awaitable[ConsumeResult | None]]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        running.create_topic(TOPIC, queue_nums=1)
        yield running


@pytest.fixture
def two_brokers() -> Iterator[FakeBroker]:
    with FakeBroker(broker_names=("broker-a", "broker-b")) as running:
        running.create_topic(TOPIC, queue_nums=1)
        yield running


def queue_of(broker_name: str = "broker-a", queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic=TOPIC, broker_name=broker_name, queue_id=queue_id)


def pushing(broker: FakeBroker, listener: Listener, *, in_order: bool = False, **options: object) -> AsyncPushConsumer:
    defaults: dict[str, object] = {"group": GROUP, "consume_from_where": FIRST, "pull_time_delay_ms_when_exception": 20}
    consumer = AsyncPushConsumer(namesrv=broker.namesrv_address, **(defaults | options))  # type: ignore[arg-type]
    consumer.subscribe(TOPIC)
    if in_order:
        consumer.register_orderly_listener(listener)  # type: ignore[arg-type]
    else:
        consumer.register_listener(listener)
    return consumer


async def send(broker: FakeBroker, count: int, *, queue: MessageQueue | None = None) -> None:
    async with AsyncProducer(namesrv=broker.namesrv_address) as producer:
        await producer.send_batch([Message(TOPIC, b"%d" % i) for i in range(count)], queue=queue)


# -- queue locks -------------------------------------------------------------------------------------------------------


async def test_one_broker_that_is_silent_does_not_stop_the_queues_of_others(
    two_brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks are renewed broker by broker: `broker-a` is asked first, and is frozen."""
    monkeypatch.setattr(queue_workers, "LOCK_INTERVAL_S", 0.05)
    monkeypatch.setattr(queue_workers, "LOCK_RETRY_S", 0.05)
    monkeypatch.setattr("thermocline.client.consumer.consumer_calls.LOCK_TIMEOUT_MS", 100)

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        """They are done."""

    async with pushing(two_brokers, listen, in_order=True) as consumer:
        await until(lambda: len([one for one in consumer.assigned_queues() if one.topic == TOPIC]) == 2)
        assert consumer._parts is not None
        table = consumer._parts.workers.table
        two_brokers.stay_silent(RequestCode.LOCK_BATCH_MQ, times=1_000_000, broker_name="broker-a")
        frozen, healthy = table[queue_of("broker-a")], table[queue_of("broker-b")]
        # Longer ago than locks are trusted, as after half a minute.
        frozen.last_lock_ms = healthy.last_lock_ms = 1
        await until(lambda: healthy.last_lock_ms > 1)
        assert frozen.last_lock_ms == 1
        assert table[queue_of("broker-a")] is frozen, "no other member has its lock"
        two_brokers.stay_silent(RequestCode.UNLOCK_BATCH_MQ, times=1_000, broker_name="broker-a")
    assert len(two_brokers.requests(RequestCode.UNLOCK_BATCH_MQ, broker_name="broker-b")) == 1


# -- queues that come and go -------------------------------------------------------------------------------------------


async def test_a_reset_waits_for_the_orderly_listener_before_the_queue_is_taken_up_again(broker: FakeBroker) -> None:
    """Else two listeners are at work on one queue, and the offset that the reset stores is overwritten."""
    await send(broker, 10)
    at_work: Counter[MessageQueue] = Counter()
    most = 0
    release = asyncio.Event()
    seen: list[int] = []

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        nonlocal most
        queue = messages[0].queue
        at_work[queue] += 1
        most = max(most, at_work[queue])
        await release.wait()
        seen.extend(message.queue_offset for message in messages)
        at_work[queue] -= 1

    async with pushing(
        broker, listen, in_order=True, rebalance_interval_ms=20, persist_consumer_offset_interval_ms=20
    ) as consumer:
        await until(lambda: at_work[queue_of()] == 1)
        body = ResetOffsetBody.decode(
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7}}'
        ).encode()
        command = RemotingCommand.request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            ext_fields={"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"},
            body=body,
        )
        answer = consumer.answer(command)
        assert answer is not None
        assert not isinstance(answer, RemotingCommand)
        reset = asyncio.ensure_future(answer)
        await until(lambda: not consumer.assigned_queues() or consumer.assigned_queues() != [queue_of()])

        def questions() -> int:
            asked = broker.requests(RequestCode.QUERY_CONSUMER_OFFSET)
            return sum(one.fields["topic"] == TOPIC for one in asked)

        before = questions()
        assert consumer._parts is not None
        for _ in range(3):
            await consumer._parts.rebalancer.balance()
        assert questions() == before, "the queue was taken up too early"
        release.set()
        await reset
        await until(lambda: broker.committed_offset(GROUP, TOPIC, 0) == 10)
    assert most == 1
    assert seen == [0, 7, 8, 9]


async def test_a_queue_that_is_dropped_while_others_are_given_up_does_not_end_the_rebalancing(
    broker: FakeBroker,
) -> None:
    broker.create_topic(TOPIC, queue_nums=3)

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        """They are done."""

    async with pushing(broker, listen) as consumer:
        await until(lambda: len([one for one in consumer.assigned_queues() if one.topic == TOPIC]) == 3)
        assert consumer._parts is not None
        workers = consumer._parts.workers
        await asyncio.gather(workers.give_up(queue_of()), workers.give_up(queue_of()), workers.give_up(queue_of()))
        consumer._parts.rebalancer.soon()
        await until(lambda: queue_of() in consumer.assigned_queues())


async def test_a_topic_that_is_subscribed_again_at_once_is_read_on(broker: FakeBroker) -> None:
    """Its pull loop met the moment without a subscription; no rebalance happened between the two calls."""
    seen: list[bytes] = []

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        seen.extend(message.body for message in messages)

    async with pushing(broker, listen) as consumer:
        await until(lambda: queue_of() in consumer.assigned_queues())
        subscription = consumer._subscriptions.pop(TOPIC)  # as `unsubscribe`, before the next rebalance
        await send(broker, 1)
        await until(lambda: seen == [b"0"])  # the pull that was under way
        await asyncio.sleep(0)
        consumer._subscriptions[TOPIC] = subscription
        await send(broker, 1)
        await until(lambda: seen == [b"0", b"0"])


class Failing(AllocateAveragely):
    """Fails at its first call, as an application's own strategy may."""

    calls = 0

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        Failing.calls += 1
        if Failing.calls == 1:
            raise ZeroDivisionError
        return AllocateAveragely.allocate(self, client_id=client_id, queues=queues, client_ids=client_ids)


async def test_an_allocation_strategy_that_fails_is_asked_again(broker: FakeBroker) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        """They are done."""

    async with pushing(broker, listen, allocation=Failing()) as consumer:
        await until(lambda: queue_of() in consumer.assigned_queues())


async def test_queues_that_are_assigned_no_more_are_not_taken_up_late(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their offset was still on its way; taken up late, they stayed without a pull loop when assigned again."""
    broker.create_topic(TOPIC, queue_nums=2)
    consumer = AsyncPullConsumer(group=GROUP, namesrv=broker.namesrv_address, consume_from_where=FIRST)
    async with consumer:
        assert consumer._parts is not None
        read, asked, answer = consumer._parts.store.read, asyncio.Event(), asyncio.Event()

        async def read_slowly(queue: MessageQueue) -> int | None:
            asked.set()
            await answer.wait()
            return await read(queue)

        monkeypatch.setattr(consumer._parts.store, "read", read_slowly)
        first = asyncio.create_task(consumer.assign([queue_of(queue_id=0)]))
        await asked.wait()
        second = asyncio.create_task(consumer.assign([queue_of(queue_id=1)]))
        await until(lambda: list(consumer._assigned) == [queue_of(queue_id=1)])
        answer.set()
        await asyncio.gather(first, second)
        assert consumer.assignment() == [queue_of(queue_id=1)]
        await send(broker, 1, queue=queue_of(queue_id=0))
        await consumer.assign([queue_of(queue_id=0)])
        assert [message.body for message in await consumer.poll(60_000)] == [b"0"]


# -- listeners ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [False, True])
async def test_a_listener_that_raises_cancelled_error_has_failed(broker: FakeBroker, in_order: bool) -> None:
    """Something that it waited for was cancelled. The queue stood still from then on, in order also `close`."""
    seen: list[bytes] = []

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        if not seen:
            seen.append(b"cancelled")
            raise asyncio.CancelledError
        seen.extend(message.body for message in messages)

    consumer = pushing(broker, listen, in_order=in_order, suspend_current_queue_ms=10)
    async with consumer:
        await send(broker, 2)
        await until(lambda: {b"0", b"1"} <= set(seen))
        await until(lambda: broker.committed_total(GROUP, TOPIC) in (0, 2))
    assert broker.committed_total(GROUP, TOPIC) == 2


async def test_a_message_that_a_listener_has_too_long_is_not_given_to_a_second_call(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not be sent back, as its broker was away, and was handed over once more beside the first call."""
    monkeypatch.setattr("thermocline.client.consumer.concurrent_dispatcher.LOCAL_RETRY_PAUSE_S", 0.0)
    calls: list[str] = []
    release = asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        calls.extend(message.queue.topic for message in messages)
        await release.wait()

    async with pushing(broker, listen) as consumer:
        await send(broker, 1)
        await until(lambda: calls)
        assert consumer._parts is not None
        dispatcher = consumer._parts.dispatcher
        assert isinstance(dispatcher, ConcurrentDispatcher)
        for job in dispatcher._running:
            job.started_at = -1e9
        for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
            broker.refuse(code)
        dispatcher.give_back_expired()
        await until(lambda: broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK))
        await dispatcher.settle()
        dispatcher.give_back_expired()
        await until(lambda: f"%RETRY%{GROUP}" in calls)
        assert calls == [TOPIC, f"%RETRY%{GROUP}"]
        release.set()


# -- closing -----------------------------------------------------------------------------------------------------------


async def test_a_close_that_is_cancelled_goes_on(broker: FakeBroker) -> None:
    """Else the member kept its queues by its heartbeats, and read none of them."""
    release = asyncio.Event()
    seen: list[bytes] = []

    async def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        seen.extend(message.body for message in messages)
        await release.wait()

    consumer = pushing(broker, listen)
    await consumer.start()
    await send(broker, 1)
    await until(lambda: seen)
    closing = asyncio.create_task(consumer.close())
    await until(lambda: consumer._closed)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    again = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    assert not again.done(), "the listener is still at work"
    release.set()
    await again
    assert broker.group_members(GROUP) == []
    assert broker.committed_offset(GROUP, TOPIC, 0) == 1


async def test_a_frozen_broker_does_not_hold_up_what_others_have(
    two_brokers: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was polled anew by every second call, which waited for 10 s, whatever its `await_ms`."""
    monkeypatch.setattr("thermocline.client.consumer.async_pop_consumer.LATE_MS", 200)
    two_brokers.stay_silent(RequestCode.POP_MESSAGE, times=1_000, broker_name="broker-a")
    consumer = AsyncPopConsumer(group=GROUP, namesrv=two_brokers.namesrv_address, consume_from_where=FIRST)
    await consumer.subscribe(TOPIC)
    bodies: list[bytes] = []
    async with consumer:
        await send(two_brokers, 6, queue=queue_of("broker-b"))
        async with asyncio.timeout(15):
            for _ in range(6):
                bodies += [message.body for message in await consumer.receive(1, await_ms=1_000)]
    assert bodies == [b"%d" % i for i in range(6)]
    polls = two_brokers.requests(RequestCode.POP_MESSAGE, broker_name="broker-a")
    assert len(polls) == 1, "not again while its answer is waited for"


async def test_messages_of_an_unsubscribed_topic_are_not_given(broker: FakeBroker) -> None:
    broker.create_topic("other", queue_nums=1)
    consumer = AsyncPopConsumer(group=GROUP, namesrv=broker.namesrv_address, consume_from_where=FIRST)
    await consumer.subscribe(TOPIC)
    async with consumer:
        waiting = asyncio.create_task(consumer.receive(await_ms=30_000))
        await until(lambda: consumer._polls)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await consumer.subscribe("other")
        await consumer.unsubscribe(TOPIC)
        await send(broker, 1)
        await until(lambda: all(poll.done() for poll in consumer._polls.values()))
        assert await consumer.receive(await_ms=10) == []


async def test_a_receive_that_waits_ends_with_the_consumer(broker: FakeBroker) -> None:
    consumer = AsyncPopConsumer(group=GROUP, namesrv=broker.namesrv_address)
    await consumer.subscribe(TOPIC)
    await consumer.start()
    waiting = asyncio.create_task(consumer.receive(await_ms=60_000))
    await until(lambda: broker.requests(RequestCode.POP_MESSAGE))
    await consumer.close()
    with pytest.raises(ClosedError):
        await waiting


# -- iteration ---------------------------------------------------------------------------------------------------------


async def test_a_loop_that_is_left_commits_only_what_it_gave(broker: FakeBroker) -> None:
    """The messages that were polled with it, and never given, were committed too: lost for the group."""
    await send(broker, 10)

    def consumer() -> AsyncPullConsumer:
        return AsyncPullConsumer(group=GROUP, namesrv=broker.namesrv_address, consume_from_where=FIRST)

    async with consumer() as first:
        await first.subscribe(TOPIC)
        async for message in first:
            assert message.body == b"0"
            break
        async for message in first:
            assert message.body == b"1"
            break
    assert broker.committed_offset(GROUP, TOPIC, 0) == 2
    async with consumer() as second:
        await second.subscribe(TOPIC)
        async for message in second:
            assert message.body == b"2"
            break


async def test_a_loop_ends_with_the_consumer_and_needs_a_started_one(broker: FakeBroker) -> None:
    """Closing raised ClosedError out of the asyncio loop; a blocking one ended at once before the start."""
    consumer = AsyncPullConsumer(group=GROUP, namesrv=broker.namesrv_address)
    await consumer.subscribe(TOPIC)

    async def loop() -> None:
        async for message in consumer:
            raise AssertionError(message)

    with pytest.raises(ClosedError):
        await loop()
    with pytest.raises(ClosedError):
        next(iter(PullConsumer(group=GROUP, namesrv=broker.namesrv_address)))
    await consumer.start()
    task = asyncio.create_task(loop())
    await until(lambda: broker.requests(RequestCode.LITE_PULL_MESSAGE))
    await consumer.close()
    await task


async def test_a_commit_of_broadcast_offsets_that_cannot_be_written_raises(broker: FakeBroker, tmp_path: Path) -> None:
    consumer = AsyncPullConsumer(
        group=GROUP,
        namesrv=broker.namesrv_address,
        message_model=MessageModel.BROADCASTING,
        local_offset_directory=tmp_path / "offsets",
    )
    async with consumer:
        (tmp_path / "offsets").write_text("a file where the directory is to be")
        with pytest.raises(UnavailableError, match="cannot be written"):
            await consumer.commit({queue_of(): 7})
        (tmp_path / "offsets").unlink()
        await consumer.commit({queue_of(): 7})
        assert await consumer.committed(queue_of()) == 7


@pytest.mark.parametrize(("of_a_queue", "of_all"), [(3, 50_000), (1_000, 4)])
async def test_a_loop_makes_room_for_more(broker: FakeBroker, of_a_queue: int, of_all: int) -> None:
    broker.create_topic(TOPIC, queue_nums=2)
    await send(broker, 40, queue=queue_of(queue_id=0))
    await send(broker, 40, queue=queue_of(queue_id=1))
    consumer = AsyncPullConsumer(
        group=GROUP,
        namesrv=broker.namesrv_address,
        consume_from_where=FIRST,
        pull_batch_size=7,
        pull_threshold_for_queue=of_a_queue,
        pull_threshold_for_all=of_all,
    )
    await consumer.subscribe(TOPIC)
    count = 0
    async with asyncio.timeout(60), consumer:
        async for _ in consumer:
            count += 1
            if count == 80:
                break
    assert broker.committed_total(GROUP, TOPIC) == 80
