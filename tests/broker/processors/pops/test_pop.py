"""POP: messages found, their format, refusals, and long polling.

Covers `broker/cold/cold_reads.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import GROUP, INVISIBLE_MS, TOPIC, PopClient, bodies, popped
from tests.broker.pulling import expire_local_files
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.store.config.store_config import FlushDiskType

RETRY_TOPIC = f"%RETRY%{GROUP}_{TOPIC}"
ANSWER_FIELDS = {"popTime", "invisibleTime", "reviveQid", "restNum", "startOffsetInfo", "msgOffsetInfo"}
"""As recorded from the official broker, with messages and without."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


# -- what is found -----------------------------------------------------------------------------------------------------


async def test_all_queues_in_one_answer(broker: DataBroker) -> None:
    client = PopClient(broker)
    for queue_id in range(4):
        client.send(b"%d-0" % queue_id, b"%d-1" % queue_id, queue_id=queue_id)
    answer = client.pop_answer()
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.ext_fields is not None
    assert answer.ext_fields["popTime"] == str(broker.clock())
    assert answer.ext_fields["invisibleTime"] == str(INVISIBLE_MS)
    assert answer.ext_fields["restNum"] == "0"
    assert answer.ext_fields.keys() == ANSWER_FIELDS
    messages = popped(answer)
    assert sorted(bodies(messages)) == sorted(b"%d-%d" % (queue, n) for queue in range(4) for n in range(2))
    assert {message.receipt.revive_queue_id for message in messages} <= set(range(8))
    assert client.pop() == []


