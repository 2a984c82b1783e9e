"""RpcLatency: how long RPCs and requests took, by protocol, name, code of the answer and result, in RocketMQ's buckets.

Bound: names, codes and results are of fixed sets. Belongs to one event loop.
Source: remoting/metrics/RemotingMetricsManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from thermocline.proxy.metrics.traffic import Protocol

__all__ = ["BOUNDS_MS", "RpcLatency", "RpcResult", "RpcSeries"]

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)


class RpcResult(StrEnum):
    """How an RPC ended, by RocketMQ's names."""

    SUCCESS = "success"
    """With an answer, whatever its code."""
    CANCELED = "cancelled"
    """By its client, which cancelled it or is gone."""
    FAILED = "process_request_failed"
    """By a status of gRPC in place of an answer."""
    UNSENT = "write_channel_failed"
    """With an answer that a remoting client is not there to take."""
    ONEWAY = "oneway"
    """Without an answer, which a one-way request of remoting does not want."""


class RpcSeries(msgspec.Struct):
    """The RPCs of one name, code and result. `counts`: by bucket, the last one above all bounds."""

    counts: list[int]
    total_ms: float = 0.0


class RpcLatency:
    """See the module."""

    def __init__(self) -> None:
        self._series: dict[tuple[Protocol, str, str, RpcResult, bool], RpcSeries] = {}

    def add(
        self, name: str, code: str, result: RpcResult, *, protocol: Protocol, is_long_polling: bool, ms: float
    ) -> None:
        """Count one that ended. `code`: "" where there was no answer."""
        key = (protocol, name, code, result, is_long_polling)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = RpcSeries([0] * (len(BOUNDS_MS) + 1))
        series.counts[bisect_left(BOUNDS_MS, ms)] += 1
        series.total_ms += ms

    def series(self) -> Iterator[tuple[dict[str, str], RpcSeries]]:
        """Every series, by its labels."""
        for (protocol, name, code, result, is_long_polling), series in self._series.items():
            labels = {
                "protocol_type": protocol,
                "request_code": name,
                "response_code": code,
                "is_long_polling": str(is_long_polling).lower(),
                "result": str(result),
            }
            yield labels, series
