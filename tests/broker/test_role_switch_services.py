"""What waits at a master goes on at the next one: delayed and timed messages, transactions, POP.

Covers `broker/role_parts.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.broker.role_brokers import RoleSet, role_set
from tests.waiting import until
from thermocline.client import (
    AsyncPopConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncTransactionProducer,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    MQError,
    ReceivedMessage,
)

TOPIC = "Waiting"
POLL_MS = 200


class Listener:
    """Commits what is to be committed at once; leaves open what is to be asked about, and commits it then."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        return (
            LocalTransactionState.UNKNOWN if message.body.startswith(b"ask") else LocalTransactionState.COMMIT_MESSAGE
        )

    async def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState:
        self.asked.append(message.body)
        return LocalTransactionState.COMMIT_MESSAGE


async def make_topic(found: RoleSet) -> None:
    assert found.master is not None
    await found.brokers[found.master].parts.parts.tables.topics.ensure(TOPIC, queue_count=2)


async def read_until(found: RoleSet, *wanted: bytes) -> Counter[bytes]:
    """Consume from the start until all of these were received, and then as long as anything comes at once."""
    received: Counter[bytes] = Counter()
    async with AsyncPullConsumer(
        group="readers",
        namesrv=found.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_name_server_interval_ms=POLL_MS,
    ) as consumer:
        await consumer.subscribe(TOPIC)
        async with asyncio.timeout(60):
            while not set(wanted) <= received.keys():
                received.update(message.body for message in await consumer.poll(1_000))
        received.update(message.body for message in await consumer.poll(500))
    return received


async def test_delayed_and_timed_messages_are_delivered_once_by_the_next_master(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        async with AsyncProducer(group="p", namesrv=found.namesrv, poll_name_server_interval_ms=POLL_MS) as producer:
            await producer.send(Message(TOPIC, b"early", delay_level=1))
            await producer.send(Message(TOPIC, b"early timed", delay_ms=1_000))
            assert await read_until(found, b"early", b"early timed") == {b"early": 1, b"early timed": 1}
            await producer.send(Message(TOPIC, b"level", delay_level=2))
            await producer.send(Message(TOPIC, b"timed", delay_ms=4_000))
            for number in (2, 1, 2):
                await found.wait_followed(number)
                await found.switch(number)
        received = await read_until(found, b"level", b"timed")
        assert set(received) == {b"level", b"timed"}, "the group went on where it was"
        assert stored(found) == dict.fromkeys((b"early", b"early timed", b"level", b"timed"), 1)


def stored(found: RoleSet) -> Counter[bytes]:
    """The bodies of the topic's messages at the master."""
    assert found.master is not None
    store = found.brokers[found.master].store
    return Counter(
        bytes(store.read_record(queue.unit(offset).physical_offset).body)
        for queue in store.queues.of_topic(TOPIC).values()
        for offset in range(queue.min_offset, queue.next_offset)
    )


async def test_transactions_end_once_over_a_change_of_masters(tmp_path: Path) -> None:
    async with role_set(
        tmp_path, transaction_timeout_ms=500, transaction_check_interval_ms=300, transaction_op_interval_ms=60_000
    ) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        listener = Listener()
        transactional = AsyncTransactionProducer(
            group="shop",
            namesrv=found.namesrv,
            poll_name_server_interval_ms=POLL_MS,
            heartbeat_broker_interval_ms=POLL_MS,
        )
        transactional.register_transaction_listener(listener)
        async with transactional as producer:
            await producer.send_message_in_transaction(Message(TOPIC, b"committed, and its note not written"))
            await producer.send_message_in_transaction(Message(TOPIC, b"ask me"))
            await found.wait_followed(2)
            before = listener.asked.copy()
            await found.switch(2)
            table = found.brokers[2].parts.parts.due.transactions.table
            assert table.open_count <= 1, "the commit was found without its note"
            await until(lambda: stored(found)[b"ask me"] == 1, what="the open transaction was asked about")
            assert b"ask me" in listener.asked
            assert b"committed, and its note not written" not in listener.asked
            assert len(listener.asked) >= len(before)
        assert stored(found) == {b"committed, and its note not written": 1, b"ask me": 1}


async def test_a_hand_over_leaves_no_end_of_a_transaction_without_a_note(tmp_path: Path) -> None:
    async with role_set(tmp_path, transaction_op_interval_ms=60_000) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        transactional = AsyncTransactionProducer(
            group="shop", namesrv=found.namesrv, poll_name_server_interval_ms=POLL_MS
        )
        transactional.register_transaction_listener(Listener())
        async with transactional as producer:
            await producer.send_message_in_transaction(Message(TOPIC, b"committed"))
            master = found.brokers[1].parts
            assert master.parts.due.transactions.table.buffer
            assert master.replicas.hand_over is not None
            assert await master.replicas.hand_over.begin(2, pause_ms=5_000)
            assert not master.parts.due.transactions.table.buffer


async def test_popped_messages_come_back_at_the_next_master(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        async with (
            AsyncProducer(group="p", namesrv=found.namesrv, poll_name_server_interval_ms=POLL_MS) as producer,
            AsyncPopConsumer(
                group="poppers",
                namesrv=found.namesrv,
                poll_name_server_interval_ms=POLL_MS,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ) as consumer,
        ):
            await consumer.subscribe(TOPIC)
            for body in (b"acknowledged", b"popped"):
                await producer.send(Message(TOPIC, body))
            popped = [message for _ in range(2) for message in await consumer.receive(1, invisible_ms=3_000)]
            assert {message.body for message in popped} == {b"acknowledged", b"popped"}
            await consumer.ack(next(message for message in popped if message.body == b"acknowledged"))
            await found.wait_followed(2)
            await found.switch(2)
            again: list[bytes] = []
            async with asyncio.timeout(60):
                while not again:
                    try:
                        for message in await consumer.receive(8, invisible_ms=10_000, await_ms=1_000):
                            again.append(message.body)
                            await consumer.ack(message)
                    except MQError:
                        await asyncio.sleep(0.1)
            assert again == [b"popped"]
            assert not len(found.brokers[2].parts.parts.pops.store.in_flight), "nothing is in flight any more"
