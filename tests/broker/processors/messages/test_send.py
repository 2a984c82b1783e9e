"""Send: checks and their codes, topics made on the way, retry, dead letter, delay levels, how safe an answer is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.timing import deliver_all, records_in, timer_service
from tests.broker.wire import PEER, Wire
from tests.clock import Clock
from tests.store.send_frames import batch_frame, send_frame, unique_key
from tests.store.store_parts import draft
from thermocline.broker.sends import acknowledgements
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.records.batch import BatchMessage
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.retention import DISK_NEARLY_FULL

TOPIC = "TopicA"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


class Producer:
    """One client that sends."""

    def __init__(self, broker: DataBroker, *, through_chunks: bool = True) -> None:
        self.wire = Wire(broker.dispatcher, broker.hot if through_chunks else None)

    async def send(self, frame: bytes) -> RemotingCommand:
        self.wire.receive(frame)
        (answer,) = await self.wire.wait_commands()
        return answer


def send_properties(**properties: str) -> dict[str, str]:
    return {"UNIQ_KEY": unique_key(1), **properties}


# -- codes -------------------------------------------------------------------------------------------------------------


def v1_frame(**fields: str) -> bytes:
    """SEND_MESSAGE with the long names of old clients."""
    ext_fields = {
        "producerGroup": "p",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": "0",
        "bornTimestamp": "5",
        "flag": "3",
        "properties": "TAGS\x01TagA\x02",
    } | fields
    return RemotingCommand(code=10, opaque=9, ext_fields=ext_fields, body=b"old").encode()


async def test_three_ways_to_say_the_same(broker: DataBroker) -> None:
    """V1, V2 and a binary header store the same record and are answered in their own serialisation."""
    producer = Producer(broker)
    old = await producer.send(v1_frame())
    new = await producer.send(send_frame(queue_id=1, body=b"old", properties="TAGS\x01TagA\x02", g="5", h="3"))
    binary_command = RemotingCommand(
        code=310,
        opaque=9,
        ext_fields={"a": "p", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "5", "h": "3"}
        | {"i": "TAGS\x01TagA\x02"},
        body=b"old",
        serialize_type=SerializeType.ROCKETMQ,
    )
    binary = await producer.send(binary_command.encode())
    assert [answer.code for answer in (old, new, binary)] == [0, 0, 0]
    assert [answer.serialize_type for answer in (old, new, binary)] == [0, 0, 1]
    first, *others = broker.records()
    for record in others:
        assert (record.body, record.flag, record.born_timestamp_ms, record.tags) == (
            first.body,
            first.flag,
            first.born_timestamp_ms,
            first.tags,
        )
    assert [record.queue_offset for record in broker.records()] == [0, 1, 2]


async def test_the_answer_names_the_place_in_the_log(broker: DataBroker) -> None:
    """By the advertised address, which a client dials to view the message."""
    answer = await Producer(broker).send(v1_frame())
    assert answer.ext_fields is not None
    message_id = decode_message_id(answer.ext_fields["msgId"])
    assert (message_id.host, message_id.physical_offset) == (broker.parts.base.store_host, 0)
    (record,) = broker.records()
    assert answer.ext_fields["transactionId"] == record.unique_key
    assert record.unique_key is not None
    assert len(record.unique_key) == 32
    assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == ("DefaultRegion", "true")


REFUSED: dict[str, tuple[bytes, int]] = {
    "blank topic": (send_frame(topic=" "), 29),
    "topic with a space": (send_frame(topic="a b"), 29),
    "topic too long": (send_frame(topic="a" * 128), 29),
    "schedule topic": (send_frame(topic="SCHEDULE_TOPIC_XXXX"), 16),
    "half topic": (send_frame(topic="RMQ_SYS_TRANS_HALF_TOPIC"), 16),
    "queue id": (send_frame(queue_id=4), 29),
    "empty body": (send_frame(body=b""), 13),
    "body too large": (send_frame(body=bytes(3_001)), 13),
    "properties too large": (send_frame(properties=send_properties(x="y" * 32_700)), 13),
    "no topic to make it after": (send_frame(topic="New", c="Missing"), 17),
    "half message with a delay": (send_frame(properties=send_properties(TRAN_MSG="true", DELAY="1")), 13),
    "half message with a time": (send_frame(properties=send_properties(TRAN_MSG="true", TIMER_DELAY_SEC="1")), 13),
    "transaction flag": (send_frame(f="8"), 13),
    "prepared flag alone": (send_frame(f="4"), 13),
    "timer topic": (send_frame(topic="rmq_sys_wheel_timer"), 16),
    "time too far away": (send_frame(properties=send_properties(TIMER_DELAY_SEC="259201")), 13),
    "time in words": (send_frame(properties=send_properties(TIMER_DELIVER_MS="soon")), 13),
    "recall marker for the past": (
        send_frame(properties=send_properties(TIMER_DELIVER_MS="5", TIMER_DEL_UNIQKEY="TopicA+id")),
        13,
    ),
    "properties too large with a time": (
        send_frame(properties=send_properties(TIMER_DELAY_MS="1000", x="y" * 32_600)),
        13,
    ),
    "delay in words": (send_frame(properties=send_properties(DELAY="soon")), 13),
    "inner batch": (send_frame(f="192"), 13),
    "inner batch property": (send_frame(properties=send_properties(INNER_NUM="3")), 13),
    "field missing": (RemotingCommand(code=310, opaque=1, ext_fields={"a": "p", "b": TOPIC}).encode(), 1),
    "batch for a retry topic": (batch_frame([BatchMessage(b"x")], b="%RETRY%group"), 13),
    "batch without messages": (batch_frame([]), 13),
    "batch cut short": (batch_frame([BatchMessage(b"x" * 9)])[:-1] + b"\x09", 13),
    "batch too large": (batch_frame([BatchMessage(bytes(900))] * 4), 13),
    "batch with a delayed message": (batch_frame([BatchMessage(b"x", b"DELAY\x011\x02")]), 13),
    "batch with a half message": (batch_frame([BatchMessage(b"x", b"TRAN_MSG\x01true\x02")]), 13),
    "batch with a timed message": (batch_frame([BatchMessage(b"x", b"TIMER_DELAY_SEC\x011\x02")]), 13),
}


@pytest.mark.parametrize(("frame", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused_messages_are_not_stored(tmp_path: Path, frame: bytes, code: int) -> None:
    """Each with RocketMQ's code, and the broker's properties in the answer."""
    async with data_broker(tmp_path, topics=[TOPIC, "%RETRY%group"], start=False, message_bytes_max=3_000) as broker:
        answer = await Producer(broker).send(frame)
        assert answer.code == code
        assert answer.remark
        assert broker.store.commit_log.append_offset == 0


PRIORITIES: dict[str, tuple[dict[str, str], int, bool]] = {
    "a queue's number": ({"_SYS_MSG_PRIORITY_": "0"}, 0, True),
    "beyond the last queue": ({"_SYS_MSG_PRIORITY_": "7"}, 3, True),
    "below zero": ({"_SYS_MSG_PRIORITY_": "-1"}, 1, True),
    "no number": ({"_SYS_MSG_PRIORITY_": "high"}, 1, True),
    "beyond an int": ({"_SYS_MSG_PRIORITY_": "2147483648"}, 1, True),
    "with a sharding key": ({"_SYS_MSG_PRIORITY_": "2", "__SHARDINGKEY": "k"}, 1, False),
}
"""Properties, the queue of a message that was sent to queue 1, and whether the message keeps its priority."""


@pytest.mark.parametrize(("properties", "queue_id", "is_kept"), PRIORITIES.values(), ids=PRIORITIES.keys())
async def test_a_priority_names_the_queue(
    broker: DataBroker, properties: dict[str, str], queue_id: int, is_kept: bool
) -> None:
    """As RocketMQ 5.5.0 does in every topic: tests/interop/test_message_features.py."""
    answer = await Producer(broker).send(send_frame(queue_id=1, properties=send_properties(**properties)))
    (record,) = broker.records()
    assert answer.ext_fields is not None
    assert (answer.ext_fields["queueId"], record.queue_id) == (str(queue_id), queue_id)
    assert ("_SYS_MSG_PRIORITY_" in record.properties) is is_kept


async def test_broker_permission_counts_for_ordered_topics(broker: DataBroker) -> None:
    """RocketMQ lets others pass: clients see the permission in the route."""
    await broker.parts.tables.topics.ensure("Ordered", queue_count=1, order=True)
    broker.change_config(permission=4)
    producer = Producer(broker)
    assert (await producer.send(send_frame(topic="Ordered"))).code == 16
    assert (await producer.send(send_frame())).code == 0
    broker.change_config(permission=6)
    assert (await producer.send(send_frame(topic="Ordered"))).code == 0


async def test_sends_may_be_accepted_later(broker: DataBroker) -> None:
    broker.change_config(accept_sends_from_ms=broker.clock.now_ms + 1_000)
    producer = Producer(broker)
    refused = await producer.send(send_frame())
    assert refused.code == 1
    broker.clock.now_ms += 1_000
    assert (await producer.send(send_frame())).code == 0


async def test_live_settings_reach_the_fast_path(broker: DataBroker) -> None:
    producer = Producer(broker)
    await producer.send(send_frame())
    broker.change_config(trace_on=False)
    answers = [await producer.send(send_frame()) for _ in range(2)]
    assert [answer.ext_fields["TRACE_ON"] for answer in answers if answer.ext_fields] == ["false", "false"]
    assert [record.properties["TRACE_ON"] for record in broker.records()] == ["true", "false", "false"]


async def test_a_full_disk_is_an_answer(broker: DataBroker) -> None:
    broker.store.commit_log.pause("disk is full")
    assert (await Producer(broker).send(send_frame())).code == 14
    broker.store.commit_log.resume()
    assert (await Producer(broker).send(send_frame())).code == 0


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_a_nearly_full_disk_is_answered_in_rocketmqs_words(broker: DataBroker, through_chunks: bool) -> None:
    disk = broker.parts.base.disk
    broker.store.commit_log.pause(DISK_NEARLY_FULL)
    used = 1 - disk.free_bytes(broker.store.config.commit_log_path) / disk.total_bytes(
        broker.store.config.commit_log_path
    )
    answer = await Producer(broker, through_chunks=through_chunks).send(send_frame())
    assert answer.code == 14
    assert answer.remark == (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full"
        f" [CL: {used:5.2f} CQ: {used:5.2f} INDEX: {used:5.2f}], messages are put to the slave, message store has been"
        " shut down, etc."
    )
    broker.store.commit_log.resume()


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_a_first_message_makes_its_topic(broker: DataBroker) -> None:
    """After the model that the client names, with no more queues than it wants; many at once make one."""
    producer = Producer(broker)
    frames = [send_frame(topic="New", queue_id=1, d="2", opaque=opaque) for opaque in range(5)]
    producer.wire.receive(b"".join(frames))
    answers = await producer.wire.wait_commands(5)
    assert sorted(answer.opaque for answer in answers) == list(range(5))
    assert {answer.code for answer in answers} == {0}
    config = broker.parts.tables.topics.get("New")
    assert config is not None
    assert (config.write_queue_nums, config.read_queue_nums, config.perm) == (2, 2, 6)
    assert (await producer.send(send_frame(topic="New", queue_id=2))).code == 29


async def test_topics_are_not_made_where_that_is_switched_off(broker: DataBroker) -> None:
    broker.change_config(auto_create_topic=False)
    assert (await Producer(broker).send(send_frame(topic="New"))).code == 17
    assert "New" not in broker.parts.tables.topics


async def test_a_topic_with_fewer_queues_than_it_had(broker: DataBroker) -> None:
    """Its old queues are still there, and take no more messages."""
    producer = Producer(broker)
    assert (await producer.send(send_frame(queue_id=3))).code == 0
    await broker.make_topic(TOPIC, queues=2)
    assert (await producer.send(send_frame(queue_id=3))).code == 29
    assert (await producer.send(send_frame(queue_id=1))).code == 0


async def test_a_deleted_topic_made_again_starts_clean(broker: DataBroker) -> None:
    producer = Producer(broker)
    await producer.send(send_frame(queue_id=1))
    await broker.parts.tables.topics.delete(TOPIC)
    broker.store.queues.remove_topic(TOPIC)
    broker.store.retention.remove_queues(TOPIC)
    answer = await producer.send(send_frame(queue_id=1))
    assert answer.ext_fields is not None
    assert answer.ext_fields["queueOffset"] == "0"
    again = await producer.send(send_frame(queue_id=1))
    assert again.ext_fields is not None
    assert again.ext_fields["queueOffset"] == "1"


async def test_multi_tag_topics_mark_their_messages(broker: DataBroker) -> None:
    config = TopicConfig(topic_name="Multi", read_queue_nums=1, write_queue_nums=1, topic_filter_type="MULTI_TAG")
    await broker.parts.tables.topics.update(config, {})
    await Producer(broker).send(send_frame(topic="Multi"))
    (record,) = broker.records()
    assert record.sys_flag == 2


# -- retry, dead letter, delay -----------------------------------------------------------------------------------------


async def retry_send(broker: DataBroker, *, reconsume_times: int, **fields: str) -> RemotingCommand:
    frame = send_frame(topic="%RETRY%group", properties=send_properties(TAGS="TagA"), j=str(reconsume_times), **fields)
    return await Producer(broker).send(frame)


async def test_a_retry_topic_is_made_with_one_queue(broker: DataBroker) -> None:
    broker.change_config(auto_create_topic=False)
    assert (await retry_send(broker, reconsume_times=1)).code == 0
    config = broker.parts.tables.topics.get("%RETRY%group")
    assert config is not None
    assert config.write_queue_nums == 1
    (record,) = broker.records()
    assert (record.topic, record.reconsume_times) == ("%RETRY%group", 1)


async def test_a_message_that_was_retried_too_often_is_a_dead_letter(broker: DataBroker) -> None:
    """By the group's own limit, or the one in the request."""
    await broker.parts.tables.groups.update([SubscriptionGroupConfig(group_name="group", retry_max_times=2)])
    for reconsume_times in (2, 3):
        assert (await retry_send(broker, reconsume_times=reconsume_times)).code == 0
    assert (await retry_send(broker, reconsume_times=3, l="5")).code == 0
    assert [record.topic for record in broker.records()] == ["%RETRY%group", "%DLQ%group", "%RETRY%group"]
    dead = broker.records()[1]
    assert (dead.queue_id, dead.properties["DELAY"], dead.tags) == (0, "-1", "TagA")
    config = broker.parts.tables.topics.get("%DLQ%group")
    assert config is not None
    assert (config.write_queue_nums, config.perm) == (1, 6)


