"""BrokerFaults: which brokers a producer had better leave alone, and until when.

    a send took at least, ms         50   100    550   1800   3000    5000   15000
    left alone after it for, ms       0     0   2000   5000   6000   10000   30000

(the defaults). A send that failed counts as one of ten seconds. A broker that failed is also *unreachable* until a send
or a probe succeeds: when every broker is to be left alone, one that is not unreachable is taken first. A later, faster
send does not shorten the time. Sources: client/latency/MQFaultStrategy.java, LatencyFaultToleranceImpl.java, Apache
RocketMQ 5.3.
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
    """One producer's experience with brokers, by name. At most one entry for each that was ever slow or failed."""

    def __init__(
        self,
        *,
        latency_max_ms: Sequence[int],
        not_available_duration_ms: Sequence[int],
        clock: Callable[[], float],
    ) -> None:
        """`clock`: seconds, rising."""
        assert len(latency_max_ms) == len(not_available_duration_ms)
        self._latency_max_ms = latency_max_ms
        self._duration_ms = not_available_duration_ms
        self._clock = clock
        self._faults: dict[str, _Fault] = {}

    def __bool__(self) -> bool:
        """Whether any broker was ever slow or failed."""
        return bool(self._faults)

    def succeeded(self, broker_name: str, *, latency_ms: float) -> None:
        """A send was answered after this time."""
        duration_ms = self._duration_of(latency_ms)
        fault = self._faults.get(broker_name)
        if fault is None and not duration_ms:
            return
        self._note(broker_name, duration_ms, is_reachable=True)

    def failed(self, broker_name: str, *, is_reachable: bool) -> None:
        """A send was refused, or not answered; or the connection broke."""
        self._note(broker_name, self._duration_of(FAILURE_LATENCY_MS), is_reachable=is_reachable)

    def reached(self, broker_name: str) -> None:
        """A probe was answered. The time to leave the broker alone goes on."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.is_reachable = True

    def forget(self, broker_name: str) -> None:
        """The broker is in no route any more."""
        self._faults.pop(broker_name, None)

    def is_available(self, broker_name: str) -> bool:
        """Whether it need not be left alone."""
        fault = self._faults.get(broker_name)
        return fault is None or self._clock() >= fault.available_at

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the last that was heard of it was no failure."""
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

    def _duration_of(self, latency_ms: float) -> int:
        step = bisect_right(self._latency_max_ms, latency_ms)
        return self._duration_ms[step - 1] if step else 0
