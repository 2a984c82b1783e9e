"""Exposition: figures as the text that Prometheus reads.

    # HELP thermocline_put_bytes_total Record bytes stored, by topic.
    # TYPE thermocline_put_bytes_total counter
    thermocline_put_bytes_total{topic="orders"} 4096

In label values `\\`, `"` and line feeds are escaped. Pure.
Source: Prometheus text exposition format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.broker.metrics.families import FAMILIES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Collects samples; `text` gives them family by family."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """A sample of a family in FAMILIES."""
        assert name in FAMILIES
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in (labels or {}).items())
        number = str(int(value)) if float(value).is_integer() else repr(float(value))
        self._samples.setdefault(name, []).append(f"{name}{{{shown}}} {number}" if shown else f"{name} {number}")

    def text(self) -> bytes:
        """All of it, families in their order in FAMILIES."""
        lines: list[str] = []
        for name, (metric_type, description) in FAMILIES.items():
            samples = self._samples.get(name)
            if samples:
                lines += [f"# HELP {name} {description}", f"# TYPE {name} {metric_type}", *samples]
        return "".join(f"{line}\n" for line in lines).encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