async def test_a_group_that_consumes_in_order_retries_nothing(broker: DataBroker) -> None:
    broker.parts.tables.locks.lock("group", [MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)], "c")
    assert (await retry_send(broker, reconsume_times=0)).code == 0
    assert [record.topic for record in broker.records()] == ["%DLQ%group"]


async def test_retries_of_unknown_groups_are_refused(broker: DataBroker) -> None:
    broker.change_config(auto_create_group=False)
    assert (await retry_send(broker, reconsume_times=1)).code == 26


@pytest.mark.parametrize(("level", "stored_level"), [("1", 1), ("3", 3), ("18", 18), ("99", 18)])
async def test_a_delay_level_has_a_queue_of_the_schedule_topic(
    broker: DataBroker, level: str, stored_level: int
) -> None:
    """The answer names the queue of the request; the unit holds the delivery time."""
    properties = send_properties(TAGS="TagA", DELAY=level, TIMER_DELAY_SEC="5")
    answer = await Producer(broker).send(send_frame(queue_id=2, properties=properties))
    assert answer.code == 0
    assert answer.ext_fields is not None
    assert answer.ext_fields["queueId"] == "2"
    (record,) = broker.records()
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", stored_level - 1)
    assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == (TOPIC, "2")
    assert record.properties["DELAY"] == str(stored_level)
    assert "TIMER_DELAY_SEC" not in record.properties
    queue = broker.store.queues.find("SCHEDULE_TOPIC_XXXX", stored_level - 1)
    assert queue is not None
    delay_ms = broker.store.config.delay_levels_ms[stored_level - 1]
    assert queue.unit(0).tags_code == record.store_timestamp_ms + delay_ms


