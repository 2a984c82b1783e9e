"""Requests that a task's messages are sent in, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.send_result import SendResult, SendStatus
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.spark.writing.queue_sender import QueueSender

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
BATCH_BYTES = 64 << 10


class Taker:
    """A producer whose broker takes everything; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[list[Message]] = []

    async def send_batch(self, messages: Sequence[Message], **_: Any) -> list[SendResult]:
        self.requests.append(list(messages))
        return [
            SendResult(status=SendStatus.SEND_OK, message_id="", offset_message_id="", queue=QUEUE, queue_offset=-1)
            for _ in messages
        ]


class Breaker(Taker):
    """Fails at its second request in a way that no error of ours covers."""

    async def send_batch(self, messages: Sequence[Message], **names: Any) -> list[SendResult]:
        if self.requests:
            raise RuntimeError("a bug")
        return await super().send_batch(messages, **names)


def test_a_last_request_that_fails_by_a_bug_is_no_success() -> None:
    """Only one that a later request waited for was: messages were missing, and the task was done."""
    message = Message("orders", b"x" * 1_000)
    count = BATCH_BYTES // 1_000 + 10  # two requests

    async def send() -> None:
        sender = QueueSender(cast("AsyncProducer", Breaker()), batch_bytes=BATCH_BYTES, timeout_ms=1_000)
        for _ in range(count):
            await sender.add(message, QUEUE, is_bound=True)
        await sender.finish()

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(send())


def test_requests_are_cut_by_the_bytes_of_texts() -> None:
    """By their characters, a request was up to three times as large as asked, and more than a broker takes."""
    messages = [
        Message("orders", b"x", tags="付款", keys="订单 " * 20, properties={"地址": "主题" * 100, "note": "plain"})
        for _ in range(400)
    ]
    producer = Taker()

    async def send() -> None:
        sender = QueueSender(cast("AsyncProducer", producer), batch_bytes=BATCH_BYTES, timeout_ms=1_000)
        for message in messages:
            await sender.add(message, QUEUE, is_bound=True)
        await sender.finish()

    asyncio.run(send())
    assert [message for request in producer.requests for message in request] == messages
    assert len(producer.requests) > 1
    for request in producer.requests:
        texts = [message.properties_text("0" * 56).encode() for message in request]
        encoded = encode_batch(BatchMessage(each.body, text, 0) for each, text in zip(request, texts, strict=True))
        assert BATCH_BYTES // 2 < len(encoded) <= BATCH_BYTES or request is producer.requests[-1]
