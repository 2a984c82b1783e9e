"""Pending messages by topic."""

from __future__ import annotations

import msgspec

from tests.simulated_disk import SimulatedDisk
from tests.timers.timer_parts import NOW_MS, World
from thermocline.remoting.string_hash import java_string_hash
from thermocline.store.files.disk import BACKUP_SUFFIX
from thermocline.timers.timer_metrics import TimerMetrics

PATH = "/store/config/timermetrics"


def written(data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/store/config")
    disk.open(PATH, create=True).write_at(data, 0)
    return disk


def test_the_file_is_rocketmqs() -> None:
    metrics = TimerMetrics()
    metrics.add("orders", 3, now_ms=5)
    metrics.add("orders", -1, now_ms=6)
    metrics.add("payments", -1, now_ms=7)
    assert msgspec.json.decode(metrics.encode()) == {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 7},
        "timingCount": {"orders": {"count": 2, "timeStamp": 6}, "payments": {"count": 0, "timeStamp": 7}},
    }
    assert metrics.total == 1


def test_names_come_from_the_file_that_rocketmq_wrote() -> None:
    disk = written(
        b'{"dataVersion":{"counter":640,"stateVersion":0,"timestamp":1795248691052},"timingCount":{'
        b'"rmq_sys_REVIVE_LOG_DefaultCluster":{"count":0,"timeStamp":1},"FxTimed":{"count":20,"timeStamp":2}}}'
    )
    metrics = TimerMetrics.load(disk, PATH)
    assert metrics.name_of(1_217_058_149) == "FxTimed"
    assert metrics.name_of(1) is None
    assert metrics.counts() == {}


def test_a_broken_file_is_no_loss() -> None:
    disk = written(b"{")
    assert TimerMetrics.load(disk, PATH).name_of(java_string_hash("orders")) is None
    disk.open(PATH + BACKUP_SUFFIX, create=True).write_at(b'{"dataVersion":{},"timingCount":{"orders":{}}}', 0)
    assert TimerMetrics.load(disk, PATH).name_of(java_string_hash("orders")) == "orders"


def test_it_is_saved_when_it_has_changed() -> None:
    metrics = TimerMetrics()
    assert metrics.take_unsaved() is None
    metrics.add("orders", 1, now_ms=5)
    assert metrics.take_unsaved() == metrics.encode()
    assert metrics.take_unsaved() is None


def test_counts_are_right_again_after_a_kill_without_the_file() -> None:
    """Also while messages go and come before the units have been counted."""
    world = World()
    for second in range(1, 120):
        world.send_at(NOW_MS + second * 1_000, "orders" if second % 3 else "payments")
    world.jump(NOW_MS + 10_500)
    while world.timers.run_round():
        continue
    world = world.kill()
    world.disk.remove(world.config.metrics_path)
    world.clock.now_ms = NOW_MS + 60_500
    world.send_at(NOW_MS + 70_000)
    world.run()
    assert world.timers.metrics.counts() == {"orders": 41, "payments": 19}
    assert world.timers.status().pending_count == 60
    world.jump(NOW_MS + 130_000)
    assert world.timers.metrics.counts() == {"orders": 0, "payments": 0}
