"""With a writer, a sweep and a collector running: Spark's rows and the group's messages together are the sent ones.

Real broker processes, real SDK clients, real Spark. Every run is random in its queues, brokers, time to live, earlier
incarnations of the topic, sealing, and whether the group starts anew or continues. The brokers' own counters show that
they served no message byte for Spark's part.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.spark.handoff.cluster import Cluster
from tests.spark.handoff.load import Place, Writer, check_union, consume_to_the_end
from thermocline import spark as tc
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    TopicChangedError,
    TopicNotFoundError,
)
from thermocline.spark.access.store_options import StoreOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 20_261_122
MANY = 50
"""Runs in which every kind of them comes up."""
ATTEMPTS_MAX = 50
SOAK_TIMEOUT_S = 14_400
COLUMNS = "brokerName,queueId,queueOffset,value"


def rows_of(snapshot: tc.ColdSnapshot) -> list[tuple[Place, bytes]]:
    return [((row.brokerName, row.queueId, row.queueOffset), bytes(row.value)) for row in snapshot.load().collect()]


def served_bytes(admin: AdminClient) -> dict[str, int]:
    return {name: status["servedBytes"] for name, status in admin.tier_status().items()}


def make_topic(admin: AdminClient, topic: str, random: Random, *, ttl_ms: int | None) -> list[MessageQueue]:
    """On one broker or on both; the queues that are written to."""
    brokers: list[str | None] = [random.choice(["broker-a", "broker-b"])] if random.random() < 0.5 else [None]
    queue_count = random.randrange(1, 6)
    attributes = {} if ttl_ms is None else {"reserve.time": f"{ttl_ms // 1_000}s"}
    names = [name for broker in brokers for name in _create(admin, topic, queue_count, attributes, broker)]
    queues = [
        MessageQueue(topic=topic, broker_name=name, queue_id=number) for name in names for number in range(queue_count)
    ]
    return random.sample(queues, random.randrange(1, len(queues) + 1))


def _create(
    admin: AdminClient, topic: str, queue_count: int, attributes: dict[str, str], broker: str | None
) -> list[str]:
    return admin.create_topic(topic, queue_nums=queue_count, attributes=attributes, broker=broker)


def run_once(spark: SparkSession, cluster: Cluster, seed: int, folder: Path, *, witness: Counter[str]) -> None:
    """One random hand-off; see the module's header."""
    random = Random(seed)
    topic, group = f"orders-{seed}", f"billing-{seed}"
    ttl_ms = random.choice([None, None, 1_000, 8_000])
    with AdminClient(namesrv=cluster.namesrv) as admin:
        queues = make_topic(admin, topic, random, ttl_ms=ttl_ms)
        if random.random() < 0.3:
            Writer(cluster, topic, queues, random).send_some(random.randrange(1, 200))
            if random.random() < 0.5:
                admin.tier_seal(topic)
            admin.delete_topic(topic)
            queues = make_topic(admin, topic, random, ttl_ms=ttl_ms)
            witness["made again"] += 1
        writer = Writer(cluster, topic, queues, random)
        writer.send_some(random.randrange(1, 400))
        from_group = random.random() < 0.3
        consumed = consume_to_the_end(cluster, group, topic) if from_group else []
        witness["from a group"] += from_group
        with writer:
            if not from_group:
                admin.tier_seal(topic)
            before = served_bytes(admin)
            for _ in range(ATTEMPTS_MAX):
                try:
                    snapshot, rows, receipt = read_all(
                        spark,
                        cluster,
                        str(folder / f"{topic}.receipt.json"),
                        topic=topic,
                        options={"columns": COLUMNS, "failOnDataLoss": str(not (from_group and ttl_ms)).lower()},
                        from_group=group if from_group else None,
                        seal=from_group or random.random() < 0.7,
                    )
                    assert served_bytes(admin) == before, "no message byte came from a broker"
                    move(receipt, group, cluster, witness)
                    break
                except (TopicChangedError, TopicNotFoundError):
                    # The bucket had not heard yet that the topic was deleted: brokers refuse, and the job is repeated.
                    witness["former life"] += 1
            else:
                raise AssertionError("the bucket never heard of the deletion")
        ends = {(queue.broker_name, queue.queue_id): max(queue.end_offset, 0) for queue in snapshot.queues}
        assert tc.hand_off(receipt, group=group, namesrv=cluster.namesrv, force=True) == [], "a receipt is applied once"
        counts = check_union(
            writer,
            [*rows, *((place, body) for place, body, _ in consumed)],
            consume_to_the_end(cluster, group, topic),
            spark_ends=ends,
            cut_ms=cuts_of(snapshot),
            ttl_ms=ttl_ms,
        )
        witness.update(counts)
        assert counts["consumed"] == 0 or served_bytes(admin) != before, "the counters count"
        admin.delete_topic(topic)


def read_all(
    spark: SparkSession,
    cluster: Cluster,
    place: str,
    *,
    topic: str,
    options: dict[str, str],
    from_group: str | None,
    seal: bool,
) -> tuple[tc.ColdSnapshot, list[tuple[Place, bytes]], str]:
    """What a job does: open, read (twice, alike), write the receipt."""
    with tc.open(
        spark,
        cluster.url,
        topic=topic,
        options=options,
        from_group=from_group,
        seal=seal,
        namesrv=cluster.namesrv,
    ) as snapshot:
        rows = rows_of(snapshot)
        assert sorted(rows) == sorted(rows_of(snapshot)), "every action gives equal rows"
        snapshot.write_receipt(place, output="memory", row_count=len(rows))
    return snapshot, rows, place


def cuts_of(snapshot: tc.ColdSnapshot) -> dict[str, int]:
    """By broker name, before which store time messages had expired for the snapshot."""
    from thermocline.spark.reading.source_options import SnapshotPin

    cuts = SnapshotPin.parse(snapshot.options["snapshotPin"]).cuts_ms
    return {broker.broker_name: max(cuts[broker.root].values(), default=0) for broker in snapshot.brokers}


def move(receipt: str, group: str, cluster: Cluster, witness: Counter[str]) -> None:
    """Hand the group over; by force when the load may have lost messages, or what is behind it has expired since."""
    is_partial = bool(tc.read_receipt(receipt, StoreOptions()).obstacles)
    if is_partial:
        with pytest.raises(InvalidRequestError, match="it tolerates missing messages"):
            tc.hand_off(receipt, group=group, namesrv=cluster.namesrv)
    try:
        tc.hand_off(receipt, group=group, namesrv=cluster.namesrv, force=is_partial)
    except OffsetOutOfRangeError:
        witness["expired before the hand-off"] += 1
        tc.hand_off(receipt, group=group, namesrv=cluster.namesrv, force=True)
    else:
        witness["handed over"] += 1


@pytest.mark.timeout(SOAK_TIMEOUT_S)
def test_spark_and_the_group_together_see_each_message_once(
    spark_session: SparkSession, cluster: Cluster, tmp_path: Path, case_count: Callable[..., int]
) -> None:
    witness: Counter[str] = Counter()
    count = case_count(quick=3, soak=100)
    for seed in range(SEED, SEED + count):
        try:
            run_once(spark_session, cluster, seed, tmp_path, witness=witness)
        except BaseException as error:
            error.add_note(f"seed {seed}, {dict(witness)}")
            raise
    sys.stderr.write(f"{dict(witness)}\n")
    always = ("in Spark", "consumed")
    among_many = ("expired", "handed over", "made again", "from a group")
    for kind in always if count < MANY else (*always, *among_many):
        assert witness[kind], witness
