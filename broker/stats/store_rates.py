"""Store rates: puts and gets per second over the last 10, 60 and 600 seconds, how long puts took, timers per second.

One sample a second, 601 kept. A rate over s seconds is shown once s + 1 samples exist; before that its place in the
text is empty, as Apache RocketMQ's runtime information has it (`"putTps": "0.0 1.09 "`: no 600 seconds have passed
yet). Put times, from the store time of a message to its acknowledgement, are counted twice for a minute: in 13 buckets
that are shown, and in 76 finer ones of which percentiles are computed. What is shown is of the last whole minute.
Owner: the hot process's event loop.
Source: store/StoreStatsService.java, Apache RocketMQ 5.3.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections import deque
from typing import NamedTuple

SPANS_SECONDS = (10, 60, 600)
TIMER_SPAN_SECONDS = 10
SAMPLES_MAX = 601
SAMPLE_INTERVAL_MS = 1_000
DISTRIBUTION_INTERVAL_MS = 60_000

# Upper limits in ms, exclusive, of all buckets but the last; the first holds what took no measurable time.
BUCKET_LIMITS_MS = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
BUCKET_NAMES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
assert len(BUCKET_NAMES) == len(BUCKET_LIMITS_MS) + 1

FINE_STEPS_MS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1_000, 9))
"""Width and number of the finer buckets."""
FINE_LIMITS_MS = tuple(itertools.accumulate(step for step, count in FINE_STEPS_MS for _ in range(count)))
"""Upper limits in ms, inclusive, of all finer buckets but the last."""
assert FINE_LIMITS_MS[-1] == 10_000


class RateSample(NamedTuple):
    """Totals at a time."""

    time_ms: int
    put: int
    found: int
    missed: int
    transferred: int
    timer_enqueued: int
    timer_delivered: int


class StoreRates:
    """Totals since start, and their samples. The totals are plain attributes: callers that put or get add to them."""

    __slots__ = (
        "_buckets",
        "_buckets_shown",
        "_buckets_since_ms",
        "_fine_buckets",
        "_fine_buckets_shown",
        "_samples",
        "found_times",
        "get_time_max_ms",
        "missed_times",
        "put_at_once_count",
        "put_bytes",
        "put_count",
        "put_failed_times",
        "put_time_max_ms",
        "timer_delivered",
        "timer_enqueued",
        "transferred_bytes",
        "transferred_count",
    )

    def __init__(self, *, now_ms: int) -> None:
        self.put_count = 0
        self.put_bytes = 0
        self.put_failed_times = 0
        self.put_at_once_count = 0
        """Messages of this minute that took no measurable time; a caller may add to it in place of `add_put_time`."""
        self.found_times = 0
        self.transferred_bytes = 0
        self.missed_times = 0
        self.transferred_count = 0
        self.timer_enqueued = 0
        self.timer_delivered = 0
        self.put_time_max_ms = 0
        self.get_time_max_ms = 0
        self._samples: deque[RateSample] = deque([RateSample(now_ms, 0, 0, 0, 0, 0, 0)], maxlen=SAMPLES_MAX)
        self._buckets = [0] * len(BUCKET_NAMES)
        self._buckets_shown = [0] * len(BUCKET_NAMES)
        self._buckets_since_ms = now_ms
        self._fine_buckets = [0] * (len(FINE_LIMITS_MS) + 1)
        self._fine_buckets_shown = [0] * (len(FINE_LIMITS_MS) + 1)

    def add_put_time(self, elapsed_ms: int, count: int) -> None:
        """Note that `count` messages took `elapsed_ms`; once for all messages that were acknowledged together. A time
        below 0, as after the wall clock was set back, counts as 0."""
        if elapsed_ms <= 0:
            self.put_at_once_count += count
            return
        self._buckets[bisect_right(BUCKET_LIMITS_MS, elapsed_ms)] += count
        self._fine_buckets[bisect_left(FINE_LIMITS_MS, elapsed_ms)] += count
        if elapsed_ms > self.put_time_max_ms:
            self.put_time_max_ms = elapsed_ms

    def add_get_time(self, elapsed_ms: int) -> None:
        """Note that a read of messages took `elapsed_ms`."""
        if elapsed_ms > self.get_time_max_ms:
            self.get_time_max_ms = elapsed_ms

    def sample(self, now_ms: int) -> None:
        """Take a sample when a second has passed since the last one."""
        if now_ms - self._samples[-1].time_ms >= SAMPLE_INTERVAL_MS:
            self._samples.append(
                RateSample(
                    now_ms,
                    self.put_count,
                    self.found_times,
                    self.missed_times,
                    self.transferred_count,
                    self.timer_enqueued,
                    self.timer_delivered,
                )
            )
        if now_ms - self._buckets_since_ms >= DISTRIBUTION_INTERVAL_MS:
            self._buckets[0] += self.put_at_once_count
            self._fine_buckets[0] += self.put_at_once_count
            self.put_at_once_count = 0
            self._buckets_shown, self._buckets = self._buckets, [0] * len(BUCKET_NAMES)
            self._fine_buckets_shown, self._fine_buckets = self._fine_buckets, [0] * (len(FINE_LIMITS_MS) + 1)
            self._buckets_since_ms = now_ms

    def runtime_info(self) -> dict[str, str]:
        """The store's part of the broker's runtime information, as text."""
        put_times = self.put_count or 1
        return {
            "putMessageEntireTimeMax": str(self.put_time_max_ms),
            "putMessageTimesTotal": str(put_times),
            "putMessageFailedTimes": str(self.put_failed_times),
            "putMessageSizeTotal": str(self.put_bytes),
            "putMessageDistributeTime": "".join(
                f"{name}:{count} " for name, count in zip(BUCKET_NAMES, self._buckets_shown, strict=True)
            ),
            "putMessageAverageSize": str(self.put_bytes / put_times),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(self.get_time_max_ms),
            "putTps": self._rates_text(1),
            "getFoundTps": self._rates_text(2),
            "getMissTps": self._rates_text(3),
            "getTotalTps": " ".join(
                str((self._rate(span, 2) or 0.0) + (self._rate(span, 3) or 0.0)) for span in SPANS_SECONDS
            ),
            "getTransferredTps": self._rates_text(4),
            "timerEnqueueTps": str(self._rate(TIMER_SPAN_SECONDS, 5) or 0.0),
            "timerDequeueTps": str(self._rate(TIMER_SPAN_SECONDS, 6) or 0.0),
            "putLatency99": f"{self._percentile(0.99):.2f}",
            "putLatency999": f"{self._percentile(0.999):.2f}",
        }

    def _rate(self, span_seconds: int, column: int) -> float | None:
        if len(self._samples) <= span_seconds:
            return None
        first, last = self._samples[-span_seconds - 1], self._samples[-1]
        return (last[column] - first[column]) * 1000.0 / (last.time_ms - first.time_ms)

    def _rates_text(self, column: int) -> str:
        rates = (self._rate(span, column) for span in SPANS_SECONDS)
        return " ".join("" if rate is None else str(rate) for rate in rates)

    def _percentile(self, share: float) -> float:
        """The percentile of put times in ms, interpolated between the limits of its finer bucket; 10 s when above."""
        total = sum(self._fine_buckets_shown)
        wanted = int(total * share)
        passed = 0
        lower = 0
        for upper, count in zip(FINE_LIMITS_MS, self._fine_buckets_shown, strict=False):
            if wanted <= passed + count:
                return lower + ((upper - lower) * (wanted - passed) / count if count else 0.0)
            passed += count
            lower = upper
        return float(lower)