async def test_level_zero_and_delivered_messages_are_ordinary(broker: DataBroker) -> None:
    """So is a timed message that was delivered once and is sent on: it must not go in circles."""
    producer = Producer(broker)
    assert (await producer.send(send_frame(properties=send_properties(DELAY="0")))).code == 0
    delivered = send_properties(TIMER_DELIVER_MS="5", TIMER_OUT_MS="5", REAL_TOPIC="Other", REAL_QID="7")
    assert (await producer.send(send_frame(properties=delivered))).code == 0
    assert [record.topic for record in broker.records()] == [TOPIC, TOPIC]


# -- time of delivery --------------------------------------------------------------------------------------------------


RECORDED_AT_MS = 1_795_247_910_323
RECORDED_PROPERTIES = (
    "colour\x01grün\x02KEYS\x01key0\x02i\x010\x02TIMER_DELIVER_MS\x011795247912010\x02"
    "UNIQ_KEY\x010A0700016CA34E0E2F2A68B545B10000\x02WAIT\x01true\x02TAGS\x01T\x02"
)
RECORDED_HANDLE = "djEgSXRUaW1lZF9yZWMgYnJva2VyLWEgMTc5NTI0NzkxMjAwMSAwQTA3MDAwMTZDQTM0RTBFMkYyQTY4QjU0NUIxMDAwMA=="


