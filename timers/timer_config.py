"""Settings of the timers, with Apache RocketMQ's defaults, and where their files lie.

    timerwheel            slots; of fixed length, sparse
    timerlog/             units; files of `log_file_bytes`
    config/timercheck     the checkpoint
    config/timermetrics   pending messages of each topic

Precision and the timer log's file length are part of the format: files open only with those they were written with.
The wheel has as many slots as 14 days have seconds whatever the precision, and half of them bound the roll window.
Source: MessageStoreConfig.java, TimerMessageStore.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.remoting.errors import InvalidParameterError

PRECISIONS_MS = (100, 200, 500, 1_000)
WHEEL_SLOTS = 2 * 7 * 86_400
BLANK_SLOTS = 60
"""How far a roll window stays below half the wheel."""
ROLL_SPREAD_MS_MAX = 3_600_000
COUNT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerConfig:
    """The timers' settings. Checked when made."""

    root_path: str
    """The store's folder (storePathRootDir)."""
    precision_ms: int = 1_000
    """timerPrecisionMs: the length of a tick; see `supported_precision_ms`."""
    roll_window_slots: int = 2 * 86_400
    """timerRollWindowSlot: a message due later is rolled; one that does not suit the wheel counts as its greatest."""
    delay_ms_max: int = 3 * 86_400_000
    """timerMaxDelaySec."""
    log_file_bytes: int = 100 * 1024 * 1024
    """mappedFileSizeTimerLog."""
    round_interval_ms: int = 1_000
    """timerFlushIntervalMs: how often progress is made durable: how much a crash repeats."""
    slot_count_max: int = COUNT_MAX
    """timerCongestNumEachSlot: messages due in one tick, from which on new ones are refused by chance."""
    topic_in_delete_key: bool = False
    """appendTopicForTimerDeleteKey: whether a recall marker names the topic before the id, as before RocketMQ 5.4."""
    wheel_slots: int = WHEEL_SLOTS
    """Part of the format; only tests take another number."""

    def __post_init__(self) -> None:
        self._check(self.precision_ms in PRECISIONS_MS, "precision_ms")
        self._check(self.delay_ms_max >= self.precision_ms, "delay_ms_max")
        self._check(self.log_file_bytes >= 256, "log_file_bytes")
        self._check(self.round_interval_ms > 0, "round_interval_ms")
        self._check(self.slot_count_max > 0, "slot_count_max")
        self._check(self.wheel_slots > 2 * BLANK_SLOTS + 4, "wheel_slots")

    def _check(self, holds: bool, name: str) -> None:
        if not holds:
            raise InvalidParameterError("impossible timer setting", name=name)

    @property
    def wheel_span_ms(self) -> int:
        """How long the wheel takes to turn."""
        return self.wheel_slots * self.precision_ms

    @property
    def roll_window_ms(self) -> int:
        """A message that is due this much later is rolled."""
        window_slots_max = self.wheel_slots // 2 - BLANK_SLOTS
        window_slots = self.roll_window_slots
        return (window_slots if 2 <= window_slots <= window_slots_max else window_slots_max) * self.precision_ms

    @property
    def roll_spread_slots(self) -> int:
        """Over how many ticks before their time rolls are spread."""
        return max(1, min(ROLL_SPREAD_MS_MAX, self.roll_window_ms // 8) // self.precision_ms)

    @property
    def wheel_path(self) -> str:
        """The wheel."""
        return f"{self.root_path}/timerwheel"

    @property
    def log_path(self) -> str:
        """Folder of the timer log."""
        return f"{self.root_path}/timerlog"

    @property
    def config_path(self) -> str:
        """Folder of checkpoint and metrics."""
        return f"{self.root_path}/config"

    @property
    def checkpoint_path(self) -> str:
        """The checkpoint."""
        return f"{self.config_path}/timercheck"

    @property
    def metrics_path(self) -> str:
        """Pending messages of each topic."""
        return f"{self.config_path}/timermetrics"


def supported_precision_ms(precision_ms: int) -> int:
    """The precision that RocketMQ uses for this setting: the next lower of those it has."""
    return max((each for each in PRECISIONS_MS if each <= precision_ms), default=PRECISIONS_MS[0])
