"""Delay levels: messages come when their time has come, in order, over restarts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.clock import Clock
from thermocline.broker.due.delay_service import PAUSE_MS, SLICE_MESSAGES_MAX, DelayService, schedule
from thermocline.remoting.bodies import BrokerStatsData, KVTable
from thermocline.remoting.errors import CorruptDataError, ServiceUnavailableError
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.topic_validation import SCHEDULE_TOPIC
from thermocline.store.log.message_draft import GetStatus, MessageDraft
from thermocline.store.queues.consume_queue import ConsumeQueue, ConsumeQueueUnit


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        yield broker


def send_delayed(broker: ControlBroker, level: int, body: bytes, *, topic: str = "T", queue_id: int = 1) -> None:
    draft = MessageDraft(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties_text=b"",
        born_timestamp_ms=123,
        born_host=("10.0.0.7", 4711),
        flag=9,
        reconsume_times=2,
    )
    properties = {"TAGS": "tag", "UNIQ_KEY": body.decode()}
    broker.parts.base.store.put(schedule(draft, properties, level, level_count=18))


def delivered(broker: ControlBroker, topic: str = "T", queue_id: int = 1) -> list[bytes]:
    store = broker.parts.base.store
    result = store.get(topic, queue_id, 0, count_max=1_000, bytes_max=1 << 20)
    if result.status is not GetStatus.FOUND:
        return []
    queue = store.queues.find(topic, queue_id)
    assert queue is not None
    return [store.read_record(queue.unit(offset).physical_offset).body for offset in range(queue.next_offset)]


def deliver_all(broker: ControlBroker) -> None:
    while broker.parts.due.delays.deliver_slice():
        pass


async def test_a_level_without_a_delay_keeps_no_processor_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no message waits, the service rests between two looks at its levels."""
    async with control_broker(tmp_path, message_delay_level="0s 5s") as broker:
        rests: list[float] = []

        async def rest(seconds: float) -> None:
            rests.append(seconds)
            if len(rests) == 3:
                raise asyncio.CancelledError

        monkeypatch.setattr(asyncio, "sleep", rest)
        with pytest.raises(asyncio.CancelledError):
            await broker.parts.due.delays.run()
        monkeypatch.undo()
    assert rests == [1.0, PAUSE_MS / 1_000, PAUSE_MS / 1_000]


async def test_a_message_comes_after_its_delay(broker: ControlBroker) -> None:
    send_delayed(broker, 2, b"five seconds")
    deliver_all(broker)
    broker.clock.now_ms += 4_999
    deliver_all(broker)
    assert delivered(broker) == []
    broker.clock.now_ms += 1
    deliver_all(broker)
    assert delivered(broker) == [b"five seconds"]
    queue = broker.parts.base.store.queues.find("T", 1)
    assert queue is not None
    record = broker.parts.base.store.read_record(queue.unit(0).physical_offset)
    assert (record.topic, record.queue_id, record.flag, record.reconsume_times) == ("T", 1, 9, 2)
    assert (record.born_timestamp_ms, record.born_host) == (123, ("10.0.0.7", 4711))
    assert record.store_timestamp_ms == broker.clock.now_ms
    # As the official broker leaves it.
    assert record.properties == {
        "DELAY": "2",
        "REAL_QID": "1",
        "REAL_TOPIC": "T",
        "TAGS": "tag",
        "UNIQ_KEY": "five seconds",
    }
    assert broker.arrived == [queue]
    assert broker.parts.base.stats.view("TOPIC_PUT_NUMS", "T") is not None


async def test_a_level_above_the_highest_counts_as_that(broker: ControlBroker) -> None:
    send_delayed(broker, 99, b"two hours")
    queue = broker.parts.base.store.queues.find(SCHEDULE_TOPIC, 17)
    assert queue is not None
    record = broker.parts.base.store.read_record(queue.unit(0).physical_offset)
    assert decode_properties(record.properties_text)["DELAY"] == "18"
    broker.clock.now_ms += 7_200_000
    deliver_all(broker)
    assert delivered(broker) == [b"two hours"]


async def test_levels_do_not_wait_for_each_other(broker: ControlBroker) -> None:
    send_delayed(broker, 18, b"late")
    send_delayed(broker, 1, b"soon")
    broker.clock.now_ms += 1_000
    deliver_all(broker)
    assert delivered(broker) == [b"soon"]
    assert broker.parts.due.delays.progress() == {1: (1, 1), 18: (0, 1)}


async def test_work_comes_in_slices(broker: ControlBroker) -> None:
    count = SLICE_MESSAGES_MAX * 2 + 1
    for number in range(count):
        send_delayed(broker, 1, str(number).encode())
    broker.clock.now_ms += 1_000
    assert broker.parts.due.delays.deliver_slice()
    assert len(delivered(broker)) == SLICE_MESSAGES_MAX
    deliver_all(broker)
    assert delivered(broker) == [str(number).encode() for number in range(count)]


