"""TTL classes: topics whose messages live about as long share a pack, so that a pack dies whole.

    forever    messages are kept
    h{n:03}    a time to live above 2^((n-1)/2) and up to 2^(n/2) hours, n from 0; h000: up to an hour

Two steps double the time. So a pack outlives the messages of its shortest-lived topic by at most 42 % of their time;
what has expired is visible nowhere meanwhile. The class is that of the time to live when the pack was written: a topic
that changes it later moves with the next merge, nothing is rewritten for its sake.
"""

from __future__ import annotations

import math

FOREVER = "forever"
_HOUR_MS = 3_600_000


def ttl_class(ttl_ms: int | None) -> str:
    """The class of a time to live in effect; None keeps for ever."""
    if ttl_ms is None:
        return FOREVER
    return f"h{_step(ttl_ms):03}"


def longest_ttl_ms(name: str) -> int | None:
    """The longest time to live of a class; None for ever."""
    return None if name == FOREVER else round(_HOUR_MS * 2 ** (int(name[1:]) / 2))


def _step(ttl_ms: int) -> int:
    step = max(0, math.ceil(2 * math.log2(max(1, ttl_ms) / _HOUR_MS)))
    # Rounding must not put a time into the class below it.
    while round(_HOUR_MS * 2 ** (step / 2)) < ttl_ms:
        step += 1
    return step
