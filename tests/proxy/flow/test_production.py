"""Where messages go: types, queues in turn, message groups, and brokers that fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proxy.fake_messaging import FakeMessaging, topic_queues
from thermocline.proxy.flow import NoQueueError, Production, TypeConflictError
from thermocline.proxy.messaging import OutgoingMessage, TopicType
from thermocline.remoting.errors import RequestTimeoutError, ServiceUnavailableError

MESSAGE = OutgoingMessage(topic="T", body=b"b", properties_text="", unique_key="u", sys_flag=0, born_timestamp_ms=0)


class Sends:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.messaging = FakeMessaging()
        clock: Callable[[], float] = lambda: self.now_ms  # noqa: E731
        self.production = Production(self.messaging, checks_message_type=True, clock_ms=clock)

    async def send(
        self, *, group: str = "", topic: str = "T", kind: TopicType = TopicType.NORMAL, count: int = 1
    ) -> tuple[str, int]:
        outgoing = [
            OutgoingMessage(topic=topic, body=b"", properties_text="", unique_key="", sys_flag=0, born_timestamp_ms=0)
        ] * count
        outcome = await self.production.send(outgoing, message_type=kind, message_group=group, timeout_ms=1)
        return outcome.queue.broker_name, outcome.queue.queue_id


async def test_messages_go_to_the_queues_in_turn() -> None:
    sends = Sends()
    chosen = [await sends.send() for _ in range(8)]
    assert sorted(chosen[:4]) == [("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)]
    assert chosen[:4] == chosen[4:]


async def test_a_broker_that_failed_is_passed_over_for_a_while() -> None:
    sends = Sends()
    sends.messaging.failures["send"] = [ServiceUnavailableError("it stops")]
    with pytest.raises(ServiceUnavailableError):
        await sends.send()
    assert {await sends.send() for _ in range(4)} == {("broker-b", 0), ("broker-b", 1)}
    sends.now_ms = 3_000
    assert {(await sends.send())[0] for _ in range(4)} == {"broker-a", "broker-b"}


async def test_where_every_broker_failed_one_is_asked_all_the_same() -> None:
    sends = Sends()
    sends.messaging.queues = topic_queues("T", "broker-a")
    sends.messaging.failures["send"] = [RequestTimeoutError("away")]
    with pytest.raises(RequestTimeoutError):
        await sends.send()
    assert (await sends.send())[0] == "broker-a"
    await sends.production.close()


async def test_a_message_group_has_its_queue_also_when_its_broker_failed() -> None:
    sends = Sends()
    sends.messaging.type = TopicType.FIFO
    queue = await sends.send(group="g1", kind=TopicType.FIFO)
    sends.messaging.failures["send"] = [RequestTimeoutError("away")]
    with pytest.raises(RequestTimeoutError):
        await sends.send(group="g1", kind=TopicType.FIFO)
    assert await sends.send(group="g1", kind=TopicType.FIFO) == queue
    await sends.production.close()


async def test_a_batch_of_a_message_group_goes_where_its_single_messages_do() -> None:
    sends = Sends()
    sends.messaging.type = TopicType.FIFO
    queue = await sends.send(group="g1", kind=TopicType.FIFO)
    assert {await sends.send(group="g1", kind=TopicType.FIFO, count=2) for _ in range(8)} == {queue}


async def test_types_are_checked_but_for_retry_and_dead_letter_topics() -> None:
    sends = Sends()
    sends.messaging.type = TopicType.FIFO
    with pytest.raises(TypeConflictError):
        await sends.send()
    await sends.send(topic="%RETRY%g")
    await sends.send(topic="%DLQ%g")
    sends.messaging.type = TopicType.MIXED
    await sends.send()


async def test_a_topic_without_write_queues() -> None:
    sends = Sends()
    sends.messaging.queues = topic_queues("T", "broker-a", permission=4)
    with pytest.raises(NoQueueError):
        await sends.send()
