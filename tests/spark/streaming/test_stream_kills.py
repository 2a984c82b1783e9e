"""Streams under `kill -9`: of the driver, executors, Python workers, the planner and brokers, while messages come in,
are sealed, leave the local log, expire and are deleted from the bucket. The sink then holds each message once, in the
order of its queue."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.spark.streaming.driver_process import DriverProcess
from tests.spark.streaming.journal_process import sink_of
from tests.spark.streaming.live_cluster import LiveCluster, live_cluster
from tests.spark.streaming.queries import by_queue, sink_rows
from tests.waiting import wait_until
from thermocline.client import Message, MessageQueue, Producer, PullConsumer
from thermocline.client.producer.send_many import SendManyError
from thermocline.remoting.errors import MQError, UnavailableError
from tooling.system_packages import find_java_home

SETTINGS = {
    # So that messages are sealed all the time, and what is sealed leaves the local log.
    "coldSealAgeMs": "1500",
    "coldSegmentBytes": str(256 << 10),
    "coldAccountIntervalMs": "50",
    "fileReservedTime": "0",
    "deleteWhen": "",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
JOURNAL = "tests.spark.streaming.journal_process"
BROKERS = ("broker-a", "broker-b")
BURST = 60
BODY_BYTES = 700
LIFE_KILLS_MAX = 8
KINDS, WEIGHTS = ("driver", "broker", "worker", "executor"), (2, 3, 3, 3)
LAST_LIVES_MAX = 5
WAIT_S_MAX = 1.5
END_TIMEOUT_S = 600


class Feeder:
    """Sends bursts of distinct messages to all queues from a thread; counts those that were acknowledged."""

    def __init__(self, namesrv: str, topic: str, random: Random) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._random = random
        self._stopping = threading.Event()
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()

    def _run(self) -> None:
        number = 0
        with Producer(group="kills", namesrv=self._namesrv) as producer:
            while not self._stopping.wait(self._random.uniform(0.2, 0.6)):
                texts = [f"{number + index:09d}".encode().ljust(BODY_BYTES, b".") for index in range(BURST)]
                number += BURST
                messages = [Message(topic=self._topic, body=text) for text in texts]
                self.sent.update(texts)
                with self._sending:
                    try:
                        outcomes = producer.send_many(messages)
                    except SendManyError as error:
                        outcomes = [None if isinstance(each, MQError) else each for each in error.outcomes]
                self.acknowledged.update(text for text, outcome in zip(texts, outcomes, strict=True) if outcome)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send until the block ends."""
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is on its way, and nothing is sent, until the block ends."""
        with self._sending:
            yield

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()
        self._thread.join()


def held_by_brokers(
    cluster: LiveCluster, topic: str, expired: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], list[bytes]]:
    """Every queue from its first message on, as an ordinary consumer gets it; that is the first one not `expired`."""
    held: dict[tuple[str, int], list[bytes]] = {}
    with PullConsumer(group="witness", namesrv=cluster.namesrv) as consumer:
        queues: list[MessageQueue] = consumer.fetch_message_queues(topic)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)
        deadline_s = time.monotonic() + END_TIMEOUT_S
        counts = {}
        for queue in queues:
            name = (queue.broker_name, queue.queue_id)
            counts[name] = cluster.admin.max_offset(queue) - expired.get(name, 0)
        while any(len(held.get(name, ())) < count for name, count in counts.items()):
            assert time.monotonic() < deadline_s
            for message in consumer.poll(1_000):
                name = (message.queue.broker_name, message.queue.queue_id)
                bodies = held.setdefault(name, [])
                assert message.queue_offset == expired.get(name, 0) + len(bodies)
                bodies.append(message.body)
    return held


def expire_what_was_read(
    cluster: LiveCluster, feeder: Feeder, rows: Callable[[], list[dict[str, Any]]], driver: DriverProcess
) -> dict[tuple[str, int], int]:
    """Once the query has read everything: it expires and leaves the bucket, while the query runs. Where queues begin.

    So the time to live is longer than the query's lag, however slow the machine is.
    """
    with feeder.paused():
        ends = cluster.flushed_ends("orders")
        assert set(BROKERS) == {broker_name for broker_name, _ in ends}

        def has_read_all() -> bool:
            assert driver.is_running, driver.last_words()
            read = by_queue(rows())
            return all(len(read.get(name, ())) == end for name, end in ends.items())

        wait_until(has_read_all, what="the query has read everything", timeout_s=END_TIMEOUT_S)
        cluster.seal("orders")
        before = cold_objects(cluster)
        cluster.admin.set_ttl("orders", 1)
        time.sleep(0.01)
        cluster.admin.set_ttl("orders", None)
        purge(cluster)
        assert before - cold_objects(cluster), "nothing was deleted"
    return ends


def cold_objects(cluster: LiveCluster) -> set[Path]:
    """The objects with messages in the buckets of all brokers."""
    cold = cluster.folder / "cold"
    return {path for path in cold.rglob("*") if path.suffix in (".log", ".pack")}


def purge(cluster: LiveCluster) -> None:
    """Delete what has expired, once the tier processes are there."""

    def is_done() -> bool:
        try:
            cluster.admin.tier_purge("orders")
        except UnavailableError:
            return False
        return True

    wait_until(is_done, what="what has expired is deleted", timeout_s=END_TIMEOUT_S)


def check_sink(
    rows: list[dict[str, Any]],
    cluster: LiveCluster,
    feeder: Feeder,
    expired: Mapping[tuple[str, int], int],
    grown: set[bytes],
) -> set[bytes]:
    """Each acknowledged message once and in order, nothing else, and the same as consumers get; all bodies."""
    found = by_queue(rows)  # checks that offsets rise by one
    assert {name: bodies[expired.get(name, 0) :] for name, bodies in found.items()} == {
        name: [] for name in found
    } | held_by_brokers(cluster, "orders", expired)
    assert {(row["brokerName"], row["queueId"]) for row in rows if row["queueOffset"] == 0} == set(found)
    assert {name for name in found if name[1] == 2} == {(broker, 2) for broker in BROKERS}
    everything = {body for bodies in found.values() for body in bodies}
    assert feeder.acknowledged | grown <= everything <= feeder.sent | grown
    return everything


@pytest.mark.spark
@pytest.mark.timeout(14_400)
@pytest.mark.xdist_group("spark")
@pytest.mark.full
def test_the_sink_holds_each_message_once_in_order(
    tmp_path: Path, case_count: Callable[..., int], record_property: Callable[[str, object], None]
) -> None:
    have(lambda: find_java_home(with_compiler=False))
    kill_count = case_count(quick=1, full=2, soak=50)
    random = Random(kill_count)
    killed: dict[str, int] = {}
    with live_cluster(tmp_path / "cluster", *BROKERS, settings=SETTINGS) as cluster:
        cluster.make_topic("orders", queues=2)
        feeder = Feeder(cluster.namesrv, "orders", Random(7))
        expired: dict[tuple[str, int], int] = {}
        grown: set[bytes] = set()
        folder = tmp_path / "query"
        options = {"namesrvAddr": cluster.namesrv, "maxOffsetsPerTrigger": "3000", "maxBytesPerTrigger": "4m"}
        at_once = options | {"maxOffsetsPerTrigger": "50000", "maxBytesPerTrigger": "64m"}
        task = {"url": cluster.cold_url, "options": options, "processing_time": "0 seconds"}
        with feeder.running():
            driver_count = 0
            while sum(killed.values()) < kill_count:
                # Every fourth life has executors in processes of their own.
                master = "local-cluster[2,1,1024]" if driver_count % 4 == 3 else "local[2,2]"
                driver = DriverProcess(folder, master=master, available_now=False, **task)
                driver_count += 1
                try:
                    for _ in range(LIFE_KILLS_MAX):
                        if not driver.wait_for_batch() or sum(killed.values()) >= kill_count:
                            break
                        if not expired and sum(killed.values()) * 2 >= kill_count:
                            expired = expire_what_was_read(cluster, feeder, lambda: sink_rows(folder), driver)
                        time.sleep(random.uniform(0, WAIT_S_MAX))
                        kind = kill_something(cluster, driver, random, number=sum(killed.values()))
                        killed[kind] = killed.get(kind, 0) + 1
                finally:
                    driver.kill()
                if not grown and sum(killed.values()) * 2 >= kill_count:
                    grown = grow(cluster)
        for broker in cluster.brokers.values():
            broker.check_log()
        cluster.wait_until_flushed("orders")
        # On a machine with much else to do Spark gives up on Python processes that take ten seconds to start.
        for _ in range(LAST_LIVES_MAX):
            driver = DriverProcess(folder, master="local[2,2]", available_now=True, **task | {"options": at_once})
            try:
                status = driver.wait(END_TIMEOUT_S)
            finally:
                driver.kill()
            if status == 0:
                break
        assert status == 0, driver.last_words()
        driver.check_log()
        everything = check_sink(sink_rows(folder), cluster, feeder, expired, grown)
    assert sum(expired.values()) > 0
    record_property("drivers", driver_count)
    record_property("killed", killed)
    record_property("messages", len(everything))
    sys.stdout.write(f"drivers={driver_count} killed={killed} messages={len(everything)}\n")


@pytest.mark.timeout(14_400)
def test_readers_that_are_killed_go_on_exactly_where_they_were(tmp_path: Path, case_count: Callable[..., int]) -> None:
    """The same without a JVM, which takes longer to start than most runs here live: planner, tasks and brokers."""
    kill_count = case_count(quick=3, full=4, soak=50)
    random = Random(kill_count)
    killed = {"run": 0, "broker": 0}
    with live_cluster(tmp_path / "cluster", *BROKERS, settings=SETTINGS) as cluster:
        cluster.make_topic("orders", queues=2)
        feeder = Feeder(cluster.namesrv, "orders", Random(7))
        expired: dict[tuple[str, int], int] = {}
        grown: set[bytes] = set()
        folder = tmp_path / "query"
        options = {"namesrvAddr": cluster.namesrv, "maxOffsetsPerTrigger": "400", "maxBytesPerTrigger": "1m"}
        task = {"program": JOURNAL, "url": cluster.cold_url, "options": options}
        with feeder.running():
            while sum(killed.values()) < kill_count:
                run = DriverProcess(folder, **task)
                try:
                    assert run.wait_for_batch(), run.last_words()
                    if not expired and killed["run"] > kill_count // 4:
                        expired = expire_what_was_read(cluster, feeder, lambda: sink_of(folder), run)
                    time.sleep(random.uniform(0, WAIT_S_MAX))
                    if killed["broker"] < killed["run"]:
                        kill_broker(cluster, random)
                        killed["broker"] += 1
                        assert run.wait_for_batch(), run.last_words()
                finally:
                    run.kill()
                killed["run"] += 1
                if killed["run"] == 1 + kill_count // 4:
                    grown = grow(cluster)
        for broker in cluster.brokers.values():
            broker.check_log()
        cluster.wait_until_flushed("orders")
        (folder / "stop").touch()
        run = DriverProcess(folder, **task)
        try:
            assert run.wait(END_TIMEOUT_S) == 0, run.last_words()
        finally:
            run.kill()
        everything = check_sink(sink_of(folder), cluster, feeder, expired, grown)
    assert sum(expired.values()) > 0
    sys.stdout.write(f"killed={killed} messages={len(everything)}\n")


def grow(cluster: LiveCluster) -> set[bytes]:
    """A third queue on each broker, with a message in it; these messages."""
    cluster.admin.update_topic("orders", read_queue_nums=3, write_queue_nums=3)
    queues = [MessageQueue(topic="orders", broker_name=broker, queue_id=2) for broker in BROKERS]

    def is_routed() -> bool:
        return set(queues) <= set(cluster.admin.topic_route("orders").publish_queues)

    wait_until(is_routed, what="the NameServer routes to the new queues", timeout_s=END_TIMEOUT_S)
    sent: set[bytes] = set()
    with Producer(group="grow", namesrv=cluster.namesrv) as producer:
        for broker, queue in zip(BROKERS, queues, strict=True):
            producer.send(Message(topic="orders", body=broker.encode()), queue=queue, timeout_ms=60_000)
            sent.add(broker.encode())
    return sent


def kill_broker(cluster: LiveCluster, random: Random) -> None:
    """`kill -9` of one broker, which is started again."""
    broker = random.choice(sorted(cluster.brokers.values(), key=lambda each: each.name))
    broker.kill()
    broker.start()


def kill_something(cluster: LiveCluster, driver: DriverProcess, random: Random, *, number: int) -> str:
    """`kill -9` of one thing; what it was. The first two are a driver and a broker, whatever chance says."""
    kind = ("driver", "broker")[number] if number < 2 else random.choices(KINDS, WEIGHTS)[0]
    match kind:
        case "broker":
            kill_broker(cluster, random)
            return kind
        case "worker" if driver.kill_one("pyspark.daemon", "pyspark/daemon"):
            return kind
        case "executor" if driver.kill_one("CoarseGrainedExecutorBackend"):
            return kind
        case "executor" if driver.kill_one("python_streaming_source_runner"):
            return "planner"
        case _:
            driver.kill()
            return "driver"
