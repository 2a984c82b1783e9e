"""Settings of the store, with Apache RocketMQ's defaults, and the layout of its folder.

    commitlog/  consumequeue/  index/  config/  checkpoint  abort  lock     as Apache RocketMQ has them
    thermocline/identity.json        the store's UUID
    thermocline/origin.json          that the store was recovered from a bucket, and where its queues begin
    thermocline/logCeiling.json      how far the log may run ahead of the last state snapshot
    thermocline/queueEnds            recovery position and queue ends
    thermocline/indexCheckpoint.json how far the index reaches
    thermocline/staging/             log files on their way to full length

File sizes are part of the format: a store opens only with the sizes that it was written with, here as there.
Source: MessageStoreConfig.java, StorePathConfigHelper.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from thermocline.remoting.errors import InvalidParameterError

CONSUME_QUEUE_UNIT_BYTES = 20
MESSAGE_DELAY_LEVEL = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DELAY_DIGITS_MAX = 10
"""Of a delay level: the time of delivery is a number of 64 bits."""
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FlushDiskType(Enum):
    """When a message counts as stored."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """In the page cache; durable within `flush_interval_ms`."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """Durable: the answer waits for the flush."""


STORE_NAMES = (
    "abort",
    "checkpoint",
    "commitlog",
    "config",
    "consumequeue",
    "index",
    "lock",
    "thermocline",
    "timerlog",
    "timerwheel",
)
"""The contents of a store's folder."""
LARGE_FOLDERS = ("consumequeue",)
"""Those with files by the ten thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The store's settings. Checked when made."""

    root_path: str
    """storePathRootDir."""
    log_file_bytes: int = 1 << 30
    """mappedFileSizeCommitLog."""
    queue_file_bytes: int = 300_000 * CONSUME_QUEUE_UNIT_BYTES
    """mappedFileSizeConsumeQueue."""
    index_slot_count: int = 5_000_000
    """maxHashSlotNum."""
    index_entry_count: int = 20_000_000
    """maxIndexNum, the unused entry 0 included."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_ms: int = 500
    """flushIntervalCommitLog."""
    sync_flush_timeout_ms: int = 5_000
    """syncFlushTimeout."""
    derived_sync_interval_ms: int = 5_000
    """How often queue files, queue ends and checkpoint are made durable: what recovery has to scan at most."""

    message_bytes_max: int = 4 * 1024 * 1024
    """maxMessageSize: the body's limit."""
    topic_bytes_max: int = 127
    system_topic_bytes_max: int = 255
    """For %RETRY% and %DLQ% topics."""
    message_delay_level: str = MESSAGE_DELAY_LEVEL
    """messageDelayLevel."""

    file_reserved_ms: int = 72 * 3_600_000
    """fileReservedTime: local retention by age."""
    delete_when_hours: tuple[int, ...] = (4,)
    """deleteWhen: hours of the day, local time, at which files past their age are deleted; empty: at any."""
    disk_used_ratio_max: float = 0.75
    """diskMaxUsedSpaceRatio: above it, files past their age are deleted at any hour."""
    disk_used_ratio_force: float = 0.85
    """diskSpaceCleanForciblyRatio: above it, whatever their age."""
    clean_forcibly: bool = True
    """cleanFileForciblyEnable: whether that is so; else files stay until they are past their age."""
    disk_used_ratio_refuse: float = 0.90
    """diskSpaceWarningLevelRatio: above it, sends are refused."""
    delete_files_max: int = 10
    """deleteFileBatchMax: files deleted in one round."""

    open_queue_files_max: int = 512
    """Descriptors kept open for queue files."""

    gaps_are_elsewhere: ClassVar[bool] = False
    """No setting: whether another place has what a queue lacks between two local messages."""

    def __post_init__(self) -> None:
        self._check(self.log_file_bytes >= 4_096, "log_file_bytes")
        self._check(
            self.queue_file_bytes > 0 and self.queue_file_bytes % CONSUME_QUEUE_UNIT_BYTES == 0, "queue_file_bytes"
        )
        self._check(self.index_slot_count > 0, "index_slot_count")
        self._check(self.index_entry_count > 1, "index_entry_count")
        self._check(
            0 < self.disk_used_ratio_max <= self.disk_used_ratio_force <= self.disk_used_ratio_refuse, "disk ratios"
        )
        for name in (
            "open_queue_files_max",
            "flush_interval_ms",
            "sync_flush_timeout_ms",
            "derived_sync_interval_ms",
            "message_bytes_max",
            "delete_files_max",
        ):
            self._check(getattr(self, name) > 0, name)
        self._check(bool(self.delay_levels_ms), "message_delay_level")

    def _check(self, holds: bool, name: str) -> None:
        if not holds:
            raise InvalidParameterError("impossible store setting", name=name)

    @property
    def commit_log_path(self) -> str:
        """Folder of the log."""
        return f"{self.root_path}/commitlog"

    @property
    def consume_queue_path(self) -> str:
        """Folder of the queues."""
        return f"{self.root_path}/consumequeue"

    @property
    def index_path(self) -> str:
        """Folder of the index files."""
        return f"{self.root_path}/index"

    @property
    def config_path(self) -> str:
        """Folder of the JSON state files."""
        return f"{self.root_path}/config"

    @property
    def checkpoint_path(self) -> str:
        """The checkpoint file."""
        return f"{self.root_path}/checkpoint"

    @property
    def abort_path(self) -> str:
        """The mark of an open store."""
        return f"{self.root_path}/abort"

    @property
    def lock_path(self) -> str:
        """The file that is locked while the store is open."""
        return f"{self.root_path}/lock"

    @property
    def own_path(self) -> str:
        """Folder of what Apache RocketMQ does not have."""
        return f"{self.root_path}/thermocline"

    @property
    def identity_path(self) -> str:
        """The store's UUID."""
        return f"{self.own_path}/identity.json"

    @property
    def origin_path(self) -> str:
        """That the store was recovered from a bucket."""
        return f"{self.own_path}/origin.json"

    @property
    def enrolment_path(self) -> str:
        """Whose ledger a slave's store may take over."""
        return f"{self.own_path}/enrolment.json"

    @property
    def log_ceiling_path(self) -> str:
        """How far the log may run ahead of the last state snapshot."""
        return f"{self.own_path}/logCeiling.json"

    @property
    def dropped_ranges_path(self) -> str:
        """The file of ranges dropped because of a full disk."""
        return f"{self.own_path}/droppedRanges.json"

    @property
    def queue_ends_path(self) -> str:
        """Recovery position and queue ends."""
        return f"{self.own_path}/queueEnds"

    @property
    def index_checkpoint_path(self) -> str:
        """How far the index reaches."""
        return f"{self.own_path}/indexCheckpoint.json"

    @property
    def staging_path(self) -> str:
        """Folder of log files that are being allocated."""
        return f"{self.own_path}/staging"

    @property
    def incarnation_path(self) -> str:
        """The topics' incarnations."""
        return f"{self.config_path}/topicIncarnation.json"

    @property
    def topic_births_path(self) -> str:
        """Topics that were made since topics.json and the table of incarnations were written."""
        return f"{self.own_path}/topicBirths"

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of each level, level 1 first."""
        return parse_delay_levels(self.message_delay_level)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveStoreConfig(StoreConfig):
    """Settings of the store of a slave with a cold tier: its master's ledger has what a queue lacks."""

    gaps_are_elsewhere: ClassVar[bool] = True

    @classmethod
    def of(cls, config: StoreConfig) -> SlaveStoreConfig:
        """The same settings."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(config)})


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 10m` -> (1000, 5000, 600000).

    Raises:
        InvalidParameterError: A word is not a number with one of s, m, h, d.
    """
    delays_ms = []
    for word in text.split():
        unit_ms, number = _UNIT_MS.get(word[-1]), word[:-1]
        if unit_ms is None or not (number.isascii() and number.isdecimal()) or len(number) > DELAY_DIGITS_MAX:
            raise InvalidParameterError("impossible delay level", word=word)
        delays_ms.append(int(number) * unit_ms)
    return tuple(delays_ms)
