"""A proxy that is killed in the middle of a classic push consumer's work: nothing is lost.

Messages that the consumer had, and had not acknowledged, come again when their invisible time is over.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cluster import Cluster, thermocline_cluster
from tests.interop.java_agent import JavaAgent, ReceivedMessage
from tests.interop.proxy_daemons import BROKER_SETTINGS, running_proxy
from tests.interop.test_java_client import produce
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.localstack.loopback_port import free_port

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-proxy")]

COUNT = 400
INVISIBLE_MS = 5_000


@pytest.mark.parametrize("by_pop", [True, pytest.param(False, marks=pytest.mark.full)])
def test_nothing_is_lost_when_the_proxy_is_killed(java_agent_process: JavaAgent, tmp_path: Path, by_pop: bool) -> None:
    port = free_port()
    settings = {
        "remotingListenPort": str(port),
        "remotingPopInvisibleTimeMillis": str(INVISIBLE_MS),
        "remotingPushByPop": str(by_pop).lower(),
    }
    topic = f"Killed{by_pop}"
    received: list[ReceivedMessage] = []
    with thermocline_cluster(java_agent_process, tmp_path, settings=BROKER_SETTINGS) as cluster:
        with AdminClient(namesrv=cluster.namesrv) as admin:
            admin.create_topic(topic, queue_nums=4)
        place: dict[str, Any] = {"namesrv": cluster.namesrv, "settings": settings}
        with running_proxy(tmp_path / "first", is_killed=True, **place) as (_, first):
            consumer = start_consumer(java_agent_process, f"127.0.0.1:{port}", topic)
            produce(cluster, topic, kind="sync", count=COUNT)
            wait_until(lambda: len(take_messages(cluster, consumer, received)) >= COUNT // 8, what="it is at work")
            first.kill()
            assert len({message.properties["index"] for message in received}) < COUNT
        with running_proxy(tmp_path / "second", **place):
            wait_until(
                lambda: (
                    len({message.properties["index"] for message in take_messages(cluster, consumer, received)})
                    == COUNT
                ),
                what="all messages",
            )
            with AdminClient(namesrv=cluster.namesrv) as admin:
                wait_until(
                    lambda: {row.lag for row in admin.group_progress(f"{topic}-group")} == {0}, what="all is done with"
                )
            cluster.agent.call("stop_consumer", name=consumer)
    times = Counter(int(message.properties["index"]) for message in received)
    assert sorted(times) == list(range(COUNT))


def start_consumer(agent: JavaAgent, namesrv: str, topic: str) -> str:
    """Slow, so that it holds messages when the proxy dies."""
    agent.call(
        "start_push_consumer",
        name=topic,
        namesrv=namesrv,
        group=f"{topic}-group",
        topics={topic: "*"},
        threads=2,
        hold_ms=15,
        heartbeat_ms=2_000,
    )
    return topic


def take_messages(cluster: Cluster, consumer: str, received: list[ReceivedMessage]) -> list[ReceivedMessage]:
    """What the consumer has received so far."""
    received.extend(cluster.agent.received(consumer, count=0))
    return received
