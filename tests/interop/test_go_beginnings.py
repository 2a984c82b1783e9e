"""Where groups of the official Go client begin: by their own choice, or where offsets were put."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.cluster import BROKER_NAME, thermocline_daemons
from tests.interop.go_agent import GoAgent
from tests.interop.go_driver import GoCluster, GoDriver, indexes
from tests.interop.java_agent import ReceivedMessage
from tests.waiting import wait_until
from thermocline.client import AdminClient, MessageQueue

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]

# Sealed soon, and deleted as soon as sealed: a group without offsets is given the whole of a topic of which the first
# message is near, whatever it asks for.
SETTINGS = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "coldSealAgeMs": "500",
    "coldFrameBytes": "32768",
    "coldSegmentBytes": "262144",
}


def last_store_ms(admin: AdminClient, topic: str) -> int:
    """When the broker stored the topic's newest message, ms."""
    return max(queue.last_update_timestamp_ms for queue in admin.topic_stats(topic))


def store_times(messages: Sequence[ReceivedMessage]) -> dict[int, int]:
    """Store time of each message by its number, ms."""
    return dict(sorted(zip(indexes(messages), (each.store_timestamp_ms for each in messages), strict=True)))


def test_a_new_group_begins_where_it_asks_to(go_agent_process: GoAgent, go_name: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        namesrv = stack.enter_context(thermocline_daemons(tmp_path, settings=SETTINGS)).namesrv
        admin = stack.enter_context(AdminClient(namesrv=namesrv))
        cluster = GoCluster(namesrv=namesrv, agent=go_agent_process, admin=admin)
        go = stack.enter_context(contextlib.closing(GoDriver(cluster, go_name)))
        go.make_topic(queue_nums=1)
        go.produce(count=100, body_bytes=1_000)
        # The client asks for a time in seconds, in UTC. The second is counted from the time that the broker stored the
        # first half at, which is later than this process's clock once that has been set back.
        between_s = last_store_ms(admin, go.topic) // 1_000 + 1
        wait_until(lambda: time.time() >= between_s, what="the next second")
        between = time.strftime("%Y%m%d%H%M%S", time.gmtime(between_s))
        go.produce(count=100, start=100, body_bytes=1_000)
        filler = f"{go.topic}-filler"
        admin.create_topic(filler, queue_nums=1)

        def is_in_the_cold_tier_alone() -> bool:
            # Deletion takes whole files, never the one that is written: something has to follow.
            go.produce(count=100, topic=filler, name=filler, body_bytes=1_000)
            (row,) = admin.tier_status(go.topic)[BROKER_NAME]["topics"]
            (queue,) = row["queues"]
            return bool(queue["coldMin"] == 0 < queue["localMin"] <= queue["coldEnd"])

        wait_until(is_in_the_cold_tier_alone, what="the first messages' file is deleted")
        groups = {where: f"{go.topic}-{where}-group" for where in ("first", "last", "timestamp")}
        consumers = {
            where: go.push(where, group=group, timestamp=between, **{"from": where}) for where, group in groups.items()
        }
        for where, consumer in consumers.items():
            wait_until(
                lambda consumer=consumer, group=groups[where]: go.queues_of(consumer, group=group) == {0},
                what="the group has begun",
            )
        go.produce(count=10, start=200)
        for where, start in {"first": 0, "timestamp": 100, "last": 200}.items():
            received = go.received(consumers[where], count=210 - start)
            assert sorted(indexes(received)) == list(range(start, 210)), (where, between_s, store_times(received))


def test_a_group_goes_on_where_its_offsets_say(go: GoDriver) -> None:
    """Consumed so far, back to a time, cloned from another group, and past everything."""
    topic = go.make_topic(queue_nums=1)
    queue = MessageQueue(topic=topic, broker_name=BROKER_NAME, queue_id=0)
    go.produce(count=6)
    wait_until(lambda: go.admin.max_offset(queue) == 6, what="the first half is there")
    half_ms = last_store_ms(go.admin, topic) + 1
    wait_until(lambda: time.time_ns() // 1_000_000 >= half_ms, what="the next millisecond", interval_s=0.001)
    go.produce(count=6, start=6)
    consumer = go.push("first")
    assert sorted(indexes(go.received(consumer, count=12))) == list(range(12))
    go.wait_until_committed()
    go.stop(consumer)

    go.admin.set_consumer_offset(go.group, queue, go.admin.search_offset(queue, half_ms))
    go.admin.create_group(f"{topic}-clone")
    go.admin.clone_group_offsets(go.group, f"{topic}-clone", topic=topic)
    for name, group in {"back": go.group, "clone": f"{topic}-clone"}.items():
        assert sorted(indexes(go.received(go.push(name, group=group), count=6))) == list(range(6, 12))

    go.admin.create_group(f"{topic}-skipping")
    go.admin.set_consumer_offset(f"{topic}-skipping", queue, go.admin.max_offset(queue))
    skipping = go.push("skipping", group=f"{topic}-skipping")
    go.produce(count=2, start=12)
    assert sorted(indexes(go.received(skipping, count=2))) == [12, 13]