@pytest.mark.parametrize("code", [10, 310])
async def test_a_timed_message_is_answered_as_recorded(tmp_path: Path, code: int) -> None:
    """A send to a 5.5.0 broker and its answer, both by the long names and the short ones."""
    clock = Clock()
    clock.now_ms = RECORDED_AT_MS
    async with data_broker(tmp_path, clock=clock, topics=["ItTimed_rec"], start=False) as broker:
        frame = send_frame(topic="ItTimed_rec", properties=RECORDED_PROPERTIES)
        if code == 10:
            frame = v1_frame(topic="ItTimed_rec", queueId="0", properties=RECORDED_PROPERTIES)
        answer = await Producer(broker).send(frame)
        assert answer.code == 0
        assert answer.ext_fields == {
            "queueId": "0",
            "transactionId": "0A0700016CA34E0E2F2A68B545B10000",
            "msgId": "7F00000100002A9F0000000000000000",
            "TRACE_ON": "true",
            "MSG_REGION": "DefaultRegion",
            "recallHandle": RECORDED_HANDLE,
            "queueOffset": "0",
        }
        (record,) = broker.records()
        assert (record.topic, record.queue_id) == ("rmq_sys_wheel_timer", 0)
        assert record.properties["TIMER_OUT_MS"] == "1795247912000"
        assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == ("ItTimed_rec", "0")


