"""A `Messaging` in memory, for tests above the seam: it gives the answers that a test set, and keeps the questions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from thermocline.client.message_queue import MessageQueue
from thermocline.client.send_result import SendStatus
from thermocline.proxy.messaging import (
    BrokerQueues,
    OutgoingMessage,
    PopOutcome,
    PopStatus,
    ProxyHandle,
    PulledMessages,
    SendOutcome,
    TopicQueues,
    TopicType,
    TransactionHandle,
)
from thermocline.remoting.bodies import SubscriptionData, SubscriptionGroupConfig
from thermocline.remoting.errors import MQError
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.offsets import QueueOffset


def handle_at(
    pop_time_ms: int,
    *,
    invisible_ms: int = 60_000,
    offset: int = 7,
    physical_offset: int = 99,
    broker_name: str = "broker-a",
) -> ProxyHandle:
    receipt = ReceiptHandle(
        start_offset=QueueOffset(offset),
        pop_time_ms=pop_time_ms,
        invisible_ms=invisible_ms,
        revive_queue_id=0,
        broker_name=broker_name,
        queue_id=1,
        queue_offset=QueueOffset(offset),
    )
    return ProxyHandle(receipt=receipt, physical_offset=physical_offset)


def topic_queues(topic: str, *brokers: str, permission: int = 6, queues: int = 2) -> TopicQueues:
    found = tuple(
        BrokerQueues(
            broker_name=name, permission=permission, read_count=queues, write_count=queues, addresses={0: f"{name}:1"}
        )
        for name in brokers
    )
    write_queues = tuple(
        MessageQueue(topic=topic, broker_name=name, queue_id=number) for name in brokers for number in range(queues)
    )
    return TopicQueues(topic=topic, brokers=found, write_queues=write_queues if permission & 2 else ())


class FakeMessaging:
    """See the module. `failures`: by operation, the errors of the next calls."""

    def __init__(self, *, now_ms: list[int] | None = None) -> None:
        self.now_ms = now_ms or [0]
        self.queues = topic_queues("T", "broker-a", "broker-b")
        self.type = TopicType.NORMAL
        self.config: SubscriptionGroupConfig | None = SubscriptionGroupConfig()
        self.failures: dict[str, list[MQError]] = {}
        self.popped = PopOutcome(status=PopStatus.NOTHING)
        self.asked: list[tuple[str, Any]] = []
        self.gate: Any = None
        """An awaitable that changes of invisible times wait for."""

    def _ask(self, operation: str, what: Any) -> None:
        self.asked.append((operation, what))
        if self.failures.get(operation):
            raise self.failures[operation].pop(0)

    def names(self) -> list[str]:
        return [operation for operation, _ in self.asked]

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def topic_queues(self, topic: str, *, group: str | None = "") -> TopicQueues:
        return self.queues

    async def topic_type(self, topic: str, *, group: str | None = "", broker_name: str = "") -> TopicType:
        return self.type

    async def group_config(
        self, group: str, *, topic: str = "", broker_name: str = ""
    ) -> SubscriptionGroupConfig | None:
        return self.config

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, producer_group: str, timeout_ms: int
    ) -> SendOutcome:
        self._ask("send", queue)
        return SendOutcome(
            status=SendStatus.SEND_OK,
            queue=queue,
            queue_offset=QueueOffset(0),
            transaction_id="",
            recall_handle="",
        )

    async def end_transaction(self, handle: TransactionHandle, **more: Any) -> None:
        self._ask("end", more)

    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int) -> str:
        return ""

    def watch_transactions(self, producer_group: str, topic: str) -> None:
        self._ask("watch", producer_group)

    def unwatch_transactions(self, producer_group: str) -> None:
        self._ask("unwatch", producer_group)

    async def pop(self, broker_name: str, subscription: SubscriptionData, **more: Any) -> PopOutcome:
        self._ask("pop", broker_name)
        return self.popped

    async def ack(self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int) -> None:
        self._ask("ack", handle)

    def start_ack(
        self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int
    ) -> asyncio.Future[MQError | None]:
        answered: asyncio.Future[MQError | None] = asyncio.get_running_loop().create_future()
        try:
            self._ask("ack", handle)
            answered.set_result(None)
        except MQError as error:
            answered.set_result(error)
        return answered

    async def change_invisible(
        self, handle: ProxyHandle, *, topic: str, group: str, invisible_ms: int, timeout_ms: int
    ) -> ProxyHandle:
        if self.gate is not None:
            await self.gate
        self._ask("change", invisible_ms)
        receipt = handle.receipt
        return handle_at(
            self.now_ms[0],
            invisible_ms=invisible_ms,
            offset=int(receipt.queue_offset),
            broker_name=receipt.broker_name,
        )

    async def stored_record(self, broker_name: str, physical_offset: int, *, timeout_ms: int) -> None:
        self._ask("stored_record", physical_offset)

    async def send_back_dead(
        self, handle: ProxyHandle, *, topic: str, group: str, message_id: str, timeout_ms: int
    ) -> None:
        self._ask("dead", message_id)

    async def pull(self, queue: MessageQueue, subscription: SubscriptionData, **more: Any) -> PulledMessages:
        return PulledMessages(messages=(), next_offset=QueueOffset(0))

    async def commit_offset(self, queue: MessageQueue, *, group: str, offset: QueueOffset, timeout_ms: int) -> None: ...

    async def committed_offset(self, queue: MessageQueue, *, group: str, timeout_ms: int) -> QueueOffset | None:
        return None

    async def queue_offset(
        self, queue: MessageQueue, *, timestamp_ms: int | None, is_end: bool, timeout_ms: int
    ) -> QueueOffset:
        self._ask("queue_offset", queue)
        return QueueOffset(0)
