"""Pull: every rule of what an offset finds, limits, filters, refusals, waiting, and the way into the cold tier.

Covers `broker/pulls/pull_admission.py`, `broker/pulls/pull_finder.py`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, ScanIndex, data_broker
from tests.broker.pulling import GROUP, TOPIC, Consumer, expire_local_files, messages, offsets, outcome, pull_fields
from tests.broker.wire import Wire
from tests.store.send_frames import json_frame, send_frame
from tests.waiting import until
from thermocline.broker.cold.cold_reads import ColdBounds
from thermocline.broker.processors.messages.pull import JSON_LITE_PULL, JSON_PULL
from thermocline.broker.pulls import cold_pull_limits
from thermocline.broker.pulls.long_polling import TICK_MS
from thermocline.broker.pulls.pull_finder import COLD_BYTES_MAX
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import ConsumerData, SubscriptionData, SubscriptionGroupConfig
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.string_hash import tags_code
from thermocline.replication.sync_state_set import SyncStateSet
from thermocline.store.config.store_config import FlushDiskType


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


# -- offsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_each_offset_has_its_pull_result(broker: DataBroker, through_chunks: bool) -> None:
    """The table of the module, for the hot tier alone."""
    consumer = Consumer(broker, through_chunks=through_chunks)
    assert outcome(consumer.pull(0)) == (19, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
    assert outcome(consumer.pull(7)) == (21, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
    broker.store.queues.find_or_create(TOPIC, 0)
    assert outcome(consumer.pull(0)) == (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
    assert outcome(consumer.pull(7)) == (21, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
    consumer.send(5)
    assert outcome(consumer.pull(0)) == (0, "FOUND", 5, 0, 5)
    assert outcome(consumer.pull(3)) == (0, "FOUND", 5, 0, 5)
    assert outcome(consumer.pull(5)) == (19, "OFFSET_OVERFLOW_ONE", 5, 0, 5)
    assert outcome(consumer.pull(6)) == (21, "OFFSET_OVERFLOW_BADLY", 5, 0, 5)
    assert outcome(consumer.pull(0, subscription="Other")) == (20, "NO_MATCHED_MESSAGE", 5, 0, 5)
    assert outcome(consumer.pull(-1)) == (21, "OFFSET_TOO_SMALL", 0, 0, 5)


async def test_the_answer_is_the_records_as_they_are_stored(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    for queue_id in (0, 1, 0, 1, 0):
        consumer.send(queue_id=queue_id)
    answer = consumer.pull(1)
    assert answer.ext_fields is not None
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"
    assert (answer.ext_fields["topicSysFlag"], answer.ext_fields["groupSysFlag"]) == ("0", "0")
    stored = [record for record in broker.records() if record.queue_id == 0]
    assert messages(answer) == stored[1:]


async def test_lite_pull_and_binary_headers_find_the_same(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send(3)
    expected = consumer.pull(1)
    lite = consumer.pull(1, code=361)
    binary = consumer.pull(1, serialize_type=SerializeType.ROCKETMQ)
    for answer in (lite, binary):
        assert outcome(answer) == outcome(expected)
        assert answer.body == expected.body
    assert binary.serialize_type is SerializeType.ROCKETMQ


async def test_local_minimum_without_a_cold_tier(tmp_path: Path) -> None:
    """A pull below the minimum, where retention deleted files, returns the first offset that exists."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False, log_file_bytes=8 * 1024) as broker:
        consumer = Consumer(broker)
        consumer.send(100)
        minimum = expire_local_files(broker, 60)
        assert 0 < minimum <= 60
        assert outcome(consumer.pull(0)) == (21, "OFFSET_TOO_SMALL", minimum, minimum, 100)
        assert outcome(consumer.pull(minimum - 1)) == (21, "OFFSET_TOO_SMALL", minimum, minimum, 100)
        assert offsets(consumer.pull(minimum))[0] == minimum


