"""The official Java client, unmodified, after the local files are gone: history comes from the cold tier, whole.

Every topic here is sent in three parts. The first two are sealed and their local files deleted, the third is still
local, so that each reader crosses the boundary.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.cluster import Cluster, broker_config, thermocline_cluster
from tests.interop.java_agent import JavaAgent, ReceivedMessage, message_body
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-cold")]

TAGS = ["red", "green"]
QUEUE_COUNT = 4
PART_COUNT = 200
COUNT = 3 * PART_COUNT
BODY_BYTES = 1_000
LOG_FILE_BYTES = 256 * 1024
EVERY_HOUR = ";".join(f"{hour:02}" for hour in range(24))
SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    "fileReservedTime": "0",
    "deleteWhen": EVERY_HOUR,
    "coldSealAgeMs": "500",
    "coldFrameBytes": "32768",
    "coldSegmentBytes": "262144",
    "enablePropertyFilter": "true",
}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdTopic:
    """A topic whose messages [0, cold_count) are in the cold tier alone."""

    topic: str
    cold_count: int
    messages: list[ReceivedMessage]


@pytest.fixture(scope="module")
def cluster(java_agent_process: JavaAgent, module_folder: Path) -> Iterator[Cluster]:
    with thermocline_cluster(java_agent_process, module_folder, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cold(cluster: Cluster) -> ColdTopic:
    """One topic, made once: readers do not disturb each other."""
    topic = cluster.make_topic("ColdHistory", queue_count=QUEUE_COUNT)
    produce(cluster, topic, count=2 * PART_COUNT)
    before = cluster.agent.read_topic(cluster.namesrv, topic)
    assert len(before) == 2 * PART_COUNT
    let_go_locally(cluster, before)
    produce(cluster, topic, count=PART_COUNT, start=2 * PART_COUNT)
    return ColdTopic(topic=topic, cold_count=2 * PART_COUNT, messages=before)


def let_go_locally(cluster: Cluster, messages: list[ReceivedMessage]) -> None:
    """See to it that the local files of these messages are sealed and deleted."""
    end = max(message.physical_offset + message.store_size for message in messages)
    log_directory = Path(broker_config(cluster)["storePathRootDir"]) / "commitlog"
    filler = cluster.make_topic("ColdFiller")

    def local_files_are_gone() -> bool:
        # Deletion takes whole files, never the one that is written: something has to follow.
        produce(cluster, filler, count=50)
        return min(int(path.name) for path in log_directory.iterdir()) >= end

    wait_until(local_files_are_gone, what="the messages' local files are sealed and deleted", interval_s=0.5)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"Cold{next(_numbers)}x{request.node.originalname[5:35]}"


def produce(cluster: Cluster, topic: str, *, count: int, start: int = 0) -> None:
    answers = cluster.agent.produce(
        kind="sync",
        name="cold-producer",
        group="cold-producers",
        namesrv=cluster.namesrv,
        topic=topic,
        prefix=topic,
        tags=TAGS,
        body_bytes=BODY_BYTES,
        count=count,
        start=start,
    )
    assert {answer.status for answer in answers} == {"SEND_OK"}


def check_exact(messages: list[ReceivedMessage], topic: str, indexes: range) -> None:
    assert Counter(int(message.properties["index"]) for message in messages) == Counter(indexes)
    for message in messages:
        index = int(message.properties["index"])
        assert message.body == message_body(topic, index, BODY_BYTES)
        assert message.tags == TAGS[index % len(TAGS)]
        assert message.keys == f"{topic}-key-{index}"


def test_a_newcomer_gets_history_and_present(
    cluster: Cluster, cold: ColdTopic, name: str, start_push: Callable[..., str]
) -> None:
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={cold.topic: "*"})
    check_exact(cluster.agent.received(consumer, count=COUNT), cold.topic, range(COUNT))


@pytest.mark.full
def test_two_consumers_share_history(
    cluster: Cluster, cold: ColdTopic, name: str, start_push: Callable[..., str]
) -> None:
    group = f"{name}-group"
    consumers = [start_push(f"{name}-{n}", group=group, topics={cold.topic: "*"}, orderly=True) for n in range(2)]
    wait_until(
        lambda: all(len(cluster.agent.assigned(consumer, cold.topic)) == 2 for consumer in consumers),
        what="the two consumers have two queues each",
    )
    received: list[ReceivedMessage] = []

    def all_are_here() -> bool:
        for consumer in consumers:
            received.extend(cluster.agent.received(consumer, count=0))
        return len({message.message_id for message in received}) >= COUNT

    wait_until(all_are_here, what="all messages have been received")
    # What the first one had begun before the second came may come twice; nothing may be missing or changed.
    once = {message.message_id: message for message in received}
    check_exact(list(once.values()), cold.topic, range(COUNT))


def test_tags_are_filtered_in_history(
    cluster: Cluster, cold: ColdTopic, name: str, start_push: Callable[..., str]
) -> None:
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={cold.topic: "green"})
    received = cluster.agent.received(consumer, count=COUNT // 2)
    assert sorted(int(message.properties["index"]) for message in received) == list(range(1, COUNT, 2))


EXPRESSION = "TAGS = 'green' AND (index BETWEEN 100 AND 110 OR index > 590)"
MATCHING = [*range(101, 111, 2), *range(591, COUNT, 2)]


def indexes(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.properties["index"]) for message in messages)


def test_history_is_filtered_by_properties(
    cluster: Cluster, cold: ColdTopic, name: str, start_push: Callable[..., str]
) -> None:
    """Exactly what matches, on both sides of the boundary and nothing twice; a consumer of all afterwards proves it."""
    consumer = start_push(f"{name}-push", group=f"{name}-group", topics={cold.topic: {"sql": EXPRESSION}})
    received = cluster.agent.received(consumer, count=len(MATCHING))
    assert indexes(received) == MATCHING
    assert MATCHING[0] < cold.cold_count < MATCHING[-1]
    wait_until(lambda: progress(cluster, f"{name}-group", cold.topic) == COUNT, what="the group has come to the end")
    assert cluster.agent.received(consumer, count=0) == []


def progress(cluster: Cluster, group: str, topic: str) -> int:
    """The sum of a group's offsets in all queues of a topic."""
    printed = cluster.admin("consumerProgress", "-g", group, "-t", topic)
    rows = [line.split() for line in printed.splitlines() if line.startswith(topic)]
    return sum(int(row[4]) for row in rows)


