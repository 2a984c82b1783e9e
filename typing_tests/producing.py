"""Sending, as users write it: types that the checker must infer."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Sequence
from typing import assert_type

from thermocline import (
    AsyncProducer,
    AsyncTransactionProducer,
    CompressionType,
    LocalTransactionState,
    Message,
    MessageQueue,
    MQError,
    Producer,
    ReceivedMessage,
    SendManyError,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionSendResult,
    select_by_hash,
)


def blocking() -> None:
    with Producer(group="orders", namesrv="127.0.0.1:9876", compress_type=CompressionType.ZSTD) as producer:
        assert_type(producer, Producer)
        assert_type(producer.group, str)
        result = producer.send(Message("orders", b"x", tags="paid", keys=["1", "2"], properties={"a": "b"}))
        assert_type(result, SendResult)
        assert_type(result.status, SendStatus)
        assert_type(result.queue, MessageQueue)
        assert_type(producer.send_async(Message("orders", b"x")), concurrent.futures.Future[SendResult])
        producer.send_async(Message("orders", b"x"), lambda outcome: assert_type(outcome, SendResult | MQError))
        assert_type(producer.send_many(Message("orders", b"x") for _ in range(3)), list[SendResult])
        assert_type(producer.send_batch([Message("orders", b"x")]), list[SendResult])
        assert_type(producer.fetch_publish_queues("orders"), list[MessageQueue])
        producer.send_one_way(Message("orders", b"x"))
        later = producer.send(Message("orders", b"x", delay_ms=60_000))
        assert_type(later.recall_handle, str | None)
        assert_type(producer.recall(later.recall_handle or ""), str)
        answer = producer.request(Message("orders", b"x"), timeout_ms=1_000)
        assert_type(answer, ReceivedMessage)
        assert_type(producer.reply(answer, b"y", properties={"a": "b"}), SendResult)
        assert_type(answer.to_message(), Message)
        producer.send(Message("orders", b"x"), selector=select_by_hash, argument="JFK", timeout_ms=100)
        producer.send(Message("orders", b"x"), selector=lambda queues, message, argument: queues[0])


def own_selector(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    return queues[len(message.body) % len(queues)]


def failures(producer: Producer) -> None:
    try:
        producer.send_many([Message("orders", b"x")], selector=own_selector)
    except SendManyError as error:
        assert_type(error.outcomes, list[SendResult | MQError])


async def asynchronous() -> None:
    async with AsyncProducer(group="orders", namesrv=["127.0.0.1:9876", "127.0.0.1:9877"]) as producer:
        assert_type(await producer.send(Message("orders", b"x")), SendResult)
        assert_type(producer.send_async(Message("orders", b"x")), asyncio.Future[SendResult])
        assert_type(await producer.send_many([Message("orders", b"x")]), list[SendResult])
        assert_type(await producer.recall("handle", timeout_ms=100), str)


def mistakes(producer: Producer) -> None:
    producer.group = "other"  # type: ignore[misc]
    Producer("orders")  # type: ignore[call-arg]
    Producer(grup="orders")  # type: ignore[call-arg]
    Message("orders", "text")  # type: ignore[arg-type]
    Message("orders", b"x", "paid")  # type: ignore[call-arg]
    producer.send("orders")  # type: ignore[arg-type]
    producer.send(Message("orders", b"x"), queue=3)  # type: ignore[arg-type]


class Ledger:
    """The application's part of a transaction."""

    def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState | None:
        return None


class AsyncLedger:
    """The same for the asyncio half."""

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState | None:
        return LocalTransactionState.ROLLBACK_MESSAGE

    async def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN


def transact() -> None:
    producer = TransactionProducer(group="g", topics=("t",), check_threads=2)
    producer.register_transaction_listener(Ledger())
    producer.register_transaction_listener(AsyncLedger())  # type: ignore[arg-type]
    with producer:
        result = producer.send_message_in_transaction(Message("t", b"x"), {"any": "thing"}, timeout_ms=100)
        assert_type(result, TransactionSendResult)
        assert_type(result.local_transaction_state, LocalTransactionState)
        assert_type(result.is_confirmed, bool)


async def transact_async() -> None:
    producer = AsyncTransactionProducer(group="g")
    producer.register_transaction_listener(AsyncLedger())
    async with producer:
        assert_type(await producer.send_message_in_transaction(Message("t", b"x")), TransactionSendResult)
