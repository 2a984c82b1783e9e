"""Recall: a timed message is taken back by its handle; what is no use is refused with RocketMQ's codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.timing import bodies_in, deliver_all, records_in, timer_service
from tests.broker.wire import Wire
from tests.store.send_frames import send_frame, unique_key
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.handles.recall_handle import RecallHandle, decode_recall_handle
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.config.store_config import FlushDiskType

TOPIC = "TopicA"
RECALLS = BrokerConfig(listen_host="127.0.0.1", recall=True)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC, "Other"], start=False, config=RECALLS) as broker:
        yield broker


async def send_timed(broker: DataBroker, body: bytes, *, number: int = 1, delay_ms: int = 60_000) -> str:
    """Send a message; its handle."""
    wire = Wire(broker.dispatcher, broker.hot)
    properties = {"UNIQ_KEY": unique_key(number), "TIMER_DELAY_MS": str(delay_ms)}
    wire.receive(send_frame(body=body, properties=properties))
    (answer,) = await wire.wait_commands()
    assert answer.ext_fields is not None
    return answer.ext_fields["recallHandle"]


async def recall(broker: DataBroker, handle: str, *, topic: str = TOPIC) -> RemotingCommand:
    wire = Wire(broker.dispatcher)
    fields = {"producerGroup": "producers", "topic": topic, "recallHandle": handle}
    wire.receive(RemotingCommand(code=370, opaque=1, ext_fields=fields).encode())
    (answer,) = await wire.wait_commands()
    return answer


async def test_a_recalled_message_is_not_delivered(broker: DataBroker) -> None:
    service = timer_service(broker.parts)
    handle = await send_timed(broker, b"recalled", number=1)
    await send_timed(broker, b"kept", number=2)
    deliver_all(service)
    answer = await recall(broker, handle)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields == {"msgId": unique_key(1), "MSG_REGION": "DefaultRegion"}
    broker.clock.now_ms += 62_000
    deliver_all(service)
    assert bodies_in(broker.parts, TOPIC) == [b"kept"]


async def test_the_marker_is_the_official_one(broker: DataBroker) -> None:
    handle = await send_timed(broker, b"recalled")
    await recall(broker, handle)
    message, marker = records_in(broker.parts, TIMER_TOPIC)
    assert marker.body == b"0"
    assert marker.properties["TIMER_OUT_MS"] == message.properties["TIMER_OUT_MS"]
    assert marker.properties["TIMER_DEL_UNIQKEY"] == unique_key(1)
    assert (marker.tags, marker.properties["PGROUP"]) == ("_RECALL_TAG_", "producers")
    await broker.parts.base.settings.update({"appendTopicForTimerDeleteKey": "true"}, broker.parts.tables.persister)
    await recall(broker, handle)
    *_, marker = records_in(broker.parts, TIMER_TOPIC)
    assert marker.properties["TIMER_DEL_UNIQKEY"] == f"{TOPIC}+{unique_key(1)}"


async def test_recall_is_off_by_default_and_can_be_switched_on(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        handle = await send_timed(broker, b"x")  # which has a handle all the same
        answer = await recall(broker, handle)
        assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")
        assert answer.ext_fields == {"MSG_REGION": "DefaultRegion"}
        await broker.parts.base.settings.update({"recallMessageEnable": "true"}, broker.parts.tables.persister)
        assert (await recall(broker, handle)).code == 0


async def test_a_broker_that_does_not_serve_yet_recalls_nothing(broker: DataBroker) -> None:
    handle = await send_timed(broker, b"x")
    broker.change_config(accept_sends_from_ms=broker.clock.now_ms + 1)
    answer = await recall(broker, handle)
    assert (answer.code, answer.remark) == (14, "recall failed, broker service not available")
    broker.change_config(accept_sends_from_ms=0)
    assert (await recall(broker, handle)).code == 0


async def test_a_broker_without_write_permission_recalls_if_it_is_let(broker: DataBroker) -> None:
    handle = await send_timed(broker, b"x")
    broker.change_config(permission=4)
    assert (await recall(broker, handle)).code == 0
    broker.change_config(recall_when_not_writable=False)
    answer = await recall(broker, handle)
    assert (answer.code, answer.remark) == (14, "recall failed, broker service not available")


async def test_a_topic_that_is_not_there(broker: DataBroker) -> None:
    answer = await recall(broker, await send_timed(broker, b"x"), topic="Missing")
    assert (answer.code, answer.remark) == (17, "recall failed, the topic[Missing] not exist")


async def test_handles_that_are_no_use(broker: DataBroker) -> None:
    good = decode_recall_handle(await send_timed(broker, b"x"))
    now_ms = broker.clock.now_ms
    remarks = {
        "nonsense": "recall handle is invalid",
        replace(good, broker_name="broker-b").encode(): "recall failed, broker service not available",
        replace(good, timestamp_text=str(now_ms)).encode(): "recall failed, timestamp invalid",
        replace(good, timestamp_text=str(now_ms + 259_200_000)).encode(): "recall failed, timestamp invalid",
        replace(good, timestamp_text="soon").encode(): "recall failed, timestamp invalid",
    }
    for handle, remark in remarks.items():
        answer = await recall(broker, handle)
        assert (answer.code, answer.remark) == (604, remark)
    answer = await recall(broker, good.encode(), topic="Other")
    assert (answer.code, answer.remark) == (604, "recall failed, topic not match")
    assert len(records_in(broker.parts, TIMER_TOPIC)) == 1


async def test_a_marker_that_cannot_be_stored(broker: DataBroker) -> None:
    handle = await send_timed(broker, b"x")
    broker.store.commit_log.pause("for now")
    answer = await recall(broker, handle)
    assert (answer.code, answer.remark) == (1, "recall failed, execute error")
    broker.store.commit_log.resume()
    assert (await recall(broker, handle)).code == 0
    too_long = RecallHandle(
        topic=TOPIC,
        broker_name="broker-a",
        timestamp_text=str(broker.clock.now_ms + 60_000),
        unique_key="k" * 40_000,
    )
    assert (await recall(broker, too_long.encode())).code == 1


async def test_timers_that_are_switched_off(tmp_path: Path) -> None:
    config = replace(RECALLS, timer_wheel=False)
    async with data_broker(tmp_path, topics=[TOPIC], start=False, config=config) as broker:
        handle = RecallHandle(
            topic=TOPIC,
            broker_name="broker-a",
            timestamp_text=str(broker.clock.now_ms + 60_000),
            unique_key="id",
        )
        answer = await recall(broker, handle.encode())
        assert (answer.code, answer.remark) == (1, "recall failed, execute error")


async def test_the_answer_waits_for_the_flush(tmp_path: Path) -> None:
    async with data_broker(
        tmp_path, topics=[TOPIC], start=False, config=RECALLS, flush_disk_type=FlushDiskType.SYNC_FLUSH
    ) as broker:
        handle = await send_timed(broker, b"x")
        held: list[object] = []
        broker.store.flush.use(lambda job, done: held.append((job, done)))
        wire = Wire(broker.dispatcher)
        fields = {"topic": TOPIC, "recallHandle": handle}
        wire.receive(RemotingCommand(code=370, opaque=1, ext_fields=fields).encode())
        while not held:  # noqa: ASYNC110 - a turn of the loop
            await asyncio.sleep(0)
        assert wire.drain() == b""
        # Late is not lost: the marker is in the log, and RocketMQ calls that a success, too.
        broker.store.flush.expire(broker.clock.now_ms + broker.store.config.sync_flush_timeout_ms)
        (answer,) = await wire.wait_commands()
        assert answer.code == 0
