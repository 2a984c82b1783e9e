"""A static topic on two brokers, asked as clients and tools ask: what each request means before and after a move.

Queue 0 begins on broker a as its physical queue 2, and moves to broker b, as its physical queue 1, at offset 10 000.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.static_topics.two_brokers import GROUP, TOPIC, Side, TwoBrokers, item, two_brokers
from thermocline.remoting.bodies import ConsumeStats, MessageQueue, TopicConfigAndMapping, TopicConfigTableBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.records.message_record import iterate_records
from thermocline.store.log.message_draft import MessageDraft

NOT_LEADER = 501
FIRST = item(0, "a", 0, queue_id=2)
MOVING = item(1, "b", -1, queue_id=1)
MOVED = item(1, "b", 10_000, queue_id=1)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[TwoBrokers]:
    async with two_brokers(tmp_path) as both:
        assert (await both.a.map({0: [FIRST]})).code == 0
        assert (await both.b.map({})).code == 0
        await both.a.ask(200, body=b'{"groupName":"%s"}' % GROUP.encode())
        await both.b.ask(200, body=b'{"groupName":"%s"}' % GROUP.encode())
        yield both


async def send(side: Side, count: int) -> list[tuple[int, int]]:
    """Queue id and offset of each answer."""
    answers = [await side.send(body=b"message %d" % number) for number in range(count)]
    assert [answer.code for answer in answers] == [0] * count, answers[0].remark
    return [
        (int((answer.ext_fields or {})["queueId"]), int((answer.ext_fields or {})["queueOffset"])) for answer in answers
    ]


async def remap(brokers: TwoBrokers) -> None:
    """Move queue 0, in the order of RocketMQ's tool."""
    for side, last in ((brokers.b, MOVING), (brokers.a, MOVING), (brokers.b, MOVED), (brokers.a, MOVED)):
        answer = await side.map({0: [FIRST, last]}, epoch=2)
        assert answer.code == 0, answer.remark


def fields(answer: RemotingCommand) -> dict[str, str]:
    assert answer.ext_fields is not None
    return answer.ext_fields


def next_offset(answer: RemotingCommand) -> tuple[int, int]:
    return answer.code, int(fields(answer)["nextBeginOffset"])


def offsets_seen_by_clients(answer: RemotingCommand) -> list[int]:
    """Each message's offset, with what clients add to it."""
    assert answer.code == 0, answer.remark
    delta = int(fields(answer)["offsetDelta"])
    return [record.queue_offset + delta for record in iterate_records(memoryview(answer.body), 0, len(answer.body))]


async def test_a_logic_queue_is_written_to_at_its_leader_only(brokers: TwoBrokers) -> None:
    assert await send(brokers.a, 3) == [(0, 0), (0, 1), (0, 2)]
    queue = brokers.a.broker.store.queues.find(TOPIC, 2)
    assert queue is not None
    assert queue.next_offset == 3
    refused = await brokers.b.send()
    assert refused.code == NOT_LEADER
    assert refused.remark == f"{TOPIC}-0 does not exit in request process of current broker b"
    assert (await brokers.a.send(queue_id=1)).code == NOT_LEADER


async def test_queue_0_is_not_any_queue(brokers: TwoBrokers) -> None:
    """A broker that leads another queue alone refuses a send to queue 0."""
    assert (await brokers.b.map({1: [item(0, "b", 0, queue_id=1)]}, epoch=2)).code == 0
    assert (await brokers.b.send(queue_id=1)).code == 0
    assert (await brokers.b.send(queue_id=0)).code == NOT_LEADER


async def test_a_send_that_names_no_queue_goes_to_one_that_the_broker_leads(brokers: TwoBrokers) -> None:
    answer = await brokers.a.send(queue_id=-1)
    assert (answer.code, fields(answer)["queueId"], fields(answer)["queueOffset"]) == (0, "0", "0")
    assert (await brokers.b.send(queue_id=-1)).code == NOT_LEADER


async def test_lo_false_means_physical_queues(brokers: TwoBrokers) -> None:
    await send(brokers.a, 2)
    assert await brokers.a.offset(30, queue_id=2, lo="false") == 2
    assert await brokers.a.offset(30, queue_id=0, lo="false") == 0
    assert fields(await brokers.a.pull(0, queue_id=2, lo="false")).get("offsetDelta") is None
    assert (await brokers.b.pull(0, lo="false")).code == 19


