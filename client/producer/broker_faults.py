"""BrokerFaults: which brokers a producer avoids after slow or failed sends, and for how long.

    latency of the send, at least, ms     50   100    550   1800   3000    5000   15000
    broker is not available for, ms        0     0   2000   5000   6000   10000   30000

Rules
  - The table shows the defaults of `latency_max_ms` and `not_available_duration_ms`. A failed send counts as a latency
    of FAILURE_LATENCY_MS.
  - A later, faster send does not shorten this time.
  - A failure can also make the broker unreachable, until a send succeeds or a probe is answered. If no broker is
    available, the producer prefers a reachable one (fault_tolerant_pipeline.py).
Sources: client/latency/MQFaultStrategy.java, LatencyFaultToleranceImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["BrokerFaults"]

FAILURE_LATENCY_MS = 10_000


@dataclass(slots=True)
class _Fault:
    available_at: float
    is_reachable: bool


class BrokerFaults:
    """The slow and failing brokers of one producer: at most one entry per broker name."""

    def __init__(
        self,
        *,
        latency_max_ms: Sequence[int],
        not_available_duration_ms: Sequence[int],
        clock: Callable[[], float],
    ) -> None:
        """`clock` returns monotonic time in seconds."""
        assert len(latency_max_ms) == len(not_available_duration_ms)
        self._latency_max_ms = latency_max_ms
        self._duration_ms = not_available_duration_ms
        self._clock = clock
        self._faults: dict[str, _Fault] = {}

    def __bool__(self) -> bool:
        """Whether any broker has an entry."""
        return bool(self._faults)

    def succeeded(self, broker_name: str, *, latency_ms: float) -> None:
        """Record a successful send; `latency_ms` is the time from the request to its answer."""
        duration_ms = self._not_available_ms(latency_ms)
        fault = self._faults.get(broker_name)
        if fault is None and not duration_ms:
            return
        self._note(broker_name, duration_ms, is_reachable=True)

    def failed(self, broker_name: str, *, is_reachable: bool) -> None:
        """Record a send that was refused or not answered, or whose connection was lost."""
        self._note(broker_name, self._not_available_ms(FAILURE_LATENCY_MS), is_reachable=is_reachable)

    def reached(self, broker_name: str) -> None:
        """Record an answered probe: the broker is reachable. The time for which it is not available does not change."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.is_reachable = True

    def forget(self, broker_name: str) -> None:
        """Remove the entry of a broker that no route contains any more."""
        self._faults.pop(broker_name, None)

    def is_available(self, broker_name: str) -> bool:
        """Whether the broker has no entry, or its unavailable time is over."""
        fault = self._faults.get(broker_name)
        return fault is None or self._clock() >= fault.available_at

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the broker has no entry, or its last recorded send or probe left it reachable."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def _note(self, broker_name: str, duration_ms: int, *, is_reachable: bool) -> None:
        until = self._clock() + duration_ms / 1000
        fault = self._faults.get(broker_name)
        if fault is None:
            self._faults[broker_name] = _Fault(until, is_reachable)
            return
        fault.is_reachable = is_reachable
        if duration_ms:
            fault.available_at = max(fault.available_at, until)

    def _not_available_ms(self, latency_ms: float) -> int:
        step = bisect_right(self._latency_max_ms, latency_ms)
        return self._duration_ms[step - 1] if step else 0
