"""Durations as people write them, on the command line and in attributes: `90s`, `12h`, `1d12h`; ms, s, m, h, d."""

from __future__ import annotations

import re

__all__ = ["duration_text", "parse_duration_ms"]

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"([0-9]+)\s*(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:[0-9]+\s*(?:ms|s|m|h|d)\s*)+")
DIGITS_MAX = 19


def parse_duration_ms(text: str) -> int | None:
    """Milliseconds; None when the text is no duration. A number needs its unit.

    Numbers of more than DIGITS_MAX digits count as 10**DIGITS_MAX, which is more than a long has in any unit.
    """
    text = text.strip().lower()
    if not _WHOLE.fullmatch(text):
        return None
    return sum(_number(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))


def duration_text(duration_ms: int) -> str:
    """The same duration in as few units as it takes, the largest first."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, duration_ms = divmod(duration_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _number(text: str) -> int:
    """Python refuses texts of some thousand digits."""
    digits = text.lstrip("0")
    return 10**DIGITS_MAX if len(digits) > DIGITS_MAX else int(digits or "0")
