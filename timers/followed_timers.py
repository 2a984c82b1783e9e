"""Followed timers: a slave's files of its master's timers, by which it delivers what waits when it becomes master.

    config/timercheck      RocketMQ's part alone, and no timer log: timer_recovery.py enqueues all messages of the timer
                           topic again, but for those that the checkpoint counts as delivered
    config/timermetrics    as the master has it

A timer log and wheel that this broker has kept as a master before do not belong to the checkpoint: they are deleted
before the first one is written. The timers of this broker must not be open meanwhile.
Owner: the loop thread; `write_checkpoint` and `write_metrics` block, and are for one helper thread.
"""

from __future__ import annotations

from thermocline.store.files import Disk, replace_file
from thermocline.timers.sync_site import TimerSyncSite
from thermocline.timers.timer_checkpoint import TimerCheckpoint
from thermocline.timers.timer_config import TimerConfig


class FollowedTimers:
    """See the module."""

    def __init__(self, disk: Disk, config: TimerConfig) -> None:
        self._disk = disk
        self._config = config
        self._written_checkpoint: TimerCheckpoint | None = None
        self._written_metrics: bytes | None = None
        self.checkpoint = TimerCheckpoint()
        self.metrics = b""

    def begin_again(self, checkpoint: TimerCheckpoint, metrics: bytes) -> None:
        """The timers of this broker were open meanwhile, and are closed: their files go with the next checkpoint."""
        self._written_checkpoint = self._written_metrics = None
        self.checkpoint, self.metrics = checkpoint, metrics

    def follow_checkpoint(self, data: bytes) -> bool:
        """Take a master's checkpoint over; False when it is written already. Raises ValueError if it is none."""
        self.checkpoint = TimerCheckpoint.of_master(data)
        return self.checkpoint != self._written_checkpoint

    def follow_metrics(self, data: bytes) -> bool:
        """Take a master's counts over; False when they are written already."""
        self.metrics = data
        return data != self._written_metrics

    def write_checkpoint(self, data: bytes) -> None:
        """Write what `encode_shared` gives; durable on return. OSError, DiskFullError when the disk fails."""
        if self._written_checkpoint is None:
            remove_timer_files(self._disk, self._config)
        checkpoint = TimerCheckpoint.of_master(data)
        checkpoint.save(self._disk, self._config.checkpoint_path)
        self._written_checkpoint = checkpoint

    def write_metrics(self, data: bytes) -> None:
        """Write the counts; durable on return. OSError, DiskFullError when the disk fails."""
        replace_file(self._disk, self._config.metrics_path, data, keep_backup=True)
        self._written_metrics = data


def remove_timer_files(disk: Disk, config: TimerConfig) -> None:
    """Remove timer log and wheel, durably, while no timers are open: the timer topic is enqueued again from its start.
    OSError, DiskFullError when the disk fails."""
    if disk.exists(config.log_path):
        disk.remove_tree(config.log_path)
    if disk.exists(config.wheel_path):
        disk.remove(config.wheel_path)
    disk.sync_directory(config.root_path, site=TimerSyncSite.ROOT_DIRECTORY)
