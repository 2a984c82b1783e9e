"""Sync sites: every place of the store that makes something durable, by name.

Each `sync` on the disk seam names its site. The power-cut test takes one site after the other, lets the simulated disk
ignore it, and expects to lose something: a sync whose loss has no effect is superfluous, a place that needs one and
has none fails a test.
"""

from __future__ import annotations

from enum import StrEnum


class SyncSite(StrEnum):
    """A place that syncs. What is lost without it stands beside it."""

    ROOT_DIRECTORY = "root directory"
    """The name of the store's folder: everything below it."""
    IDENTITY_FILE = "identity file"
    """The store's UUID: a store with messages that comes back as a stranger."""
    IDENTITY_DIRECTORY = "identity directory"
    """The same, for its name in the folder."""
    ABORT_DIRECTORY = "abort directory"
    """The mark that a store is open (its name alone): an unclean stop taken for a clean one."""
    LOG_ALLOCATE = "log allocate"
    """A log file's full length: a short file, which Apache RocketMQ refuses to open."""
    LOG_DIRECTORY = "log directory"
    """A log file's name: every message in it."""
    LOG_FLUSH = "log flush"
    """The records themselves."""
    LOG_TRUNCATE = "log truncate"
    """The removal of a log file behind the recovered end before the one in front of it: a hole in the log."""
    LOG_RECOVER = "log recover"
    """What recovery accepted from the page cache, and the zeroes behind it: stale records behind new ones."""
    LOG_DELETE = "log delete"
    """The removal of the oldest file before the next one: a hole in the middle of the log."""
    QUEUE_FILE = "queue file"
    """Units below the recovery position: a queue with empty units."""
    QUEUE_DIRECTORY = "queue directory"
    """A queue file's name, below the recovery position."""
    QUEUE_TREE = "queue tree"
    """Queue files that recovery found without queue ends, and builds upon."""
    QUEUE_ENDS_FILE = "queue ends file"
    """Recovery position and queue ends: unbounded recovery, and forgotten ends."""
    QUEUE_ENDS_DIRECTORY = "queue ends directory"
    """The same, for its name in the folder."""
    CHECKPOINT_FILE = "checkpoint file"
    """The time stamps by which Apache RocketMQ recovers."""
    CHECKPOINT_DIRECTORY = "checkpoint directory"
    """The same, for its name in the folder."""
    INCARNATION_FILE = "incarnation file"
    """A topic's creation or deletion: messages of a deleted topic that come back."""
    INCARNATION_DIRECTORY = "incarnation directory"
    """The same, for its name in the folder."""
    INDEX_FILE = "index file"
    """Index entries below the index's checkpoint: keys that are not found."""
    INDEX_DIRECTORY = "index directory"
    """An index file's name."""
    INDEX_CHECKPOINT_FILE = "index checkpoint file"
    """How far the index reaches: entries twice, or never."""
    INDEX_CHECKPOINT_DIRECTORY = "index checkpoint directory"
    """The same, for its name in the folder."""