async def test_one_queue_and_a_count(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", b"c", queue_id=2)
    client.send(b"other", queue_id=1)
    answer = client.pop_answer(queueId=2, maxMsgNums=2)
    assert bodies(popped(answer)) == [b"a", b"b"]
    assert answer.ext_fields is not None
    assert answer.ext_fields["startOffsetInfo"] == "0 2 0"
    assert answer.ext_fields["msgOffsetInfo"] == "0 2 0,1"
    assert answer.ext_fields["restNum"] == "1"
    assert bodies(client.pop(queueId=2)) == [b"c"]


async def test_nothing_to_be_had(broker: DataBroker) -> None:
    answer = PopClient(broker).pop_answer()
    assert (answer.code, answer.remark, answer.body) == (210, "NO_MESSAGE_IN_QUEUE", b"")
    assert answer.ext_fields is not None
    assert answer.ext_fields.keys() == ANSWER_FIELDS
    assert answer.ext_fields["startOffsetInfo"] == answer.ext_fields["msgOffsetInfo"] == ""


async def test_the_rest_is_counted_over_all_queues(broker: DataBroker) -> None:
    client = PopClient(broker)
    for queue_id in range(4):
        client.send(*[b"x"] * 5, queue_id=queue_id)
    answer = client.pop_answer(maxMsgNums=3)
    assert answer.ext_fields is not None
    assert answer.ext_fields["restNum"] == "17"


async def test_large_messages_of_several_queues_come_in_several_answers(tmp_path: Path) -> None:
    """Together they would not fit a frame: official clients close the connection at 16 MiB."""
    async with data_broker(tmp_path, topics=[TOPIC], start=False, log_file_bytes=1 << 26) as broker:
        client = PopClient(broker)
        for queue_id in range(4):
            client.send(bytes(4_000_000), queue_id=queue_id)
        peeked = client.answer(client.ask(200_052, consumerGroup=GROUP, topic=TOPIC, queueId=-1, maxMsgNums=32))
        assert len(list(iterate_records(bytes(peeked.body)))) == 2
        for rest_count in (2, 0):
            answer = client.pop_answer()
            assert len(popped(answer)) == 2
            assert answer.ext_fields is not None
            assert answer.ext_fields["restNum"] == str(rest_count)
        assert client.pop() == []


async def test_groups_know_nothing_of_each_other(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    assert bodies(client.pop()) == [b"a"]
    assert bodies(client.pop(consumerGroup="other")) == [b"a"]


async def test_only_tags_that_are_wanted(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", tag="TagA")
    client.send(b"b", tag="TagB")
    client.send(b"c", tag="TagA")
    assert bodies(client.pop(exp="TagB || TagC")) == [b"b"]
    # What was looked at and not wanted is behind the group.
    assert client.pop(exp="TagA") == []
    client.send(b"d", tag="TagC")
    assert client.pop(exp="TagB") == []
    assert client.pop() == []


@pytest.mark.parametrize(
    ("init_mode", "expected"),
    [(0, [b"0", b"1", b"2"]), (1, [b"0", b"1", b"2"])],
)
async def test_where_a_new_group_begins(broker: DataBroker, init_mode: int, expected: list[bytes]) -> None:
    """At the end means the first message while that is still in memory."""
    client = PopClient(broker)
    client.send(b"0", b"1", b"2")
    assert bodies(client.pop(initMode=init_mode)) == expected


async def test_a_new_group_at_the_end_begins_with_the_last_message(broker: DataBroker) -> None:
    broker.change_config(pop_init_in_memory=False)
    client = PopClient(broker)
    client.send(b"0", b"1", b"2")
    assert bodies(client.pop(initMode=1)) == [b"2"]


async def test_a_reset_moves_the_group(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"0", b"1", b"2")
    client.pop()
    broker.parts.tables.offsets.assign_reset(TOPIC, GROUP, 0, 1)
    assert bodies(client.pop()) == [b"1", b"2"]
    assert not broker.parts.tables.offsets.has_reset(TOPIC, GROUP, 0)


async def test_an_offset_that_the_queue_does_not_have_is_corrected(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, log_file_bytes=8 * 1024) as broker:
        client = PopClient(broker)
        client.send(*[b"%d" % number for number in range(100)])
        minimum = expire_local_files(broker, 60)
        broker.parts.tables.offsets.commit(TOPIC, GROUP, 0, 3)
        assert bodies(client.pop(maxMsgNums=1)) == [b"%d" % minimum]
        broker.parts.tables.offsets.commit(TOPIC, GROUP, 0, 500)
        assert client.pop() == []
        assert broker.parts.tables.offsets.query(TOPIC, GROUP, 0) == 100


async def test_messages_in_flight_may_be_limited(broker: DataBroker) -> None:
    broker.change_config(pop_threshold_on=True, pop_threshold=2)
    client = PopClient(broker)
    client.send(*[b"x"] * 9)
    held = client.pop(maxMsgNums=3)
    assert client.pop(maxMsgNums=3) == []
    client.ack_batch(*held)
    assert len(client.pop(maxMsgNums=3)) == 3


# -- retry topics ------------------------------------------------------------------------------------------------------


async def come_back(broker: DataBroker, client: PopClient, count: int = 1) -> None:
    """Let so many messages be popped, and not be acknowledged."""
    client.send(*[b"back%d" % number for number in range(count)])
    assert len(client.pop(queueId=0)) >= count
    broker.clock.now_ms += INVISIBLE_MS
    await broker.pop.reviver.step()


async def test_a_redelivered_message_is_popped_under_its_first_topic(broker: DataBroker) -> None:
    client = PopClient(broker)
    await come_back(broker, client)
    answer = client.pop_answer()
    assert answer.ext_fields is not None
    assert answer.ext_fields["startOffsetInfo"] == "1 0 0"
    (message,) = popped(answer)
    assert (message.body, message.record.topic, message.record.reconsume_times) == (b"back0", TOPIC, 1)
    assert message.record.property_text("ORIGIN_GROUP") == GROUP
    assert message.record.property_text("1ST_POP_TIME") == str(broker.clock() - INVISIBLE_MS)
    assert message.receipt.retry_flag == 1
    assert client.ack(message).code == 0
    broker.clock.now_ms += INVISIBLE_MS
    await broker.pop.reviver.step()
    assert client.pop() == []


async def test_the_retry_topic_itself_on_demand(broker: DataBroker) -> None:
    broker.change_config(pop_returns_retry_topic=True)
    client = PopClient(broker)
    await come_back(broker, client)
    answer = client.pop_answer()
    (record,) = [record for record in broker.records() if record.topic == RETRY_TOPIC]
    assert bytes(answer.body) == bytes(broker.store.commit_log.record_view(record.physical_offset, record.size_bytes))


async def test_retry_topics_of_version_2_and_the_older_ones_beside_them(broker: DataBroker) -> None:
    client = PopClient(broker)
    await come_back(broker, client, 3)
    broker.change_config(retry_topic_v2=True)
    await come_back(broker, client, 3)
    assert "%RETRY%group+TopicA" in broker.parts.tables.topics
    flags = set()
    found: list[bytes] = []
    for _ in range(60):
        for message in client.pop(maxMsgNums=1):
            flags.add(message.receipt.retry_flag)
            found.append(message.body)
            assert client.ack(message).code == 0
    assert flags == {1, 2}
    assert sorted(found) == sorted([b"back%d" % number for number in range(3)] * 2)
    assert len(broker.parts.pops.store.in_flight) == 0


async def test_no_pop_misses_what_came_back_in_either_version(broker: DataBroker) -> None:
    """One that waits is woken once: it would wait on."""
    client = PopClient(broker)
    await come_back(broker, client)
    broker.change_config(retry_topic_v2=True)
    for number in range(20):
        message, *others = client.pop()
        assert others == []
        assert message.receipt.retry_flag == (1 if number == 0 else 2)
        assert client.ack(message).code == 0
        await come_back(broker, client)


@pytest.mark.parametrize(("percent", "first"), [(100, b"back0"), (0, b"new")])
async def test_how_often_the_retry_topic_is_read_first(broker: DataBroker, percent: int, first: bytes) -> None:
    broker.change_config(pop_from_retry_percent=percent)
    client = PopClient(broker)
    await come_back(broker, client)
    client.send(b"new")
    assert bodies(client.pop(maxMsgNums=1)) == [first]


@pytest.mark.parametrize("tag_chars", [32_590, 32_640])
async def test_a_message_without_room_for_its_receipt_is_answered_as_it_is(broker: DataBroker, tag_chars: int) -> None:
    client = PopClient(broker)
    client.send(b"full", tag="T" * tag_chars)
    assert len(client.pop()) == 1
    broker.clock.now_ms += INVISIBLE_MS
    await broker.pop.reviver.step()
    answer = client.pop_answer()
    assert answer.code == 0
    (record,) = [record for record in broker.records() if record.topic == RETRY_TOPIC]
    assert record.reconsume_times == 1


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "Missing"}, 17, "topic[Missing] not exist, apply first please! "),
        ({"queueId": 4}, 29, "queueId[4] is illegal, topic:[TopicA] topicConfig.readQueueNums:[4]"),
        ({"maxMsgNums": 33}, 29, "the broker[127.0.0.1] pop message's num is greater than 32"),
        ({"consumerGroup": "no such group!"}, 26, "subscription group [no such group!] does not exist"),
        ({"exp": "||"}, 23, "parse the consumer's subscription failed"),
        ({"exp": "a > 1", "expType": "SQL92"}, 1, "The broker does not support consumer to filter message by SQL92"),
        ({"maxMsgNums": "x"}, 1, "a custom field cannot be read"),
        ({"attemptId": "a" * 256, "order": True}, 29, "the attempt id is too long"),
    ],
)
async def test_invalid_pops_are_refused(broker: DataBroker, fields: dict[str, Any], code: int, remark: str) -> None:
    answer = PopClient(broker).pop_answer(**fields)
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)


