"""When a message with a given unique id may have been stored: between HOURS_BEFORE and HOURS_AFTER of its creation. An
id has the milliseconds since the start of its month in its producer's time zone, but not the month.
"""

from __future__ import annotations

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.records.message_id import UNIQUE_ID_CHARACTERS, month_bounds_ms, unique_id_time_ms

HOUR_MS = 3_600_000
HOURS_BEFORE = 14
"""The largest difference of time zones: the producer's month may have begun before the broker's."""
HOURS_AFTER = 24
SOON_MS = 60_000
"""Most messages are stored within this time of their creation, including those that a producer sent again."""
MONTH_MS_MAX = 31 * 24 * HOUR_MS
WINDOWS_MAX = 64

Window = tuple[int, int]


def birth_windows(key: str, *, oldest_ms: int, newest_ms: int) -> list[Window]:
    """[begin, end] for each stored month in which the id may have been created; none if the key is no id by months."""
    if len(key) not in UNIQUE_ID_CHARACTERS:  # of a gRPC client, whose messages are looked for without windows
        return []
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
    """The part of a window in which a message was most likely stored, if its producer is in the broker's time zone."""
    born_ms = window[0] + HOURS_BEFORE * HOUR_MS
    return born_ms, born_ms + SOON_MS