async def test_everything_is_read_once_and_in_order_through_a_move(brokers: TwoBrokers) -> None:
    await send(brokers.a, 5)
    await remap(brokers)
    assert (await brokers.a.send()).code == NOT_LEADER
    assert (await brokers.a.pull(0)).code == NOT_LEADER
    assert await send(brokers.b, 3) == [(0, 10_000), (0, 10_001), (0, 10_002)]
    old = await brokers.b.pull(2)  # read from broker a, by broker b
    assert offsets_seen_by_clients(old) == [2, 3, 4]
    assert (next_offset(old), fields(old)["maxOffset"]) == ((0, 5), "10000")
    assert next_offset(await brokers.b.pull(5)) == (20, 10_000)
    new = await brokers.b.pull(10_000)
    assert offsets_seen_by_clients(new) == [10_000, 10_001, 10_002]
    assert (next_offset(new), fields(new)["minOffset"], fields(new)["maxOffset"]) == ((0, 10_003), "10000", "10003")
    assert next_offset(await brokers.b.pull(10_003, sysFlag=4)) == (19, 10_003)
    assert next_offset(await brokers.b.pull(10_009)) == (21, 10_003)


async def test_between_the_steps_of_a_move_the_new_leader_is_written_to_and_not_read(brokers: TwoBrokers) -> None:
    await send(brokers.a, 2)
    await brokers.b.map({0: [FIRST, MOVING]}, epoch=2)
    assert await send(brokers.b, 1) == [(0, -1)]
    assert offsets_seen_by_clients(await brokers.b.pull(0)) == [0, 1]
    assert next_offset(await brokers.b.pull(2)) == (19, 2)
    assert await brokers.b.offset(30) == 2
    await brokers.b.map({0: [FIRST, MOVED]}, epoch=2)
    assert next_offset(await brokers.b.pull(2)) == (20, 10_000)
    assert offsets_seen_by_clients(await brokers.b.pull(10_000)) == [10_000]


async def test_a_waiting_pull_is_answered_with_a_retry_when_its_queue_moves(brokers: TwoBrokers) -> None:
    await send(brokers.a, 1)
    await brokers.a.ask(30, {"topic": TOPIC, "queueId": 0})  # opens the connection
    wait = RemotingCommand.request(
        11,
        ext_fields={
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": "1",
            "maxMsgNums": "32",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "*",
            "subVersion": "0",
        },
    )
    pull = asyncio.ensure_future(brokers.a.connections[0].call(wait, timeout_ms=5_000))
    while not len(brokers.a.broker.long_polling):  # noqa: ASYNC110 - nothing tells of a pull that waits
        await asyncio.sleep(0)
    await remap(brokers)
    assert next_offset(await pull) == (20, 1)


async def test_offsets_and_times_are_found_in_the_item_that_has_them(brokers: TwoBrokers) -> None:
    clock_a, clock_b = brokers.a.broker.clock, brokers.b.broker.clock
    assert await brokers.a.offset(32) == -1
    begin = clock_a.now_ms
    await send(brokers.a, 1)
    clock_a.now_ms += 1_000
    await send(brokers.a, 1)
    await remap(brokers)
    clock_b.now_ms += 5_000
    await send(brokers.b, 2)
    at = {"timestamp": 0}
    assert await brokers.b.offset(30) == 10_002
    assert await brokers.b.offset(31) == 0
    assert await brokers.b.offset(32) == begin
    for boundary, times in (
        ("LOWER", {begin - 1: 0, begin + 1: 1, begin + 1_000: 1, begin + 1_001: 10_000, begin + 9_999: 10_002}),
        ("UPPER", {begin - 1: 0, begin: 0, begin + 1_500: 1, begin + 5_000: 10_001, begin + 9_999: 10_001}),
    ):
        for timestamp_ms, offset in times.items():
            found = await brokers.b.offset(29, boundaryType=boundary, **(at | {"timestamp": timestamp_ms}))
            assert found == offset, (boundary, timestamp_ms - begin)
    assert (await brokers.a.ask(30, {"topic": TOPIC, "queueId": 0})).code == NOT_LEADER


