"""PopReviver: when it looks again, how much it does at a time, and what happens to messages that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import GROUP, TOPIC, PopClient, bodies
from tests.broker.pulling import expire_local_files
from tests.clock import Clock
from tests.waiting import until
from thermocline.broker.pops import pop_reviver
from thermocline.broker.pops.pop_reviver import AGAIN_S, SLEEP_S_MAX, SLICE_MAX
from thermocline.pop.check_point import CheckPoint
from thermocline.pop.in_flight import Pending
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.records.message_record import MessageRecord, encode_record, iterate_records
from thermocline.store.log import PutResult

RETRY_TOPIC = f"%RETRY%{GROUP}_{TOPIC}"


@pytest.fixture
def cold() -> MemoryColdTier:
    return MemoryColdTier()


@pytest.fixture
async def broker(tmp_path: Path, cold: MemoryColdTier) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=8_192) as broker:
        yield broker


def in_flight_count(broker: DataBroker) -> int:
    return len(broker.parts.pops.store.in_flight)


def due_ms(broker: DataBroker) -> int:
    found = broker.parts.pops.store.in_flight.next_due_ms
    assert found is not None
    return found


async def test_it_sleeps_until_the_first_message_is_due(broker: DataBroker) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    assert reviver._sleep_s() is None, "nothing is in flight"
    client.send(b"late")
    client.pop(invisibleTime=200_000)
    assert reviver._sleep_s() == SLEEP_S_MAX
    client.send(b"soon")
    client.pop(invisibleTime=20_000)
    first_ms = due_ms(broker)
    for left_ms, sleep_s in ((20_000, 20.0), (1, 0.001), (0, 0.0), (-5, 0.0)):
        broker.clock.now_ms = first_ms - left_ms
        assert reviver._sleep_s() == sleep_s


async def test_a_message_comes_back_when_it_is_due_and_not_before(broker: DataBroker) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    client.send(b"a")
    client.pop(invisibleTime=20_000)
    broker.clock.now_ms = due_ms(broker) - 1
    assert not await reviver.step()
    assert in_flight_count(broker) == 1
    broker.clock.now_ms += 1
    assert not await reviver.step()
    assert in_flight_count(broker) == 0
    assert broker.parts.tables.offsets.query(RETRY_TOPIC, GROUP, 0) == 0, "the group begins with its first message"
    (again,) = client.pop()
    assert (again.body, again.record.reconsume_times) == (b"a", 1)
    meter = broker.parts.base.stats.put_meter(RETRY_TOPIC)
    stored = broker.store.queues.find(RETRY_TOPIC, 0)
    assert stored is not None
    assert (meter.count, meter.bytes) == (1, stored.unit(0).size_bytes)
    config = broker.parts.tables.topics.get(RETRY_TOPIC)
    assert config is not None
    assert config.read_queue_nums == 1
    assert broker.parts.tables.offsets.query(RETRY_TOPIC, GROUP, 0) == 1


async def test_a_message_that_came_back_too_often_is_a_dead_letter(broker: DataBroker) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    group = broker.parts.tables.groups.find_or_create(GROUP)
    assert group is not None
    group.retry_max_times = 1
    client.send(b"a")
    for _ in range(2):
        assert bodies(client.pop(invisibleTime=20_000)) == [b"a"]
        broker.clock.now_ms = due_ms(broker)
        await reviver.step()
    assert client.pop() == []
    dead = broker.store.queues.find(f"%DLQ%{GROUP}", 0)
    assert dead is not None
    assert dead.next_offset == 1
    assert broker.store.read_record(dead.unit(0).physical_offset).body == b"a"
    assert [broker.parts.base.stats.put_meter(topic).count for topic in (RETRY_TOPIC, f"%DLQ%{GROUP}")] == [1, 1]
    assert list(broker.parts.base.stats._dead_letter) == [f"{TOPIC}@{GROUP}"]


@pytest.mark.parametrize(
    ("times", "topic", "times_after"),
    [(2**31 - 1, f"%DLQ%{GROUP}", 2**31 - 1), (-(2**31), RETRY_TOPIC, 1 - 2**31)],
    ids=["greatest", "least"],
)
async def test_the_count_of_tries_stays_within_32_bits(
    broker: DataBroker, times: int, topic: str, times_after: int
) -> None:
    """A producer sets the first count."""
    client, reviver = PopClient(broker), broker.pop.reviver
    fields: dict[str, Any] = {"producerGroup": "P", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "sysFlag": 0}
    fields |= {"topic": TOPIC, "queueId": 0, "bornTimestamp": 1, "flag": 0, "reconsumeTimes": times}
    assert client.answer(client.ask(10, b"tried", **fields)).code == 0
    assert bodies(client.pop(invisibleTime=20_000)) == [b"tried"]
    broker.clock.now_ms = due_ms(broker)
    assert not await reviver.step()
    assert in_flight_count(broker) == 0
    back = broker.store.queues.find(topic, 0)
    assert back is not None
    assert broker.store.read_record(back.unit(0).physical_offset).reconsume_times == times_after


async def test_a_smaller_limit_loses_nothing_that_was_popped(tmp_path: Path) -> None:
    clock = Clock()
    async with data_broker(tmp_path, topics=[TOPIC], clock=clock, start=False, message_bytes_max=1_000) as broker:
        client = PopClient(broker)
        client.send(bytes(1_000))
        assert len(client.pop(invisibleTime=20_000)) == 1
    async with data_broker(tmp_path, clock=clock, start=False, message_bytes_max=500) as broker:
        clock.now_ms += 20_000
        await broker.pop.reviver.step()
        assert bodies(PopClient(broker).pop()) == [bytes(1_000)]


async def test_a_check_point_that_fails_does_not_hold_up_others(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    client.send(b"bad")
    client.pop(invisibleTime=20_000)
    client.send(b"good", queue_id=1)
    client.pop(invisibleTime=20_000)
    revive = broker.parts.pops.store.revive

    def fail_for_the_first(pending: Pending, *arguments: Any) -> list[PutResult]:
        if pending.check_point.queue_id == 0:
            raise ValueError("a bug")
        return revive(pending, *arguments)

    monkeypatch.setattr(broker.parts.pops.store, "revive", fail_for_the_first)
    broker.clock.now_ms = due_ms(broker)
    assert not await reviver.step()
    assert bodies(client.pop()) == [b"good"]
    assert due_ms(broker) == broker.clock.now_ms + AGAIN_S[0] * 1_000
    broker.clock.now_ms = due_ms(broker)
    assert not await reviver.step()
    assert due_ms(broker) == broker.clock.now_ms + AGAIN_S[1] * 1_000, "later and later"


async def test_a_slice_of_them_at_a_time(broker: DataBroker) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    for _ in range(SLICE_MAX + 1):
        client.send(b"a")
        client.pop(invisibleTime=20_000)
    broker.clock.now_ms = due_ms(broker)
    assert await reviver.step(), "there is more"
    assert in_flight_count(broker) == 1
    assert not await reviver.step()
    assert in_flight_count(broker) == 0


async def test_the_task_is_woken_by_a_message_that_is_due_earlier(broker: DataBroker) -> None:
    client = PopClient(broker)
    task = asyncio.create_task(broker.pop.reviver.run())
    client.send(b"late")
    client.pop(invisibleTime=200_000)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    client.send(b"soon")  # the task sleeps for a real minute now
    client.pop(invisibleTime=20_000)
    broker.clock.now_ms = due_ms(broker)
    try:
        await until(lambda: in_flight_count(broker) == 1, timeout_s=15)
    finally:
        task.cancel()
    assert bodies(client.pop()) == [b"soon"]


async def test_a_message_that_cannot_be_read_is_tried_again_later_and_later(
    broker: DataBroker, cold: MemoryColdTier
) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    client.send(b"cold")
    client.pop(invisibleTime=20_000)
    for _ in range(20):
        client.send(bytes(1_000), queue_id=1)
        client.send(bytes(1_000))
    cold.copy_from(broker.store, TOPIC, 0, end=5)
    assert expire_local_files(broker, 5) > 0
    cold.is_away = True
    broker.clock.now_ms = due_ms(broker)
    for pause_s in (*AGAIN_S, AGAIN_S[-1]):
        assert not await reviver.step()
        await reviver.step_cold()
        assert due_ms(broker) == broker.clock.now_ms + pause_s * 1_000
        broker.clock.now_ms = due_ms(broker)
    cold.is_away = False
    assert not await reviver.step()
    await reviver.step_cold()
    assert in_flight_count(broker) == 0
    queue = broker.store.queues.find(RETRY_TOPIC, 0)
    assert queue is not None
    assert broker.store.read_record(queue.unit(0).physical_offset).body == b"cold"


async def test_a_tier_that_does_not_answer_holds_up_no_local_message_nor_is_it_asked_for_each(
    broker: DataBroker, cold: MemoryColdTier
) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    client.send(*[b"cold"] * 3)
    for number in range(3):
        assert len(client.pop(maxMsgNums=1, invisibleTime=20_000 + number)) == 1
    for _ in range(20):
        client.send(bytes(1_000), queue_id=1)
        client.send(bytes(1_000))
    cold.copy_from(broker.store, TOPIC, 0, end=5)
    assert expire_local_files(broker, 5) > 0
    client.send(b"local", queue_id=2)
    assert bodies(client.pop(queueId=2, invisibleTime=20_003)) == [b"local"]
    cold.gate = asyncio.Event()
    broker.clock.now_ms += 20_003
    assert not await reviver.step()
    reading = asyncio.create_task(reviver.step_cold())
    await until(lambda: cold.pulls)
    queue = broker.store.queues.find(RETRY_TOPIC, 0)
    assert queue is not None
    assert broker.store.read_record(queue.unit(0).physical_offset).body == b"local"
    assert in_flight_count(broker) == 3
    cold.is_away = True  # for the questions to come
    cold.gate.set()
    await reading
    assert (len(cold.pulls), in_flight_count(broker)) == (2, 2), "the third one is not asked about"
    cold.is_away = False
    broker.clock.now_ms += AGAIN_S[0] * 1_000
    assert not await reviver.step()
    await reviver.step_cold()
    assert in_flight_count(broker) == 0


async def test_a_bug_puts_off_the_messages_and_is_not_hidden(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    client.send(b"a")
    client.pop(invisibleTime=20_000)
    broker.clock.now_ms = due_ms(broker)
    with monkeypatch.context() as patch:
        patch.setattr(pop_reviver, "retry_topic_of", None)
        assert not await reviver.step()
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert due_ms(broker) == broker.clock.now_ms + AGAIN_S[0] * 1_000
    broker.clock.now_ms = due_ms(broker)
    await reviver.step()
    assert bodies(client.pop()) == [b"a"]


async def test_messages_of_a_topic_that_is_gone_do_not_come_back(broker: DataBroker) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    client.send(b"a")
    client.pop(invisibleTime=20_000)
    broker.clock.now_ms = due_ms(broker)
    del broker.parts.tables.topics._topics[TOPIC]
    assert not await reviver.step()
    assert in_flight_count(broker) == 0
    assert RETRY_TOPIC not in broker.parts.tables.topics


async def test_what_is_put_at_once_is_bounded_by_its_bytes(broker: DataBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    monkeypatch.setattr(pop_reviver, "PUT_BYTES_MAX", 1_500)
    client.send(*[bytes(800)] * 5)
    client.pop(invisibleTime=20_000)
    broker.clock.now_ms = due_ms(broker)
    counts: list[int] = []
    revive = broker.parts.pops.store.revive

    def noted(pending: object, drafts: list[object], offsets: list[int]) -> object:
        counts.append(len(drafts))
        return revive(pending, drafts, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(broker.parts.pops.store, "revive", noted)
    await reviver.step()
    assert counts == [2, 2, 1]
    assert len(client.pop()) == 5


# -- messages of other brokers -----------------------------------------------------------------------------------------


class OtherBroker:
    """Has messages, or cannot be asked."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets
        self.is_away = False
        self.asked: list[tuple[str, str, int, int, str]] = []

    async def __call__(
        self, broker_name: str, topic: str, queue_id: int, offset: int, *, group: str
    ) -> MessageRecord | None:
        self.asked.append((broker_name, topic, queue_id, offset, group))
        if self.is_away:
            raise UnavailableError("away")
        if offset not in self.offsets:
            return None
        (record,) = iterate_records(
            encode_record(
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=0,
                body=b"of another broker",
                properties_text=b"",
                born_timestamp_ms=1,
                born_host=("10.0.0.2", 4000),
                store_timestamp_ms=2,
                store_host=("10.0.0.3", 10911),
                flag=0,
                sys_flag=0,
                reconsume_times=0,
                prepared_transaction_offset=0,
            )
        )
        return record


