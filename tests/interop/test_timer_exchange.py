"""Messages that wait when a store changes hands go out at the other broker, each once and not before its time.

Golden stores of the official broker, among them ones left by a killed one, are opened by
tests/timers/test_java_timers.py.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.interop.cluster import Cluster, official_cluster, store_directory_of, thermocline_cluster
from tests.interop.java_agent import JavaAgent, ReceivedMessage
from tests.waiting import wait_until
from thermocline.remoting.properties import PropertyName, encode_properties
from thermocline.remoting.recall_handle import decode_recall_handle
from thermocline.store.disk import RealDisk
from thermocline.store.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.store_config import StoreConfig
from thermocline.timers.recall import recall_handle_of, recall_marker
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_message_store import TimerMessageStore
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("timer-exchange")]

TOPIC = "TimedExchange"
HOST = ("127.0.0.1", 10911)
LOG_FILE_BYTES = 4 << 20
TIMER_LOG_FILE_BYTES = 1 << 20
DELAYS_MS = (25_000, 25_300, 26_999, 30_000, 38_500)
RECALLED = 2
START_TIMEOUT_S = 120.0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def leave_timers(root: Path) -> dict[str, int]:
    """Make a store with messages that wait; body -> requested delivery time, in ms. One of them is recalled."""
    disk = RealDisk()
    store = MessageStore.open(
        StoreConfig(root_path=str(root), log_file_bytes=LOG_FILE_BYTES), disk=disk, clock=wall_clock_ms
    )
    store.store_host = HOST
    config = TimerConfig(root_path=str(root), log_file_bytes=TIMER_LOG_FILE_BYTES)
    timers = TimerMessageStore.open(store, config, disk=disk, clock=wall_clock_ms, random=random.Random(1).random)
    times: dict[str, int] = {}
    handles: list[str | None] = []
    for number, delay_ms in enumerate(DELAYS_MS):
        deliver_ms = wall_clock_ms() + delay_ms
        properties = {PropertyName.UNIQUE_KEY: f"ID{number}", PropertyName.TIMER_DELIVER_MS: str(deliver_ms)}
        draft = MessageDraft(
            topic=TOPIC,
            queue_id=number % 4,
            body=f"body-{number}".encode(),
            properties_text=encode_properties(properties),
            born_timestamp_ms=wall_clock_ms(),
            born_host=HOST,
        )
        stored = timers.schedule(draft, properties)
        assert stored is not None
        store.put(stored)
        times[f"body-{number}"] = deliver_ms
        handles.append(recall_handle_of(stored, broker_name="broker-a"))
    handle = handles[RECALLED]
    assert handle is not None
    store.put(
        recall_marker(
            decode_recall_handle(handle),
            config,
            topic=TOPIC,
            broker_name="broker-a",
            producer_group=None,
            born_host=HOST,
            now_ms=wall_clock_ms(),
        )
    )
    del times[f"body-{RECALLED}"]
    while timers.step() or timers.has_more:
        continue
    timers.close()
    store.close()
    return times


DOUBLE_MS = 4_000
"""How long after the last time a message that comes twice is waited for."""


def read_when_all_came(agent: JavaAgent, cluster: Cluster, times: dict[str, int]) -> list[ReceivedMessage]:
    """The topic's messages once as many are there as were left, and DOUBLE_MS later: none comes twice."""
    last_ms = max(times.values())
    wait_until(lambda: wall_clock_ms() > last_ms, what="all times have come", timeout_s=START_TIMEOUT_S)
    wait_until(
        lambda: len(agent.read_topic(cluster.namesrv, TOPIC)) >= len(times),
        what="all messages have come",
        timeout_s=START_TIMEOUT_S,
    )
    wait_until(
        lambda: wall_clock_ms() > last_ms + DOUBLE_MS, what="a second one would be there", timeout_s=START_TIMEOUT_S
    )
    return agent.read_topic(cluster.namesrv, TOPIC)


