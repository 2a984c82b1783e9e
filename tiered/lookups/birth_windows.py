"""When a message with a given unique id was stored, as far as the id tells: between HOURS_BEFORE and HOURS_AFTER of its
making. An id counts milliseconds since the start of its month in its maker's time zone, and does not say which month.
"""

from __future__ import annotations

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.message_id import month_bounds_ms, unique_id_time_ms

HOUR_MS = 3_600_000
HOURS_BEFORE = 14
"""As far as time zones are apart, so that the maker's month may have begun before ours."""
HOURS_AFTER = 24
SOON_MS = 60_000
"""Most messages are stored within this time of their making, and so are those that a producer has sent again."""
MONTH_MS_MAX = 31 * 24 * HOUR_MS
WINDOWS_MAX = 64

Window = tuple[int, int]


def birth_windows(key: str, *, oldest_ms: int, newest_ms: int) -> list[Window]:
    """[begin, end] of each month in which the id may have been made and that history reaches; none for another key."""
    try:
        born_ms = unique_id_time_ms(key, newest_ms + HOURS_AFTER * HOUR_MS)
    except InvalidParameterError:
        return []
    if born_ms - month_bounds_ms(born_ms)[0] > MONTH_MS_MAX or int(key[-12:-4], 16) > MONTH_MS_MAX:
        return []
    windows: list[Window] = []
    while len(windows) < WINDOWS_MAX:
        windows.append((born_ms - HOURS_BEFORE * HOUR_MS, born_ms + HOURS_AFTER * HOUR_MS))
        if windows[-1][0] <= oldest_ms:
            break
        born_ms = unique_id_time_ms(key, month_bounds_ms(born_ms)[0] - 1)
    return windows


def soon_after(window: Window) -> Window:
    """The part of a window in which a message was most likely stored, if its maker's time zone is ours."""
    born_ms = window[0] + HOURS_BEFORE * HOUR_MS
    return born_ms, born_ms + SOON_MS