# -- limits and filters ------------------------------------------------------------------------------------------------


async def test_limits_of_one_pull(broker: DataBroker) -> None:
    """32 messages, what the client asks for, its bytes and 256 KiB; one message always goes."""
    consumer = Consumer(broker)
    consumer.send(40)
    assert offsets(consumer.pull(0, maxMsgNums=100)) == list(range(32))
    assert offsets(consumer.pull(0, maxMsgNums=5)) == list(range(5))
    assert offsets(consumer.pull(0, maxMsgNums=0)) == [0]
    size_bytes = messages(consumer.pull(0, maxMsgNums=1))[0].size_bytes
    assert offsets(consumer.pull(0, maxMsgBytes=3 * size_bytes)) == [0, 1, 2]
    assert offsets(consumer.pull(0, maxMsgBytes=1)) == [0]
    consumer.send(10, body=bytes(60_000), queue_id=1)
    assert offsets(consumer.pull(0, queueId=1)) == [0, 1, 2, 3]
    assert outcome(consumer.pull(0, queueId=1))[2] == 4


async def test_messages_far_back_come_in_smaller_pieces(tmp_path: Path) -> None:
    """The page cache has hardly kept them: 8 at most, until the newest part of the log is reached."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False, near_bytes=4_000) as broker:
        consumer = Consumer(broker)
        consumer.send(60)
        assert offsets(consumer.pull(0)) == list(range(8))
        assert len(offsets(consumer.pull(50))) == 10


async def test_limits_are_settings_that_count_at_once(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send(40)
    assert len(offsets(consumer.pull(0))) == 32
    changes = {"maxTransferCountOnMessageInMemory": "5", "maxTransferBytesOnMessageInMemory": "1048576"}
    await broker.parts.base.settings.update(changes, broker.parts.tables.persister)
    assert len(offsets(consumer.pull(0))) == 5
    changes = {"accessMessageInMemoryMaxRatio": "1", "maxTransferBytesOnMessageInMemory": "1"}
    await broker.parts.base.settings.update(changes, broker.parts.tables.persister)
    assert len(offsets(consumer.pull(0))) == 1


async def test_tags_are_filtered_by_their_hash(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    for number in range(30):
        consumer.send(tag=f"Tag{number % 3}")
    assert offsets(consumer.pull(0, subscription="Tag1")) == list(range(1, 30, 3))
    assert offsets(consumer.pull(0, subscription="Tag1 || Tag2", maxMsgNums=3)) == [1, 2, 4]
    assert outcome(consumer.pull(0, subscription="Tag1 || Tag2", maxMsgNums=3))[2] == 5
    assert offsets(consumer.pull(0, subscription="*")) == list(range(30))


async def test_a_filter_looks_at_a_bounded_number_of_messages(broker: DataBroker) -> None:
    """Then it says how far it has come, and the client asks again from there."""
    consumer = Consumer(broker)
    for _ in range(2_001):
        consumer.send()
    assert outcome(consumer.pull(0, subscription="Other")) == (20, "NO_MATCHED_MESSAGE", 800, 0, 2_001)


# -- refusals ----------------------------------------------------------------------------------------------------------


def consume(
    broker: DataBroker, *subscriptions: SubscriptionData, model: str = "CLUSTERING", kind: str = "CONSUME_PASSIVELY"
) -> None:
    """A member of the group is connected."""
    data = ConsumerData(
        group_name=GROUP, consume_type=kind, message_model=model, subscription_data_set=list(subscriptions)
    )
    broker.parts.tables.clients.register_consumer(
        data, Wire(broker.dispatcher).connection, client_id="c", language=LanguageCode.JAVA, version=513
    )


async def test_registered_subscriptions(broker: DataBroker) -> None:
    """Without an expression in the request, what the group's heartbeats said counts."""
    consumer = Consumer(broker)
    consumer.send(tag="TagA")
    consumer.send(tag="TagB")
    assert consumer.pull(0, sysFlag=0).code == 24
    consume(broker, SubscriptionData(topic="Other"))
    assert consumer.pull(0, sysFlag=0).code == 24
    consume(broker, SubscriptionData(topic=TOPIC, sub_version=5, sub_string="TagB", code_set={tags_code("TagB")}))
    assert consumer.pull(0, sysFlag=0, subVersion=6).code == 25
    assert offsets(consumer.pull(0, sysFlag=0, subVersion=5)) == [1]
    await broker.parts.tables.groups.forbid_read(GROUP, TOPIC, is_forbidden=True)
    answer = consumer.pull(0, sysFlag=0, subVersion=5)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "5"})


