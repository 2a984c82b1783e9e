"""Settings of the store, with Apache RocketMQ's defaults, and the layout of its folder.

    commitlog/  consumequeue/  index/  config/  checkpoint  abort  lock     as Apache RocketMQ has them
    thermocline/identity.json        the store's UUID
    thermocline/origin.json          that the store was recovered from a bucket, and where its queues begin
    thermocline/logCeiling.json      how far the log may run ahead of the last state snapshot
    thermocline/queueEnds            recovery position and queue ends
    thermocline/indexCheckpoint.json how far the index reaches
    thermocline/staging/             log files on their way to full length

File sizes are part of the format: a store opens only with the sizes that it was written with, here as there.
Each setting has its property name and the range of its values in `_setting`.
Source: MessageStoreConfig.java, StorePathConfigHelper.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.frames import FRAME_BYTES_MAX

CONSUME_QUEUE_UNIT_BYTES = 20
INT_MAX = (1 << 31) - 1
"""Sizes and counts are ints in RocketMQ."""
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


def _setting(default: Any, name: str, *, least: float | None = None, most: float | None = None) -> Any:
    """A field with its property name and the range of its values."""
    return field(default=default, metadata={"name": name, "least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The store's settings. Checked when made.

    Raises:
        InvalidParameterError: A value is outside its range; the error names the property.
    """

    root_path: str = field(metadata={"name": "storePathRootDir"})
    log_file_bytes: int = _setting(1 << 30, "mappedFileSizeCommitLog", least=4_096, most=INT_MAX)
    queue_file_bytes: int = _setting(
        300_000 * CONSUME_QUEUE_UNIT_BYTES,
        "mappedFileSizeConsumeQueue",
        least=CONSUME_QUEUE_UNIT_BYTES,
        most=INT_MAX,
    )
    index_slot_count: int = _setting(5_000_000, "maxHashSlotNum", least=1, most=INT_MAX)
    index_entry_count: int = _setting(20_000_000, "maxIndexNum", least=2, most=INT_MAX)
    """The unused entry 0 included."""

    flush_disk_type: FlushDiskType = _setting(FlushDiskType.ASYNC_FLUSH, "flushDiskType")  # noqa: RUF009 - makes a field
    flush_interval_ms: int = _setting(500, "flushIntervalCommitLog", least=1, most=INT_MAX)
    sync_flush_timeout_ms: int = _setting(5_000, "syncFlushTimeout", least=1, most=INT_MAX)
    derived_sync_interval_ms: int = _setting(5_000, "derivedSyncIntervalMs", least=1, most=INT_MAX)
    """How often queue files, queue ends and checkpoint are made durable: what recovery has to scan at most."""

    message_bytes_max: int = _setting(4 * 1024 * 1024, "maxMessageSize", least=1, most=FRAME_BYTES_MAX)
    """The body's limit; no request is larger than a frame."""
    topic_bytes_max: int = _setting(127, "topicBytesMax", least=64, most=127)
    """Longer names are none (remoting/topic_validation.py); shorter ones leave no room for the broker's own topics."""
    system_topic_bytes_max: int = _setting(255, "systemTopicBytesMax", least=127, most=255)
    """For %RETRY% and %DLQ% topics."""
    message_delay_level: str = _setting(MESSAGE_DELAY_LEVEL, "messageDelayLevel")

    file_reserved_ms: int = _setting(72 * 3_600_000, "fileReservedTime")
    """Local retention by age."""
    delete_when_hours: tuple[int, ...] = _setting((4,), "deleteWhen")
    """Hours of the day, local time, at which files past their age are deleted; empty: at any."""
    disk_used_ratio_max: float = _setting(0.75, "diskMaxUsedSpaceRatio", most=1)
    """Above it, files past their age are deleted at any hour."""
    disk_used_ratio_force: float = _setting(0.85, "diskSpaceCleanForciblyRatio", most=1)
    """Above it, whatever their age."""
    clean_forcibly: bool = _setting(True, "cleanFileForciblyEnable")
    """Whether that is so; else files stay until they are past their age."""
    disk_used_ratio_refuse: float = _setting(0.90, "diskSpaceWarningLevelRatio", most=1)
    """Above it, sends are refused."""
    delete_files_max: int = _setting(10, "deleteFileBatchMax", least=1, most=INT_MAX)
    """Files deleted in one round."""

    open_queue_files_max: int = _setting(512, "openQueueFilesMax", least=1, most=INT_MAX)
    """Descriptors kept open for queue files."""

    gaps_are_elsewhere: ClassVar[bool] = False
    """No setting: whether another place has what a queue lacks between two local messages."""

    def __post_init__(self) -> None:
        for item in fields(self):
            least, most = item.metadata.get("least"), item.metadata.get("most")
            value = getattr(self, item.name)
            if least is not None and value < least:
                raise _outside(item.metadata["name"], f"must be at least {least}", value)
            if most is not None and not value <= most:
                raise _outside(item.metadata["name"], f"must be at most {_most_text(most)}", value)
        if self.queue_file_bytes % CONSUME_QUEUE_UNIT_BYTES:
            text = f"must be a multiple of {CONSUME_QUEUE_UNIT_BYTES}"
            raise _outside("mappedFileSizeConsumeQueue", text, self.queue_file_bytes)
        if not 0 < self.disk_used_ratio_max <= self.disk_used_ratio_force <= self.disk_used_ratio_refuse:
            raise InvalidParameterError(
                "diskMaxUsedSpaceRatio, diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio are above 0, and"
                " none is larger than the next",
                setting="diskMaxUsedSpaceRatio",
                value=self.disk_used_ratio_max,
            )
        if not self.delay_levels_ms:
            raise _outside("messageDelayLevel", "needs at least one level", self.message_delay_level)

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


def _outside(name: str, text: str, value: object) -> InvalidParameterError:
    return InvalidParameterError(f"{name} {text}", setting=name, value=value)


def _most_text(most: float) -> str:
    return "100 percent" if most == 1 else str(most)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 10m` -> (1000, 5000, 600000).

    Raises:
        InvalidParameterError: A word is not a number with one of s, m, h, d.
    """
    delays_ms = []
    for word in text.split():
        unit_ms, number = _UNIT_MS.get(word[-1]), word[:-1]
        if unit_ms is None or not (number.isascii() and number.isdecimal()) or len(number) > DELAY_DIGITS_MAX:
            raise _outside("messageDelayLevel", "is a list of numbers with s, m, h or d", word)
        delays_ms.append(int(number) * unit_ms)
    return tuple(delays_ms)
