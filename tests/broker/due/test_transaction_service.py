"""What transactions need beside requests: who is asked, when notes are written, where progress and counts are kept.

Covers `broker/due/timer_opening.py`, `broker/due/transaction_opening.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.transacting import COMMIT, GROUP, HALF, OP, PARKED, ROLL_BACK, TOPIC, TransactionClient, bodies
from tests.clock import Clock
from thermocline.broker.assembly.recurring import make_housekeeping, make_transaction_service
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import ServiceUnavailableError
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.records.message_record import decode_record

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


# -- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_is_as_rocketmq_asks_it(broker: DataBroker) -> None:
    service = make_transaction_service(broker.parts)
    producer = TransactionClient(broker)
    await producer.join("one")
    half = await producer.send_half(b"paid", queue_id=3)
    assert await service.check() == 0
    broker.clock.now_ms += 6_001
    assert await service.check() == 1
    ((copy, question),) = producer.questions()
    assert copy.half_offset == half.half_offset + 1
    assert question.ext_fields is not None
    assert question.ext_fields.keys() == {
        "bname",
        "commitLogOffset",
        "topic",
        "msgId",
        "tranStateTableOffset",
        "offsetMsgId",
        "transactionId",
    }
    assert (question.ext_fields["topic"], question.ext_fields["bname"]) == (HALF, "broker-a")
    assert question.ext_fields["msgId"] == question.ext_fields["transactionId"] == half.transaction_id
    record = decode_record(question.body)
    assert (record.topic, record.queue_id, record.body) == (TOPIC, 3, b"paid")
    producer.end_one_way(copy, COMMIT, is_checked=True)
    assert bodies(broker, TOPIC) == [b"paid"]
    broker.clock.now_ms += 6_001
    assert await service.check() == 0


async def test_producers_of_a_group_are_asked_in_turn_and_one_that_left_is_not(broker: DataBroker) -> None:
    service = make_transaction_service(broker.parts)
    first, second, other = (TransactionClient(broker, group=group) for group in (GROUP, GROUP, "others"))
    for number, client in enumerate((first, second, other)):
        await client.join(f"client-{number}")
    for _ in range(4):
        await first.send_half()
    broker.clock.now_ms += 6_001
    assert await service.check() == 4
    assert (len(first.questions()), len(second.questions()), len(other.questions())) == (2, 2, 0)
    first.wire.lose()
    broker.clock.now_ms += 6_001
    assert await service.check() == 4
    questions = second.questions()
    assert len(questions) == 4
    for copy, _ in questions:
        second.end_one_way(copy, COMMIT, is_checked=True)
    assert len(bodies(broker, TOPIC)) == 4


async def test_without_a_producer_checks_count_and_wait(broker: DataBroker) -> None:
    service = make_transaction_service(broker.parts)
    producer = TransactionClient(broker)
    await producer.send_half()
    broker.clock.now_ms += 6_001
    assert await service.check() == 1
    await producer.join("late")
    broker.clock.now_ms += 6_001
    assert await service.check() == 1
    ((_, question),) = producer.questions()
    assert decode_record(question.body).properties["TRANSACTION_CHECK_TIMES"] == "2"


async def test_a_producer_that_takes_nothing_is_passed_over(broker: DataBroker) -> None:
    service = make_transaction_service(broker.parts)
    slow, quick = TransactionClient(broker), TransactionClient(broker)
    await slow.join("slow")
    await quick.join("quick")
    for _ in range(6):
        await quick.send_half()
    slow.wire.connection.pause_writing()
    broker.clock.now_ms += 6_001
    assert await service.check() == 6
    assert len(quick.questions()) == 6
    slow.wire.catch_up()


async def test_a_frozen_producer_holds_up_no_others_and_is_sent_nothing(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.broker.due.transaction_service.WRITABLE_S_MAX", 0.01)
    service = make_transaction_service(broker.parts)
    frozen, other = TransactionClient(broker), TransactionClient(broker, group="others")
    await frozen.join("frozen")
    await other.join("other")
    for _ in range(5):
        await frozen.send_half()
    await other.send_half()
    waits: list[Connection] = []
    connection = frozen.wire.connection
    wait_writable = Connection.wait_writable

    async def counted(waited: Connection) -> None:
        waits.append(waited)
        await wait_writable(waited)

    monkeypatch.setattr(Connection, "wait_writable", counted)
    connection.pause_writing()
    unsent_bytes = connection.unsent_bytes
    broker.clock.now_ms += 6_001
    assert await service.check() == 6
    assert len(other.questions()) == 1
    assert waits == [connection]
    assert connection.unsent_bytes == unsent_bytes
    frozen.wire.catch_up()
    broker.clock.now_ms += 6_001
    assert await service.check() == 6
    assert len(frozen.questions()) == 5


async def test_a_half_message_with_too_many_checks_is_parked(broker: DataBroker) -> None:
    await broker.parts.base.settings.update({"transactionCheckMax": "2"}, broker.parts.tables.persister)
    service = make_transaction_service(broker.parts)
    producer = TransactionClient(broker)
    await producer.join("one")
    half = await producer.send_half()
    assert PARKED not in broker.parts.tables.topics
    for _ in range(3):
        broker.clock.now_ms += 6_001
        await service.check()
    assert len(producer.questions()) == 2
    assert bodies(broker, PARKED) == [b"half"]
    config = broker.parts.tables.topics.get(PARKED)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert broker.parts.due.transaction_counts.of(TOPIC) == 0
    assert (await producer.end(half, COMMIT)).code == 604


async def test_rounds_recur_and_outlive_failures(broker: DataBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.change_config(transaction_check_interval_ms=100)
    service = make_transaction_service(broker.parts)
    rounds = 0
    done = asyncio.Event()

    async def check() -> int:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            done.set()
        if rounds == 2:
            raise ValueError("a bug")
        raise ServiceUnavailableError("not now")

    service.check = check  # type: ignore[method-assign]
    task = asyncio.get_running_loop().create_task(service.run())
    await asyncio.wait_for(done.wait(), timeout=5)
    task.cancel()
    assert "the next round tries again" in caplog.text
    assert "check of transactions failed" in caplog.text


# -- notes -------------------------------------------------------------------------------------------------------------


async def wait_for_notes(broker: DataBroker, count: int) -> list[bytes]:
    async with asyncio.timeout(5):
        while len(bodies(broker, OP)) < count:  # noqa: ASYNC110 - what a timer of the loop does
            await asyncio.sleep(0)
    return bodies(broker, OP)


async def test_notes_are_written_after_a_while(broker: DataBroker) -> None:
    broker.change_config(transaction_op_interval_ms=1)
    service = make_transaction_service(broker.parts)
    producer = TransactionClient(broker)
    for _ in range(3):
        producer.end_one_way(await producer.send_half(), COMMIT)
    assert (await wait_for_notes(broker, 1))[0].startswith(b"0,")
    assert b"".join(await wait_for_notes(broker, 1)).count(b",") <= 3
    service.close()
    assert b"".join(bodies(broker, OP)) == b"0,1,2,"


async def test_a_full_message_of_notes_is_written_at_once(broker: DataBroker) -> None:
    broker.change_config(transaction_op_interval_ms=1_000_000, transaction_op_bytes_max=4)
    await broker.parts.base.settings.update({"transactionOpMsgMaxSize": "4"}, broker.parts.tables.persister)
    service = make_transaction_service(broker.parts)
    producer = TransactionClient(broker)
    for number in range(5):
        producer.end_one_way(await producer.send_half(), ROLL_BACK)
        assert bodies(broker, OP) == [[], [b"0,1,"], [b"0,1,"], [b"0,1,", b"2,3,"], [b"0,1,", b"2,3,"]][number]
    service.close()
    assert bodies(broker, OP) == [b"0,1,", b"2,3,", b"4,"]


async def test_notes_that_cannot_be_written_are_tried_again(
    broker: DataBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.change_config(transaction_op_interval_ms=1)
    service = make_transaction_service(broker.parts)
    producer = TransactionClient(broker)
    half = await producer.send_half()
    producer.end_one_way(half, ROLL_BACK)
    broker.store.commit_log.pause("disk is full")
    async with asyncio.timeout(5):
        while "will try again" not in caplog.text:  # noqa: ASYNC110 - what a timer of the loop does
            await asyncio.sleep(0)
    broker.store.commit_log.resume()
    assert await wait_for_notes(broker, 1) == [b"0,"]
    service.close()


# -- files -------------------------------------------------------------------------------------------------------------


async def test_progress_and_counts_are_kept_as_rocketmq_keeps_them(tmp_path: Path) -> None:
    clock = Clock()
    async with data_broker(tmp_path, topics=[TOPIC], start=False, clock=clock) as broker:
        housekeeping = make_housekeeping(broker.parts)
        producer = TransactionClient(broker)
        halves = [await producer.send_half() for _ in range(4)]
        producer.end_one_way(halves[0], COMMIT)
        producer.end_one_way(halves[1], ROLL_BACK)
        broker.parts.due.transactions.write_ops()
        await housekeeping.step()
        assert broker.parts.tables.offsets.query(HALF, TRANSACTION_GROUP, 0) is None  # not durable yet
        broker.store.commit_log.flush()
        clock.now_ms += 10_000
        await housekeeping.step()
        await housekeeping.close()
        config_path = Path(broker.store.config.config_path)
        table = loads((config_path / "consumerOffset.json").read_bytes())["offsetTable"]
        assert table == {f"{HALF}@{TRANSACTION_GROUP}": {0: 2}, f"{OP}@{TRANSACTION_GROUP}": {0: 1}}
        counts = loads((config_path / "transactionMetrics").read_bytes())
        assert counts["transactionCount"] == {TOPIC: {"count": 2, "timeStamp": clock.now_ms - 10_000}}
        assert counts["dataVersion"]["counter"] == 6
    async with data_broker(tmp_path, start=False, clock=clock) as broker:
        assert broker.parts.due.transactions.progress == (2, 1)
        assert broker.parts.due.transaction_counts.of(TOPIC) == 2
        producer = TransactionClient(broker)
        assert (await producer.end(dataclasses.replace(halves[2]), COMMIT)).code == 0
        assert (await producer.end(halves[0], COMMIT)).code == 604
        assert len(bodies(broker, TOPIC)) == 2


async def test_progress_that_a_power_cut_took_back_is_corrected_before_anything_else(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        await TransactionClient(broker).send_half()
        broker.parts.tables.offsets.commit(HALF, TRANSACTION_GROUP, 0, 50)
        broker.parts.tables.offsets.commit(OP, TRANSACTION_GROUP, 0, 7)
        await broker.parts.tables.persister.save("consumerOffset.json")
    async with data_broker(tmp_path, start=False) as broker:
        path = Path(broker.store.config.config_path) / "consumerOffset.json"
        table = loads(path.read_bytes())["offsetTable"]
        assert table == {f"{HALF}@{TRANSACTION_GROUP}": {0: 1}, f"{OP}@{TRANSACTION_GROUP}": {0: 0}}


async def test_counts_of_a_crash_are_counted_anew(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        path = Path(broker.store.config.config_path) / "transactionMetrics"
        await TransactionClient(broker).send_half()
    path.write_text(
        '{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":5},"transactionCount":{"Old":{"count":3}}}'
    )
    async with data_broker(tmp_path, start=False) as broker:
        counts = broker.parts.due.transaction_counts
        assert (counts.of("Old"), counts.of(TOPIC)) == (0, 1)
        assert loads(counts.encode())["dataVersion"]["counter"] == 9
