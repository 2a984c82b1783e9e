"""Values on the command line that people write with units: durations, times, and sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from thermocline.remoting import duration
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.java_long import LONG_MAX

__all__ = [
    "DURATION",
    "MOMENT",
    "SIZE",
    "TIME",
    "duration_text",
    "optional_topic_and_url",
    "parse_pairs",
    "topic_and_url",
]

_UNITS_BYTES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,19})\s*(b|kib|mib|gib|tib|)")
_MILLISECONDS = re.compile(r"[0-9]{1,19}")


if TYPE_CHECKING:
    NumberType = click.ParamType[int]
else:
    NumberType = click.ParamType  # before click 8.4 it has no parameters


class Duration(NumberType):
    """`90s`, `12h`, `1d12h`: becomes milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error when it is none."""
        if isinstance(value, int):
            return value
        duration_ms = duration.parse_duration_ms(str(value))
        if duration_ms is None:
            self.fail(f"{value!r} is no duration; write 90s, 12h or 1d12h.", param, ctx)
        return min(duration_ms, LONG_MAX)


class Time(NumberType):
    """`earliest`, `latest`, `now`, an ISO time, or milliseconds since 1970: becomes milliseconds, latest -1.

    A time before 1970 is `earliest`: brokers take each negative number for `latest`.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error when it is none."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        named_times = {"earliest": 0, "latest": -1, "now": wall_clock_ms()}
        if text.lower() in named_times:
            return named_times[text.lower()]
        if _MILLISECONDS.fullmatch(text) and int(text) <= LONG_MAX:
            return int(text)
        try:
            return max(0, int(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time; write earliest, latest, 2026-05-01T12:00 or milliseconds.", param, ctx)


class Moment(Time):
    """A time that messages are compared with. `latest`, the end of a queue, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error when it is none."""
        moment_ms = super().convert(value, param, ctx)
        if moment_ms < 0:
            self.fail("latest is no moment; write earliest, now, 2026-05-01T12:00 or milliseconds.", param, ctx)
        return moment_ms


class Size(NumberType):
    """`512MiB`, `10GiB`, `4096`: becomes bytes, at least one."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error when it is none."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip().lower())
        size_bytes = int(match[1]) * _UNITS_BYTES[match[2]] if match else 0
        if not 1 <= size_bytes <= LONG_MAX:
            self.fail(f"{value!r} is no size; write 4096, 512MiB or 10GiB.", param, ctx)
        return size_bytes


DURATION = Duration()
TIME = Time()
MOMENT = Moment()
SIZE = Size()


def duration_text(duration_ms: int | None) -> str:
    """Return a duration as people write it; None means for ever."""
    return "for ever" if duration_ms is None else duration.duration_text(duration_ms)


def parse_pairs(pairs: Sequence[str], *, option: str) -> dict[str, str]:
    """Return `NAME=VALUE` words as a mapping. `option`: what takes them, for the error.

    Raises:
        click.BadParameter: A word is no such pair.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE.", param_hint=option)
        found[name] = value
    return found


def topic_and_url(words: Sequence[str]) -> tuple[str, str]:
    """Return topic and bucket of a command that takes `TOPIC URL`, in either order. Only a URL has `://`.

    Raises:
        click.UsageError: There is not one of each.
    """
    topic, url = optional_topic_and_url(words)
    if topic is None:
        raise _one_of_each()
    return topic, url


def optional_topic_and_url(words: Sequence[str]) -> tuple[str | None, str]:
    """Return topic, if there is one, and bucket of a command that takes `[TOPIC] URL`, in either order.

    Raises:
        click.UsageError: There is not one URL, or more than one topic.
    """
    urls = [word for word in words if "://" in word]
    topics = [word for word in words if "://" not in word]
    if len(urls) != 1 or len(topics) > 1:
        raise _one_of_each()
    return (topics[0] if topics else None), urls[0]


def _one_of_each() -> click.UsageError:
    path = click.get_current_context().command_path
    return click.UsageError(f"Give one topic and one bucket: {path} TOPIC URL, such as orders s3://bucket/prefix.")
