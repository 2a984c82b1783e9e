"""Timer request: what a sender's timer properties ask for, and the message to store instead.

    TIMER_DELAY_SEC, TIMER_DELAY_MS   relative to now      the first one present counts, in this order
    TIMER_DELIVER_MS                  absolute, ms

    stored: topic rmq_sys_wheel_timer, queue 0, with REAL_TOPIC and REAL_QID, and TIMER_OUT_MS: the tick in which it is
    due, rounded down; a whole multiple of the precision counts for the tick before

Rules
  - A delay level has the last word: the caller takes the timer properties away then, and does not come here.
  - A message that carries TIMER_OUT_MS has been timed already and is stored as it is.
  - A time that has come is none: the message is stored at once. Not so a recall marker, which is refused.
Source: HookUtils.java (handleScheduleMessage), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from thermocline.remoting.errors import MessageIllegalError
from thermocline.remoting.java_long import LONG_MAX, LONG_MIN
from thermocline.remoting.records.properties import VALUE_END, PropertyName, encode_properties, without_property
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.log import MessageDraft
from thermocline.timers.timer_config import TimerConfig

TIMER_REQUESTS = (PropertyName.TIMER_DELAY_S, PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS)
TIMER_QUEUE_ID = 0
SET_PROPERTIES = (PropertyName.TIMER_OUT_MS, PropertyName.REAL_TOPIC, PropertyName.REAL_QUEUE_ID)

_JAVA_LONG = re.compile(r"[+-]?[0-9]{1,20}")


def is_timer_request(properties: Mapping[str, str]) -> bool:
    """Whether a message with these properties asks for a time of delivery."""
    return PropertyName.TIMER_OUT_MS not in properties and any(name in properties for name in TIMER_REQUESTS)


def requested_ms(properties: Mapping[str, str], *, now_ms: int, delay_ms_max: int) -> int:
    """The time of delivery that the properties ask for.

    Raises:
        MessageIllegalError: It is no number.
    """
    for name, unit_ms in ((PropertyName.TIMER_DELAY_S, 1_000), (PropertyName.TIMER_DELAY_MS, 1)):
        if name in properties:
            return now_ms + _number(properties[name], delay_ms_max) * unit_ms
    return _number(properties[PropertyName.TIMER_DELIVER_MS], delay_ms_max)


def due_tick_ms(deliver_ms: int, precision_ms: int) -> int:
    """TIMER_OUT_MS for a time of delivery: its tick, which covers the times (tick, tick + precision]."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def timed_draft(
    draft: MessageDraft, properties: Mapping[str, str], config: TimerConfig, *, now_ms: int
) -> MessageDraft | None:
    """The draft as it is to be stored until its time; None when that has come, and it is to be stored as it is.

    `properties` are the draft's own, decoded; `is_timer_request` says that they ask for a time. Whether its tick has
    room is for `TimerMessageStore.schedule` to say.

    Raises:
        MessageIllegalError: The time is no number or too far away, or a recall marker's time has come.
    """
    assert is_timer_request(properties)
    deliver_ms = requested_ms(properties, now_ms=now_ms, delay_ms_max=config.delay_ms_max)
    if deliver_ms <= now_ms:
        if PropertyName.TIMER_DELETE_UNIQUE_KEY in properties:
            raise illegal_timer(config.delay_ms_max)
        return None
    if deliver_ms - now_ms > config.delay_ms_max:
        raise illegal_timer(config.delay_ms_max)
    text = draft.properties_text
    for name in SET_PROPERTIES:
        text = without_property(text, name.encode())
    if text and not text.endswith(VALUE_END.encode()):
        text += VALUE_END.encode()
    text += encode_properties(
        {
            PropertyName.TIMER_OUT_MS: str(due_tick_ms(deliver_ms, config.precision_ms)),
            PropertyName.REAL_TOPIC: draft.topic,
            PropertyName.REAL_QUEUE_ID: str(draft.queue_id),
        }
    )
    return msgspec.structs.replace(
        draft, topic=TIMER_TOPIC, queue_id=TIMER_QUEUE_ID, properties_text=text, tags_code=None
    )


def illegal_timer(delay_ms_max: int) -> MessageIllegalError:
    """The refusal that RocketMQ's clients know."""
    return MessageIllegalError(
        f"timer message illegal, the delay time should not be bigger than the max delay {delay_ms_max}ms; "
        "or if set del msg, the delay time should be bigger than the current time"
    )


def _number(text: str, delay_ms_max: int) -> int:
    """A number as Java's Long.parseLong reads it."""
    if not _JAVA_LONG.fullmatch(text) or not LONG_MIN <= int(text) <= LONG_MAX:
        raise illegal_timer(delay_ms_max)
    return int(text)