async def test_a_timed_message_comes_to_its_queue_at_its_time(broker: DataBroker) -> None:
    service = timer_service(broker.parts)
    properties = send_properties(TAGS="TagA", TIMER_DELAY_SEC="5", colour="grün")
    assert (await Producer(broker).send(send_frame(queue_id=2, body=b"later", properties=properties))).code == 0
    deliver_all(service)
    broker.clock.now_ms += 4_999
    deliver_all(service)
    assert records_in(broker.parts, TOPIC, 2) == []
    broker.clock.now_ms += 21
    deliver_all(service)
    (record,) = records_in(broker.parts, TOPIC, 2)
    assert (record.body, record.tags, record.properties["colour"]) == (b"later", "TagA", "grün")
    assert record.born_host == PEER
    # What is sent on by a consumer or an operator is not timed again.
    text = "".join(f"{name}\x01{value}\x02" for name, value in record.properties.items())
    again = await Producer(broker).send(send_frame(queue_id=2, properties=text))
    assert again.ext_fields is not None
    assert "recallHandle" not in again.ext_fields
    assert len(records_in(broker.parts, TOPIC, 2)) == 2


@pytest.mark.parametrize("properties", [{"TIMER_DELAY_MS": "0"}, {"TIMER_DELIVER_MS": "5"}, {"TIMER_DELAY_SEC": "-1"}])
async def test_a_time_that_has_come_is_at_once(broker: DataBroker, properties: dict[str, str]) -> None:
    answer = await Producer(broker).send(send_frame(properties=send_properties(**properties)))
    assert answer.ext_fields is not None
    assert "recallHandle" not in answer.ext_fields
    assert [record.topic for record in broker.records()] == [TOPIC]


