"""Dispatch: which queue unit a record of the log stands for. The same rule serves put and recovery.

A prepared or rolled back record has no unit. The tags code is the hash of the tag; for a message in SCHEDULE_TOPIC_XXXX
it is the time at which it is to be delivered: store time plus the delay of its level. While the store clock stands
still, because the wall clock was set back behind it, a put counts from the wall clock's time: store times would all be
the same and too late. A unit that is made again (recovery, a copied log) counts from the store time.
Source: CommitLog.checkMessageAndReturnSize, ScheduleMessageService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from thermocline.remoting.records.properties import PropertyName, find_property
from thermocline.remoting.records.sys_flag import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from thermocline.remoting.string_hash import tags_code

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
UNKNOWN_LEVEL_DELAY_MS = 1_000

_TAGS = PropertyName.TAGS.encode()
_DELAY_LEVEL = PropertyName.DELAY_LEVEL.encode()


def has_unit(sys_flag: int) -> bool:
    """Whether a record with this system flag is in its queue. An inner batch is one for a batch queue only."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT) and not sys_flag & INNER_BATCH


def unit_tags_code(
    topic: str, properties_text: bytes, *, store_timestamp_ms: int, delay_levels_ms: Sequence[int]
) -> int:
    """The tags code of a record's queue unit."""
    if topic == SCHEDULE_TOPIC:
        level_text = find_property(properties_text, _DELAY_LEVEL)
        level = int(level_text) if level_text is not None and level_text.isdigit() else 0
        if level > 0:
            return store_timestamp_ms + delay_of_level_ms(level, delay_levels_ms)
    tag = find_property(properties_text, _TAGS)
    return 0 if tag is None else tags_code(tag.decode("utf-8", "replace"))


def delay_of_level_ms(level: int, delay_levels_ms: Sequence[int]) -> int:
    """The delay of a level; the last one's when it is beyond."""
    assert level > 0
    return delay_levels_ms[min(level, len(delay_levels_ms)) - 1] if delay_levels_ms else UNKNOWN_LEVEL_DELAY_MS
