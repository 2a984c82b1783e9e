"""Durations with units, read and written."""

from __future__ import annotations

import pytest

from thermocline.remoting.duration import duration_text, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("90s", 90_000),
        ("12h", 43_200_000),
        ("1d12h", 129_600_000),
        (" 1 D 12 h ", 129_600_000),
        ("250ms", 250),
        ("1m", 60_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert parse_duration_ms(duration_text(duration_ms)) == duration_ms


@pytest.mark.parametrize("text", ["", "90", "s", "1.5h", "-1h", "1h90", "1 week", "٣h"])
def test_anything_else_is_none(text: str) -> None:
    assert parse_duration_ms(text) is None


@pytest.mark.parametrize("text", ["9" * 5_000 + "s", "9" * 20 + "h", "9" * 20 + "ms", "9" * 18 + "d"], ids=len)
def test_what_is_more_than_a_long_stays_so(text: str) -> None:
    """Python refuses to read numbers of some thousand digits."""
    duration_ms = parse_duration_ms(text)
    assert duration_ms is not None
    assert duration_ms > 2**63 - 1


def test_the_shortest_text() -> None:
    assert duration_text(90_061_001) == "1d1h1m1s1ms"
    assert duration_text(0) == "0s"