def put_foreign(broker: DataBroker, *offsets: int, topic: str = TOPIC) -> None:
    """A check point of another broker comes in, and is due."""
    record = CheckPoint(
        topic=topic,
        group=GROUP,
        queue_id=2,
        start_offset=offsets[0],
        offsets=offsets,
        pop_time_ms=broker.clock.now_ms - 20_000,
        invisible_ms=10_000,
        broker_name="broker-x",
    )
    broker.store.put(broker.parts.pops.store.log.check_point_draft(record, 1))


async def test_a_message_of_another_broker_is_read_there_and_popped_here(broker: DataBroker) -> None:
    """Its slave has put the check point here; this broker's own message at that offset is another one."""
    client, reviver = PopClient(broker), broker.pop.reviver
    client.send(b"own", queue_id=2)
    reviver._read_elsewhere = other = OtherBroker(0)
    put_foreign(broker, 0, 1)
    await reviver.step()
    await reviver.step_elsewhere()
    assert other.asked == [("broker-x", TOPIC, 2, offset, GROUP) for offset in (0, 1)]
    assert in_flight_count(broker) == 0, "the second one is not there any more"
    assert sorted(bodies(client.pop())) == [b"of another broker", b"own"]


async def test_another_broker_that_is_away_is_asked_again(broker: DataBroker) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    reviver._read_elsewhere = other = OtherBroker(0)
    other.is_away = True
    put_foreign(broker, 0)
    await reviver.step()
    await reviver.step_elsewhere()
    assert (in_flight_count(broker), len(other.asked)) == (1, 1)
    other.is_away = False
    broker.clock.now_ms += AGAIN_S[0] * 1_000
    await reviver.step()
    await reviver.step_elsewhere()
    assert bodies(client.pop()) == [b"of another broker"]