def test_pull_consumers_filter_history_by_properties(cluster: Cluster, cold: ColdTopic, name: str) -> None:
    """The lite one, and the one that names each offset itself."""
    read = cluster.agent.read_topic(cluster.namesrv, cold.topic, sql=EXPRESSION)
    assert indexes(read) == MATCHING
    cluster.agent.call(
        "start_lite_pull_consumer",
        name=name,
        namesrv=cluster.namesrv,
        group=f"{name}-group",
        topic=cold.topic,
        sql=EXPRESSION,
    )
    try:
        assert indexes(cluster.agent.received(name, count=len(MATCHING))) == MATCHING
    finally:
        cluster.agent.call("stop_consumer", name=name)


@pytest.mark.parametrize("mode", ["subscribe", "assign"])
def test_the_lite_pull_consumer_reads_history(cluster: Cluster, cold: ColdTopic, name: str, mode: str) -> None:
    consumer = f"{name}-{mode}"
    cluster.agent.call(
        "start_lite_pull_consumer",
        name=consumer,
        namesrv=cluster.namesrv,
        group=f"{name}-{mode}-group",
        topic=cold.topic,
        expression="*",
        mode=mode,
    )
    try:
        check_exact(cluster.agent.received(consumer, count=COUNT), cold.topic, range(COUNT))
    finally:
        cluster.agent.call("stop_consumer", name=consumer)


def test_history_is_read_back_unchanged(cluster: Cluster, cold: ColdTopic) -> None:
    """Offsets, identifiers and times are those that were read before the local files went."""
    after = cluster.agent.read_topic(cluster.namesrv, cold.topic)
    check_exact(after, cold.topic, range(COUNT))
    hot_only = {"MIN_OFFSET", "MAX_OFFSET"}  # the client adds them to what it pulls

    def key(message: ReceivedMessage) -> tuple[object, ...]:
        own = {name: value for name, value in message.properties.items() if name not in hot_only}
        return (
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.store_size,
            message.message_id,
            message.store_timestamp_ms,
            message.born_timestamp_ms,
            message.sys_flag,
            message.body,
            sorted(own.items()),
        )

    old = {(message.queue_id, message.queue_offset) for message in cold.messages}
    assert sorted(map(key, cold.messages)) == sorted(
        key(message) for message in after if (message.queue_id, message.queue_offset) in old
    )


