"""Exposition: figures as the text that Prometheus reads.

    # HELP thermocline_put_bytes_total Record bytes stored, by topic.
    # TYPE thermocline_put_bytes_total counter
    thermocline_put_bytes_total{topic="orders"} 4096

In label values `\\`, `"` and line feeds are escaped. Pure.
Source: Prometheus text exposition format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

__all__ = ["CONTENT_TYPE", "Exposition", "Families", "MetricType"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricType(StrEnum):
    """As Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Families = Mapping[str, tuple[MetricType, str]]
"""Every name that a page may show, in its order, with its type and what it says."""


class Exposition:
    """Collects samples; `text` gives them family by family."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """A sample of one of the families."""
        assert name in self._families
        self._samples.setdefault(name, []).append(_sample(name, value, labels or {}))

    def add_histogram(
        self, name: str, bounds: Sequence[float], counts: Sequence[int], total: float, labels: Mapping[str, str]
    ) -> None:
        """A histogram of one of the families. `counts`: of values up to each bound alone, and above the last one;
        `total`: the sum of the values."""
        assert self._families[name][0] is MetricType.HISTOGRAM
        assert len(counts) == len(bounds) + 1
        samples, below = self._samples.setdefault(name, []), 0
        for bound, count in zip((*map(_number, bounds), "+Inf"), counts, strict=True):
            below += count
            samples.append(_sample(f"{name}_bucket", below, {**labels, "le": bound}))
        samples.append(_sample(f"{name}_sum", total, labels))
        samples.append(_sample(f"{name}_count", below, labels))

    def text(self) -> bytes:
        """All of it, families in their order."""
        lines: list[str] = []
        for name, (metric_type, description) in self._families.items():
            samples = self._samples.get(name)
            if samples:
                lines += [f"# HELP {name} {description}", f"# TYPE {name} {metric_type}", *samples]
        return "".join(f"{line}\n" for line in lines).encode()


def _sample(name: str, value: float, labels: Mapping[str, str]) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