async def test_a_group_goes_on_where_it_was_before_the_move(brokers: TwoBrokers) -> None:
    await send(brokers.a, 5)
    assert await brokers.a.committed() is None
    assert (await brokers.a.commit(3)).code == 0
    assert await brokers.a.committed() == 3
    await remap(brokers)
    await send(brokers.b, 2)
    assert await brokers.b.committed() == 3
    assert (await brokers.b.commit(4)).code == 0  # at broker a, through broker b
    assert brokers.a.broker.parts.tables.offsets.query(TOPIC, GROUP, 2) == 4
    assert await brokers.b.committed() == 4
    assert (await brokers.b.commit(10_001)).code == 0
    assert brokers.b.broker.parts.tables.offsets.query(TOPIC, GROUP, 1) == 1
    assert await brokers.b.committed() == 10_001


async def test_tools_see_that_a_group_has_no_offset_yet_in_the_newest_part(brokers: TwoBrokers) -> None:
    """`consumerProgress` takes the offset of the newest part that has one: 0 there would be a lag of everything."""
    await send(brokers.a, 5)
    await brokers.a.commit(3)
    await remap(brokers)
    await send(brokers.b, 2)
    shown = {
        side.name: ConsumeStats.decode(
            (await side.ask(208, {"consumerGroup": GROUP, "topic": TOPIC})).body
        ).offset_table[MessageQueue(topic=TOPIC, broker_name=side.name, queue_id=queue_id)]
        for side, queue_id in ((brokers.a, 2), (brokers.b, 1))
    }
    assert (shown["a"].consumer_offset, shown["a"].broker_offset) == (3, 5)
    assert (shown["b"].consumer_offset, shown["b"].broker_offset, shown["b"].pull_offset) == (-1, 2, -1)
    await brokers.b.commit(10_001)
    stats = ConsumeStats.decode((await brokers.b.ask(208, {"consumerGroup": GROUP, "topic": TOPIC})).body)
    assert stats.offset_table[MessageQueue(topic=TOPIC, broker_name="b", queue_id=1)].consumer_offset == 1


async def test_an_offset_that_comes_with_a_pull_counts_in_its_own_queue_only(brokers: TwoBrokers) -> None:
    """The official broker notes the logic offset at the physical queue: 10 000 messages would be skipped."""
    await send(brokers.a, 5)
    await remap(brokers)
    await send(brokers.b, 2)
    await brokers.b.pull(10_000, sysFlag=5, commitOffset=5)
    assert await brokers.b.committed() is None
    await brokers.b.pull(10_001, sysFlag=5, commitOffset=10_001)
    assert await brokers.b.committed() == 10_001


async def test_a_message_due_for_a_moved_queue_goes_to_a_queue_that_the_broker_leads(brokers: TwoBrokers) -> None:
    """Delayed, timed and committed messages name the physical queue that was the right one when they were sent."""
    parts = brokers.a.broker.parts
    due = MessageDraft(
        topic=TOPIC,
        queue_id=2,
        body=b"due",
        properties_text=b"",
        born_timestamp_ms=0,
        born_host=("127.0.0.1", 1),
    )
    assert (await brokers.a.map({0: [FIRST], 1: [item(0, "a", 0, queue_id=3)]}, epoch=2)).code == 0
    parts.due.appender.append(due)
    assert await brokers.a.offset(30, queue_id=0) == 1
    assert (await brokers.a.map({0: [FIRST, MOVED], 1: [item(0, "a", 0, queue_id=3)]}, epoch=3)).code == 0
    parts.due.appender.append(due)
    assert await brokers.a.offset(30, queue_id=1) == 1
    assert await brokers.a.offset(30, queue_id=2, lo="false") == 1


async def test_a_part_whose_broker_is_away_is_an_error_that_clients_retry(brokers: TwoBrokers) -> None:
    await send(brokers.a, 1)
    await remap(brokers)
    del brokers.peers.addresses["a"]
    for answer in (await brokers.b.pull(0), await brokers.b.ask(31, {"topic": TOPIC, "queueId": 0})):
        assert (answer.code, answer.remark) == (1, "cannot find addr for broker a")
    assert await send(brokers.b, 1) == [(0, 10_000)]


