"""Windows in which a message with a unique id may have been stored: one for each month, as far back as data goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from thermocline.tiered.lookups.birth_windows import (
    HOUR_MS,
    HOURS_AFTER,
    HOURS_BEFORE,
    MONTH_MS_MAX,
    SOON_MS,
    WINDOWS_MAX,
    birth_windows,
    soon_after,
)


def at(year: int, month: int, day: int = 1, hour: int = 0) -> int:
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp() * 1_000)


def key_of(since_month_ms: int) -> str:
    """As a Java producer makes it: address, process, class loader, then ms of the month, then a counter."""
    return f"{'0A010203' + '0001' + '18B4AAC2'}{since_month_ms:08X}{7:04X}"


def births(key: str, *, oldest_ms: int, newest_ms: int) -> list[int]:
    windows = birth_windows(key, oldest_ms=oldest_ms, newest_ms=newest_ms)
    assert all(end - begin == (HOURS_BEFORE + HOURS_AFTER) * HOUR_MS for begin, end in windows)
    return [begin + HOURS_BEFORE * HOUR_MS for begin, _ in windows]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The broker's time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


SINCE_MS = 9 * 24 * HOUR_MS + 5
KEY = key_of(SINCE_MS)


def test_one_window_a_month_the_newest_first() -> None:
    found = births(KEY, oldest_ms=at(2025, 1), newest_ms=at(2025, 3, 20))
    assert found == [at(2025, month) + SINCE_MS for month in (3, 2, 1)] + [at(2024, 12) + SINCE_MS]
    oldest_ms = at(2025, 2) + SINCE_MS
    for before_ms, months in ((0, (3, 2)), (HOURS_BEFORE * HOUR_MS, (3, 2)), (HOURS_BEFORE * HOUR_MS + 1, (3, 2, 1))):
        found = births(KEY, oldest_ms=oldest_ms - before_ms, newest_ms=at(2025, 3, 20))
        assert found == [at(2025, month) + SINCE_MS for month in months], before_ms


@pytest.mark.parametrize(("hours", "month"), [(-HOURS_AFTER, 3), (-HOURS_AFTER - 1, 2)])
def test_a_message_may_be_stored_before_its_birth_by_the_brokers_clock(hours: int, month: int) -> None:
    newest_ms = at(2025, 3) + SINCE_MS + hours * HOUR_MS
    assert births(KEY, oldest_ms=newest_ms, newest_ms=newest_ms)[0] == at(2025, month) + SINCE_MS


def test_windows_are_bounded() -> None:
    assert len(births(KEY, oldest_ms=0, newest_ms=at(2025, 3, 20))) == WINDOWS_MAX


@pytest.mark.parametrize("key", ["", "order-17", "x" * 32, KEY[:-1], KEY + "0", key_of(MONTH_MS_MAX + 1)])
def test_other_keys_have_none(key: str) -> None:
    assert birth_windows(key, oldest_ms=at(2025, 1), newest_ms=at(2025, 3, 20)) == []


def test_the_last_day_of_a_long_month_is_one() -> None:
    assert births(key_of(MONTH_MS_MAX), oldest_ms=at(2025, 3), newest_ms=at(2025, 4, 2)) != []


def test_most_messages_are_stored_soon_after() -> None:
    (first, *_) = birth_windows(KEY, oldest_ms=at(2025, 3), newest_ms=at(2025, 3, 20))
    assert soon_after(first) == (at(2025, 3) + SINCE_MS, at(2025, 3) + SINCE_MS + SOON_MS)
