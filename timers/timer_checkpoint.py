"""Timer checkpoint: how far reading, enqueueing and the timer log's durability have come.

File: config/timercheck, 4096 bytes, of which RocketMQ reads and writes the first 56:

    int64 read time, ms            every tick before it is delivered
    int64 timer log position       units below it are durable
    int64 queue offset             the timer topic's entries below it are enqueued
    int64 the master's queue offset; our own again
    int64 state version, 0 | int64 time of this checkpoint, ms | int64 its number         RocketMQ's data version

and behind them ours:

    8 bytes "TCTIMER1"
    int64 wheel position           units below it are in the wheel's file
    int64 held position            units below it are not needed any more: delivered, or rolled ahead of their time
    int64 stretch, int64 position  the last unit of the tick at the read time that went out (open_slot.py)
    int64 precision, ms            what slots and chains were made with
    uint32 CRC-32 of all before

Both lie in one sector, so a power cut leaves the old ones or the new. When RocketMQ has written its part since, the
checksum fails: ours does not count then, and its own rules for taking over apply (timer_recovery.py).
Source: TimerCheckpoint.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.store.files import Disk, parent_of
from thermocline.timers.open_slot import SlotProgress
from thermocline.timers.sync_site import TimerSyncSite

FILE_BYTES = 4_096
SECTOR_BYTES = 512
MAGIC = b"TCTIMER1"

SHARED = struct.Struct(
    ">q"  # read time, ms
    "q"  # timer log position
    "q"  # queue offset
    "q"  # the master's queue offset
    "q"  # state version
    "q"  # time of the checkpoint, ms
    "q"  # number of the checkpoint
)
assert SHARED.size == 56, "on-disk format shared with Apache RocketMQ"
OWN = struct.Struct(
    ">8s"  # magic
    "q"  # wheel position
    "q"  # held position
    "q"  # stretch of the last unit that went out
    "q"  # its position
    "q"  # precision, ms
)
CHECKSUM = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPart:
    """The part that only this broker needs."""

    wheel_position: int
    held_position: int
    progress: SlotProgress
    precision_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCheckpoint:
    """The content of the file."""

    read_time_ms: int = 0
    log_position: int = 0
    queue_offset: QueueOffset = QUEUE_START
    timestamp_ms: int = 0
    number: int = 0
    own: OwnPart | None = None
    """None: RocketMQ has written last."""

    @classmethod
    def of_master(cls, data: bytes) -> TimerCheckpoint:
        """A master's checkpoint for a broker that has no timer log of its own: it will enqueue everything again.

        `data`: what `encode_shared` gives, or RocketMQ's broker. Raises ValueError if it is neither.
        """
        if len(data) < SHARED.size:
            raise ValueError("a timer checkpoint has 56 bytes")
        read_time_ms, log_position, queue_offset, master_offset, _, timestamp_ms, number = SHARED.unpack_from(data)
        return cls(
            read_time_ms=read_time_ms,
            log_position=log_position,
            # Without units in the log that it tells of, recovery would go on behind what is not delivered.
            queue_offset=QueueOffset(min(queue_offset, master_offset)) if log_position else QUEUE_START,
            timestamp_ms=timestamp_ms,
            number=number,
        )

    @classmethod
    def load(cls, disk: Disk, path: str) -> TimerCheckpoint | None:
        """Read the file; None when there is none, or nothing was ever written to it."""
        if not disk.exists(path):
            return None
        data = disk.read(path)
        if len(data) < SHARED.size or not any(data[: SHARED.size]):
            return None
        read_time_ms, log_position, queue_offset, master_offset, _, timestamp_ms, number = SHARED.unpack_from(data)
        own = None
        checked_bytes = SHARED.size + OWN.size
        if len(data) >= checked_bytes + CHECKSUM.size:
            magic, wheel, held, stretch, position, precision_ms = OWN.unpack_from(data, SHARED.size)
            (checksum,) = CHECKSUM.unpack_from(data, checked_bytes)
            if magic == MAGIC and checksum == crc32(data[:checked_bytes]):
                progress = SlotProgress(stretch=stretch, position=position)
                own = OwnPart(wheel_position=wheel, held_position=held, progress=progress, precision_ms=precision_ms)
        return cls(
            read_time_ms=read_time_ms,
            log_position=log_position,
            queue_offset=min(queue_offset, master_offset),
            timestamp_ms=timestamp_ms,
            number=number,
            own=own,
        )

    def encode_shared(self) -> bytes:
        """RocketMQ's 56 bytes: what it answers to GET_TIMER_CHECK_POINT with."""
        return SHARED.pack(
            self.read_time_ms,
            self.log_position,
            self.queue_offset,
            self.queue_offset,
            0,
            self.timestamp_ms,
            self.number,
        )

    def save(self, disk: Disk, path: str) -> None:
        """Write it in place, as RocketMQ does; durable on return. Helper thread. OSError when the disk fails."""
        data = self.encode_shared()
        own = self.own
        if own is not None:
            progress = own.progress
            data += OWN.pack(
                MAGIC,
                own.wheel_position,
                own.held_position,
                progress.stretch,
                progress.position,
                own.precision_ms,
            )
            data += CHECKSUM.pack(crc32(data))
        assert len(data) <= SECTOR_BYTES
        is_new = not disk.exists(path)
        file = disk.open(path, create=True)
        try:
            file.write_at(data.ljust(FILE_BYTES, b"\0"), 0)
            file.sync(site=TimerSyncSite.CHECKPOINT_FILE)
        finally:
            file.close()
        if is_new:
            disk.sync_directory(parent_of(path), site=TimerSyncSite.CHECKPOINT_DIRECTORY)