async def test_tools_read_the_mapping_back(brokers: TwoBrokers) -> None:
    asked = {"topic": TOPIC, "lo": "true"}
    body = TopicConfigAndMapping.decode((await brokers.a.ask(351, asked)).body)
    assert body.write_queue_nums == 4
    assert body.mapping_detail is not None
    assert (body.mapping_detail.epoch, body.mapping_detail.hosted_queues) == (1, {0: [FIRST]})
    plain = loads((await brokers.a.ask(351, {"topic": TOPIC})).body)
    assert "mappingDetail" not in plain
    answer = await brokers.a.ask(21)
    assert b'"hostedQueues":{"0":[' in bytes(answer.body), "5.5.0's tools refuse keys without quotes here"
    table = TopicConfigTableBody.decode(answer.body)
    assert table.topic_queue_mapping_detail_map is not None
    assert table.topic_queue_mapping_detail_map[TOPIC].hosted_queues == {0: [FIRST]}
    assert table.mapping_data_version is not None
    assert table.mapping_data_version.counter == 1


@pytest.mark.parametrize(
    ("epoch", "force", "code"), [(0, False, 1), (0, True, 0), (1, False, 0)], ids=["older", "forced", "the same"]
)
async def test_a_mapping_of_an_older_epoch_takes_force(brokers: TwoBrokers, epoch: int, force: bool, code: int) -> None:
    answer = await brokers.a.map({0: [FIRST]}, epoch=epoch, force=force)
    assert answer.code == code
    if code:
        assert answer.remark == "Can't accept data with small epoch 0 < 1"


async def test_a_mapping_of_another_broker_is_refused_and_makes_no_topic(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as both:
        both.a.name = "b"
        answer = await both.a.map({0: [FIRST]})
        assert answer.code == 1
        assert TOPIC not in both.a.broker.parts.tables.topics


async def test_mappings_survive_a_restart_and_go_with_their_topic(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as both:
        await both.a.map({0: [FIRST]})
        await send(both.a, 1)
    assert loads((tmp_path / "a" / "config" / "topicQueueMapping.json").read_bytes()) == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000},
        "topicQueueMappingInfoMap": {
            TOPIC: {
                "topic": TOPIC,
                "scope": "__global__",
                "totalQueues": 2,
                "bname": "a",
                "epoch": 1,
                "dirty": False,
                "currIdMap": {},
                "hostedQueues": {
                    "0": [
                        {
                            "gen": 0,
                            "queueId": 2,
                            "bname": "a",
                            "logicOffset": 0,
                            "startOffset": 0,
                            "endOffset": -1,
                            "timeOfStart": -1,
                            "timeOfEnd": -1,
                        }
                    ]
                },
            }
        },
    }
    async with two_brokers(tmp_path) as both:
        assert await send(both.a, 1) == [(0, 1)]
        assert (await both.a.ask(215, {"topic": TOPIC})).code == 0
    async with two_brokers(tmp_path) as both:
        assert not both.a.broker.parts.tables.static_topics.details


async def test_a_mapping_whose_topic_was_never_made_is_dropped_at_the_start(tmp_path: Path) -> None:
    """The stop came between the two files."""
    async with two_brokers(tmp_path) as both:
        await both.a.map({0: [FIRST]})
    (tmp_path / "a" / "config" / "topics.json").unlink()
    for name in ("topics.json.bak",):
        (tmp_path / "a" / "config" / name).unlink(missing_ok=True)
    async with two_brokers(tmp_path) as both:
        assert not both.a.broker.parts.tables.static_topics.details


async def test_an_ordinary_topic_of_the_same_name_is_ordinary_again(brokers: TwoBrokers) -> None:
    assert (await brokers.a.ask(215, {"topic": TOPIC})).code == 0
    await brokers.a.broker.parts.tables.topics.ensure(TOPIC, queue_count=4)
    answer = await brokers.a.send(queue_id=3)
    assert (answer.code, fields(answer)["queueId"]) == (0, "3")
    assert TOPIC in brokers.a.broker.hot._targets.table
