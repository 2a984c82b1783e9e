"""Statistics and progress over real sockets."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from thermocline.broker.cold.cold_reads import ColdBounds, NoColdTier
from thermocline.remoting.bodies import (
    BrokerStatsData,
    ConsumerData,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    HeartbeatData,
    MessageQueue,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    SubscriptionData,
    TopicList,
    TopicStatsTable,
)
from thermocline.remoting.errors import UnavailableError


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        yield broker


def queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)


async def test_the_offsets_of_a_topic_are_reported(broker: ControlBroker) -> None:
    for _ in range(3):
        broker.clock.now_ms += 1_000
        broker.put("T", 1)
    table = TopicStatsTable.decode((await broker.ask(202, {"topic": "T"})).body).offset_table
    assert (table[queue(0)].min_offset, table[queue(0)].max_offset, table[queue(0)].last_update_timestamp) == (0, 0, 0)
    assert (table[queue(1)].min_offset, table[queue(1)].max_offset) == (0, 3)
    assert table[queue(1)].last_update_timestamp == broker.clock.now_ms
    answer = await broker.ask(202, {"topic": "U"})
    assert (answer.code, answer.remark) == (17, "topic[U] not exist")


async def test_the_least_offset_follows_the_time_to_live(broker: ControlBroker) -> None:
    await broker.create_topic("T", queues=2, attributes="+thermocline.ttl.ms=1500")
    for _ in range(3):
        broker.put("T", 1)
        broker.clock.now_ms += 1_000
    table = TopicStatsTable.decode((await broker.ask(202, {"topic": "T"})).body).offset_table
    assert (table[queue(1)].min_offset, table[queue(1)].max_offset) == (2, 3)


async def test_while_the_cold_tier_is_away_the_least_offset_is_not_made_up(tmp_path: Path) -> None:
    class Away(NoColdTier):
        def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:  # type: ignore[override]
            return None

        async def pull(self, pull: Any) -> Any:
            raise UnavailableError("the cold tier is away")

    async with control_broker(tmp_path, cold=Away()) as broker:
        await broker.create_topic("T", queues=1)
        broker.parts.base.store.queues.create("T", 0, next_offset=5, min_offset=5)
        broker.put("T")
        assert (await broker.ask(202, {"topic": "T"})).code == 2
        broker.parts.tables.offsets.commit("T", "G", 0, 3)
        stats = ConsumeStats.decode((await broker.ask(208, {"consumerGroup": "G"})).body)
        assert stats.offset_table[queue(0)].last_timestamp == 0
        assert stats.offset_table[queue(0)].broker_offset == 6


async def test_how_far_a_group_is(broker: ControlBroker) -> None:
    parts = broker.parts
    await broker.create_topic("U", queues=1)
    for _ in range(5):
        broker.put("T", 0)
        broker.clock.now_ms += 1_000
    parts.tables.offsets.commit("T", "G", 0, 3)
    parts.tables.offsets.commit_pull("T", "G", 0, 4)
    parts.tables.offsets.commit("U", "G", 0, 0)
    parts.tables.offsets.commit("deleted", "G", 0, 1)
    parts.base.stats.add_get("T", "G", 30, 300)
    parts.base.stats.sample(broker.clock.now_ms + 10_000)
    stats = ConsumeStats.decode((await broker.ask(208, {"consumerGroup": "G"})).body)
    assert stats.offset_table.keys() == {queue(0), queue(1), queue(0, "U")}
    progress = stats.offset_table[queue(0)]
    assert (progress.broker_offset, progress.consumer_offset, progress.pull_offset) == (5, 3, 4)
    assert progress.last_timestamp == broker.clock.now_ms - 3_000
    assert stats.consume_tps > 0
    for fields in ({"topic": "U"}, {"topicList": "U;"}):
        one = ConsumeStats.decode((await broker.ask(208, {"consumerGroup": "G", **fields})).body)
        assert one.offset_table.keys() == {queue(0, "U")}
    parts.tables.groups.find_or_create("G")
    everything = ConsumeStatsList.decode((await broker.ask(317, {"isOrder": "false"})).body)
    by_group = {group: stats for entry in everything.consume_stats_list for group, stats in entry.items()}
    assert everything.total_diff == 2
    assert everything.total_inflight_diff == 1
    assert everything.broker_addr == "127.0.0.1:10911"
    assert sum(len(stats.offset_table) for stats in by_group["G"]) == 3
    ordered = ConsumeStatsList.decode((await broker.ask(317, {"isOrder": "true"})).body)
    assert ordered.total_diff == 0


async def test_what_pop_is_to_redeliver_is_shown_of_a_group_that_is_online(broker: ControlBroker) -> None:
    """Its members name the topic alone in their heartbeats."""
    data = HeartbeatData(
        client_id="c1",
        consumer_data_set=[
            ConsumerData(group_name="G", subscription_data_set=[SubscriptionData(topic="T", sub_version=1)])
        ],
    )
    assert (await broker.ask(34, body=data.encode())).code == 0
    retry_topics = ("%RETRY%G_T", "%RETRY%G+T")
    for topic in (*retry_topics, "U", "%RETRY%G_U"):
        await broker.parts.tables.topics.ensure(topic, queue_count=1)
    for topic in ("T", "U", *retry_topics, "%RETRY%G_U"):
        broker.parts.tables.offsets.commit(topic, "G", 0, 0)
    stats = ConsumeStats.decode((await broker.ask(208, {"consumerGroup": "G"})).body)
    assert {each.topic for each in stats.offset_table} == {"T", *retry_topics}


async def test_consumers_of_a_topic_and_topics_of_a_consumer(broker: ControlBroker) -> None:
    broker.parts.tables.offsets.commit("T", "G", 0, 1)
    groups = GroupList.decode((await broker.ask(300, {"topic": "T"})).body)
    assert groups.group_list == ["G"]
    topics = TopicList.decode((await broker.ask(343, {"group": "G"})).body)
    assert (topics.topic_list, topics.broker_addr) == (["T"], "127.0.0.1:10911")
    subscription = QuerySubscriptionResponseBody.decode((await broker.ask(345, {"group": "G", "topic": "T"})).body)
    assert (subscription.group, subscription.topic, subscription.subscription_data) == ("G", "T", None)


async def test_the_times_of_a_queue(broker: ControlBroker) -> None:
    start_ms = broker.clock.now_ms
    for _ in range(3):
        broker.put("T", 0)
        broker.clock.now_ms += 1_000
    broker.parts.tables.offsets.commit("T", "G", 0, 2)
    answer = await broker.ask(303, {"topic": "T", "group": "G"})
    first, empty = QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
    assert (first.min_time_stamp, first.max_time_stamp, first.consume_time_stamp, first.delay_time) == (
        start_ms,
        start_ms + 2_000,
        start_ms + 1_000,
        1_000,
    )
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)


async def test_units_of_a_queue(broker: ControlBroker) -> None:
    sent = [broker.put("T", 0, TAGS="a") for _ in range(3)]
    answer = await broker.ask(321, {"topic": "T", "queueId": "0", "index": "1", "count": "5", "consumerGroup": "G"})
    body = QueryConsumeQueueResponseBody.decode(answer.body)
    assert (body.min_queue_index, body.max_queue_index) == (0, 3)
    assert [unit.physic_offset for unit in body.queue_data] == [result.physical_offset for result in sent[1:]]
    assert {unit.tags_code for unit in body.queue_data} == {ord("a")}
    assert body.filter_data == "G@T is not online!"
    answer = await broker.ask(321, {"topic": "T", "queueId": "0", "index": "7", "count": "5"})
    assert (answer.code, answer.remark) == (0, "Index 7 of 0@T is not exist!")
    answer = await broker.ask(321, {"topic": "T", "queueId": "1", "index": "0", "count": "5"})
    assert (answer.code, answer.remark) == (1, "1@T is not exist!")


async def test_one_statistic(broker: ControlBroker) -> None:
    broker.parts.base.stats.add_put("T", 10, 100)
    broker.parts.base.stats.sample(broker.clock.now_ms + 10_000)
    answer = await broker.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})
    assert BrokerStatsData.decode(answer.body).stats_minute.sum == 10