async def test_another_broker_is_asked_again_in_time_when_the_clock_is_set_back(broker: DataBroker) -> None:
    reviver, pops = broker.pop.reviver, broker.parts.pops.store
    reviver._read_elsewhere = other = OtherBroker(0)
    other.is_away = True
    put_foreign(broker, 0)
    broker.clock.now_ms += 86_400_000
    pops.maintain()
    await reviver.step()
    await reviver.step_elsewhere()
    broker.clock.now_ms -= 86_400_000
    pops.maintain()
    await reviver.step()
    await reviver.step_elsewhere()
    assert len(other.asked) == 2


async def test_a_message_of_a_topic_that_is_not_here_waits(broker: DataBroker) -> None:
    """Nothing would pop it here."""
    reviver = broker.pop.reviver
    reviver._read_elsewhere = OtherBroker(0)
    put_foreign(broker, 0, topic="Elsewhere")
    await reviver.step()
    await reviver.step_elsewhere()
    assert in_flight_count(broker) == 1
    await broker.parts.tables.topics.ensure("Elsewhere", queue_count=1)
    broker.clock.now_ms += AGAIN_S[0] * 1_000
    await reviver.step()
    await reviver.step_elsewhere()
    assert in_flight_count(broker) == 0
    assert broker.store.queues.find(f"%RETRY%{GROUP}_Elsewhere", 0) is not None