@pytest.mark.full
def test_the_official_broker_delivers_what_we_left(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    times = leave_timers(tmp_path / "store")
    properties = {
        "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
        "mappedFileSizeTimerLog": str(TIMER_LOG_FILE_BYTES),
    }
    with official_cluster(
        official_software,
        java_agent_process,
        tmp_path / "official",
        store_directory=tmp_path / "store",
        properties=properties,
    ) as cluster:
        cluster.make_topic(TOPIC)
        read = read_when_all_came(java_agent_process, cluster, times)
    bodies = [message.body.decode() for message in read]
    assert sorted(bodies) == sorted(times)
    for message in read:
        assert int(message.properties[PropertyName.TIMER_DEQUEUE_MS]) >= times[message.body.decode()]


# -- whole brokers, with messages of the official client ---------------------------------------------------------------

SENT = 12
FIRST_DELAY_MS, STEP_MS = 35_000, 500
"""The other broker has that long to start."""
EARLY_MS_MAX = {"official": 1_000, "thermocline": 0}
"""The official broker rounds down to a tick."""


def send_timed(agent: JavaAgent, namesrv: str) -> dict[str, int]:
    """Messages for later by the official client; body -> requested delivery time, in ms."""
    times: dict[str, int] = {}
    for number in range(SENT):
        deliver_at_ms = wall_clock_ms() + FIRST_DELAY_MS + STEP_MS * number
        (answer,) = agent.produce(
            kind="sync",
            count=1,
            start=number,
            name="timed-producer",
            group="timed-producers",
            namesrv=namesrv,
            topic=TOPIC,
            prefix=TOPIC,
            deliver_at_ms=deliver_at_ms,
        )
        assert answer.recall_handle is not None
        times[f"{TOPIC}-{number}"] = deliver_at_ms
    agent.call("stop_producer", name="timed-producer")
    return times


def read_when_due(agent: JavaAgent, cluster: Cluster, times: dict[str, int]) -> list[str]:
    """Wait until all have come; their bodies. None of them is early."""
    read = read_when_all_came(agent, cluster, times)
    for message in read:
        assert message.store_timestamp_ms >= times[message.body.decode()] - EARLY_MS_MAX[cluster.kind]
    return sorted(message.body.decode() for message in read)


@pytest.mark.parametrize("ending", [pytest.param("stopped", marks=pytest.mark.full), "killed"])
def test_the_official_broker_goes_on_where_our_broker_ended(
    ending: str, official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    with thermocline_cluster(java_agent_process, tmp_path / "ours") as cluster:
        cluster.make_topic(TOPIC)
        times = send_timed(java_agent_process, cluster.namesrv)
        store_directory, sizes = store_directory_of(cluster)
        if ending == "killed":
            time.sleep(2)  # for a round: what is not durable then is enqueued again, which takes as long
            cluster.process.kill()
    with official_cluster(
        official_software,
        java_agent_process,
        tmp_path / "official",
        store_directory=store_directory,
        properties=sizes,
    ) as cluster:
        assert read_when_due(java_agent_process, cluster, times) == sorted(times)


def test_our_broker_goes_on_where_the_official_one_ended(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    store = tmp_path / "ours" / "data" / "store"
    sizes = {"mappedFileSizeCommitLog": str(LOG_FILE_BYTES), "mappedFileSizeTimerLog": str(TIMER_LOG_FILE_BYTES)}
    with official_cluster(
        official_software,
        java_agent_process,
        tmp_path / "official",
        store_directory=store,
        properties=sizes,
        ends_cleanly=True,
    ) as cluster:
        cluster.make_topic(TOPIC)
        times = send_timed(java_agent_process, cluster.namesrv)
    with thermocline_cluster(java_agent_process, tmp_path / "ours", settings=sizes) as cluster:
        assert read_when_due(java_agent_process, cluster, times) == sorted(times)
