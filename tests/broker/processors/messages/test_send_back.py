"""Send-back: messages that could not be consumed try again later, or end among the dead letters.

Covers `broker/sends/message_appender.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import STORE_HOST, ControlBroker, control_broker, recorded
from tests.waiting import until
from thermocline.broker.cold.cold_reads import ColdRecord, NoColdTier
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.log import MessageDraft


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        broker.put("T")  # so that offset 0 holds another message
        yield broker


def fields(offset: int, **more: str) -> dict[str, str]:
    return {"group": "G", "offset": str(offset), "delayLevel": "0", "originTopic": "T", "unitMode": "false", **more}


def records(broker: ControlBroker, topic: str, queue_id: int = 0) -> list[MessageRecord]:
    queue = broker.parts.base.store.queues.find(topic, queue_id)
    if queue is None:
        return []
    return [
        broker.parts.base.store.read_record(queue.unit(offset).physical_offset) for offset in range(queue.next_offset)
    ]


async def test_a_message_tries_again_after_a_growing_delay(broker: ControlBroker) -> None:
    sent = broker.put("T", 2, body=b"hard", TAGS="tag", KEYS="k", UNIQ_KEY="u", DELAY="0")
    answer = await broker.ask(36, fields(sent.physical_offset))
    assert (answer.code, answer.ext_fields, answer.remark) == (0, None, None)
    (waiting,) = records(broker, "SCHEDULE_TOPIC_XXXX", 2)  # level 3
    assert waiting.reconsume_times == 1
    assert waiting.born_host == ("10.0.0.7", 4711)
    assert waiting.body == b"hard"
    assert waiting.properties == {
        "DELAY": "3",
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": encode_message_id(STORE_HOST, sent.physical_offset),
        "REAL_QID": "0",
        "REAL_TOPIC": "%RETRY%G",
        "RETRY_TOPIC": "T",
        "TAGS": "tag",
        "UNIQ_KEY": "u",
        "WAIT": "false",
    }
    broker.clock.now_ms += 10_000
    broker.parts.due.delays.deliver_slice()
    (again,) = records(broker, "%RETRY%G")
    # The second try: one level later, the first topic and id remembered.
    assert (await broker.ask(36, fields(again.physical_offset))).code == 0
    (waiting,) = records(broker, "SCHEDULE_TOPIC_XXXX", 3)
    assert waiting.reconsume_times == 2
    assert waiting.properties["RETRY_TOPIC"] == "T"
    assert waiting.properties["ORIGIN_MESSAGE_ID"] == encode_message_id(STORE_HOST, sent.physical_offset)
    view = broker.parts.base.stats.view("SNDBCK_PUT_NUMS", "T@G")
    assert view is not None


@pytest.mark.parametrize(("times", "times_after"), [(2**31 - 1, 2**31 - 1), (-3, -2), (-(2**31), 1 - 2**31)])
async def test_any_count_of_tries_that_a_producer_sent(broker: ControlBroker, times: int, times_after: int) -> None:
    draft = MessageDraft(
        topic="T",
        queue_id=0,
        body=b"tried",
        properties_text=b"",
        born_timestamp_ms=broker.clock(),
        born_host=("10.0.0.7", 4711),
        reconsume_times=times,
    )
    offset = broker.parts.base.store.put(draft).physical_offset
    assert (await broker.ask(36, fields(offset))).code == 0
    topic = "%DLQ%G" if times > 0 else "SCHEDULE_TOPIC_XXXX"  # at the least delay
    (sent_back,) = records(broker, topic)
    assert (sent_back.body, sent_back.reconsume_times) == (b"tried", times_after)


async def test_the_client_may_choose_the_delay(broker: ControlBroker) -> None:
    sent = broker.put("T")
    assert (await broker.ask(36, fields(sent.physical_offset, delayLevel="1"))).code == 0
    assert len(records(broker, "SCHEDULE_TOPIC_XXXX", 0)) == 1


@pytest.mark.parametrize(
    ("more", "version"),
    [({"delayLevel": "-1"}, 513), ({"maxReconsumeTimes": "0"}, 513)],
    ids=["on request", "tried often enough"],
)
async def test_a_message_ends_among_the_dead_letters(broker: ControlBroker, more: dict[str, str], version: int) -> None:
    sent = broker.put("T", body=b"dead", UNIQ_KEY="u")
    assert (await broker.ask(36, fields(sent.physical_offset, **more), version=version)).code == 0
    (dead,) = records(broker, "%DLQ%G")
    assert (dead.body, dead.reconsume_times) == (b"dead", 1)
    assert dead.properties["DELAY"] == "0"
    assert dead.properties["RETRY_TOPIC"] == "T"
    config = broker.parts.tables.topics.get("%DLQ%G")
    assert config is not None
    assert (config.write_queue_nums, config.perm, config.topic_sys_flag) == (1, 6, 0)
    assert [queue.topic for queue in broker.arrived] == ["%DLQ%G"]
    assert broker.parts.base.stats.view("DLQ_PUT_NUMS", "T@G") is not None


async def test_old_clients_leave_the_number_of_tries_to_the_group(broker: ControlBroker) -> None:
    await broker.ask(200, body=SubscriptionGroupConfig(group_name="G", retry_max_times=0).encode())
    sent = broker.put("T")
    assert (await broker.ask(36, fields(sent.physical_offset, maxReconsumeTimes="5"), version=100)).code == 0
    assert len(records(broker, "%DLQ%G")) == 1
    assert (await broker.ask(36, fields(sent.physical_offset, maxReconsumeTimes="5"))).code == 0
    assert len(records(broker, "%DLQ%G")) == 1


async def test_a_group_without_retry_queues_lets_the_message_go(broker: ControlBroker) -> None:
    await broker.ask(200, body=SubscriptionGroupConfig(group_name="G", retry_queue_nums=0).encode())
    sent = broker.put("T")
    assert (await broker.ask(36, fields(sent.physical_offset))).code == 0
    assert records(broker, "SCHEDULE_TOPIC_XXXX", 2) == []


async def test_a_retry_goes_to_one_of_the_groups_queues(broker: ControlBroker) -> None:
    await broker.ask(200, body=SubscriptionGroupConfig(group_name="G", retry_queue_nums=4).encode())
    for _ in range(20):
        sent = broker.put("T")
        await broker.ask(36, fields(sent.physical_offset))
    chosen = {record.properties["REAL_QID"] for record in records(broker, "SCHEDULE_TOPIC_XXXX", 2)}
    assert len(chosen) > 1
    assert chosen <= {"0", "1", "2", "3"}


@pytest.mark.parametrize("offset", [1, 10**15, -5])
async def test_a_missing_message_is_an_error(broker: ControlBroker, offset: int) -> None:
    answer = await broker.ask(36, fields(offset))
    assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")


async def test_permissions_are_looked_at(broker: ControlBroker) -> None:
    sent = broker.put("T")
    await broker.ask(25, body=b"brokerPermission=4\n")
    assert (await broker.ask(36, fields(sent.physical_offset))).code == 16
    await broker.ask(25, body=b"brokerPermission=6\nautoCreateSubscriptionGroup=false\n")
    answer = await broker.ask(36, fields(sent.physical_offset, group="NotMade"))
    assert answer.code == 26


async def test_a_message_in_the_cold_tier_is_read_from_there(tmp_path: Path) -> None:
    class Cold(NoColdTier):
        record: bytes | None = None
        is_away = False

        async def view(self, physical_offset: int) -> ColdRecord | None:
            if self.is_away:
                raise UnavailableError("the cold tier is away")
            if self.record is None:
                return None
            return ColdRecord(
                physical_offset=physical_offset, topic="T", store_timestamp_ms=1, record=memoryview(self.record)
            )

    cold = Cold()
    async with control_broker(tmp_path, cold=cold, log_file_bytes=4_096) as broker:
        await broker.create_topic("T")
        store = broker.parts.base.store
        sent = broker.put("T", body=b"cold")
        cold.record = bytes(store.commit_log.record_at(sent.physical_offset))
        for _ in range(20):
            broker.put("T", body=b"x" * 1_000)
        store.commit_log.flush()
        for file in store.commit_log.raise_minimum(4_096):
            store.commit_log.delete_file(file)
        assert store.commit_log.min_offset > sent.physical_offset
        assert (await broker.ask(36, fields(sent.physical_offset))).code == 0
        assert records(broker, "SCHEDULE_TOPIC_XXXX", 2)[0].body == b"cold"
        cold.is_away = True
        assert (await broker.ask(36, fields(sent.physical_offset))).code == 2
        cold.is_away, cold.record = False, None
        assert (await broker.ask(36, fields(sent.physical_offset))).code == 1


async def test_with_sync_flush_the_answer_waits_for_the_flush(tmp_path: Path) -> None:
    async with control_broker(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        await broker.create_topic("T")
        sent = broker.put("T")
        assert (await broker.ask(36, fields(sent.physical_offset, delayLevel="-1"))).code == 0
        log = broker.parts.base.store.commit_log
        assert log.flush_offset == log.append_offset
        assert [queue.topic for queue in broker.arrived] == ["%DLQ%G"]


async def test_the_wait_for_the_flush_ends_though_the_log_is_ahead_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart with a wall clock that was set back."""
    async with control_broker(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        await broker.create_topic("T")
        sent = broker.put("T")
        store = broker.parts.base.store
        store.clock.restore(broker.clock() + 3_600_000)
        with monkeypatch.context() as patch:
            patch.setattr(store.flush, "flush", lambda: None)
            asked = asyncio.create_task(broker.ask(36, fields(sent.physical_offset, delayLevel="-1")))
            await until(lambda: bool(store.flush._waiting))
            store.stored.expire(broker.parts.base.steady_clock() + store.config.sync_flush_timeout_ms)
            answer = await asked
        assert (answer.code, answer.remark) == (14, "FLUSH_DISK_TIMEOUT")


async def test_the_recorded_request_is_served(broker: ControlBroker) -> None:
    dialogue = recorded(36)
    sent = broker.put("T")
    answer = await broker.replay(dialogue, offset=str(sent.physical_offset))
    assert (answer.code, answer.ext_fields, answer.remark, bytes(answer.body)) == (0, None, None, b"")
