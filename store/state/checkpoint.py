"""Checkpoint: store times up to which log, queues and index are durable, as Apache RocketMQ recovers by them.

File: checkpoint, 4096 bytes, big-endian, the rest zero

    int64 log time stamp, ms | int64 queue time stamp, ms | int64 index time stamp, ms
    int64 master's flushed offset | int64 confirmed offset

Our own recovery goes by physical offsets (queue_ends.py) and reads this only for a store that Apache RocketMQ wrote.
The confirmed offset is 0 without a controller; a broker that starts under one serves reads up to there until it has a
role.
Source: StoreCheckpoint.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.files import Disk, SyncSite, parent_of

CHECKPOINT = struct.Struct(
    ">q"  # store time of the last durable log record, ms
    "q"  # store time up to which queues are durable, ms
    "q"  # store time up to which the index is durable, ms
    "q"  # offset that the master has flushed; for slaves
    "q"  # confirmed offset; for replication
)
assert CHECKPOINT.size == 40, "on-disk format shared with Apache RocketMQ"
FILE_BYTES = 4096
SAFETY_MS = 3_000
"""How far before the stamps recovery begins."""


class StoreCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The stamps; 0 means nothing is known."""

    log_timestamp_ms: int = 0
    queue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flush_offset: PhysicalOffset = LOG_START
    confirm_offset: PhysicalOffset = LOG_START

    @property
    def recovery_timestamp_ms(self) -> int:
        """Records up to this store time are durable with their queue units."""
        return max(0, min(self.log_timestamp_ms, self.queue_timestamp_ms) - SAFETY_MS)

    @classmethod
    def load(cls, disk: Disk, path: str) -> StoreCheckpoint:
        """Read the file; all zero when it is missing or too short to be one."""
        if not disk.exists(path):
            return cls()
        data = disk.read(path)
        if len(data) < CHECKPOINT.size:
            return cls()
        log_ms, queue_ms, index_ms, master_flush_offset, confirm_offset = CHECKPOINT.unpack_from(data)
        return cls(
            log_timestamp_ms=log_ms,
            queue_timestamp_ms=queue_ms,
            index_timestamp_ms=index_ms,
            master_flush_offset=master_flush_offset,
            confirm_offset=confirm_offset,
        )

    def save(self, disk: Disk, path: str) -> None:
        """Write it in place, as Apache RocketMQ does; durable on return. Helper thread.

        The 40 bytes lie in one sector, so a power cut leaves the old ones or the new.
        """
        assert self.queue_timestamp_ms <= self.log_timestamp_ms, "queues are durable after the log"
        fields = CHECKPOINT.pack(
            self.log_timestamp_ms,
            self.queue_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flush_offset,
            self.confirm_offset,
        )
        is_new = not disk.exists(path)
        file = disk.open(path, create=True)
        try:
            file.write_at(fields + bytes(FILE_BYTES - len(fields)), 0)
            file.sync(site=SyncSite.CHECKPOINT_FILE)
        finally:
            file.close()
        if is_new:
            disk.sync_directory(parent_of(path), site=SyncSite.CHECKPOINT_DIRECTORY)
