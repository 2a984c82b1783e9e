"""A NameServer and a broker, as processes, for the tests of this folder; each test writes to a topic of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.killable_broker import KillableBroker, name_server
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.remoting.errors import TopicNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WriteCluster:
    """The cluster, and what its topics hold."""

    def __init__(self, namesrv: str, broker: KillableBroker, admin: AdminClient) -> None:
        self.namesrv = namesrv
        self.broker = broker
        self.admin = admin

    def make_topic(self, topic: str, *, queue_count: int = 4, perm: int = 6) -> str:
        self.admin.create_topic(topic, queue_nums=queue_count, perm=perm)
        return topic

    def queues(self, topic: str) -> dict[int, list[ReceivedMessage]]:
        """All messages of every queue, in order."""
        found = {}
        for stats in self.admin.topic_stats(topic):
            found[stats.queue.queue_id] = self._messages(stats.queue)
        return found

    def messages(self, topic: str) -> list[ReceivedMessage]:
        return [message for messages in self.queues(topic).values() for message in messages]

    def bodies(self, topic: str) -> Counter[bytes]:
        return Counter(message.body for message in self.messages(topic))

    def _messages(self, queue: MessageQueue) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        end = self.admin.max_offset(queue)
        while len(messages) < end:
            messages += self.admin.pull(queue, len(messages), count_max=1_024).messages
        return messages


@pytest.fixture(scope="module")
def cluster(module_folder: Path) -> Iterator[WriteCluster]:
    with (
        name_server(module_folder / "namesrv") as namesrv,
        KillableBroker(module_folder / "broker", namesrv) as broker,
        AdminClient(namesrv=namesrv) as admin,
    ):
        while not _has_broker(admin):
            pass
        yield WriteCluster(namesrv, broker, admin)
        broker.check_log()


def _has_broker(admin: AdminClient) -> bool:
    try:
        return bool(admin.topic_route("TBW102").brokers)
    except TopicNotFoundError:
        return False


@pytest.fixture
def small_batches(spark_session: SparkSession) -> Iterator[None]:
    """Tasks get their rows by the hundred, so that one can send some before it has all."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark_session.conf.get(name)
    spark_session.conf.set(name, "100")
    yield
    spark_session.conf.set(name, str(before))
    if before == "10000":
        spark_session.conf.unset(name)