def test_minimum_and_time_search_know_history(cluster: Cluster, cold: ColdTopic) -> None:
    middle = cold.messages[len(cold.messages) // 2]
    queues = cluster.agent.queue_offsets(cluster.namesrv, cold.topic, timestamp_ms=middle.store_timestamp_ms)
    assert [queue["min_offset"] for queue in queues] == [0] * QUEUE_COUNT
    assert sum(queue["max_offset"] for queue in queues) == COUNT
    for queue in queues:
        of_queue = [message for message in cold.messages if message.queue_id == queue["queue_id"]]
        assert queue["earliest_ms"] == of_queue[0].store_timestamp_ms
        expected = next(
            (m.queue_offset for m in of_queue if m.store_timestamp_ms >= middle.store_timestamp_ms), len(of_queue)
        )
        assert queue["found_offset"] == expected


def test_messages_of_history_are_found_by_key_and_by_id(cluster: Cluster, cold: ColdTopic) -> None:
    message = cold.messages[17]
    assert message.keys is not None
    by_key = cluster.admin("queryMsgByKey", "-t", cold.topic, "-k", message.keys)
    assert message.message_id in by_key
    by_unique_key = cluster.admin("queryMsgByUniqueKey", "-t", cold.topic, "-i", message.message_id)
    assert f"index={message.properties['index']}" in by_unique_key
    host, _, port = cluster.broker_address.partition(":")
    address = "".join(f"{int(part):02X}" for part in host.split(".")) + f"{int(port):08X}"
    by_id = cluster.admin("queryMsgById", "-t", cold.topic, "-i", f"{address}{message.physical_offset:016X}")
    assert f"index={message.properties['index']}" in by_id
    by_offset = cluster.admin(
        "queryMsgByOffset",
        *("-t", cold.topic),
        *("-b", cluster.broker_name),
        *("-i", str(message.queue_id)),
        *("-o", str(message.queue_offset)),
    )
    assert f"index={message.properties['index']}" in by_offset


def may_consume(cluster: Cluster, group: str, *, is_allowed: bool) -> None:
    """Let the broker refuse a group's pulls, or no longer."""
    cluster.admin("updateSubGroup", "-b", cluster.broker_address, "-g", group, "-s", str(is_allowed).lower())


@pytest.mark.full
def test_retries_and_dead_letters_come_from_history(
    cluster: Cluster, name: str, start_push: Callable[..., str]
) -> None:
    """While their group is away its retries turn cold; so do the dead letters that they become."""
    topic, group = cluster.make_topic(name, queue_count=2), f"{name}-group"
    once = {"group": group, "topics": {topic: "*"}, "refuse_all": True, "max_reconsume_times": 1}
    # A client requests the route of its group's retry topic at its start: a later start finds the topic.
    cluster.agent.call("stop_consumer", name=start_push(f"{name}-first", **once))
    failing = start_push(f"{name}-failing", **once)
    produce(cluster, topic, count=6)
    assert len(cluster.agent.received(failing, count=6)) == 6
    # What it has sent back does not come again while it is away, nor before it has said that it did so.
    may_consume(cluster, group, is_allowed=False)
    wait_until(lambda: progress(cluster, group, topic) == 6, what="the group has sent all of them back")
    cluster.agent.call("stop_consumer", name=failing)

    def gone_cold(system_topic: str) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        wait_until(lambda: cluster.broker_name in cluster.admin("topicRoute", "-t", system_topic), what=system_topic)

        def have_all_come() -> bool:
            found[:] = cluster.agent.read_topic(cluster.namesrv, system_topic)
            return len(found) == 6

        wait_until(have_all_come, what=f"six messages in {system_topic}", interval_s=1)
        let_go_locally(cluster, found)
        return found

    retries = gone_cold(f"%RETRY%{group}")
    may_consume(cluster, group, is_allowed=True)
    again = cluster.agent.received(start_push(f"{name}-again", **once), count=6)
    assert Counter(message.reconsume_times for message in again) == {1: 6}
    assert {message.message_id for message in again} == {message.message_id for message in retries}
    buried = gone_cold(f"%DLQ%{group}")
    dead = cluster.agent.read_topic(cluster.namesrv, f"%DLQ%{group}")
    assert [(m.queue_offset, m.message_id, m.body) for m in dead] == [
        (m.queue_offset, m.message_id, m.body) for m in buried
    ]
    assert {message.message_id for message in dead} == {message.message_id for message in retries}
