"""Timers that we left pending go out at the official broker when it opens our store, each once and not before its time.

The other direction needs no official broker: its golden stores are opened by tests/timers/test_java_timers.py.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.interop.cluster import official_cluster, wait_until
from tests.interop.java_agent import JavaAgent
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
DELAYS_MS = (40_000, 40_300, 41_999, 45_000, 55_500)
RECALLED = 2
START_TIMEOUT_S = 120.0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def leave_timers(root: Path) -> dict[str, int]:
    """Make a store with messages that wait; body -> time asked for, in ms. One of them is recalled."""
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
        last_ms = max(times.values())
        wait_until(lambda: wall_clock_ms() > last_ms + 4_000, what="all times have come", timeout_s=START_TIMEOUT_S)
        read = java_agent_process.read_topic(cluster.namesrv, TOPIC)
    bodies = [message.body.decode() for message in read]
    assert sorted(bodies) == sorted(times)
    for message in read:
        assert int(message.properties[PropertyName.TIMER_DEQUEUE_MS]) >= times[message.body.decode()]
