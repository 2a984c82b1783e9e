"""Timer round: make what the timers have done durable, then write down that it is.

    loop thread    begin: units to their file, slots sealed, positions read; advance(): the slots that the round before
                   has sealed to the wheel's file, a slice at a time
    helper thread  commit(): sync the log, the timer log, the wheel, then write the checkpoint; after that, and only
                   then, metrics are saved and timer log files removed

What a checkpoint promises was in the log when the round began, or was put before: deliveries of closed ticks, messages
rolled, entries enqueued. So the log is made durable first.
"""

from __future__ import annotations

import logging

from thermocline.remoting.errors import DiskFullError
from thermocline.store.files import Disk, replace_file
from thermocline.store.log import CommitLog
from thermocline.timers.timer_checkpoint import TimerCheckpoint
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_log import TimerLog, UnsyncedTimerLog
from thermocline.timers.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

SLOTS_PER_SLICE = 500


class TimerRound:
    """One round. Made, advanced and finished by the loop thread; committed by a helper thread in between."""

    def __init__(
        self,
        disk: Disk,
        config: TimerConfig,
        *,
        commit_log: CommitLog,
        log: TimerLog,
        wheel: TimerWheel,
        checkpoint: TimerCheckpoint,
        metrics: bytes | None,
    ) -> None:
        self.checkpoint = checkpoint
        self.is_committing = False
        """Whether `commit` has begun: from then on a failure leaves doubts about what is durable."""
        self._disk = disk
        self._config = config
        self._commit_log = commit_log
        self._log = log
        self._wheel = wheel
        self._metrics = metrics
        self._append_offset = commit_log.append_offset
        self._unsynced: UnsyncedTimerLog | None = None

    def advance(self) -> bool:
        """Do one slice of the loop thread's part; whether it is done.

        Raises:
            DiskFullError: There is no room for the wheel. The round is over, the next one tries again.
        """
        if not self._wheel.write(SLOTS_PER_SLICE):
            return False
        self._unsynced = self._log.take_unsynced()
        return True

    def commit(self) -> None:
        """Make it durable. Helper thread.

        Raises:
            StoreClosedError: The log's flush failed.
            OSError, DiskFullError: The disk failed. There is no other round until the timers are opened again.
        """
        assert self._unsynced is not None
        self.is_committing = True
        flush_offset = self._commit_log.flush()
        assert flush_offset >= self._append_offset
        self._unsynced.sync()
        self._wheel.sync()
        self.checkpoint.save(self._disk, self._config.checkpoint_path)
        try:
            self._log.delete_forgotten()
            if self._metrics is not None:
                replace_file(self._disk, self._config.metrics_path, self._metrics, keep_backup=True)
        except (OSError, DiskFullError) as error:
            # Neither is needed for what the checkpoint promises.
            logger.warning("timer metrics not saved, or old timer log files not removed error=%s", error)
