"""Values as Hadoop writes them: durations with a suffix, counts.

Source: org.apache.hadoop.conf.Configuration, `getTimeDuration`.
"""

from __future__ import annotations

import re

from thermocline.remoting.errors import InvalidRequestError

DURATION = re.compile(r"([0-9]{1,18})\s*(ns|us|ms|s|m|h|d)?")
UNIT_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3_600e3, "d": 86_400e3}
DURATION_MS_MAX = 7 * 86_400_000
COUNT_MAX = 100_000


def duration_ms(option: str, value: str, *, zero: bool = False) -> float:
    """Milliseconds of `30s`, `5m` or `1500`; `zero`: whether none at all can be meant.

    Raises:
        InvalidRequestError: It is no duration, or none that a request may take.
    """
    found = DURATION.fullmatch(value.strip().lower())
    if found is None:
        raise InvalidRequestError("a duration is a whole number with ms, s, m, h or d", option=option, value=value)
    milliseconds = int(found[1]) * UNIT_MS[found[2] or "ms"]
    if milliseconds > DURATION_MS_MAX or (milliseconds < 1 and not (zero and milliseconds == 0)):
        raise InvalidRequestError("a duration is at least 1 ms and at most 7 days", option=option, value=value)
    return milliseconds


def count(option: str, value: str, *, least: int = 0) -> int:
    """A whole number from `least` to `COUNT_MAX`.

    Raises:
        InvalidRequestError: It is none.
    """
    text = value.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= COUNT_MAX):
        raise InvalidRequestError(f"a whole number from {least} to {COUNT_MAX} is wanted", option=option, value=value)
    return int(text)
