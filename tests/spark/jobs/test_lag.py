"""How far a group is behind: as the brokers say, and as their state in the bucket says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.cold_tier import NOW_MS, ColdTier, directory_url, flights, rows_of
from tests.tiered.cold_data import Log
from thermocline.client import AdminClient, Message, MessageQueue, Producer
from thermocline.remoting.errors import GroupNotFoundError, TopicNotFoundError
from thermocline.spark import lag
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, QueueHole, TopicChange
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_without_a_name_server_the_state_in_the_bucket_counts(
    spark_session: SparkSession, two_days: tuple[ColdTier, Log]
) -> None:
    tier, log = two_days
    tier.save_state(
        {
            CONSUMER_OFFSETS: {
                "offsetTable": {"orders@billing": {"0": 7}, "orders@fresh": {"0": log.ends()[0], "1": log.ends()[1]}}
            }
        }
    )
    report = lag(spark_session, tier.url, group="billing", topic="orders")
    times = {
        (row["queueId"], row["queueOffset"]): int(row["timestamp"].timestamp() * 1000 + 0.5) for row in rows_of(log)
    }
    first, second = report.queues
    ends = log.ends()
    assert (first.consumer_offset, first.behind_count, first.cold_count) == (7, ends[0] - 7, ends[0] - 7)
    assert (second.consumer_offset, second.behind_count) == (None, ends[1])
    assert (first.oldest_timestamp_ms, second.oldest_timestamp_ms) == (times[0, 7], times[1, 0])
    assert (first.broker_end_offset, first.cold_end_offset, first.expired_count) == (None, ends[0], 0)
    assert report.as_of_ms == NOW_MS
    fresh = lag(spark_session, tier.url, group="fresh", topic="orders")
    assert [(queue.behind_count, queue.oldest_timestamp_ms) for queue in fresh.queues] == [(0, None), (0, None)]
    with pytest.raises(GroupNotFoundError, match="no position"):
        lag(spark_session, tier.url, group="strangers", topic="orders")
    with pytest.raises(TopicNotFoundError):
        lag(spark_session, tier.url, group="billing", topic="payments")


def test_holes_and_expired_messages_are_not_behind(spark_session: SparkSession, tmp_path: Path) -> None:
    """Queue 0 holds [0, 40) and [5 000, 5 040), of which [0, 10) has expired."""
    tier = ColdTier(directory_url(tmp_path))
    log = flights("orders", 5_040, queue_count=1)
    times = [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in rows_of(log)]
    tier.seal(log, ends={0: 40})
    tier.seal(log, starts={0: 5_000})
    hole = QueueHole(0, 40, 5_000)
    changes = TopicChange(topic="orders", incarnation=1, expired_before_ms=times[10], holes=(hole,))
    tier.commit(LedgerChanges(topics=(changes,)))
    for position, behind, expired in ((0, 70, 10), (4, 70, 6), (15, 65, 0), (40, 40, 0), (4_000, 40, 0), (5_039, 1, 0)):
        tier.save_state({CONSUMER_OFFSETS: {"offsetTable": {"orders@billing": {"0": position}}}})
        (queue,) = lag(spark_session, tier.url, group="billing", topic="orders").queues
        assert (queue.behind_count, queue.cold_count, queue.expired_count) == (behind, behind, expired), position
        following = position if 10 <= position < 40 or position > 5_000 else 10 if position < 10 else 5_000
        assert queue.oldest_timestamp_ms == times[following]


def test_with_a_name_server_hot_messages_count_too(
    spark_session: SparkSession, cluster: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two queues: one consumed into the part that is hot still, one not at all; another topic is not sealed yet."""
    from thermocline.cli.main import run

    with AdminClient(namesrv=cluster["namesrv"]) as admin, Producer(namesrv=cluster["namesrv"]) as producer:
        admin.create_topic("lagging", queue_nums=2)
        admin.create_topic("unsealed", queue_nums=1)
        admin.create_group("billing")
        queues = producer.fetch_publish_queues("lagging")
        for number in range(20):
            producer.send(Message("lagging", b"cold %d" % number), queue=queues[number % 2])
        admin.tier_seal("lagging")
        for number in range(6):
            producer.send(Message("lagging", b"hot %d" % number), queue=queues[number % 2])
        producer.send(Message("unsealed", b"hot"))
        admin.set_consumer_offset("billing", queues[0], 11)
        admin.set_consumer_offset("billing", MessageQueue(topic="unsealed", broker_name="broker-a", queue_id=0), 0)
        times = [
            admin.view_by_offset(queues[0], 11).store_timestamp_ms,
            admin.view_by_offset(queues[1], 0).store_timestamp_ms,
        ]
        alone = admin.view_by_offset(MessageQueue(topic="unsealed", broker_name="broker-a", queue_id=0), 0)
    report = lag(spark_session, cluster["cold"], group="billing", topic="lagging", namesrv=cluster["namesrv"])
    assert [
        (queue.consumer_offset, queue.cold_end_offset, queue.broker_end_offset, queue.behind_count, queue.cold_count)
        for queue in report.queues
    ] == [(11, 10, 13, 2, 0), (None, 10, 13, 13, 10)]
    assert [queue.oldest_timestamp_ms for queue in report.queues] == times
    with pytest.raises(GroupNotFoundError, match="no position"):
        lag(spark_session, cluster["cold"], group="strangers", topic="lagging", namesrv=cluster["namesrv"])
    words = [
        "spark",
        "lag",
        "unsealed",
        "--group",
        "billing",
        "--from",
        cluster["cold"],
        "--namesrv",
        cluster["namesrv"],
        "--json",
    ]
    assert run(words) == 0
    (queue,) = json.loads(capsys.readouterr().out)["queues"]
    assert (queue["behind_count"], queue["cold_count"], queue["cold_end_offset"]) == (1, 0, None)
    assert queue["oldest_timestamp_ms"] == alone.store_timestamp_ms
