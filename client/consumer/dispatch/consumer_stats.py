"""ConsumerStats: how a consumer is doing with each topic, over the last minute; what `consumerStatus` shows.

Counted in buckets of ten seconds. Source: client/stat/ConsumerStatsManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from thermocline.remoting.bodies import ConsumeStatus

__all__ = ["ConsumerStats"]

BUCKET_S = 10
BUCKETS = 6


@dataclass(slots=True)
class _Bucket:
    number: int
    pull_count: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    consume_count: int = 0
    consume_s: float = 0.0
    ok: int = 0
    failed: int = 0


class ConsumerStats:
    """Counts by topic. Belongs to its consumer's loop; bounded by the topics that it subscribes to."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._buckets: dict[str, deque[_Bucket]] = {}
        self._failed_total: dict[str, int] = {}

    def pulled(self, topic: str, *, count: int, elapsed_s: float) -> None:
        """A pull found messages."""
        bucket = self._bucket(topic)
        bucket.pull_count += 1
        bucket.pulled += count
        bucket.pull_s += elapsed_s

    def consumed(self, topic: str, started_at: float | None, *, ok: int, failed: int) -> None:
        """A listener call that began at `started_at` ended."""
        bucket = self._bucket(topic)
        bucket.consume_count += 1
        bucket.consume_s += 0.0 if started_at is None else self._monotonic() - started_at
        bucket.ok += ok
        bucket.failed += failed
        self._failed_total[topic] = self._failed_total.get(topic, 0) + failed

    def status(self, topic: str) -> ConsumeStatus:
        """Return averages in milliseconds and rates a second, over the last minute."""
        oldest = int(self._monotonic() // BUCKET_S) - BUCKETS
        buckets = [bucket for bucket in self._buckets.get(topic, ()) if bucket.number > oldest]
        pulls = sum(bucket.pull_count for bucket in buckets)
        calls = sum(bucket.consume_count for bucket in buckets)
        span_s = BUCKET_S * BUCKETS
        return ConsumeStatus(
            pull_rt=1000 * sum(bucket.pull_s for bucket in buckets) / pulls if pulls else 0.0,
            pull_tps=sum(bucket.pulled for bucket in buckets) / span_s,
            consume_rt=1000 * sum(bucket.consume_s for bucket in buckets) / calls if calls else 0.0,
            consume_ok_tps=sum(bucket.ok for bucket in buckets) / span_s,
            consume_failed_tps=sum(bucket.failed for bucket in buckets) / span_s,
            consume_failed_msgs=self._failed_total.get(topic, 0),
        )

    def _bucket(self, topic: str) -> _Bucket:
        number = int(self._monotonic() // BUCKET_S)
        buckets = self._buckets.setdefault(topic, deque(maxlen=BUCKETS))
        if not buckets or buckets[-1].number != number:
            buckets.append(_Bucket(number))
        return buckets[-1]
