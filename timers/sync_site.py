"""Sync sites of the timers: every place that makes something of theirs durable, by name (see store/files/sync_site.py).

A power-cut test takes one after the other away and expects to lose a message.
"""

from __future__ import annotations

from enum import StrEnum


class TimerSyncSite(StrEnum):
    """A place that syncs. What is lost without it stands beside it."""

    LOG_FILE = "timer log file"
    """Units below the checkpoint's end: messages whose queue entry counts as enqueued."""
    LOG_DIRECTORY = "timer log directory"
    """A timer log file's name: the same, all of its units."""
    WHEEL_FILE = "timer wheel file"
    """Slots of units below the checkpoint's wheel position, which recovery does not look at again."""
    ROOT_DIRECTORY = "timer root directory"
    """The names of the wheel and of the timer log's folder."""
    CHECKPOINT_FILE = "timer checkpoint file"
    """How far everything is. Retention deletes log files by it."""
    CHECKPOINT_DIRECTORY = "timer checkpoint directory"
    """The same, for its name in the folder."""
