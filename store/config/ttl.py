"""TTL: the rule by which a message is visible or has expired, hot or cold.

    visible exactly when   store time >= max(expired_before_ms, now - ttl)

`expired_before_ms` is the cut that a change of the TTL found (incarnation.py): fixed durably before the change takes
effect, so that what has expired once does not come back when the TTL grows. Who asks: the broker for every read
(broker/tables/topic_table.py, `expired_before`), Spark for every plan. What of the cold tier goes for good:
tiered/catalog/ttl.py.
"""

from __future__ import annotations


def visible_from_ms(*, ttl_ms: int | None, expired_before_ms: int, now_ms: int) -> int:
    """The store time from which on messages are visible. `ttl_ms` None: for ever."""
    return expired_before_ms if ttl_ms is None else max(expired_before_ms, now_ms - ttl_ms)
