"""What a receive brings: brokers, tags, and messages that were tried too often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.proxy.fake_messaging import FakeMessaging, handle_at, topic_queues
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.flow import Consumption, NoPlaceError, NoQueueError, ReceiveOutcome
from thermocline.proxy.messaging import HeldMessage, PopOutcome, PopStatus, ProxyHandle
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import decode_record, encode_record


def held(offset: int, *, tag: str = "A", reconsume_times: int = 0) -> HeldMessage:
    record = decode_record(
        encode_record(
            topic="T",
            queue_id=1,
            queue_offset=QueueOffset(offset),
            physical_offset=PhysicalOffset(99),
            body=b"body",
            properties_text=f"UNIQ_KEY\x01m{offset}\x02TAGS\x01{tag}\x02".encode(),
            born_timestamp_ms=0,
            born_host=("127.0.0.1", 1),
            store_timestamp_ms=0,
            store_host=("127.0.0.1", 2),
            reconsume_times=reconsume_times,
        )
    )
    message = ReceivedMessage(record, queue=MessageQueue(topic="T", broker_name="broker-a", queue_id=1))
    return HeldMessage(message, handle_at(0, offset=offset))


class Receives:
    def __init__(self, *messages: HeldMessage) -> None:
        self.messaging = FakeMessaging()
        self.messaging.popped = PopOutcome(status=PopStatus.FOUND, messages=messages)
        self.consumption = Consumption(self.messaging)

    async def receive(self, *, broker_name: str = "broker-b", tags: str = "*") -> ReceiveOutcome:
        return await self.consumption.receive(
            parse_subscription("T", tags),
            broker_name=broker_name,
            group="g",
            count_max=32,
            invisible_ms=1,
            await_ms=1,
            in_order=False,
            attempts_max=3,
            attempt_id=None,
        )


async def test_the_named_broker_is_asked_or_one_after_another() -> None:
    receives = Receives()
    for name in ("broker-b", "broker-z", "", "broker-a"):
        await receives.receive(broker_name=name)
    assert [name for _, name in receives.messaging.asked] == ["broker-b", "broker-a", "broker-b", "broker-a"]


async def test_a_topic_that_cannot_be_read() -> None:
    receives = Receives()
    receives.messaging.queues = topic_queues("T", "broker-a", permission=2)
    with pytest.raises(NoQueueError, match="no readable queue"):
        await receives.receive()


async def test_messages_of_other_tags_are_acknowledged() -> None:
    receives = Receives(held(1, tag="A"), held(2, tag="B"), held(3, tag=""))
    outcome = await receives.receive(tags="A || C")
    assert [message.message_id for message in outcome.messages] == ["m1"]
    assert receives.messaging.names() == ["pop", "ack", "ack"]
    assert not outcome.had_others


async def test_a_message_that_was_tried_too_often_goes_to_the_dead_letters() -> None:
    receives = Receives(held(1, reconsume_times=3), held(2, reconsume_times=2))
    outcome = await receives.receive()
    assert [message.message_id for message in outcome.messages] == ["m2"]
    assert receives.messaging.asked[1:] == [("dead", "m1"), ("ack", handle_at(0, offset=1))]


class Slow(FakeMessaging):
    """Stores no copy before two are requested."""

    def __init__(self) -> None:
        super().__init__()
        self._both = asyncio.Barrier(2)

    async def send_back_dead(self, handle: ProxyHandle, **more: Any) -> None:
        async with self._both:
            await super().send_back_dead(handle, **more)


async def test_dead_letters_go_side_by_side() -> None:
    """Meanwhile the time of the messages for the client goes by."""
    messaging = Slow()
    receives = Receives(held(1, reconsume_times=3), held(2, reconsume_times=3), held(3))
    messaging.popped = receives.messaging.popped
    receives.messaging, receives.consumption = messaging, Consumption(messaging)
    outcome = await asyncio.wait_for(receives.receive(), timeout=60)
    assert [message.message_id for message in outcome.messages] == ["m3"]


async def test_a_broker_that_fails_to_bury_a_message_keeps_it_and_the_rest_is_delivered() -> None:
    receives = Receives(held(1, reconsume_times=3), held(2, tag="B"))
    receives.messaging.failures = {"dead": [UnavailableError("away")], "ack": [UnavailableError("away")]}
    outcome = await receives.receive(tags="A")
    assert (outcome.messages, outcome.had_others) == ([], True)


async def test_a_message_is_acknowledged_only_after_its_copy_is_stored() -> None:
    receives = Receives()
    receives.messaging.failures["dead"] = [UnavailableError("away")]
    with pytest.raises(UnavailableError):
        await receives.consumption.forward_to_dead_letters(handle_at(0), topic="T", group="g", message_id="m")
    assert receives.messaging.names() == ["dead"]
    with pytest.raises(NoPlaceError):
        await receives.consumption.forward_to_dead_letters(
            handle_at(0, physical_offset=-1), topic="T", group="g", message_id="m"
        )


async def test_giving_back_goes_on_behind_a_failure() -> None:
    receives = Receives()
    receives.messaging.failures["change"] = [UnavailableError("away")]
    await receives.consumption.give_back([held(1), held(2)], topic="T", group="g", invisible_ms=1_000)
    assert receives.messaging.asked == [("change", 1_000), ("change", 1_000)]
