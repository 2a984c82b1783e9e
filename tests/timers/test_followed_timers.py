"""A slave's timer files, by which it delivers as a new master what its master has not delivered."""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.timers.timer_parts import NOW_MS, World, timer_config
from thermocline.timers.followed_timers import FollowedTimers
from thermocline.timers.timer_checkpoint import SHARED, TimerCheckpoint

SECOND_MS = 1_000


def run_rounds(world: World) -> None:
    while world.timers.run_round():
        continue


def copy_log(master: SimulatedDisk, slave: SimulatedDisk, root: str) -> None:
    """What replication does: the log's files, byte by byte."""
    slave.make_directory(f"{root}/commitlog")
    for name in master.list_directory(f"{root}/commitlog"):
        data = master.read(f"{root}/commitlog/{name}")
        file = slave.open(f"{root}/commitlog/{name}", create=True)
        file.truncate(len(data))
        file.write_at(data, 0)
        file.close()


def stale_slave() -> SimulatedDisk:
    """A broker that was a master once: it has a timer log, a wheel and a checkpoint of that time."""
    world = World()
    for second in range(1, 20):
        world.send_at(NOW_MS + second * SECOND_MS)
    world.run()
    run_rounds(world)
    world.close()
    assert isinstance(world.disk, SimulatedDisk)
    world.disk.remove_tree(f"{world.config.root_path}/commitlog")
    world.disk.remove_tree(f"{world.config.root_path}/consumequeue")
    return world.disk


@pytest.mark.parametrize("is_stale", [False, True])
def test_a_new_master_delivers_what_waits_and_nothing_else(is_stale: bool) -> None:
    master = World()
    for second in range(1, 301):
        master.send_at(NOW_MS + second * SECOND_MS)
    delivered = [int(body) for _, body in master.run_until(NOW_MS + 200 * SECOND_MS, step_ms=SECOND_MS)]
    assert delivered == list(range(1, 200))
    run_rounds(master)
    assert isinstance(master.disk, SimulatedDisk)

    disk = stale_slave() if is_stale else SimulatedDisk()
    root = master.config.root_path
    copy_log(master.disk, disk, root)
    disk.make_directory(f"{root}/config")
    slave = FollowedTimers(disk, timer_config(root))
    assert slave.follow_checkpoint(master.timers.checkpoint.encode_shared())
    slave.write_checkpoint(slave.checkpoint.encode_shared())
    assert slave.follow_metrics(master.timers.metrics.encode())
    slave.write_metrics(slave.metrics)
    assert not disk.exists(slave_log := f"{root}/timerlog"), slave_log
    assert not slave.follow_checkpoint(master.timers.checkpoint.encode_shared())
    assert not slave.follow_metrics(master.timers.metrics.encode())

    promoted = World(disk, clock=type(master.clock)(master.clock.now_ms))
    again = [int(body) for _, body in promoted.run_until(NOW_MS + 310 * SECOND_MS, step_ms=SECOND_MS)]
    assert set(again) == set(range(200, 301)), "what is in its queue does not come again"


def test_a_checkpoint_without_a_timer_log_has_everything_enqueued_again() -> None:
    """RocketMQ's may count messages as enqueued whose units it has not made durable yet."""
    data = SHARED.pack(NOW_MS, 0, 5, 5, 0, 1, 2)
    checkpoint = TimerCheckpoint.of_master(data)
    assert checkpoint.queue_offset == 0
    assert TimerCheckpoint.of_master(SHARED.pack(NOW_MS, 104, 7, 5, 0, 1, 2)).queue_offset == 5


def test_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="56 bytes"):
        FollowedTimers(SimulatedDisk(), timer_config()).follow_checkpoint(b"{}")