async def test_broadcasting_may_be_forbidden(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send()
    consume(broker, SubscriptionData(topic=TOPIC), model="BROADCASTING")
    assert consumer.pull(0, sysFlag=0).code == 0
    await broker.parts.tables.groups.update([SubscriptionGroupConfig(group_name=GROUP, consume_broadcast_enable=False)])
    answer = consumer.pull(0, sysFlag=0)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "4"})


async def test_refusals(broker: DataBroker) -> None:
    """In RocketMQ's order, with its codes."""
    consumer = Consumer(broker)
    consumer.send()
    assert consumer.pull(0, subscription="||").code == 23
    assert consumer.pull(0, expressionType="SQL92", subscription="a > 1").code == 1
    assert consumer.pull(0, queueId=4).code == 29
    assert consumer.pull(0, queueId=-1).code == 29
    assert consumer.pull(0, topic="Missing").code == 17
    assert consumer.pull(0, consumerGroup="a b").code == 26
    assert consumer.pull(0, queueOffset=None).code == 1
    await broker.parts.tables.topics.ensure("WriteOnly", queue_count=1, perm=2)
    answer = consumer.pull(0, topic="WriteOnly")
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "3"})
    await broker.parts.tables.groups.update([SubscriptionGroupConfig(group_name=GROUP, consume_enable=False)])
    answer = consumer.pull(0)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "2"})
    broker.change_config(lite_pull=False)
    answer = consumer.pull(0, code=361)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "1"})
    broker.change_config(permission=2)
    answer = consumer.pull(0)
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "1"})


async def test_pull_consumers_may_be_rejected(broker: DataBroker) -> None:
    """Only members of the group pull then, and the system's own groups."""
    consumer = Consumer(broker)
    consumer.send()
    broker.change_config(reject_pull_consumers=True)
    assert consumer.pull(0).code == 24
    assert consumer.pull(0, consumerGroup="TOOLS_CONSUMER").code == 0
    consume(broker, SubscriptionData(topic=TOPIC), kind="CONSUME_ACTIVELY")
    assert consumer.pull(0).code == 24
    consume(broker, SubscriptionData(topic=TOPIC), kind="CONSUME_PASSIVELY")
    assert consumer.pull(0).code == 0