async def test_a_timed_message_to_a_retry_topic_has_no_handle(broker: DataBroker) -> None:
    await broker.parts.tables.topics.ensure("%RETRY%group", queue_count=1)
    frame = send_frame(topic="%RETRY%group", properties=send_properties(TIMER_DELAY_SEC="5"))
    answer = await Producer(broker).send(frame)
    assert answer.code == 0
    assert answer.ext_fields is not None
    assert "recallHandle" not in answer.ext_fields
    assert [record.topic for record in broker.records()] == ["rmq_sys_wheel_timer"]


async def test_timers_that_are_switched_off_refuse(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", timer_wheel=False)
    async with data_broker(tmp_path, topics=[TOPIC], start=False, config=config) as broker:
        answer = await Producer(broker).send(send_frame(properties=send_properties(TIMER_DELAY_SEC="5")))
        assert (answer.code, answer.remark) == (
            1,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
        assert broker.records() == []
        assert (await Producer(broker).send(send_frame())).code == 0


async def test_the_limit_on_delays_is_live(broker: DataBroker) -> None:
    producer = Producer(broker)
    frame = send_frame(properties=send_properties(TIMER_DELAY_SEC="604800"))
    assert (await producer.send(frame)).code == 13
    await broker.parts.base.settings.update({"timerMaxDelaySec": "31536000"}, broker.parts.tables.persister)
    assert (await producer.send(frame)).code == 0


async def test_a_full_tick_refuses_with_the_official_words(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", timer_slot_count_max=2)
    async with data_broker(tmp_path, topics=[TOPIC], start=False, config=config) as broker:
        service, producer = timer_service(broker.parts), Producer(broker)
        frame = send_frame(properties=send_properties(TIMER_DELIVER_MS=str(broker.clock.now_ms + 60_000)))
        answers = []
        for _ in range(10):
            answers.append(await producer.send(frame))
            deliver_all(service)
        accepted = sum(answer.code == 0 for answer in answers)
        assert 3 <= accepted <= 4
        assert (answers[-1].code, answers[-1].remark) == (
            1,
            "timer message is under flow control, max num limit is 4 or the current value is greater than 2 "
            "and less than 4, trigger random flow control",
        )


# -- safety ------------------------------------------------------------------------------------------------------------


class HeldFlushes:
    """Flushes that the test ends."""

    def __init__(self, broker: DataBroker) -> None:
        self._held: list[tuple[Callable[[], int], Callable[[BaseException | None], None]]] = []
        broker.store.flush.use(lambda job, done: self._held.append((job, done)))

    def end(self, error: BaseException | None = None) -> None:
        (job, done) = self._held.pop(0)
        if error is None:
            job()
        done(error)


@pytest.fixture
async def sync_broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        yield broker


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_answers_wait_for_the_flush(sync_broker: DataBroker, through_chunks: bool) -> None:
    """All that were appended before it began leave after it; later ones wait for the next."""
    flushes = HeldFlushes(sync_broker)
    first = Producer(sync_broker, through_chunks=through_chunks)
    second = Producer(sync_broker, through_chunks=through_chunks)
    first.wire.receive(send_frame(opaque=1) + send_frame(opaque=2))
    second.wire.receive(send_frame(opaque=3))
    await asyncio.sleep(0)
    assert first.wire.drain() == second.wire.drain() == b""
    flushes.end()
    assert [answer.opaque for answer in await first.wire.wait_commands(2)] == [1, 2]
    assert [answer.code for answer in await second.wire.wait_commands()] == [0]


def put_times(broker: DataBroker) -> dict[str, str]:
    """What the runtime information says a minute later: how many messages took how long, the longest, a percentile."""
    rates = broker.parts.base.stats.rates
    rates.sample(broker.clock.now_ms + 60_000)
    info = rates.runtime_info()
    counts = dict(part.rsplit(":", 1) for part in info["putMessageDistributeTime"].split())
    counted = {name: count for name, count in counts.items() if count != "0"}
    return counted | {name: info[name] for name in ("putMessageEntireTimeMax", "putLatency99")}


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_put_times_end_with_the_flush(sync_broker: DataBroker, through_chunks: bool) -> None:
    flushes = HeldFlushes(sync_broker)
    producer = Producer(sync_broker, through_chunks=through_chunks)
    producer.wire.receive(send_frame(opaque=1) + send_frame(opaque=2))
    sync_broker.clock.now_ms += 7
    flushes.end()
    await producer.wire.wait_commands(2)
    assert put_times(sync_broker) == {"[0~10ms]": "2", "putMessageEntireTimeMax": "7", "putLatency99": "6.50"}


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_put_times_without_a_flush(broker: DataBroker, through_chunks: bool) -> None:
    """One-way sends, too, and those that the broker makes itself; a batch's messages count one by one."""
    producer = Producer(broker, through_chunks=through_chunks)
    await producer.send(send_frame())
    await producer.send(batch_frame([BatchMessage(b"x")] * 2))
    producer.wire.receive(send_frame(flag=2))
    broker.parts.due.appender.append(draft(TOPIC))
    await asyncio.sleep(0)
    assert put_times(broker) == {"[<=0ms]": "5", "putMessageEntireTimeMax": "0", "putLatency99": "0.80"}


async def test_who_does_not_wait_is_answered_at_once(sync_broker: DataBroker) -> None:
    HeldFlushes(sync_broker)
    answer = await Producer(sync_broker).send(send_frame(properties=send_properties(WAIT="false")))
    assert answer.code == 0


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_a_failed_flush_acknowledges_nothing(sync_broker: DataBroker, through_chunks: bool) -> None:
    flushes = HeldFlushes(sync_broker)
    producer = Producer(sync_broker, through_chunks=through_chunks)
    producer.wire.receive(send_frame(opaque=1) + send_frame(opaque=2))
    flushes.end(OSError("the disk is gone"))
    answers = await producer.wire.wait_commands(2)
    assert [(answer.opaque, answer.code) for answer in answers] == [(1, 14), (2, 14)]


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_a_flush_that_takes_too_long(sync_broker: DataBroker, through_chunks: bool) -> None:
    """The message is in the log: its answer is whole, with another code."""
    flushes = HeldFlushes(sync_broker)
    producer = Producer(sync_broker, through_chunks=through_chunks)
    producer.wire.receive(send_frame(opaque=1))
    sync_broker.clock.now_ms += sync_broker.store.config.sync_flush_timeout_ms
    sync_broker.hot.tick(sync_broker.clock.now_ms)
    (answer,) = await producer.wire.wait_commands()
    assert (answer.opaque, answer.code) == (1, 10)
    assert answer.ext_fields is not None
    assert answer.ext_fields["queueOffset"] == "0"
    flushes.end()
    assert producer.wire.drain() == b""


async def test_too_much_waiting_for_the_flush_is_refused(
    sync_broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgements, "UNFLUSHED_BYTES_MAX", 1_000)
    flushes = HeldFlushes(sync_broker)
    producer = Producer(sync_broker)
    producer.wire.receive(send_frame(opaque=1, body=bytes(2_000)))
    refused = await producer.send(send_frame(opaque=2))
    assert (refused.opaque, refused.code) == (2, 2)
    flushes.end()
    (answer,) = await producer.wire.wait_commands()
    assert (answer.opaque, answer.code) == (1, 0)


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_too_many_sends_that_wait_for_the_flush_are_refused(
    sync_broker: DataBroker, through_chunks: bool
) -> None:
    sync_broker.change_config(sends_waiting_max=2)
    flushes = HeldFlushes(sync_broker)
    producers = [Producer(sync_broker, through_chunks=through_chunks) for _ in range(2)]
    for producer in producers:
        producer.wire.receive(send_frame(opaque=1))
        await asyncio.sleep(0)  # the round of each ends by itself
    refused = await Producer(sync_broker, through_chunks=through_chunks).send(send_frame(opaque=2))
    assert (refused.code, refused.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
    flushes.end()
    for producer in producers:
        (answer,) = await producer.wire.wait_commands()
        assert (answer.opaque, answer.code) == (1, 0)
    producers[0].wire.receive(send_frame(opaque=3))
    await asyncio.sleep(0)
    flushes.end()
    (answer,) = await producers[0].wire.wait_commands()
    assert (answer.opaque, answer.code) == (3, 0)


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_sends_that_have_waited_for_too_long_are_refused(broker: DataBroker, through_chunks: bool) -> None:
    broker.change_config(send_wait_ms_max=200)
    producer = Producer(broker, through_chunks=through_chunks)
    broker.hot.came_late(900)
    assert (await producer.send(send_frame(opaque=1))).code == 0, "late once: what has come is taken"
    broker.hot.came_late(250)
    refused = await producer.send(send_frame(opaque=2))
    assert (refused.code, refused.remark) == (
        2,
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, size of queue: 0",
    )
    broker.change_config(fast_failure=False)
    broker.hot.came_late(250)
    assert (await producer.send(send_frame(opaque=3))).code == 0, "brokerFastFailureEnable=false: they wait"
    broker.change_config(fast_failure=True)
    broker.hot.came_late(0)
    assert (await producer.send(send_frame(opaque=4))).code == 0


async def test_one_way_sends_are_never_answered(broker: DataBroker) -> None:
    for through_chunks in (True, False):
        producer = Producer(broker, through_chunks=through_chunks)
        producer.wire.receive(send_frame(flag=2))
        producer.wire.receive(send_frame(flag=2, queue_id=9))
        producer.wire.receive(send_frame(flag=2, topic="New"))
        await broker.parts.tables.topics.ensure("New", queue_count=1)
        await asyncio.sleep(0)
        assert producer.wire.drain() == b""
    assert sum(record.topic == TOPIC for record in broker.records()) == 2


async def test_statistics(broker: DataBroker) -> None:
    producer = Producer(broker)
    for _ in range(3):
        await producer.send(send_frame())
    await producer.send(batch_frame([BatchMessage(b"x")] * 2))
    await producer.send(send_frame(queue_id=9))
    rates: Any = broker.parts.base.stats.rates
    assert (rates.put_count, rates.put_failed_times) == (5, 1)
    assert rates.put_bytes == broker.store.commit_log.append_offset
