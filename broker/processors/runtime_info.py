"""Runtime information: what `mqadmin brokerStatus` and `clusterList` show of a broker.

All values are text. Names and forms are Apache RocketMQ's: tools split and parse them. What RocketMQ has and this
broker does not (thread pools with queues) is shown as at rest, with RocketMQ's default capacities.
Source: broker/processor/AdminBrokerProcessor.java (prepareRuntimeInfo), store/DefaultMessageStore.java
(getRuntimeInfo), Apache RocketMQ 5.3.
"""

from collections.abc import Callable

from thermocline.broker.due import DelayService
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore
from thermocline.timers.timer_message_store import TimerMessageStore, TimerStatus

VERSION_NAME = "V5_5_0"
"""The release whose protocol is spoken; RocketMQ's own tools look it up by this name."""

QUEUE_CAPACITIES = {"pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
END_TRANSACTION_CAPACITY = 100_000
TRANSIENT_BUFFERS = 2**31 - 1
"""RocketMQ's value for: no such pool."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class RuntimeInfo:
    """Collects what a broker shows of itself. On the event loop."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        disk: Disk,
        store: MessageStore,
        stats: BrokerStats,
        delays: DelayService,
        timers: TimerMessageStore | None,
        clock: Callable[[], int],
        boot_time_ms: int,
        dispatch_behind_bytes: Callable[[], int],
        is_active: Callable[[], bool],
    ) -> None:
        """`dispatch_behind_bytes`: how far the index lags behind the log.
        `is_active`: whether this broker delivers delayed messages and the like; a slave that stands in does."""
        self._is_active = is_active
        self._settings = settings
        self._disk = disk
        self._store = store
        self._stats = stats
        self._delays = delays
        self._timers = timers
        self._clock = clock
        self._boot_time_ms = boot_time_ms
        self._dispatch_behind_bytes = dispatch_behind_bytes

    def table(self) -> dict[str, str]:
        """Name -> text."""
        config, stats = self._settings.broker, self._stats
        return {
            "bootTimestamp": str(self._boot_time_ms),
            "runtime": _duration(self._clock() - self._boot_time_ms),
            **stats.rates.runtime_info(),
            **self._store_info(),
            **{f"scheduleMessageOffset_{level}": f"{at},{end}" for level, (at, end) in self._delays.progress().items()},
            "brokerActive": "true" if self._is_active() else "false",
            "brokerVersionDesc": VERSION_NAME,
            "msgPutTotalYesterdayMorning": str(stats.put_day_totals.yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.put_day_totals.today_morning),
            "msgPutTotalTodayNow": str(stats.clients_put_count),
            "msgGetTotalYesterdayMorning": str(stats.get_day_totals.yesterday_morning),
            "msgGetTotalTodayMorning": str(stats.get_day_totals.today_morning),
            "msgGetTotalTodayNow": str(stats.clients_got_count),
            "dispatchBehindBytes": str(self._dispatch_behind_bytes()),
            "pageCacheLockTimeMills": "0",
            "startAcceptSendRequestTimeStamp": str(config.accept_sends_from_ms),
            **self._timer_info(),
            "remainTransientStoreBufferNumbs": str(TRANSIENT_BUFFERS),
            **_thread_pool_info(sends_waiting_max=config.sends_waiting_max),
        }

    def _store_info(self) -> dict[str, str]:
        store, disk = self._store, self._disk
        log = store.commit_log
        root_path, log_path = store.config.root_path, store.config.commit_log_path
        total_bytes, free_bytes = disk.total_bytes(root_path), disk.free_bytes(root_path)
        used_ratio = f"{1 - free_bytes / total_bytes if total_bytes else 0.0:.2f}"
        earliest_ms = -1
        if log.min_offset < log.append_offset:
            earliest_ms = log.store_timestamp_ms(log.min_offset)
        return {
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.append_offset),
            "commitLogDiskRatio": used_ratio,
            f"commitLogDiskRatio_{log_path}": used_ratio,
            "consumeQueueDiskRatio": used_ratio,
            "earliestMessageTimeStamp": str(earliest_ms),
            "remainHowManyDataToFlush": human_bytes(log.append_offset - log.flush_offset),
            "commitLogDirCapacity": f"Total : {human_bytes(total_bytes)}, Free : {human_bytes(free_bytes)}.",
        }

    def _timer_info(self) -> dict[str, str]:
        status = TimerStatus() if self._timers is None else self._timers.status()
        return {
            "timerReadBehind": str(status.read_behind_ms // 1_000),
            "timerOffsetBehind": str(status.queue_behind_count),
            "timerCongestNum": str(status.pending_count),
        }


def _thread_pool_info(*, sends_waiting_max: int) -> dict[str, str]:
    info: dict[str, str] = {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(END_TRANSACTION_CAPACITY),
    }
    for name, capacity in {"send": sends_waiting_max, **QUEUE_CAPACITIES}.items():
        info[f"{name}ThreadPoolQueueSize"] = "0"
        info[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
        info[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return info


def human_bytes(count: int) -> str:
    """`252.0 GiB`, as RocketMQ writes it."""
    if count < 1024:
        return f"{count} B"
    exponent = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**exponent:.1f} {_UNITS[exponent - 1]}"


def _duration(elapsed_ms: int) -> str:
    seconds = max(0, elapsed_ms) // 1000
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