async def test_the_undelivered_hold_the_log(broker: ControlBroker) -> None:
    delays = broker.parts.due.delays
    assert delays.earliest_undelivered_offset() is None
    broker.put("T")
    end = broker.parts.base.store.commit_log.append_offset
    send_delayed(broker, 3, b"a")
    send_delayed(broker, 1, b"b")
    assert delays.earliest_undelivered_offset() == end
    broker.clock.now_ms += 10_000
    deliver_all(broker)
    assert delays.earliest_undelivered_offset() is None


async def test_a_clock_set_back_does_not_hold_messages_up(broker: ControlBroker) -> None:
    send_delayed(broker, 1, b"x")
    broker.clock.now_ms -= 10_000
    deliver_all(broker)
    assert delivered(broker) == [b"x"]


async def test_delays_are_kept_after_a_clock_was_set_back(broker: ControlBroker) -> None:
    """As of a retry: without its delay a message would be tried again and again at once, and become a dead letter."""
    broker.put("Other")
    broker.clock.set_back(3_600_000)
    send_delayed(broker, 2, b"five seconds")
    broker.clock.now_ms += 4_999
    deliver_all(broker)
    assert delivered(broker) == []
    broker.clock.now_ms += 1
    deliver_all(broker)
    assert delivered(broker) == [b"five seconds"]


async def test_a_delayed_message_counts_once_and_for_the_group_of_the_levels(broker: ControlBroker) -> None:
    """`clusterList -m` and the exporter of RocketMQ read these figures."""
    draft = MessageDraft(
        topic="T", queue_id=1, body=b"x", properties_text=b"", born_timestamp_ms=123, born_host=("10.0.0.7", 4711)
    )
    broker.parts.due.appender.append(schedule(draft, {}, 1, level_count=18))
    broker.clock.now_ms += 1_000
    deliver_all(broker)
    assert delivered(broker) == [b"x"]
    table = KVTable.decode((await broker.ask(28)).body).table
    assert (table["msgPutTotalTodayNow"], table["putMessageTimesTotal"]) == ("1", "2")
    broker.parts.base.stats.sample(broker.clock.now_ms + 60_000)
    key = {"statsKey": f"{SCHEDULE_TOPIC}@SCHEDULE_CONSUMER"}
    answer = await broker.ask(315, {"statsName": "GROUP_GET_NUMS", **key})
    assert (answer.code, BrokerStatsData.decode(answer.body).stats_minute.sum) == (0, 1)
    answer = await broker.ask(315, {"statsName": "GROUP_GET_SIZE", **key})
    assert BrokerStatsData.decode(answer.body).stats_minute.sum > 0


async def test_a_level_that_is_no_longer_set_goes_on(broker: ControlBroker) -> None:
    """The setting was made shorter between two starts: what was accepted comes, and holds the log until then."""
    parts, store = broker.parts, broker.parts.base.store
    start = store.commit_log.append_offset
    send_delayed(broker, 4, b"thirty seconds")
    store.config = replace(store.config, message_delay_level="1s 5s")
    delays = DelayService(store, parts.due.appender, parts.tables.persister, clock=broker.clock, stats=parts.base.stats)
    assert delays.levels == [1, 2, 4]
    assert delays.earliest_undelivered_offset() == start
    broker.clock.now_ms += 29_999
    assert not delays.deliver_slice()
    assert (delivered(broker), delays.due(4, 1)) == ([], [])
    broker.clock.now_ms += 1
    assert len(delays.due(4, 1)) == 1
    assert not delays.deliver_slice()
    assert delivered(broker) == [b"thirty seconds"]
    assert delays.earliest_undelivered_offset() is None


async def test_a_message_of_a_deleted_topic_is_dropped(broker: ControlBroker) -> None:
    send_delayed(broker, 1, b"gone")
    send_delayed(broker, 1, b"kept", topic="TBW102")
    await broker.parts.tables.topics.delete("T")
    broker.clock.now_ms += 1_000
    deliver_all(broker)
    assert delivered(broker) == []
    assert delivered(broker, "TBW102") == [b"kept"]


async def test_a_store_that_refuses_is_asked_again(broker: ControlBroker) -> None:
    send_delayed(broker, 1, b"x")
    broker.clock.now_ms += 1_000
    log = broker.parts.base.store.commit_log
    log.pause("disk full")
    deliver_all(broker)
    with pytest.raises(ServiceUnavailableError):
        broker.put("T")
    log.resume()
    deliver_all(broker)
    assert delivered(broker) == []  # it rests
    broker.clock.now_ms += 10_000
    deliver_all(broker)
    assert delivered(broker) == [b"x"]


