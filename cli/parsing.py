"""Values on the command line that people write with units: durations, times, and sizes."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import click

from thermocline.remoting import duration

__all__ = ["DURATION", "SIZE", "TIME", "duration_text", "url_and_topic"]

_UNITS_BYTES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*(b|kib|mib|gib|tib|)")


class Duration(click.ParamType[int]):
    """`90s`, `12h`, `1d12h`: becomes milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error when it is none."""
        if isinstance(value, int):
            return value
        duration_ms = duration.parse_duration_ms(str(value))
        if duration_ms is None:
            self.fail(f"{value!r} is no duration; write 90s, 12h or 1d12h.", param, ctx)
        return duration_ms


class Time(click.ParamType[int]):
    """`earliest`, `latest`, `now`, an ISO time, or milliseconds since 1970: becomes milliseconds, latest -1."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error when it is none."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        known = {"earliest": 0, "latest": -1, "now": time.time_ns() // 1_000_000}
        if text.lower() in known:
            return known[text.lower()]
        if text.isdecimal():
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{value!r} is no time; write earliest, latest, 2026-05-01T12:00 or milliseconds.", param, ctx)
        return int(moment.astimezone().timestamp() * 1000)


class Size(click.ParamType[int]):
    """`512MiB`, `10GiB`, `4096`: becomes bytes, at least one."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error when it is none."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip().lower())
        size_bytes = int(match[1]) * _UNITS_BYTES[match[2]] if match else 0
        if size_bytes < 1:
            self.fail(f"{value!r} is no size; write 4096, 512MiB or 10GiB.", param, ctx)
        return size_bytes


DURATION = Duration()
TIME = Time()
SIZE = Size()


def duration_text(duration_ms: int | None) -> str:
    """Return a duration as people write it; None means for ever."""
    return "for ever" if duration_ms is None else duration.duration_text(duration_ms)


def url_and_topic(first: str, second: str) -> tuple[str, str]:
    """The URL of a bucket and the name of a topic, given in either order: a URL holds `://`, a topic cannot.

    Raises:
        click.UsageError: Not exactly one of the two is a URL.
    """
    if ("://" in first) == ("://" in second):
        raise click.UsageError("Give one TOPIC and one URL: file:///directory or s3://bucket/prefix.")
    return (first, second) if "://" in first else (second, first)
