"""Messages that producers send while a job reads, and a group consumes after the hand-off, compared with each other."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

from tests.clock import now_ms
from tests.spark.handoff.cluster import Cluster
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer

Place = tuple[str, int, int]
"""Broker name, queue id, queue offset."""
BODY_BYTES = 300
DRAIN_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was acknowledged; it was stored between the two moments."""

    body: bytes
    sent_ms: int
    acknowledged_ms: int


@dataclass(slots=True)
class Writer:
    """Sends to some queues of a topic in a thread of its own, until `stop`."""

    cluster: Cluster
    topic: str
    queues: list[MessageQueue]
    random: Random
    sent: dict[Place, Sent] = field(default_factory=dict)
    _number: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _error: BaseException | None = None

    def send_some(self, count: int) -> None:
        """Send `count` messages, with a producer without routes of the topic's earlier incarnations."""
        with Producer(namesrv=self.cluster.namesrv, group=f"writer-{self.topic}") as producer:
            self.send(producer, count)

    def send(self, producer: Producer, count: int) -> None:
        """Send so many messages to any of the queues."""
        for _ in range(count):
            self._number += 1
            body = f"{self.topic}/{self._number}/".encode().ljust(self.random.randrange(20, BODY_BYTES), b".")
            sent_ms = now_ms()
            result = producer.send(Message(self.topic, body), queue=self.random.choice(self.queues))
            place = result.queue.broker_name, result.queue.queue_id, result.queue_offset
            assert place not in self.sent
            self.sent[place] = Sent(body, sent_ms, now_ms())

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name=f"writer of {self.topic}")
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        if self._error is not None and exc is None:
            raise self._error

    def _run(self) -> None:
        try:
            with Producer(namesrv=self.cluster.namesrv, group=f"writer-{self.topic}") as producer:
                while not self._stop.is_set():
                    self.send(producer, self.random.randrange(1, 20))
                    self._stop.wait(self.random.random() * 0.4)
        except BaseException as error:  # noqa: BLE001 - raised where the writer is stopped
            self._error = error


def consume_to_the_end(cluster: Cluster, group: str, topic: str) -> list[tuple[Place, bytes, int]]:
    """Everything that a group gets until it is at the end of every queue: place, body, and when it came."""
    found: list[tuple[Place, bytes, int]] = []
    with (
        AdminClient(namesrv=cluster.namesrv) as admin,
        PullConsumer(
            group=group,
            namesrv=cluster.namesrv,
            # Where a queue had been forgotten by the hand-off, this would leave a gap.
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ) as consumer,
    ):
        consumer.subscribe(topic)
        ends = {place.queue: place.max_offset for place in admin.group_places(group, topic)}
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while True:
            found += [
                ((one.queue.broker_name, one.queue.queue_id, one.record.queue_offset), one.body, now_ms())
                for one in consumer.poll(timeout_ms=200)
            ]
            assigned = set(consumer.assignment())
            if ends.keys() <= assigned and all(consumer.position(queue) >= end for queue, end in ends.items()):
                return found
            assert time.monotonic() < deadline, (ends, [(queue, consumer.position(queue)) for queue in assigned])


def check_union(
    writer: Writer,
    rows: list[tuple[Place, bytes]],
    consumed: list[tuple[Place, bytes, int]],
    *,
    spark_ends: dict[tuple[str, int], int],
    cut_ms: dict[str, int],
    ttl_ms: int | None,
) -> Counter[str]:
    """Check that Spark's rows and the group's messages together are the produced ones: no gap, no duplicate.

    What had expired may be missing, and nothing else: for Spark before the cut of the snapshot, for the group by the
    time that it had consumed to the end. Returns how many of each kind were seen.
    """
    seen = Counter(place for place, _ in rows) + Counter(place for place, _, _ in consumed)
    twice = [place for place, count in seen.items() if count > 1]
    assert not twice, f"twice: {twice[:5]}"
    bodies = dict(rows) | {place: body for place, body, _ in consumed}
    ended_ms = now_ms()
    counts: Counter[str] = Counter()
    for place, sent in writer.sent.items():
        broker_name, queue_id, offset = place
        is_sparks = offset < spark_ends.get((broker_name, queue_id), 0)
        if place in bodies:
            assert bodies[place] == sent.body, place
            counts["in Spark" if is_sparks else "consumed"] += 1
            continue
        gone_before_ms = cut_ms.get(broker_name, 0) if is_sparks else ended_ms - (ttl_ms or ended_ms)
        assert sent.sent_ms < gone_before_ms, f"missing: {place} in {'Spark' if is_sparks else 'the group'}"
        counts["expired"] += 1
    strangers = bodies.keys() - writer.sent.keys()
    assert not strangers, f"never sent: {sorted(strangers)[:5]}"
    for place, _ in rows:
        assert place[2] < spark_ends[place[0], place[1]]
    for place, _, _ in consumed:
        assert place[2] >= spark_ends.get((place[0], place[1]), 0)
    return counts