async def test_who_is_refused(broker: DataBroker) -> None:
    client = PopClient(broker)
    await broker.parts.tables.groups.update([SubscriptionGroupConfig(group_name=GROUP, consume_enable=False)])
    assert client.pop_answer().code == 16
    broker.change_config(permission=2)
    answer = client.pop_answer()
    assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] pop message is forbidden")


async def test_a_request_that_comes_too_late(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    born_ms = broker.clock() - 1_000
    answer = client.pop_answer(bornTime=born_ms, pollTime=499)
    assert (answer.code, answer.remark) == (210, "the broker[127.0.0.1] pop message is timeout too much")
    assert bodies(client.pop(bornTime=born_ms, pollTime=500)) == [b"a"]


async def test_a_client_whose_clock_is_ahead_waits_no_longer_than_others(broker: DataBroker) -> None:
    client = PopClient(broker)
    opaque = client.ask_pop(bornTime=broker.clock() + 3_600_000, pollTime=15_000)
    broker.clock.now_ms += 15_000
    broker.hot.tick(broker.clock())
    assert (await client.wait_answer(opaque)).code == 210
    client.send(b"a")
    assert bodies(client.pop()) == [b"a"], "not taken by the POP that has ended"


async def test_old_clients_do_not_say_when_a_request_was_born(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b")
    assert bodies(client.pop(bornTime=0, maxMsgNums=1)) == [b"a"]
    fields = client.pop_fields(maxMsgNums=1)
    del fields["bornTime"]
    assert bodies(popped(client.answer(client.ask(200_050, **fields)))) == [b"b"]


async def test_too_much_in_flight_is_polling_full(broker: DataBroker) -> None:
    broker.parts.pops.store.pending_max = 1
    client = PopClient(broker)
    client.send(b"a", b"b")
    assert len(client.pop(maxMsgNums=1)) == 1
    assert client.pop_answer(maxMsgNums=1).code == 209


async def test_too_many_queues_popped_in_order_are_polling_full(broker: DataBroker) -> None:
    """A group that has the queue goes on; nothing is claimed by a POP that is refused."""
    store = broker.parts.pops.store
    store.pending_max = 1
    client = PopClient(broker)
    client.send(b"a", b"b")
    ordered = {"maxMsgNums": 1, "order": True, "queueId": 0}
    assert len(client.pop(**ordered)) == 1
    assert len(store.orders) == 1
    assert client.pop_answer(consumerGroup="other", **ordered).code == 209
    assert len(store.orders) == 1
    store.pending_max = 2
    assert len(client.pop(consumerGroup="other", **ordered)) == 1
    store.orders.remove(TOPIC, "other", 0)
    assert len(store.orders) == 1


async def test_a_store_that_refuses_is_an_answer(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    broker.store.commit_log.pause("the disk is nearly full")
    assert client.pop_answer().code == 14
    broker.store.commit_log.resume()
    assert bodies(client.pop()) == [b"a"]


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_pop_waits_for_a_message(broker: DataBroker) -> None:
    client = PopClient(broker)
    opaque = client.ask_pop(pollTime=15_000)
    assert client.wire.take_commands() == []
    assert len(broker.pop.polling) == 1
    client.send(b"a", queue_id=3)
    assert bodies(popped(await client.wait_answer(opaque))) == [b"a"]
    assert len(broker.pop.polling) == 0


async def test_one_message_wakes_one_waiter_and_the_next_wakes_the_next(broker: DataBroker) -> None:
    first, second, third = PopClient(broker), PopClient(broker), PopClient(broker)
    opaques = [client.ask_pop(pollTime=15_000, maxMsgNums=1) for client in (first, second, third)]
    first.send(b"a")
    assert bodies(popped(await first.wait_answer(opaques[0]))) == [b"a"]
    assert len(broker.pop.polling) == 2
    first.send(b"b", b"c")
    assert bodies(popped(await second.wait_answer(opaques[1]))) == [b"b"]
    assert bodies(popped(await third.wait_answer(opaques[2]))) == [b"c"]


@pytest.mark.parametrize("count", [0, -(2**31)])
async def test_a_pop_that_wants_no_message_keeps_none_from_others(broker: DataBroker, count: int) -> None:
    """It gets one, as a pull does: it would be woken for each in their place, and wait on."""
    none, other = PopClient(broker), PopClient(broker)
    opaques = [none.ask_pop(pollTime=15_000, maxMsgNums=count), other.ask_pop(pollTime=15_000, maxMsgNums=1)]
    other.send(b"a", b"b")
    assert bodies(popped(await none.wait_answer(opaques[0]))) == [b"a"]
    assert bodies(popped(await other.wait_answer(opaques[1]))) == [b"b"]


async def test_a_pop_of_one_queue_waits_for_that_one(broker: DataBroker) -> None:
    client = PopClient(broker)
    opaque = client.ask_pop(pollTime=15_000, queueId=1)
    client.send(b"other", queue_id=0)
    client.send(b"a", queue_id=1)
    assert bodies(popped(await client.wait_answer(opaque))) == [b"a"]


async def test_a_pop_waits_on_when_new_messages_do_not_match(broker: DataBroker) -> None:
    client = PopClient(broker)
    opaque = client.ask_pop(pollTime=15_000, exp="TagB")
    client.send(b"a", tag="TagA")
    await asyncio.sleep(0)
    client.send(b"b", tag="TagB")
    assert bodies(popped(await client.wait_answer(opaque))) == [b"b"]


async def test_a_redelivered_message_wakes_waiting_pops(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a")
    client.pop()
    opaque = client.ask_pop(pollTime=600_000)
    broker.clock.now_ms += INVISIBLE_MS
    await broker.pop.reviver.step()
    assert bodies(popped(await client.wait_answer(opaque))) == [b"a"]


async def test_time_is_up(broker: DataBroker) -> None:
    client = PopClient(broker)
    opaque = client.ask_pop(pollTime=15_000)
    broker.clock.now_ms += 14_950
    broker.hot.tick(broker.clock())
    assert client.wire.take_commands() == []
    broker.clock.now_ms += 1
    broker.hot.tick(broker.clock())
    answer = await client.wait_answer(opaque)
    assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")


async def test_too_many_wait(broker: DataBroker) -> None:
    broker.change_config(pop_polling_max=2)
    client = PopClient(broker)
    client.ask_pop(pollTime=15_000)
    client.ask_pop(pollTime=15_000)
    assert client.pop_answer(pollTime=15_000).code == 209


async def test_a_client_that_has_left_waits_no_more(broker: DataBroker) -> None:
    gone, client = PopClient(broker), PopClient(broker)
    gone.ask_pop(pollTime=15_000)
    gone.wire.lose()
    assert len(broker.pop.polling) == 0
    assert not broker.long_polling._watchers
    client.send(b"a")
    assert bodies(client.pop()) == [b"a"]


async def test_a_client_that_leaves_its_group_waits_no_more(broker: DataBroker) -> None:
    leaving, client = PopClient(broker), PopClient(broker)
    leaving.ask_pop(pollTime=15_000)
    leaving.ask(RequestCode.UNREGISTER_CLIENT, clientID="leaving", consumerGroup="another")
    assert len(broker.pop.polling) == 1
    leaving.ask(RequestCode.UNREGISTER_CLIENT, clientID="leaving", consumerGroup=GROUP)
    assert len(broker.pop.polling) == 0
    client.send(b"a")
    assert bodies(client.pop()) == [b"a"]


async def test_with_sync_flush_the_answer_waits_for_the_check_point(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        client = PopClient(broker)
        client.send(b"a")
        jobs: list[Any] = []
        broker.store.flush.use(lambda job, done: jobs.append((job, done)))
        opaque = client.ask_pop()
        assert client.wire.take_commands() == []
        ((job, done),) = jobs
        job()
        done(None)
        assert bodies(popped(await client.wait_answer(opaque))) == [b"a"]


# -- cold --------------------------------------------------------------------------------------------------------------


async def test_messages_that_lie_in_the_cold_tier(tmp_path: Path) -> None:
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], start=False, cold=cold, log_file_bytes=8 * 1024) as broker:
        client = PopClient(broker)
        client.send(*[b"%d" % number for number in range(100)])
        queue = broker.store.queues.find(TOPIC, 0)
        assert queue is not None
        cold.copy_from(broker.store, TOPIC, 0, end=70)
        minimum = expire_local_files(broker, 60)
        assert minimum > 20
        found: list[bytes] = []
        held = []
        while len(found) < 100:
            messages = await client.pop_later(maxMsgNums=10)
            found += bodies(messages)
            held += messages
        assert found == [b"%d" % number for number in range(100)]
        assert {pull.group for pull in cold.pulls} == {GROUP}
        # What is not acknowledged comes back from there.
        assert client.ack_batch(*held[1:]).code == 0
        broker.clock.now_ms += INVISIBLE_MS
        await broker.pop.reviver.step()
        await broker.pop.reviver.step_cold()
        assert bodies(await client.pop_later()) == [b"0"]


async def test_a_cold_queue_is_busy_while_it_is_fetched(tmp_path: Path) -> None:
    cold = MemoryColdTier(gate=asyncio.Event())
    async with data_broker(tmp_path, topics=[TOPIC], start=False, cold=cold, log_file_bytes=8 * 1024) as broker:
        first, second = PopClient(broker), PopClient(broker)
        first.send(*[b"%d" % number for number in range(100)])
        cold.copy_from(broker.store, TOPIC, 0, end=70)
        expire_local_files(broker, 60)
        opaque = first.ask_pop(maxMsgNums=2)
        await asyncio.sleep(0)
        waiting = second.ask_pop(maxMsgNums=2, pollTime=15_000)
        assert len(broker.pop.polling) == 1
        assert cold.gate is not None
        cold.gate.set()
        assert bodies(popped(await first.wait_answer(opaque))) == [b"0", b"1"]
        # It waited at a queue that is not local: asked again at once, it gets the next ones.
        assert (await second.wait_answer(waiting)).code == 210
        assert bodies(await second.pop_later(maxMsgNums=2)) == [b"2", b"3"]


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_client_that_leaves_takes_its_cold_pops_along(tmp_path: Path, has_begun: bool) -> None:
    """Nothing is fetched for it any more, and it takes no message from the others."""
    cold = MemoryColdTier(gate=asyncio.Event())
    async with data_broker(tmp_path, topics=[TOPIC], start=False, cold=cold, log_file_bytes=8 * 1024) as broker:
        leaving, staying = PopClient(broker), PopClient(broker)
        leaving.send(*[b"%d" % number for number in range(100)])
        cold.copy_from(broker.store, TOPIC, 0, end=70)
        expire_local_files(broker, 60)
        address = leaving.wire.connection.remote_address
        leaving.ask_pop(maxMsgNums=2)
        if has_begun:
            await asyncio.sleep(0)
        leaving.wire.lose()
        for _ in range(5):
            await asyncio.sleep(0)
        assert cold.gate is not None
        cold.gate.set()
        assert len(cold.pulls) == has_begun
        assert cold.closed_readers == [address] * has_begun
        assert bodies(await staying.pop_later(maxMsgNums=2)) == [b"0", b"1"]


async def test_pops_in_order_of_a_cold_queue_that_come_at_once_do_not_share_a_batch(tmp_path: Path) -> None:
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], start=False, cold=cold, log_file_bytes=8 * 1024) as broker:
        first, second = PopClient(broker), PopClient(broker)
        first.send(*[b"%d" % number for number in range(100)])
        cold.copy_from(broker.store, TOPIC, 0, end=70)
        expire_local_files(broker, 60)
        # Both have seen that the queue is cold before either of them reads it.
        opaques = [client.ask_pop(maxMsgNums=2, order=True, queueId=0) for client in (first, second)]
        found = [
            bodies(popped(await client.wait_answer(opaque)))
            for client, opaque in zip((first, second), opaques, strict=True)
        ]
        assert found == [[b"0", b"1"], []]


async def test_a_tier_that_is_away_is_busy(tmp_path: Path) -> None:
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], start=False, cold=cold, log_file_bytes=8 * 1024) as broker:
        client = PopClient(broker)
        client.send(*[b"%d" % number for number in range(100)])
        cold.copy_from(broker.store, TOPIC, 0, end=70)
        expire_local_files(broker, 60)
        cold.is_away = True
        assert (await client.wait_answer(client.ask_pop())).code == 2
        cold.is_known = False
        assert (await client.wait_answer(client.ask_pop(consumerGroup="new"))).code == 2
        cold.is_known, cold.is_away = True, False
        assert bodies(await client.pop_later(maxMsgNums=1)) == [b"0"]
        assert bodies(await client.pop_later(maxMsgNums=1, consumerGroup="new")) == [b"0"]