async def test_a_clock_set_back_does_not_prolong_the_rest(broker: ControlBroker) -> None:
    send_delayed(broker, 1, b"x")
    broker.clock.now_ms += 1_000
    log = broker.parts.base.store.commit_log
    log.pause("disk full")
    deliver_all(broker)
    log.resume()
    broker.clock.now_ms -= 3_600_000
    deliver_all(broker)
    assert delivered(broker) == [b"x"]


@pytest.mark.parametrize("error", [CorruptDataError("damaged"), ValueError("a bug")])
async def test_a_level_that_fails_holds_up_no_other(
    broker: ControlBroker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    for body in (b"one", b"damaged"):
        send_delayed(broker, 1, body)
    send_delayed(broker, 2, b"two")
    broker.clock.now_ms += 5_000
    real_unit = ConsumeQueue.unit

    def unit(queue: ConsumeQueue, offset: QueueOffset) -> ConsumeQueueUnit:
        if queue.topic == SCHEDULE_TOPIC and (queue.queue_id, offset) == (0, 1):
            raise error
        return real_unit(queue, offset)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "unit", unit)
        for _ in range(2):
            deliver_all(broker)
            broker.clock.now_ms += 10_000
    assert delivered(broker) == [b"one", b"two"]
    deliver_all(broker)
    assert delivered(broker) == [b"one", b"two", b"damaged"]


async def test_progress_survives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with control_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("T")
        send_delayed(broker, 1, b"one")
        send_delayed(broker, 2, b"two")
        clock.now_ms += 1_000
        deliver_all(broker)
    async with control_broker(tmp_path, clock=clock) as broker:
        assert broker.parts.due.delays.progress() == {1: (1, 1), 2: (0, 1)}
        deliver_all(broker)
        assert delivered(broker) == [b"one"]
        clock.now_ms += 4_000
        deliver_all(broker)
        assert delivered(broker) == [b"one", b"two"]
        data = broker.parts.due.delays.encode()
        assert loads(data)["offsetTable"] == {1: 1, 2: 1}
        assert b'"offsetTable":{1:1,2:1}' in data


async def test_an_offset_that_its_queue_lacks_is_corrected(broker: ControlBroker) -> None:
    send_delayed(broker, 1, b"x")
    delays = broker.parts.due.delays
    delays.load(b'{"dataVersion":{"counter":20},"offsetTable":{1:64,2:0}}')
    deliver_all(broker)
    assert loads(delays.encode())["offsetTable"] == {1: 1, 2: 0}


@pytest.mark.parametrize("is_known", [False, True])
async def test_progress_behind_the_end_skips_no_later_message(tmp_path: Path, is_known: bool) -> None:
    """As of a slave that began empty: it has its master's progress, and no message of the level, or fewer."""
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        if is_known:
            send_delayed(broker, 1, b"delivered")
    (tmp_path / "config" / "delayOffset.json").write_bytes(b'{"offsetTable":{1:64}}')
    for _ in range(2):  # the next start after a kill, too
        async with control_broker(tmp_path) as broker:
            assert loads((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"] == {1: int(is_known)}
    async with control_broker(tmp_path) as broker:
        send_delayed(broker, 1, b"x")
        broker.clock.now_ms += 1_000
        deliver_all(broker)
        assert delivered(broker) == [b"x"]


async def test_the_task_delivers_by_itself(broker: ControlBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.broker.due.delay_service.FIRST_PAUSE_MS", 1)
    monkeypatch.setattr("thermocline.broker.due.delay_service.PAUSE_MS", 1)
    send_delayed(broker, 1, b"x")
    broker.clock.now_ms += 1_000
    broker.housekeeping.start()
    async with asyncio.timeout(5):
        while delivered(broker) != [b"x"]:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
    await broker.housekeeping.close()


async def test_the_official_file_is_read(broker: ControlBroker) -> None:
    parts = broker.parts
    delays = DelayService(
        parts.base.store, parts.due.appender, parts.tables.persister, clock=broker.clock, stats=parts.base.stats
    )
    delays.load(b'{\n\t"dataVersion":{\n\t\t"counter":20},\n\t"offsetTable":{\n\t\t1:64,\n\t\t17:0\n\t}\n}')
    assert {level: at for level, (at, _) in delays.progress().items()} == {1: 64, 17: 0}
    with pytest.raises(CorruptDataError):
        delays.load(b"{")


async def test_a_message_of_a_topics_earlier_life_is_dropped(broker: ControlBroker) -> None:
    send_delayed(broker, 1, b"earlier life")
    await broker.parts.tables.topics.delete("T")
    await broker.create_topic("T")
    send_delayed(broker, 1, b"this life")
    broker.clock.now_ms += 1_000
    deliver_all(broker)
    assert delivered(broker) == [b"this life"]
