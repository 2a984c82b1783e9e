"""A NameServer and brokers with a cold tier in one folder, as real processes, for streams that go from cold to live."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.interop.cluster import READY_TIMEOUT_S
from tests.interop.killable_broker import KillableBroker, name_server
from tests.waiting import wait_until
from thermocline.client import AdminClient, Message, MessageQueue, Producer
from thermocline.client.producer.send_many import SendManyError
from thermocline.remoting.errors import UnavailableError
from thermocline.spark.streaming.live_client import LiveClient
from thermocline.spark.streaming.live_view import ask_all

CLUSTER = "DefaultCluster"
SEND_TIMEOUT_MS = 60_000
SMALL = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "coldFrameBytes": str(16 << 10),
    "flushIntervalCommitLog": "50",
}
"""Small files and frames, so that short tests go over many borders; flushed soon."""


class LiveCluster:
    """Brokers by name; one producer and one admin client for the test."""

    def __init__(self, folder: Path, namesrv: str, admin: AdminClient) -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.admin = admin
        self.producer = Producer(group="streaming_tests", namesrv=namesrv)
        self.brokers: dict[str, KillableBroker] = {}
        self.sent: dict[tuple[str, str, int], list[bytes]] = {}
        """Bodies by (topic, broker name, queue id), in the order of their offsets."""

    @property
    def cold_url(self) -> str:
        """Where the cold tiers of all brokers lie."""
        return (self.folder / "cold").as_uri()

    def add_broker(self, stack: contextlib.ExitStack, name: str, settings: Mapping[str, str] | None = None) -> None:
        """Start one more broker; its cold tier is in the same bucket as the others'."""
        broker = OneOfSeveral(
            self.folder / name, self.namesrv, name=name, cold_url=self.cold_url, settings={**SMALL, **(settings or {})}
        )
        self.brokers[name] = stack.enter_context(broker)
        hint = self.folder / "cold" / CLUSTER / name / "head-hint"
        wait_until(hint.exists, what=f"{name} opens its cold tier")

    def seal(self, topic: str) -> None:
        """Move what is stored so far to the cold tier, once the tier processes are there."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                self.admin.tier_seal(topic)
                return
            except UnavailableError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)

    def make_topic(self, topic: str, *, queues: int = 2, broker: str | None = None, **attributes: str) -> None:
        """Create a topic, everywhere or on one broker."""
        self.admin.create_topic(topic, queue_nums=queues, broker=broker, attributes=attributes or None)

    def send(self, topic: str, bodies: Sequence[bytes], *, broker: str = "broker-a", queue_id: int = 0) -> None:
        """Send to one queue, one after another; tags t0, t1, t2 by turns."""
        queue = MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)
        sent = self.sent.setdefault((topic, broker, queue_id), [])
        base = len(sent)
        messages = [
            Message(topic=topic, body=body, tags=f"t{number % 3}", keys=[f"k{number}"])
            for number, body in enumerate(bodies, start=base)
        ]
        while True:
            try:
                results = self.producer.send_many(
                    messages, selector=lambda queues, message, argument: queue, timeout_ms=SEND_TIMEOUT_MS
                )
                break
            except SendManyError as error:
                # A queue that is new: the producer's route has not heard of it.
                if "takes messages" not in str(error):
                    raise
                self._renew_producer()
        assert [result.queue_offset for result in results] == list(range(base, base + len(bodies)))
        sent.extend(bodies)

    def _renew_producer(self) -> None:
        self.producer.close()
        self.producer = Producer(group="streaming_tests", namesrv=self.namesrv)
        self.producer.start()

    def wait_until_flushed(self, topic: str) -> None:
        """Return when no power cut would take back a message of the topic."""
        client = LiveClient((self.namesrv,))
        try:
            # Of its own, for the routes of the other may be old.
            with AdminClient(namesrv=self.namesrv) as admin:
                wait_until(lambda: self._is_flushed(admin, client, topic), what=f"{topic} is flushed", interval_s=0.05)
        finally:
            client.close()

    def flushed_ends(self, topic: str) -> dict[tuple[str, int], int]:
        """The end of every queue, by (broker name, queue id), once all that is stored is flushed."""
        self.wait_until_flushed(topic)
        client = LiveClient((self.namesrv,))
        try:
            live_state = client.run(ask_all(client, (topic,)))
        finally:
            client.close()
        assert not live_state.failures
        return {
            (broker_name, queue.queue_id): queue.end
            for (_, broker_name), found in live_state.topics.items()
            for queue in found.queues.values()
        }

    @staticmethod
    def _is_flushed(admin: AdminClient, client: LiveClient, topic: str) -> bool:
        live_state = client.run(ask_all(client, (topic,)))
        return all(
            admin.max_offset(MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue.queue_id)) == queue.end
            for (_, broker_name), found in live_state.topics.items()
            for queue in found.queues.values()
        )

    def expected(self, topic: str) -> dict[tuple[str, int], list[bytes]]:
        """What was sent to each queue of a topic, by (broker name, queue id)."""
        return {(broker, queue_id): bodies for (name, broker, queue_id), bodies in self.sent.items() if name == topic}


class OneOfSeveral(KillableBroker):
    """A broker whose cold tier shares a bucket with other brokers."""

    def __init__(self, directory: Path, namesrv: str, *, name: str, cold_url: str, settings: Mapping[str, str]) -> None:
        super().__init__(directory, namesrv, name=name, settings={**settings, "coldUrl": cold_url})


@contextlib.contextmanager
def live_cluster(folder: Path, *brokers: str, settings: Mapping[str, str] | None = None) -> Iterator[LiveCluster]:
    """A cluster with these brokers (broker-a alone by default)."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(name_server(folder / "namesrv"))
        cluster = LiveCluster(folder, namesrv, stack.enter_context(AdminClient(namesrv=namesrv)))
        cluster.producer.start()
        stack.callback(lambda: cluster.producer.close())
        for name in brokers or ("broker-a",):
            cluster.add_broker(stack, name, settings)
        yield cluster


def bodies(count: int, *, start: int = 0, size_bytes: int = 200) -> list[bytes]:
    """Distinct bodies of one size."""
    return [f"{number:010d}".encode().ljust(size_bytes, b".") for number in range(start, start + count)]
