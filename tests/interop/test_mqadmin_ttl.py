"""Time to live by the official mqadmin: `updateTopic -a +reserve.time=...`, in hours as RocketMQ has it, and finer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.cluster import Cluster, thermocline_cluster
from tests.interop.java_agent import JavaAgent
from tests.waiting import wait_until
from thermocline import AdminClient, Message, Producer

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-thermocline")]

HOUR_MS = 3_600_000
MESSAGE_COUNT = 5
SETTINGS = {"coldSweepIntervalMs": "200", "coldSealAgeMs": "200"}


@pytest.fixture(scope="module")
def brief(java_agent_process: JavaAgent, module_folder: Path) -> Iterator[Cluster]:
    """A cluster whose cold tier seals and sweeps all the time."""
    with thermocline_cluster(java_agent_process, module_folder, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def admin(brief: Cluster) -> Iterator[AdminClient]:
    with AdminClient(namesrv=brief.namesrv) as admin:
        yield admin


def change(cluster: Cluster, topic: str, attributes: str) -> str:
    """What `updateTopic` says to a change of attributes."""
    name, count = cluster.cluster_name, "1"
    return cluster.admin("updateTopic", "-c", name, "-t", topic, "-r", count, "-w", count, "-a", attributes)


def shown_ttl(admin: AdminClient, topic: str) -> tuple[dict[str, str], int | None]:
    """Return the topic's attributes, and the time to live that `ttl show` prints."""
    (config,) = admin.topic_config(topic).values()
    (status,) = admin.tier_status(topic).values()
    (state,) = status["topics"]
    return config.attributes, state["ttlMs"]


def offsets(cluster: Cluster, topic: str) -> tuple[int, int]:
    """Minimum and maximum of the topic's only queue, as `topicStatus` prints them."""
    row = cluster.admin("topicStatus", "-t", topic).splitlines()[1].split()
    return int(row[2]), int(row[3])


def send(cluster: Cluster, topic: str) -> None:
    with Producer(group="brief", namesrv=cluster.namesrv) as producer:
        producer.send_many(Message(topic, b"%d" % number) for number in range(MESSAGE_COUNT))


def test_attribute_and_command_say_the_same(brief: Cluster, admin: AdminClient) -> None:
    topic = brief.make_topic("TtlSpellings", queue_count=1)
    assert "success" in change(brief, topic, "+reserve.time=48")
    assert shown_ttl(admin, topic) == ({"reserve.time": "48"}, 48 * HOUR_MS)
    admin.set_ttl(topic, 90_000)
    assert shown_ttl(admin, topic) == ({"reserve.time": "1", "thermocline.ttl.ms": "90000"}, 90_000)
    assert "success" in change(brief, topic, "+reserve.time=3")
    assert shown_ttl(admin, topic) == ({"reserve.time": "3"}, 3 * HOUR_MS)
    assert "success" in change(brief, topic, "+reserve.time=1d30m")
    assert shown_ttl(admin, topic) == ({"reserve.time": "25", "thermocline.ttl.ms": "88200000"}, 88_200_000)
    # Settings without attributes leave them as they are.
    brief.make_topic(topic, queue_count=1)
    assert shown_ttl(admin, topic) == ({"reserve.time": "25", "thermocline.ttl.ms": "88200000"}, 88_200_000)
    # One that begins with a minus would be an option to the tool.
    assert "success" in change(brief, topic, "+message.type=NORMAL,-reserve.time")
    assert shown_ttl(admin, topic) == ({"message.type": "NORMAL"}, None)
    admin.set_ttl(topic, 2 * HOUR_MS)
    admin.set_ttl(topic, None)
    assert shown_ttl(admin, topic) == ({"message.type": "NORMAL"}, None)


def test_invalid_times_are_refused_and_change_nothing(brief: Cluster, admin: AdminClient) -> None:
    topic = brief.make_topic("TtlRefused", queue_count=1)
    change(brief, topic, "+reserve.time=7")
    for wrong in ("+reserve.time=soon", "+reserve.time=-2", "+reserve.time=2,+thermocline.ttl.ms=5"):
        assert "success" not in change(brief, topic, wrong), wrong
        assert shown_ttl(admin, topic) == ({"reserve.time": "7"}, 7 * HOUR_MS)


def test_messages_expire_by_seconds_and_stay_gone(brief: Cluster, admin: AdminClient) -> None:
    topic = brief.make_topic("TtlSeconds", queue_count=1)
    send(brief, topic)
    assert offsets(brief, topic) == (0, MESSAGE_COUNT)
    assert "success" in change(brief, topic, "+reserve.time=1s")
    wait_until(lambda: offsets(brief, topic) == (MESSAGE_COUNT, MESSAGE_COUNT), what="all has expired")
    assert "success" in change(brief, topic, "+reserve.time=24")
    assert offsets(brief, topic) == (MESSAGE_COUNT, MESSAGE_COUNT)
    send(brief, topic)
    assert offsets(brief, topic) == (MESSAGE_COUNT, 2 * MESSAGE_COUNT)
