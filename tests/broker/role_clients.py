"""Clients of a set whose masters change, and a look at what its brokers have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.broker.role_brokers import RoleSet
from tests.waiting import until
from thermocline.client import AsyncProducer, AsyncPullConsumer, ConsumeFromWhere, Message, MQError, SendStatus

TOPIC = "Switched"


def producer_of(namesrv: str, *, timeout_ms: int = 3_000) -> AsyncProducer:
    return AsyncProducer(
        group="load",
        namesrv=namesrv,
        poll_name_server_interval_ms=200,
        retry_times_when_send_failed=0,
        send_timeout_ms=timeout_ms,
    )


def consumer_of(namesrv: str) -> AsyncPullConsumer:
    return AsyncPullConsumer(
        group="readers",
        namesrv=namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_name_server_interval_ms=200,
    )


class Load:
    """A producer that sends until it ends."""

    def __init__(self, found: RoleSet) -> None:
        self._namesrv = found.namesrv
        self.acknowledged: list[bytes] = []
        self.failed_count = 0
        self._is_ending = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with producer_of(self._namesrv) as producer:
            task = asyncio.create_task(self._run(producer))
            try:
                yield
            finally:
                self._is_ending = True
                await task

    async def _run(self, producer: AsyncProducer) -> None:
        number = 0
        while not self._is_ending:
            body = b"message %06d" % number
            number += 1
            try:
                result = await producer.send(Message(TOPIC, body))
            except MQError:
                self.failed_count += 1
                await asyncio.sleep(0.02)
                continue
            if result.status is SendStatus.SEND_OK:
                self.acknowledged.append(body)

    async def wait_for(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= wanted, what="sends are answered")


async def make_topic(found: RoleSet, topic: str = TOPIC, queues: int = 4) -> None:
    assert found.master is not None
    await found.brokers[found.master].parts.parts.tables.topics.ensure(topic, queue_count=queues)


def log_of(found: RoleSet, number: int) -> bytes:
    log = found.brokers[number].store.commit_log
    path = Path(found.brokers[number].store.config.commit_log_path)
    data = b"".join(file.read_bytes() for file in sorted(path.iterdir()))
    return data[: log.append_offset - log.min_offset]


async def send_until_taken(producer: AsyncProducer, body: bytes) -> None:
    """Send until a master is found, and takes it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await producer.send(Message(TOPIC, body))
            except MQError:
                await asyncio.sleep(0.05)
            else:
                return
