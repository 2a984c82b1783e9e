"""One long load: every message of millions is in Spark or with the group, once, while the writer goes on.

Meanwhile another topic comes and expires, and is collected when the version is not pinned any more.

A message's body is its number in its queue, which is its offset there; so both halves check themselves, and nothing is
kept in memory. A soak run takes its own brokers, with files of ordinary size.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.handoff.cluster import SMALL, Cluster
from thermocline import spark as tc
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.tiered.packs.ttl_classes import ttl_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, FLEETING = "many", "fleeting"
FLEETING_TTL_MS = 2_000
COLLECTED_S = 120.0
GROUP = "many-consumers"
QUEUES = 2
BODY_BYTES = 100
QUICK_CHUNK, SOAK_CHUNK = 500, 10_000
"""Messages sent to a queue at once, before the next queue has its turn."""
SOAK_TIMEOUT_S = 14_400
BEFORE_PERCENT = 80
"""So many are there when the job begins; the rest come while it runs."""
QUICK_COUNT = 20_000
ORDINARY_FILES = {
    name: SMALL[name] for name in ("fileReservedTime", "deleteWhen", "coldSweepIntervalMs", "coldGraceMs")
}


class NumberedWriter:
    """Sends chunk after chunk to queue after queue."""

    def __init__(self, cluster: Cluster, queues: list[MessageQueue], *, chunk: int) -> None:
        self._cluster = cluster
        self._chunk = chunk
        self._queues = queues
        self.ends = dict.fromkeys(queues, 0)

    def send(self, count: int) -> None:
        """Send so many more."""
        with Producer(namesrv=self._cluster.namesrv, group="many-producers") as producer:
            for number in range(count // self._chunk):
                queue = self._queues[number % len(self._queues)]
                start = self.ends[queue]
                bodies = (b"%012d" % offset for offset in range(start, start + self._chunk))
                results = producer.send_many(
                    (Message(TOPIC, body.ljust(BODY_BYTES, b".")) for body in bodies),
                    selector=lambda _queues, _message, chosen: chosen,
                    argument=queue,
                )
                assert [result.queue_offset for result in results] == list(range(start, start + self._chunk))
                self.ends[queue] += self._chunk

    @contextmanager
    def sending(self, count: int) -> Iterator[None]:
        """Send so many more meanwhile."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.send(count)
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                errors.append(error)

        thread = threading.Thread(target=run, name="writer")
        thread.start()
        try:
            yield
        finally:
            thread.join()
        if errors:
            raise errors[0]


class Fleeting:
    """A topic whose messages live for two seconds, and the objects that hold them."""

    def __init__(self, cluster: Cluster, admin: AdminClient) -> None:
        self._folder = cluster.folder / "cold"
        admin.create_topic(FLEETING, attributes={"reserve.time": f"{FLEETING_TTL_MS // 1_000}s"})
        before = self._objects()
        with Producer(namesrv=cluster.namesrv, group="fleeting-producers") as producer:
            for number in range(100):
                producer.send(Message(FLEETING, b"%d" % number))
        admin.tier_seal(FLEETING)
        self._written = self._objects() - before
        assert self._written

    def wait_until_collected(self) -> None:
        """Until nothing that held them is in the bucket."""
        deadline = time.monotonic() + COLLECTED_S
        while remaining := self._written & self._objects():
            assert time.monotonic() < deadline, remaining
            time.sleep(0.1)

    def _objects(self) -> set[Path]:
        its_folders = {FLEETING, ttl_class(FLEETING_TTL_MS)}
        return {path for path in self._folder.rglob("*.*") if path.parent.name in its_folders}


def consume(cluster: Cluster, starts: dict[MessageQueue, int], ends: dict[MessageQueue, int]) -> int:
    """Consume to the ends; each message is the next one of its queue. How many came."""
    expected, count = dict(starts), 0
    with PullConsumer(
        group=GROUP,
        namesrv=cluster.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        pull_batch_size=32,
    ) as consumer:
        consumer.subscribe(TOPIC)
        while expected != ends:
            for message in consumer.poll(timeout_ms=1_000):
                offset = message.record.queue_offset
                assert offset == expected[message.queue], "a gap, or a duplicate"
                assert int(message.body[:12]) == offset
                expected[message.queue] += 1
                count += 1
    return count


@contextmanager
def brokers_for(total: int, folder: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The brokers of all tests for few messages; some of its own for many."""
    if total == QUICK_COUNT:
        yield request.getfixturevalue("cluster")
        return
    with Cluster(folder, broker_count=2, settings=ORDINARY_FILES) as cluster:
        yield cluster


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(SOAK_TIMEOUT_S)
def test_millions_of_messages_once(
    spark_session: SparkSession, case_count: Callable[..., int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from pyspark.sql import functions as f

    total = case_count(quick=QUICK_COUNT, soak=10_000_000)
    with brokers_for(total, tmp_path, request) as cluster, AdminClient(namesrv=cluster.namesrv) as admin:
        names = admin.create_topic(TOPIC, queue_nums=QUEUES + 1, attributes={"reserve.time": "30d"})
        # The last queue of each broker stays empty.
        queues = [
            MessageQueue(topic=TOPIC, broker_name=name, queue_id=number) for name in names for number in range(QUEUES)
        ]
        writer = NumberedWriter(cluster, queues, chunk=QUICK_CHUNK if total == QUICK_COUNT else SOAK_CHUNK)
        before_count = total * BEFORE_PERCENT // 100
        writer.send(before_count)
        served = {name: one["servedBytes"] for name, one in admin.tier_status().items()}
        receipt = str(tmp_path / "receipt.json")
        with writer.sending(total - before_count):
            options = {"columns": "brokerName,queueId,queueOffset,value"}
            with tc.open(
                spark_session, cluster.url, topic=TOPIC, options=options, seal=True, namesrv=cluster.namesrv
            ) as snapshot:
                fleeting = Fleeting(cluster, admin)
                number = f.substring(f.col("value").cast("string"), 1, 12).cast("bigint")
                found = (
                    snapshot.load()
                    .groupBy("brokerName", "queueId")
                    .agg(
                        f.count("*").alias("rows"),
                        f.min("queueOffset").alias("first"),
                        f.max("queueOffset").alias("last"),
                        f.sum("queueOffset").alias("sum"),
                        f.count_if(number != f.col("queueOffset")).alias("wrong"),
                        f.count_distinct("queueOffset").alias("distinct"),
                    )
                    .collect()
                )
                snapshot.write_receipt(receipt, row_count=sum(row.rows for row in found))
            # The pin has held everything from its version on.
            fleeting.wait_until_collected()
        assert {name: one["servedBytes"] for name, one in admin.tier_status().items()} == served
        starts = {
            MessageQueue(topic=TOPIC, broker_name=queue.broker_name, queue_id=queue.queue_id): queue.end_offset
            for queue in snapshot.queues
            if queue.queue_id < QUEUES
        }
        for row in found:
            end = starts[MessageQueue(topic=TOPIC, broker_name=row.brokerName, queue_id=row.queueId)]
            assert (row.rows, row.first, row.last, row.distinct) == (end, 0, end - 1, end)
            assert row.sum == end * (end - 1) // 2
            assert row.wrong == 0
        assert before_count <= sum(row.rows for row in found) <= total
        tc.hand_off(receipt, group=GROUP, namesrv=cluster.namesrv)
        consumed = consume(cluster, starts, writer.ends)
        assert sum(row.rows for row in found) + consumed == total == sum(writer.ends.values())