async def test_a_broker_that_does_not_answer_holds_up_neither_own_messages_nor_is_it_asked_for_each(
    broker: DataBroker,
) -> None:
    client, reviver = PopClient(broker), broker.pop.reviver
    reviver._read_elsewhere = other = OtherBroker(0, 1)
    other.is_away = True
    client.send(b"own")
    client.pop(invisibleTime=20_000)
    put_foreign(broker, 0)
    put_foreign(broker, 1)
    broker.clock.now_ms += 20_000
    await reviver.step()
    assert bodies(client.pop()) == [b"own"]
    assert other.asked == []
    await reviver.step_elsewhere()
    assert (len(other.asked), in_flight_count(broker)) == (1, 3)
    other.is_away = False
    broker.clock.now_ms += AGAIN_S[0] * 1_000
    await reviver.step()
    await reviver.step_elsewhere()
    assert [bodies(client.pop(maxMsgNums=1)) for _ in range(2)] == [[b"of another broker"]] * 2


async def test_messages_of_other_brokers_come_back_by_themselves(broker: DataBroker) -> None:
    reviver = broker.pop.reviver
    reviver._read_elsewhere = other = OtherBroker(0)
    other.is_away = True
    tasks = [asyncio.create_task(run()) for run in (reviver.run, reviver.run_elsewhere)]
    try:
        put_foreign(broker, 0)
        broker.parts.pops.store.maintain()
        await until(lambda: other.asked, what="the other broker is asked")
        other.is_away = False
        broker.clock.now_ms += AGAIN_S[0] * 1_000
        broker.parts.pops.store.on_due()
        await until(lambda: in_flight_count(broker) == 0, what="the message has come back")
    finally:
        for task in tasks:
            task.cancel()
