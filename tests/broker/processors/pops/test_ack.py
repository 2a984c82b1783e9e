"""Acknowledging what was popped, in order and not, and keeping it longer.

Covers `broker/pops/pop_finder.py`, `broker/sends/flushed_answer.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import (
    GROUP,
    INVISIBLE_MS,
    TOPIC,
    PopClient,
    Popped,
    batch_ack_body,
    bodies,
    popped,
    receipt_fields,
)
from tests.broker.processors.pops.test_pop import RETRY_TOPIC
from thermocline.pop.order_record import OrderRecord
from thermocline.remoting.bit_set import encode_bit_set
from thermocline.remoting.bodies import BatchAck, BatchAckMessageRequestBody
from thermocline.store.config.store_config import FlushDiskType


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


async def time_passes(broker: DataBroker, ms: int = INVISIBLE_MS) -> None:
    broker.clock.now_ms += ms
    await broker.pop.reviver.step()


def in_order(client: PopClient, **fields: Any) -> list[Popped]:
    return client.pop(order=True, **fields)


# -- one, and several --------------------------------------------------------------------------------------------------


async def test_an_acknowledged_message_is_not_redelivered(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    first, second, third = client.pop()
    answer = client.ack(first)
    assert (answer.code, answer.remark, answer.ext_fields or {}) == (0, None, {})
    assert client.ack_batch(second, third).code == 0
    await time_passes(broker)
    assert client.pop() == []
    broker.parts.base.stats.sample(broker.clock.now_ms + 10_000)
    view = broker.parts.base.stats.view("GROUP_ACK_NUMS", f"{TOPIC}@{GROUP}")
    assert view is not None
    assert view.minute.sum == 3


async def test_a_batch_over_queues_and_retry_topics(broker: DataBroker) -> None:
    client = PopClient(broker)
    for queue_id in range(4):
        client.send(b"%d" % queue_id, queue_id=queue_id)
    client.pop()
    await time_passes(broker)
    for queue_id in range(4):
        client.send(b"new%d" % queue_id, queue_id=queue_id)
    held = client.pop()
    assert len(held) == 8
    assert client.ack_batch(*held).code == 0
    assert len(broker.parts.pops.store.in_flight) == 0
    await time_passes(broker)
    assert client.pop() == []


async def test_too_late_is_a_success_and_changes_nothing(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = client.pop()
    await time_passes(broker)
    assert client.ack(held).code == 0
    (again,) = client.pop()
    assert again.body == b"a"
    assert client.ack(again).code == client.ack(again).code == 0


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "Missing"}, 17, "topic[Missing] not exist, apply first please! "),
        ({"queueId": 4}, 13, "queueId[4] is illegal, topic:[TopicA] topicConfig.readQueueNums:[4] consumer:["),
        ({"queueId": -1}, 13, "queueId[-1] is illegal"),
        ({"offset": 2}, 208, "offset is illegal, key:TopicA@0, commit:2, store:0~1"),
        ({"offset": -1}, 208, "offset is illegal, key:TopicA@0, commit:-1, store:0~1"),
        ({"extraInfo": "nonsense"}, 1, "not a receipt handle"),
    ],
)
async def test_invalid_acknowledgements_are_refused(
    broker: DataBroker, fields: dict[str, Any], code: int, remark: str
) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = client.pop()
    wanted = {**receipt_fields(held), **fields}
    answer = client.answer(client.ask(200_051, **wanted))
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    if code != 208:
        changed = client.answer(client.ask(200_053, **wanted, invisibleTime=1))
        assert changed.code == code
    await time_passes(broker)
    assert bodies(client.pop()) == [b"a"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"acks":[],"brokerName":"broker-a"}'])
async def test_a_batch_of_nothing(broker: DataBroker, body: bytes) -> None:
    client = PopClient(broker)
    assert client.answer(client.ask(200_151, body)).code == 208


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b'{"acks":[{"b":"*","c":"group","so":0,"t":"TopicA"}]}',
        b'{"acks":[{"b":"AQ==","c":"group","r":"7","so":0,"t":"TopicA"}]}',
    ],
)
async def test_a_batch_that_cannot_be_read(broker: DataBroker, body: bytes) -> None:
    client = PopClient(broker)
    assert client.answer(client.ask(200_151, body)).code == 1


async def test_a_batch_that_would_keep_the_loop_for_long_changes_nothing(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    held = client.pop()
    many = [
        BatchAck(bits=encode_bit_set(range(1_024)), consumer_group=GROUP, start_offset=number, topic=TOPIC)
        for number in range(32)
    ]
    body = BatchAckMessageRequestBody.decode(batch_ack_body(held))
    body.acks += many
    assert client.answer(client.ask(200_151, body.encode())).code == 1
    assert len(broker.parts.pops.store.in_flight) == 1
    body.acks = body.acks[:30]
    assert client.answer(client.ask(200_151, body.encode())).code == 0
    assert len(broker.parts.pops.store.in_flight) == 0


async def test_a_batch_of_acknowledgements_of_missing_messages(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = client.pop()
    body = (
        b'{"acks":[{"b":"AQ==","c":"group","pt":1,"q":0,"r":"0","so":0,"t":"TopicA"},'
        b'{"b":"/w==","c":"group","pt":1,"q":0,"r":"0","so":7,"t":"Missing"}]}'
    )
    assert client.answer(client.ask(200_151, body)).code == 0
    assert client.ack(held).code == 0


async def test_with_sync_flush_the_answer_waits(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        client = PopClient(broker)
        client.send(b"a", b"b")
        first, second = client.pop()
        jobs: list[Any] = []
        broker.store.flush.use(lambda job, done: jobs.append((job, done)))
        opaque = client.ask(200_051, **receipt_fields(first))
        assert client.wire.take_commands() == []
        client.ask(200_051, **receipt_fields(first))
        again = client.ask(200_151, batch_ack_body([first]))
        assert client.wire.take_commands() == [], "the first one is not durable yet"
        job, done = jobs.pop()
        job()
        done(None)
        answers = await client.wire.wait_commands(3)
        assert [(answer.opaque, answer.code) for answer in answers] == [(each, 0) for each in range(opaque, again + 1)]
        opaque = client.ask(200_051, **receipt_fields(second))
        jobs.pop()[1](OSError("the disk is broken"))
        assert (await client.wait_answer(opaque)).code == 14


# -- keeping longer ----------------------------------------------------------------------------------------------------


async def test_kept_longer(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b")
    first, second = client.pop()
    answer = client.change(first, 3 * INVISIBLE_MS)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert answer.ext_fields == {
        "popTime": str(broker.clock() + 1),  # receipts of one message differ
        "invisibleTime": str(3 * INVISIBLE_MS),
        "reviveQid": str(first.receipt.revive_queue_id),
    }
    await time_passes(broker)
    assert bodies(client.pop()) == [b"b"]
    await time_passes(broker, 2 * INVISIBLE_MS)
    assert b"a" not in bodies(client.pop())
    await time_passes(broker, 1)
    assert bodies(client.pop()) == [b"a"]
    assert client.ack(second).code == 0


async def test_the_new_receipt_acknowledges(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = client.pop()
    kept = client.changed(held, INVISIBLE_MS)
    assert client.ack(held).code == 0
    assert len(broker.parts.pops.store.in_flight) == 1
    assert client.ack(kept).code == 0
    assert len(broker.parts.pops.store.in_flight) == 0


async def test_given_back_at_once(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = client.pop()
    assert client.change(held, 0).code == 0
    await time_passes(broker, 1)
    (again,) = client.pop()
    assert again.record.reconsume_times == 1
    assert client.change(again, 0, suspend=True).code == 0
    await time_passes(broker, 1)
    (again,) = client.pop()
    assert again.record.reconsume_times == 1


async def test_a_message_without_a_holder_cannot_be_extended(broker: DataBroker) -> None:
    """As with RocketMQ the answer is a success; the message is where it is."""
    client = PopClient(broker)
    client.send(b"a", b"b")
    first, second = client.pop()
    client.ack(first)
    assert client.change(first, 1).code == 0
    await time_passes(broker)
    assert client.change(second, 1).code == 0
    await time_passes(broker, 1)
    assert bodies(client.pop()) == [b"b"]
    await time_passes(broker)
    assert bodies(client.pop()) == [b"b"]


async def test_beyond_the_end_nothing_can_be_kept(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = client.pop()
    fields = {**receipt_fields(held), "offset": 1}
    assert client.answer(client.ask(200_053, **fields, invisibleTime=1)).code == 208


# -- in order ----------------------------------------------------------------------------------------------------------


async def test_a_queue_is_blocked_until_all_is_acknowledged(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    answer = client.pop_answer(order=True, maxMsgNums=2)
    assert answer.ext_fields is not None
    assert answer.ext_fields["reviveQid"] == "999"
    assert answer.ext_fields["orderCountInfo"] == "0 0 0"
    first, second = popped(answer)
    assert in_order(client) == []
    assert client.ack(second).code == 0
    assert in_order(client) == []
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 0
    assert client.ack(first).code == 0
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 2
    assert bodies(in_order(client)) == [b"c"]


async def test_other_queues_go_on(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", queue_id=0)
    assert bodies(in_order(client)) == [b"a"]
    client.send(b"b", queue_id=1)
    client.send(b"c", queue_id=0)
    assert bodies(in_order(client)) == [b"b"]
    assert in_order(client) == []


async def test_an_unacknowledged_message_is_redelivered_and_counted(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    assert bodies(in_order(client, maxMsgNums=2)) == [b"a", b"b"]
    broker.clock.now_ms += INVISIBLE_MS
    answer = client.pop_answer(order=True, maxMsgNums=3)
    assert bodies(popped(answer)) == [b"a", b"b", b"c"]
    assert answer.ext_fields is not None
    assert answer.ext_fields["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 0"


@pytest.mark.parametrize("count", [1, 32])
async def test_an_acknowledged_message_behind_a_failure_is_not_redelivered(broker: DataBroker, count: int) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c", b"d")
    messages = in_order(client)
    for message in (messages[1], messages[3]):
        assert client.ack(message).code == 0
    broker.clock.now_ms += INVISIBLE_MS
    client.send(b"e")
    found: list[bytes] = []
    for _ in range(3):
        again = in_order(client, maxMsgNums=count)
        found += bodies(again)
        for message in again:
            assert client.ack(message).code == 0
    assert found == [b"a", b"c", b"e"]
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 5


async def test_no_retry_topic_for_order(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    in_order(client)
    await time_passes(broker)
    assert RETRY_TOPIC not in broker.parts.tables.topics


async def test_the_same_attempt_gets_the_same_batch(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b")
    assert bodies(in_order(client, maxMsgNums=1, attemptId="one")) == [b"a"]
    assert in_order(client, maxMsgNums=1, attemptId="two") == []
    answer = client.pop_answer(order=True, maxMsgNums=1, attemptId="one")
    assert bodies(popped(answer)) == [b"a"]
    assert answer.ext_fields is not None
    assert answer.ext_fields["orderCountInfo"] == "0 0 0"


async def test_a_receipt_of_an_earlier_pop_is_passed_over(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (old,) = in_order(client)
    broker.clock.now_ms += INVISIBLE_MS
    (new,) = in_order(client)
    assert client.ack(old).code == 0
    assert in_order(client) == []
    assert client.ack(new).code == 0
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 1
    assert client.ack(new).code == 0


async def test_an_offset_outside_the_batch_is_illegal(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b")
    (held,) = in_order(client, maxMsgNums=1)
    fields = {**receipt_fields(held), "offset": 1}
    answer = client.answer(client.ask(200_051, **fields))
    assert answer.code == 13
    assert (answer.remark or "").startswith("offset is illegal, key:TopicA@group@0, old:0, commit:1, next:-1, ")


async def test_order_and_batches(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    held = in_order(client)
    assert client.ack_batch(*held).code == 0
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 3


async def test_one_illegal_offset_of_a_batch_holds_up_no_other(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    client.send(b"d", b"e", queue_id=1)
    ordered = in_order(client, queueId=0, maxMsgNums=1)
    others = client.pop(queueId=1)
    receipt = ordered[0].receipt
    illegal = Popped(record=ordered[0].record, receipt=msgspec.structs.replace(receipt, queue_offset=2))
    assert client.ack_batch(illegal, *others).code == 13
    assert broker.parts.pops.store.in_flight.message_count(TOPIC, GROUP, 1) == 0
    assert client.ack_batch(illegal, *ordered).code == 13
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 1


async def test_without_its_order_info_a_queue_goes_on_message_by_message(broker: DataBroker) -> None:
    """It was dropped after a day, or freed by a reset: the messages before a late acknowledgement are not skipped."""
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    held = in_order(client)
    orders, offsets = broker.parts.pops.store.orders, broker.parts.tables.offsets
    orders.remove(TOPIC, GROUP, 0)
    assert client.ack(held[2]).code == 0
    assert offsets.query(TOPIC, GROUP, 0) == 0
    assert client.ack(held[0]).code == 0
    assert offsets.query(TOPIC, GROUP, 0) == 1
    assert bodies(in_order(client)) == [b"b", b"c"]


async def test_the_longest_time_for_a_message_of_a_batch_is_kept(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = in_order(client)
    answer = client.change(held, (1 << 63) - 1)
    assert answer.code == 0
    assert answer.ext_fields is not None
    assert int(answer.ext_fields["popTime"]) + int(answer.ext_fields["invisibleTime"]) == (1 << 63) - 1
    info = broker.parts.pops.store.orders.find(TOPIC, GROUP, 0)
    record = OrderRecord(topic=TOPIC, group=GROUP, queue_id=0, next_offset=0, info=info)
    assert OrderRecord.parse(record.body()) == record


async def test_another_time_for_one_message_of_a_batch(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b")
    first, second = in_order(client)
    broker.clock.now_ms += 1_000
    answer = client.change(first, 5_000)
    assert answer.ext_fields == {
        "popTime": str(first.receipt.pop_time_ms),
        "invisibleTime": "6000",
        "reviveQid": "999",
    }
    client.ack(second)
    broker.clock.now_ms += 4_999
    assert in_order(client) == []
    broker.clock.now_ms += 1
    assert bodies(in_order(client)) == [b"a"]


async def test_a_pop_in_order_waits_for_an_acknowledgement(broker: DataBroker) -> None:
    client, waiting = PopClient(broker), PopClient(broker)
    client.send(b"a", b"b")
    (held,) = in_order(client, maxMsgNums=1)
    opaque = waiting.ask_pop(order=True, pollTime=15_000)
    assert waiting.wire.take_commands() == []
    client.ack(held)
    assert bodies(popped(await waiting.wait_answer(opaque))) == [b"b"]


async def test_a_pop_in_order_waits_for_the_time_to_be_up(broker: DataBroker) -> None:
    client, waiting = PopClient(broker), PopClient(broker)
    client.send(b"a")
    in_order(client, invisibleTime=5_000)
    opaque = waiting.ask_pop(order=True, pollTime=15_000)
    broker.clock.now_ms += 5_000
    broker.hot.tick(broker.clock())
    assert bodies(popped(await waiting.wait_answer(opaque))) == [b"a"]


async def test_a_reset_frees_a_queue(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    held = in_order(client)
    broker.parts.tables.offsets.assign_reset(TOPIC, GROUP, 0, 1)
    assert bodies(in_order(client, maxMsgNums=1)) == [b"b"]
    assert client.ack(held[0]).code == 0
    assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 1


async def test_a_late_acknowledgement_moves_no_group_that_has_popped_nothing_since(broker: DataBroker) -> None:
    """Its offsets were deleted with the group, or with the topic, which was made again."""
    client = PopClient(broker)
    client.send(b"a", b"b", b"c")
    held = in_order(client)
    offsets = broker.parts.tables.offsets
    offsets.remove_group(GROUP)
    broker.parts.pops.store.forget_topic(TOPIC)
    assert client.ack(held[2]).code == 0
    assert client.ack_batch(*held).code == 0
    assert offsets.query(TOPIC, GROUP, 0) is None
    assert bodies(in_order(client)) == [b"a", b"b", b"c"]


async def test_acknowledgements_make_no_offsets_of_groups_and_topics_that_are_missing(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    (held,) = in_order(client)
    pair_count = broker.parts.tables.offsets.pair_count
    assert client.answer(client.ask(200_051, **receipt_fields(held, group="another"))).code == 0
    assert client.answer(client.ask(200_151, batch_ack_body([held], group="another"))).code == 0
    body = batch_ack_body([held], group="another").replace(TOPIC.encode(), b"Missing")
    assert client.answer(client.ask(200_151, body)).code == 0
    assert broker.parts.tables.offsets.pair_count == pair_count
