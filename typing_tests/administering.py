"""Administration and the fake broker, as users write them: types that the checker must infer."""

from __future__ import annotations

from typing import Any, assert_type

from thermocline import (
    EARLIEST,
    AdminClient,
    AsyncAdminClient,
    MessageQueue,
    PullResult,
    QueueProgress,
    QueueStats,
    ReceivedMessage,
    TraceStep,
    Traffic,
)
from thermocline.client.testing import FakeBroker


def blocking(queue: MessageQueue) -> None:
    with AdminClient(namesrv="127.0.0.1:9876") as admin:
        assert_type(admin.create_topic("orders", queue_nums=8, attributes={"message.type": "FIFO"}), list[str])
        assert_type(admin.topic_stats("orders"), list[QueueStats])
        assert_type(admin.group_progress("billing"), list[QueueProgress])
        assert_type(admin.group_progress("billing")[0].lag, int)
        assert_type(admin.reset_offsets("billing", "orders", timestamp_ms=EARLIEST), dict[MessageQueue, int])
        assert_type(admin.query_by_key("orders", "4711"), list[ReceivedMessage])
        assert_type(admin.query_by_id("orders", "4711"), list[ReceivedMessage])
        assert_type(admin.message_trace("4711"), list[TraceStep])
        assert_type(admin.broker_traffic("broker-a", topics=["orders"]), list[Traffic])
        assert_type(admin.update_group("billing", retry_max_times=3), list[str])
        assert_type(admin.pull(queue, 7, count_max=1), PullResult)
        assert_type(admin.set_ttl("orders", 3_600_000), dict[str, dict[str, Any]])
        admin.update_topic("orders", attributes={"message.type": None})


async def asynchronous() -> None:
    async with AsyncAdminClient() as admin:
        assert_type(await admin.list_topics(), list[str])


def testing() -> None:
    with FakeBroker(broker_names=("broker-a", "broker-b")) as broker:
        assert_type(broker.namesrv_address, str)
        assert_type(broker.messages("orders"), list[ReceivedMessage])
        broker.wait_until(lambda: broker.committed_total("billing", "orders") == 3)


def mistakes(admin: AdminClient) -> None:
    admin.create_topic("orders", 8)  # type: ignore[call-arg]
    admin.reset_offsets("billing", "orders", 0)  # type: ignore[call-arg]
    admin.topic_stats(7)  # type: ignore[arg-type]