async def test_one_way_and_damaged_pulls_are_not_answered_with_messages(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send()
    consumer.wire.receive(RemotingCommand(code=11, opaque=1, flag=2, ext_fields=pull_fields(0)).encode())
    assert consumer.wire.drain() == b""
    consumer.wire.receive(json_frame({"code": 11, "opaque": 7, "extFields": {"topic": "TopicA"}}))
    (answer,) = consumer.wire.take_commands()
    assert (answer.code, answer.opaque, answer.body) == (1, 7, b"")


# -- offsets of groups -------------------------------------------------------------------------------------------------


async def test_a_reset_moves_the_group_once(broker: DataBroker) -> None:
    """The next pull says where to go on; a stale commit in it does not count."""
    consumer = Consumer(broker)
    consumer.send(5)
    broker.parts.tables.offsets.assign_reset(TOPIC, GROUP, 0, 2)
    answer = consumer.pull(5, sysFlag=5, commitOffset=4)
    assert outcome(answer) == (21, "OFFSET_RESET", 2, 0, 5)
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 2
    assert outcome(consumer.pull(2)) == (0, "FOUND", 5, 0, 5)


async def test_commits_and_pull_offsets(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send(5)
    consumer.pull(1, commitOffset=1)
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) is None
    consumer.pull(1, sysFlag=5, commitOffset=1)
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 1
    assert broker.parts.tables.offsets.query_pull(TOPIC, GROUP, 0) == 5
    stats = broker.parts.base.stats.view("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}")
    assert stats is not None


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_pull_at_the_end_waits_for_the_next_message(broker: DataBroker) -> None:
    """It is answered in the tick of the append, before the sender even has its answer."""
    consumer = Consumer(broker)
    consumer.send()
    opaque = consumer.ask(1, sysFlag=6)
    assert consumer.wire.drain() == b""
    assert len(broker.long_polling) == 1
    consumer.send(queue_id=1)
    assert len(broker.long_polling) == 1
    consumer.send()
    answer = await consumer.answer_to(opaque)
    assert outcome(answer) == (0, "FOUND", 2, 0, 2)
    assert len(broker.long_polling) == 0


async def test_a_pull_on_a_queue_without_messages_waits(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    opaque = consumer.ask(0, sysFlag=6)
    consumer.send()
    assert offsets(await consumer.answer_to(opaque)) == [0]


async def test_without_the_suspend_bit_nothing_waits(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send()
    assert outcome(consumer.pull(1))[0] == 19


async def test_messages_of_other_tags_do_not_end_the_wait(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send()
    opaque = consumer.ask(1, sysFlag=6, subscription="Mine")
    consumer.send(3, tag="Other")
    assert consumer.wire.drain() == b""
    consumer.send(1, tag="Mine")
    answer = await consumer.answer_to(opaque)
    assert offsets(answer) == [4]
    assert outcome(answer) == (0, "FOUND", 5, 0, 5)


async def test_the_wait_ends_with_its_time(broker: DataBroker) -> None:
    """With 19 when nothing came; with 20 and a new offset when only other tags did."""
    consumer = Consumer(broker)
    consumer.send()
    silent = consumer.ask(1, sysFlag=6, suspendTimeoutMillis=5_000)
    filtered = consumer.ask(1, sysFlag=6, suspendTimeoutMillis=5_000, subscription="Mine", queueId=0)
    broker.clock.now_ms += 4_999
    broker.hot.tick(broker.clock.now_ms)
    assert len(broker.long_polling) == 2
    broker.clock.now_ms += 1 + TICK_MS
    other = Consumer(broker)
    waiting = other.ask(1, sysFlag=6, queueOffset=1, suspendTimeoutMillis=60_000)
    broker.hot.tick(broker.clock.now_ms)
    answers = {answer.opaque: outcome(answer) for answer in await consumer.wire.wait_commands(2)}
    assert answers == {
        silent: (19, "OFFSET_OVERFLOW_ONE", 1, 0, 1),
        filtered: (19, "OFFSET_OVERFLOW_ONE", 1, 0, 1),
    }
    assert len(broker.long_polling) == 1
    other.send(2, tag="Other")
    assert offsets(await other.answer_to(waiting)) == [1]


async def test_a_filtered_wait_goes_on_after_the_last_message_examined(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send()
    opaque = consumer.ask(1, sysFlag=6, suspendTimeoutMillis=1_000, subscription="Mine")
    consumer.send(3, tag="Other")
    broker.clock.now_ms += 1_000 + TICK_MS
    broker.hot.tick(broker.clock.now_ms)
    assert outcome(await consumer.answer_to(opaque)) == (20, "NO_MATCHED_MESSAGE", 4, 0, 4)


async def test_short_polling(broker: DataBroker) -> None:
    """Without long polling the settings' time counts, not the client's."""
    consumer = Consumer(broker)
    broker.change_config(long_polling=False, short_polling_ms=500)
    opaque = consumer.ask(0, sysFlag=6, suspendTimeoutMillis=15_000)
    broker.clock.now_ms += 500 + TICK_MS
    broker.hot.tick(broker.clock.now_ms)
    assert outcome(await consumer.answer_to(opaque))[0] == 19


async def test_a_topic_that_is_deleted_while_a_pull_waits(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    opaque = consumer.ask(0, sysFlag=6, suspendTimeoutMillis=500)
    await broker.parts.tables.topics.delete(TOPIC)
    broker.clock.now_ms += 500 + TICK_MS
    broker.hot.tick(broker.clock.now_ms)
    assert (await consumer.answer_to(opaque)).code == 17


async def test_a_client_that_leaves_waits_for_nothing(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.ask(0, sysFlag=6)
    consumer.ask(0, sysFlag=6, queueId=1)
    stays = Consumer(broker)
    opaque = stays.ask(0, sysFlag=6)
    consumer.wire.lose()
    assert len(broker.long_polling) == 1
    consumer.send()
    assert offsets(await stays.answer_to(opaque)) == [0]
    assert len(broker.long_polling) == 0


async def test_messages_put_by_the_broker_itself_are_seen(broker: DataBroker) -> None:
    """Services put straight into the store; who waits hears of it a moment later."""
    consumer = Consumer(broker)
    opaque = consumer.ask(0, sysFlag=6)
    ordinary = Wire(broker.dispatcher)
    ordinary.receive(send_frame())
    assert offsets(await consumer.answer_to(opaque)) == [0]


async def test_commit_counts_once_when_a_pull_waits(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send()
    opaque = consumer.ask(1, sysFlag=7, commitOffset=1)
    broker.parts.tables.offsets.commit(TOPIC, GROUP, 0, 9)
    consumer.send()
    await consumer.answer_to(opaque)
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 9


async def test_sync_flush_shows_only_durable_messages(tmp_path: Path) -> None:
    """Neither a pull nor one that waits sees a message before its sender may rely on it."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        consumer = Consumer(broker)
        consumer.send()
        held: list[Any] = []
        broker.store.flush.use(lambda job, done: held.append((job, done)))
        waiting = consumer.ask(1, sysFlag=6)
        sender = Wire(broker.dispatcher, broker.hot)
        sender.receive(send_frame(opaque=1) + send_frame(opaque=2))
        assert sender.drain() == b""
        assert consumer.wire.drain() == b""
        assert outcome(Consumer(broker).pull(1)) == (19, "OFFSET_OVERFLOW_ONE", 1, 0, 1)
        # A consumer that has read them at a slave, whose flush was faster, is not sent back.
        assert outcome(Consumer(broker).pull(3)) == (19, "OFFSET_OVERFLOW_ONE", 3, 0, 1)
        assert outcome(Consumer(broker).pull(4)) == (21, "OFFSET_OVERFLOW_BADLY", 1, 0, 1)
        ((job, done),) = held
        held.clear()
        job()
        done(None)
        assert [answer.code for answer in await sender.wait_commands(2)] == [0, 0]
        assert offsets(await consumer.answer_to(waiting)) == [1, 2]


async def test_messages_that_not_all_replicas_have_are_not_shown(tmp_path: Path) -> None:
    """With allAckInSyncStateSet: neither a pull nor one that waits sees a message that an election may take back."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        log = broker.store.commit_log
        members = SyncStateSet(
            1,
            members=frozenset({1, 2}),
            set_epoch=1,
            epoch_start=LOG_START,
            confirm_offset=LOG_START,
            log_end=lambda: log.append_offset,
            acks_needed=lambda: None,
            timeout_ms=lambda: 3_000,
            lag_ms_max=lambda: 15_000,
        )
        members.connected(2, 7, is_learner=False, now_ms=0)
        broker.store.stored.replicas, broker.store.read_limit = members, members.read_limit
        broker.use_index(ScanIndex(broker.store))
        consumer = Consumer(broker)
        waiting = consumer.ask(0, sysFlag=6)
        sender = Wire(broker.dispatcher, broker.hot)
        sender.receive(send_frame(opaque=1) + send_frame(opaque=2))
        await asyncio.sleep(0)
        assert sender.drain() == b""
        assert consumer.wire.drain() == b""
        assert Consumer(broker).pull(0).code == 19
        assert members.read_limit.held_count == 1
        middle = broker.records()[1].physical_offset
        members.reported(2, 7, PhysicalOffset(middle + 1), now_ms=0)
        assert offsets(await consumer.answer_to(waiting)) == [0]
        waiting = consumer.ask(1, sysFlag=6)
        members.reported(2, 7, log.append_offset, now_ms=0)
        assert [answer.code for answer in await sender.wait_commands(2)] == [0, 0]
        assert offsets(await consumer.answer_to(waiting)) == [1]
        assert members.read_limit.held_count == 0


# -- time to live ------------------------------------------------------------------------------------------------------


async def ttl_broker(broker: DataBroker, ttl_ms: int) -> Consumer:
    """Ten messages, one a second; the topic keeps them for a while."""
    await broker.make_topic("Short", queues=1, attributes=f"+thermocline.ttl.ms={ttl_ms}")
    consumer = Consumer(broker)
    for number in range(10):
        Wire(broker.dispatcher, broker.hot).receive(send_frame(topic="Short", opaque=number))
        broker.clock.now_ms += 1_000
    return consumer


async def test_expired_messages_are_never_returned(broker: DataBroker) -> None:
    """The minimum follows the cut to the millisecond, and readers step over what has expired."""
    consumer = await ttl_broker(broker, 10_000)
    assert outcome(consumer.pull(0, topic="Short")) == (0, "FOUND", 10, 0, 10)
    broker.clock.now_ms += 1
    assert outcome(consumer.pull(0, topic="Short")) == (0, "FOUND", 10, 1, 10)
    assert offsets(consumer.pull(0, topic="Short")) == list(range(1, 10))
    broker.clock.now_ms += 4_999
    assert offsets(consumer.pull(2, topic="Short")) == list(range(5, 10))
    assert offsets(consumer.pull(7, topic="Short")) == [7, 8, 9]
    broker.clock.now_ms += 60_000
    assert outcome(consumer.pull(3, topic="Short")) == (20, "NO_MATCHED_MESSAGE", 10, 10, 10)
    assert outcome(consumer.pull(10, topic="Short")) == (19, "OFFSET_OVERFLOW_ONE", 10, 10, 10)


async def test_expired_messages_stay_expired(broker: DataBroker) -> None:
    """A longer time to live brings nothing back, and hides nothing that had not expired."""
    consumer = await ttl_broker(broker, 5_000)
    assert outcome(consumer.pull(0, topic="Short"))[3] == 5
    await broker.make_topic("Short", queues=1, attributes="+thermocline.ttl.ms=500000")
    assert offsets(consumer.pull(0, topic="Short")) == list(range(5, 10))


# -- the cold tier -----------------------------------------------------------------------------------------------------


class ColdCase:
    """Messages 0..99, the first of which are only in the cold tier."""

    def __init__(self, broker: DataBroker, cold: MemoryColdTier, consumer: Consumer, minimum: int) -> None:
        self.broker = broker
        self.cold = cold
        self.consumer = consumer
        self.minimum = minimum


@pytest.fixture
async def cold_case(tmp_path: Path) -> AsyncIterator[ColdCase]:
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=8 * 1024) as broker:
        consumer = Consumer(broker)
        for number in range(100):
            consumer.send(tag=f"Tag{number % 2}")
            broker.clock.now_ms += 1_000
        cold.copy_from(broker.store, TOPIC, 0, end=90)
        yield ColdCase(broker, cold, consumer, expire_local_files(broker, 60))


async def test_cold_and_hot_are_one_queue(cold_case: ColdCase) -> None:
    """A reader from the first message on sees each once."""
    seen: list[int] = []
    offset = 0
    while offset < 100:
        answer = await cold_case.consumer.pull_later(offset)
        assert outcome(answer)[0] == 0
        assert outcome(answer)[3:] == (0, 100)
        seen += offsets(answer)
        offset = outcome(answer)[2]
    assert seen == list(range(100))
    assert {pull.group for pull in cold_case.cold.pulls} == {GROUP}


async def test_a_cold_answer_is_bounded_whatever_settings_say(tmp_path: Path) -> None:
    """It is one frame from the tier process, which may be 64 MiB: a larger one would end that process, each time."""
    cold, config = MemoryColdTier(), BrokerConfig(pull_bytes_max=1 << 30, pull_count_max=1_000)
    async with data_broker(
        tmp_path, topics=[TOPIC], cold=cold, start=False, config=config, log_file_bytes=8 * 1024
    ) as broker:
        consumer = Consumer(broker)
        for _ in range(100):
            consumer.send()
        cold.copy_from(broker.store, TOPIC, 0, end=90)
        expire_local_files(broker, 60)
        assert (await consumer.pull_later(0, maxMsgNums=1_000)).code == 0
        assert cold.pulls[-1].bytes_max == COLD_BYTES_MAX


async def test_the_longest_cold_read_is_in_the_runtime_information(cold_case: ColdCase) -> None:
    broker, cold = cold_case.broker, cold_case.cold
    for number, elapsed_ms in enumerate((40, 1_250, 7), start=1):
        cold.gate = asyncio.Event()
        waiting = asyncio.ensure_future(cold_case.consumer.pull_later(0))
        await until(lambda: len(cold.pulls) == number)  # noqa: B023 - it is awaited in this turn
        broker.clock.now_ms += elapsed_ms
        cold.gate.set()
        assert outcome(await waiting)[0] == 0
    assert broker.parts.base.stats.rates.runtime_info()["getMessageEntireTimeMax"] == "1250"


async def test_cold_messages_are_filtered(cold_case: ColdCase) -> None:
    answer = await cold_case.consumer.pull_later(0, subscription="Tag1", maxMsgNums=4)
    assert offsets(answer) == [1, 3, 5, 7]
    answer = await cold_case.consumer.pull_later(0, subscription="Nothing")
    assert outcome(answer) == (20, "NO_MATCHED_MESSAGE", 90, 0, 100)


async def test_hot_offsets_do_not_ask_the_cold_tier(cold_case: ColdCase) -> None:
    cold_case.cold.is_away = True
    answer = cold_case.consumer.pull(cold_case.minimum)
    assert offsets(answer)[0] == cold_case.minimum


@pytest.mark.parametrize("trouble", ["is_away", "is_known"])
async def test_a_tier_without_an_answer_is_busy(cold_case: ColdCase, trouble: str) -> None:
    """Never a corrected offset: an official client would skip history."""
    setattr(cold_case.cold, trouble, trouble == "is_away")
    answer = await cold_case.consumer.pull_later(0)
    assert answer.code == 2
    assert "nextBeginOffset" not in (answer.ext_fields or {})
    setattr(cold_case.cold, trouble, trouble != "is_away")
    assert offsets(await cold_case.consumer.pull_later(0))[0] == 0


async def test_offsets_in_front_of_all_that_is_stored(cold_case: ColdCase) -> None:
    held = cold_case.cold.records[TOPIC, 0]
    del held[:10]
    answer = await cold_case.consumer.pull_later(3)
    assert outcome(answer) == (21, "OFFSET_TOO_SMALL", 10, 10, 100)


async def test_a_hole_between_the_tiers_is_stepped_over(cold_case: ColdCase) -> None:
    held = cold_case.cold.records[TOPIC, 0]
    del held[20:]
    answer = await cold_case.consumer.pull_later(20)
    assert outcome(answer) == (20, "NO_MATCHED_MESSAGE", cold_case.minimum, 0, 100)
    assert offsets(await cold_case.consumer.pull_later(10)) == list(range(10, 20))


async def test_a_tier_that_holds_less_than_it_says_is_busy(cold_case: ColdCase) -> None:
    """Not an endless repetition of one offset."""
    del cold_case.cold.records[TOPIC, 0][1:]
    cold_case.cold.claimed = ColdBounds(min_offset=0, end_offset=50)
    answer = await cold_case.consumer.pull_later(30)
    assert answer.code == 2


async def test_expired_cold_messages_are_stepped_over(cold_case: ColdCase) -> None:
    """By the tier, and once more when they come in."""
    broker = cold_case.broker
    await broker.make_topic(TOPIC, attributes="+thermocline.ttl.ms=80000")
    first_sent_ms = broker.clock.now_ms - 100_000
    visible = (broker.clock.now_ms - 80_000 - first_sent_ms) // 1_000
    answer = await cold_case.consumer.pull_later(0)
    assert offsets(answer)[0] == visible
    cold_case.cold.gate = asyncio.Event()
    opaque = cold_case.consumer.ask(visible)
    await asyncio.sleep(0)
    broker.clock.now_ms += 10_000
    cold_case.cold.gate.set()
    assert offsets(await cold_case.consumer.answer_to(opaque))[0] == visible + 10
    # When even a local message has expired, the tier need not be asked.
    cold_case.cold.is_away = True
    broker.clock.now_ms += 50_000
    assert offsets(cold_case.consumer.pull(0)) == list(range(80, 100))
    assert outcome(cold_case.consumer.pull(0))[3] == 80


async def test_cold_pulls_are_bounded(cold_case: ColdCase) -> None:
    """Beyond the bound of a connection the client is asked to come again."""
    cold_case.cold.gate = asyncio.Event()
    consumer = cold_case.consumer
    for _ in range(cold_pull_limits.COLD_PULLS_CONNECTION_MAX):
        consumer.ask(0)
        await asyncio.sleep(0)
    refused = await consumer.pull_later(0)
    assert refused.code == 215
    assert (await Consumer(cold_case.broker).pull_later(cold_case.minimum)).code == 0
    cold_case.cold.gate.set()
    answers = await consumer.wire.wait_commands(cold_pull_limits.COLD_PULLS_CONNECTION_MAX)
    assert {answer.code for answer in answers} == {0}


async def test_a_client_that_leaves_takes_its_cold_pulls_along(cold_case: ColdCase) -> None:
    cold_case.cold.gate = asyncio.Event()
    others = asyncio.all_tasks()
    cold_case.consumer.ask(0)
    await asyncio.sleep(0)
    assert cold_case.cold.pulls
    reading = asyncio.all_tasks() - others
    cold_case.consumer.wire.lose()
    await asyncio.wait(reading, timeout=10)
    assert any(task.cancelled() for task in reading)


def test_json_pull_headers_are_recognised() -> None:
    """The way of a pull through the chunk depends on how its header starts."""
    for code in (11, 361):
        header = json.dumps({"code": code, "extFields": {}}, separators=(",", ":")).encode()
        assert header[:12] in (JSON_PULL, JSON_LITE_PULL)


async def test_a_header_that_cannot_be_text_ends_the_connection_and_is_no_bug(
    broker: DataBroker, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(broker.dispatcher, broker.hot)
    fields = {name: str(value) for name, value in pull_fields(0).items()} | {"topic": "TOPIC"}
    header = json.dumps({"code": 11, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 5, "version": 1})
    data = header.replace(" ", "").encode().replace(b"TOPIC", b"T\xff")
    wire.receive(struct.pack(">ii", 4 + len(data), len(data)) + data)
    assert wire.connection.is_closed
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
