"""Golden stores: timers that an official Apache RocketMQ 5.5.0 broker left pending go out here, each once, in time.

The fixtures are looked for as tests/store/test_java_stores.py does; without them these tests are skipped.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.store.store_parts import records_of
from tests.store.test_java_stores import FIXTURES, JavaStore
from tests.timers.timer_parts import World
from thermocline.remoting.records.properties import PropertyName
from thermocline.store.files.disk import RealDisk
from thermocline.timers.timer_config import TimerConfig

HOUR_MS = 3_600_000
READ_TIMES_MS = {"clean": 1_795_248_788_000, "killed": 1_795_248_941_000}
"""From their checkpoints."""

pytestmark = pytest.mark.skipif(
    not (FIXTURES / "java-store-clean.tar.zst").exists(),
    reason="the stores that the official broker wrote are not there (TEST_SHARED)",
)


def world_of(java_store: JavaStore, folder: Path) -> World:
    store_config = java_store.copy(folder)
    return World(
        RealDisk(),
        store_config=store_config,
        config=TimerConfig(root_path=store_config.root_path, log_file_bytes=1 << 20),
        clock=Clock(READ_TIMES_MS[java_store.kind] + 60_000),
    )


def pending_of(world: World, kind: str) -> dict[str | None, int]:
    """Unique ids of what is not delivered, with TIMER_OUT_MS."""
    times = {record.unique_key: int(record.properties[PropertyName.TIMER_OUT_MS]) for record in world.timed()}
    return {key: time_ms for key, time_ms in times.items() if time_ms >= READ_TIMES_MS[kind]}


@pytest.mark.parametrize("kind", ["clean", "killed"])
def test_timers_pending_at_the_official_broker_are_delivered_once(kind: str, tmp_path: Path) -> None:
    """Ten messages due a day later, ten due after 60 hours, which it has put into the wheel to be rolled."""
    world = world_of(JavaStore(kind, tmp_path / "unpacked"), tmp_path)
    pending = pending_of(world, kind)
    assert len(pending) == 20
    assert world.run() == []
    went: dict[str | None, int] = {}

    def run_to(time_ms: int) -> None:
        world.clock.now_ms = time_ms
        for _ in range(100_000):
            due = world.timers.step()
            for message in due:
                result = world.store.put(message.draft)
                record = world.store.read_record(result.physical_offset)
                if record.topic != "rmq_sys_wheel_timer":
                    assert record.topic == "FxTimed"
                    assert record.unique_key not in went
                    went[record.unique_key] = time_ms
                else:
                    world.rolls += 1
            world.timers.confirm(len(due))
            if not world.timers.has_more:
                return

    for time_ms in sorted(set(pending.values())):
        for time_to_look_ms in (time_ms + 999, time_ms + 1_000):
            run_to(time_to_look_ms)
    # Those that the official broker wrote itself carry no exact time: they go out when their tick is over.
    assert {key: time_ms // 1_000 * 1_000 - 1_000 for key, time_ms in went.items()} == pending
    assert world.rolls == 10
    world.close()
    again = world.reopen()
    again.clock.now_ms += HOUR_MS
    assert again.run() == []
    again.close()


@pytest.mark.parametrize("kind", ["clean", "killed"])
def test_without_the_official_timer_log_the_queue_tells(kind: str, tmp_path: Path) -> None:
    java_store = JavaStore(kind, tmp_path / "unpacked")
    shutil.rmtree(tmp_path / "unpacked" / "timerlog")
    world = world_of(java_store, tmp_path)
    pending = pending_of(world, kind)
    world.run()
    world.jump(world.clock.now_ms + 61 * HOUR_MS)
    queues = [world.store.queues.find("FxTimed", queue_id) for queue_id in (0, 1)]
    went = [record.unique_key for queue in queues if queue for record in records_of(world.store, queue)]
    assert all(went.count(key) == 1 for key in went)
    assert set(pending) <= set(went)
    world.close()


def test_counts_are_those_of_the_official_broker(tmp_path: Path) -> None:
    world = world_of(JavaStore("clean", tmp_path / "unpacked"), tmp_path)
    world.run()
    assert world.timers.metrics.counts() == {"FxTimed": 20}
    world.close()
