"""Half messages and decisions over the wire: RocketMQ's answers and codes, and which topics show which messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.transacting import COMMIT, HALF, OP, PARKED, ROLL_BACK, TOPIC, UNKNOWN, TransactionClient, bodies
from tests.store.send_frames import send_frame, unique_key
from thermocline.broker.assembly.recurring import make_transaction_service
from thermocline.broker.cold.cold_reads import ColdRecord, NoColdTier
from thermocline.broker.tables import consumer_offsets
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.offsets import QUEUE_START
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.records.properties import encode_properties
from thermocline.store.config.store_config import FlushDiskType


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


# -- half messages -----------------------------------------------------------------------------------------------------


async def test_a_half_message_is_stored_in_a_topic_without_consumers(broker: DataBroker) -> None:
    producer = TransactionClient(broker)
    await producer.send_half(b"first")
    half = await producer.send_half(b"paid", queue_id=2, TAGS="red", KEYS="k")
    assert (half.half_offset, half.queue_id, half.transaction_id) == (1, 2, unique_key(2))
    record = broker.store.read_record(half.physical_offset)
    assert (record.topic, record.queue_id, record.queue_offset, record.body) == (HALF, 0, 1, b"paid")
    assert record.sys_flag == 0
    assert record.properties == {
        "UNIQ_KEY": unique_key(2),
        "WAIT": "true",
        "TRAN_MSG": "true",
        "PGROUP": "shop",
        "TAGS": "red",
        "KEYS": "k",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "__transactionId__": unique_key(2),
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "2",
    }
    assert broker.store.queues.of_topic(TOPIC) == {}
    assert broker.parts.due.transaction_counts.of(TOPIC) == 2


async def test_the_property_decides_and_not_the_flag(broker: DataBroker) -> None:
    producer = TransactionClient(broker)
    producer.wire.receive(producer.half_frame(f="0"))
    (answer,) = await producer.wire.wait_commands()
    assert answer.code == 0
    assert bodies(broker, HALF) == [b"half"]


async def test_a_retry_of_an_old_client_is_no_half_message(broker: DataBroker) -> None:
    """Before 4.6.1 a consumer sends a message that it could not consume as it got it, with a delay."""
    await broker.parts.tables.topics.ensure("%RETRY%group", queue_count=1)
    producer = TransactionClient(broker)
    properties = {"UNIQ_KEY": unique_key(1), "TRAN_MSG": "true", "PGROUP": "shop", "DELAY": "3"}
    producer.wire.receive(send_frame(topic="%RETRY%group", properties=properties, f="4", j="1"))
    (answer,) = await producer.wire.wait_commands()
    assert answer.code == 0
    (record,) = broker.records()
    assert (record.topic, record.sys_flag) == ("SCHEDULE_TOPIC_XXXX", 0)
    assert bodies(broker, HALF) == []


async def test_half_messages_may_be_forbidden(broker: DataBroker) -> None:
    producer = TransactionClient(broker)
    half = await producer.send_half()
    broker.change_config(reject_transactions=True)
    producer.wire.receive(producer.half_frame())
    (answer,) = await producer.wire.wait_commands()
    assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] sending transaction message is forbidden")
    assert (await producer.end(half, COMMIT)).code == 0
    assert bodies(broker, TOPIC) == [b"half"]


# -- decisions ---------------------------------------------------------------------------------------------------------


async def test_a_commit_wakes_a_consumer_that_waits(broker: DataBroker) -> None:
    producer = TransactionClient(broker)
    half = await producer.send_half(b"paid", TAGS="red")
    broker.parts.tables.groups.find_or_create("G")
    pull: dict[str, Any] = {
        "consumerGroup": "G",
        "topic": TOPIC,
        "queueId": "1",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "1",
        "expressionType": "TAG",
    }
    consumer = TransactionClient(broker)
    consumer.wire.receive(RemotingCommand(code=11, opaque=5, ext_fields=pull).encode())
    producer.end_one_way(half, COMMIT)
    (answer,) = await consumer.wire.wait_commands()
    assert answer.code == 0
    (record,) = [record for record in broker.records() if record.topic == TOPIC]
    assert bytes(answer.body)[: record.size_bytes]
    assert (record.queue_id, record.queue_offset, record.sys_flag) == (1, 0, 8)
    assert record.prepared_transaction_offset == half.physical_offset
    assert record.properties == {
        "UNIQ_KEY": unique_key(1),
        "WAIT": "true",
        "TRAN_MSG": "true",
        "PGROUP": "shop",
        "TAGS": "red",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "__transactionId__": unique_key(1),
    }
    assert broker.parts.due.transaction_counts.of(TOPIC) == 0


async def test_answers_of_decisions_are_bare(broker: DataBroker) -> None:
    producer = TransactionClient(broker)
    for decision in (COMMIT, ROLL_BACK, UNKNOWN):
        answer = await producer.end(await producer.send_half(), decision)
        assert (answer.code, answer.remark, answer.ext_fields, bytes(answer.body)) == (0, None, None, b"")
    assert bodies(broker, TOPIC) == [b"half"]
    assert bodies(broker, OP) == [b"0,1,"]  # the awaited rollback and the one queued before it
    assert broker.parts.due.transaction_counts.of(TOPIC) == 1


@pytest.mark.parametrize("is_oneway", [False, True])
@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"commitLogOffset": "3"}, 1, "Find prepared transaction message failed"),
        ({"commitLogOffset": "99999999"}, 1, "Find prepared transaction message failed"),
        ({"producerGroup": "others"}, 1, "The producer group wrong"),
        ({"tranStateTableOffset": "5"}, 1, "The transaction state table offset wrong"),
        ({"commitOrRollback": "4"}, 1, "commitOrRollback field wrong"),
        ({"commitOrRollback": "many"}, 1, None),
    ],
)
async def test_invalid_decisions_are_refused(
    broker: DataBroker, fields: dict[str, str], code: int, remark: str | None, is_oneway: bool
) -> None:
    producer = TransactionClient(broker)
    half = await producer.send_half()
    command = producer.end_command(half, COMMIT, is_oneway=is_oneway, **fields)
    if is_oneway:
        producer.wire.receive(command.encode())
        assert producer.wire.take_commands() == []
    else:
        answer = await producer.ask(command)
        assert answer.code == code
        assert remark is None or answer.remark == remark
    assert bodies(broker, TOPIC) == []
    assert broker.parts.due.transaction_counts.of(TOPIC) == 1


async def test_a_late_decision_is_an_illegal_operation(broker: DataBroker) -> None:
    producer = TransactionClient(broker)
    half = await producer.send_half(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    broker.clock.now_ms += 10_001
    assert (await producer.end(half, COMMIT)).code == 604
    assert (await producer.end(half, COMMIT, is_checked=True)).code == 0
    assert (await producer.end(half, ROLL_BACK, is_checked=True)).code == 604
    assert bodies(broker, TOPIC) == [b"half"]


async def test_a_full_disk_is_an_answer_and_leaves_the_transaction_open(broker: DataBroker) -> None:
    producer = TransactionClient(broker)
    half = await producer.send_half()
    broker.store.commit_log.pause("disk is full")
    assert (await producer.end(half, COMMIT)).code == 14
    assert (await producer.end(half, ROLL_BACK)).code == 14
    broker.store.commit_log.resume()
    assert (await producer.end(half, ROLL_BACK)).code == 0
    assert bodies(broker, OP) == [b"0,"]


async def test_settings_are_followed(broker: DataBroker) -> None:
    await broker.parts.base.settings.update({"transactionTimeOut": "60000"}, broker.parts.tables.persister)
    assert broker.parts.due.transactions.config.timeout_ms == 60_000


# -- how safe an answer is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [COMMIT, ROLL_BACK])
async def test_with_synchronous_flush_an_answer_waits_for_it(tmp_path: Path, decision: int) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        producer = TransactionClient(broker)
        half = await producer.send_half()
        flushes: list[Any] = []
        broker.store.flush.use(lambda job, done: flushes.append((job, done)))
        producer.wire.receive(producer.end_command(half, decision).encode())
        assert producer.wire.take_commands() == []
        while flushes:
            job, done = flushes.pop(0)
            job()
            done(None)
        (answer,) = await producer.wire.wait_commands()
        assert answer.code == 0
        assert broker.store.commit_log.flush_offset == broker.store.commit_log.append_offset


async def test_a_flush_that_fails_confirms_nothing(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        producer = TransactionClient(broker)
        half = await producer.send_half()
        broker.store.flush.use(lambda job, done: done(OSError("the disk is gone")))
        assert (await producer.end(half, COMMIT)).code == 14


# -- resume ------------------------------------------------------------------------------------------------------------


def resume_command(message_id: str) -> RemotingCommand:
    return RemotingCommand(code=323, opaque=3, ext_fields={"topic": PARKED, "msgId": message_id})


async def test_an_operator_has_a_parked_message_asked_about_again(broker: DataBroker) -> None:
    broker.change_config(transaction_check_max=1)
    await broker.parts.base.settings.update({"transactionCheckMax": "1"}, broker.parts.tables.persister)
    service = make_transaction_service(broker.parts)
    producer = TransactionClient(broker)
    await producer.join("one")
    await producer.send_half()
    for _ in range(2):
        broker.clock.now_ms += 6_001
        await service.check()
    assert len(producer.questions()) == 1
    (parked,) = [record for record in broker.records() if record.topic == PARKED]
    assert broker.parts.tables.topics.get(PARKED) is not None
    message_id = encode_message_id(broker.parts.base.store_host, parked.physical_offset)
    answer = await producer.ask(resume_command(message_id))
    assert (answer.code, answer.remark) == (0, None)
    await service.check()
    ((half, _),) = producer.questions()
    assert (await producer.end(half, COMMIT, is_checked=True)).code == 0
    assert bodies(broker, TOPIC) == [b"half"]
    assert (await producer.ask(resume_command(message_id))).code == 604
    service.close()


class OneColdMessage(NoColdTier):
    """A cold tier that holds one parked message."""

    async def view(self, physical_offset: int) -> ColdRecord | None:
        record = encode_record(
            topic=PARKED,
            queue_id=0,
            queue_offset=0,
            physical_offset=physical_offset,
            body=b"cold",
            properties_text=encode_properties({"REAL_TOPIC": TOPIC, "REAL_QID": "1", "PGROUP": "shop"}),
            born_timestamp_ms=5,
            born_host=("10.0.0.7", 1),
            store_timestamp_ms=6,
            store_host=("127.0.0.1", 10911),
        )
        return ColdRecord(record=record, physical_offset=physical_offset, topic=PARKED, store_timestamp_ms=6)


async def test_a_parked_message_may_be_in_the_cold_tier(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, cold=OneColdMessage()) as broker:
        broker.store.commit_log.min_offset = 1_000  # everything below it has gone
        producer = TransactionClient(broker)
        answer = await producer.ask(resume_command(encode_message_id(("127.0.0.1", 10911), 500)))
        assert answer.code == 0
        broker.store.commit_log.min_offset = 0
        assert bodies(broker, HALF) == [b"cold"]


@pytest.mark.parametrize("message_id", ["", "nonsense", "7F00000100002A9F00000000000000FF"])
async def test_messages_that_cannot_be_resumed(broker: DataBroker, message_id: str) -> None:
    producer = TransactionClient(broker)
    answer = await producer.ask(resume_command(message_id))
    assert answer.code == 1
    assert answer.remark


async def test_no_client_ends_open_transactions_by_the_progress_in_their_queue(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        half = await TransactionClient(broker).send_half(b"paid")
        broker.parts.tables.offsets.commit(HALF, "CID_RMQ_SYS_TRANS", 0, QUEUE_START)
        place = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": HALF, "queueId": 0}
        assert (await broker.ask_wire(352, group="CID_RMQ_SYS_TRANS")).code == 0, "made by its first use"
        forged: list[tuple[int, dict[str, Any]]] = [
            (15, {"commitOffset": 1}),
            (11, {"queueOffset": 0, "maxMsgNums": 1, "sysFlag": 5, "commitOffset": 1, "subscription": "*"}),
            (
                200_050,
                {"maxMsgNums": 1, "invisibleTime": 1, "pollTime": 0, "bornTime": 0, "initMode": 0, "order": True},
            ),
            (200_051, {"extraInfo": "0 1 1 999 0 broker-a 0 0", "offset": 0}),
        ]
        answers = [await broker.ask_wire(code, **place | fields) for code, fields in forged]
        assert [answer.code for answer in answers] == [16] * 4
        await broker.parts.tables.persister.save(consumer_offsets.FILE_NAME)
    async with data_broker(tmp_path, start=False) as broker:
        assert (await TransactionClient(broker).end(half, COMMIT)).code == 0
        assert bodies(broker, TOPIC) == [b"paid"]