@pytest.mark.parametrize("is_away", [True, False])
async def test_messages_that_come_back_wait_for_a_tier_that_is_away(tmp_path: Path, is_away: bool) -> None:
    """Or that says it holds what it cannot give: nothing may be given up because of that."""
    cold = MemoryColdTier()
    config = BrokerConfig(listen_host="127.0.0.1")
    async with data_broker(
        tmp_path, topics=[TOPIC], start=False, cold=cold, config=config, log_file_bytes=8 * 1024
    ) as broker:
        client = PopClient(broker)
        client.send(*[b"%d" % number for number in range(100)])
        cold.copy_from(broker.store, TOPIC, 0, end=70)
        assert bodies(client.pop(maxMsgNums=1)) == [b"0"]
        expire_local_files(broker, 60)
        cold.is_away, cold.claimed = is_away, cold.bounds(TOPIC, 0)
        held, cold.records[TOPIC, 0] = cold.records[TOPIC, 0], []
        broker.clock.now_ms += INVISIBLE_MS
        await broker.pop.reviver.step()
        await broker.pop.reviver.step_cold()
        assert len(broker.parts.pops.store.in_flight) == 1
        cold.is_away, cold.records[TOPIC, 0] = False, held
        await broker.pop.reviver.step()
        await broker.pop.reviver.step_cold()
        assert len(broker.parts.pops.store.in_flight) == 1, "not before its pause is over"
        broker.clock.now_ms += 10_000
        await broker.pop.reviver.step()
        await broker.pop.reviver.step_cold()
        broker.parts.tables.offsets.commit(TOPIC, GROUP, 0, 100)
        assert bodies(client.pop()) == [b"0"]
