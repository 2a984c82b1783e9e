"""TTL classes: topics with a similar time to live share a pack, so that a pack expires as a whole.

    forever    messages are kept
    h{n:03}    a time to live above 2^((n-1)/2) and up to 2^(n/2) hours, for n from -12: h-12 is up to 56.25 s, h-01 up
               to 42.4 minutes, h000 up to an hour, h017 up to 15 days

Two steps double the time, so the longest time to live L of a class is at most 1.4143 times any other T in it, for every
T from a minute on: L - T < 0.4143 T. A record stays in the catalog at most so much longer because of the
other topics in its pack; expired records are invisible meanwhile. The whole bound, with the time that a pack spans and
the wait of a sweep: ADR 0033, "How long dead bytes stay".

The class is that of the time to live when the pack was written: a topic that changes it later moves with the next
merge, nothing is rewritten before. Older versions used h000 for every time to live up to an hour; such packs are
merged into the right classes, or expire.
"""

from __future__ import annotations

import math

FOREVER = "forever"
SPAN_OF_TTL = 8
"""The packs of a merge span at most 1/SPAN_OF_TTL of the longest time to live of its class."""
_HOUR_MS = 3_600_000
_STEP_MIN = -12


def ttl_class(ttl_ms: int | None) -> str:
    """The class of a time to live in effect; None keeps for ever."""
    if ttl_ms is None:
        return FOREVER
    return f"h{_step(ttl_ms):03}"


def longest_ttl_ms(name: str) -> int | None:
    """The longest time to live of a class; None for ever."""
    return None if name == FOREVER else _longest_ms(int(name[1:]))


def _longest_ms(step: int) -> int:
    return round(_HOUR_MS * 2 ** (step / 2))


def _step(ttl_ms: int) -> int:
    step = max(_STEP_MIN, math.ceil(2 * math.log2(max(1, ttl_ms) / _HOUR_MS)))
    # Rounding must not put a time into the class below it.
    while _longest_ms(step) < ttl_ms:
        step += 1
    return step
