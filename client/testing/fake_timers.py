"""FakeTimers: messages of a fake broker that wait for their time, and their recall.

Waiting messages are in the timer topic, as on a real broker; the answer has their offset and id. Delays are kept to
the millisecond; a recall takes the message back at once, instead of storing a marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from thermocline.remoting.errors import IllegalOperationError
from thermocline.remoting.handles import RecallHandle, decode_recall_handle
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.topic_validation import is_retry_topic

__all__ = ["DELAYS_S", "FakeTimers", "delay_ms"]

DELAYS_S = (1, 5, 10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))
assert len(DELAYS_S) == 18, "RocketMQ's delay levels"
TICK_MS = 1_000


def delay_ms(properties: Mapping[str, str], *, now_ms: int) -> int:
    """How long a message with these properties is to wait; 0 for not at all."""
    level = int(properties.get(PropertyName.DELAY_LEVEL, "0"))
    if level > 0:
        return DELAYS_S[min(level, len(DELAYS_S)) - 1] * 1_000
    if PropertyName.TIMER_DELAY_S in properties:
        return max(0, int(properties[PropertyName.TIMER_DELAY_S]) * 1_000)
    if PropertyName.TIMER_DELAY_MS in properties:
        return max(0, int(properties[PropertyName.TIMER_DELAY_MS]))
    return max(0, int(properties.get(PropertyName.TIMER_DELIVER_MS, "0")) - now_ms)


class FakeTimers:
    """What waits on one fake broker. Belongs to the fake cluster's loop."""

    def __init__(self, *, broker_name: str, clock_ms: Callable[[], int]) -> None:
        self._broker_name = broker_name
        self._clock_ms = clock_ms
        self._waiting: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def handle_of(self, topic: str, properties: Mapping[str, str], wait_ms: int) -> str | None:
        """The recall handle of a message that waits; None for one with a delay level, or of a retry topic."""
        if wait_ms <= 0 or int(properties.get(PropertyName.DELAY_LEVEL, "0")) > 0 or is_retry_topic(topic):
            return None
        tick_ms = (self._clock_ms() + wait_ms - 1) // TICK_MS * TICK_MS
        return RecallHandle(
            topic=topic,
            broker_name=self._broker_name,
            timestamp_text=str(tick_ms + 1),
            unique_key=properties.get(PropertyName.UNIQUE_KEY, ""),
        ).encode()

    def keep(self, topic: str, unique_key: str, wait_ms: int, deliver: Callable[[], None]) -> None:
        """Call `deliver` when the time has come, unless the message is recalled."""
        key = topic, unique_key

        def due() -> None:
            self._waiting.pop(key, None)
            deliver()

        self._waiting[key] = asyncio.get_running_loop().call_later(wait_ms / 1_000, due)

    def recall(self, topic: str, handle_text: str) -> str:
        """Take a message back; its unique id.

        Raises:
            IllegalOperationError: The handle is none, for another topic or broker, or its time has come.
        """
        handle = decode_recall_handle(handle_text)
        if handle.topic != topic:
            raise IllegalOperationError("recall failed, topic not match")
        if handle.broker_name != self._broker_name:
            raise IllegalOperationError("recall failed, broker service not available")
        if int(handle.timestamp_text) <= self._clock_ms():
            raise IllegalOperationError("recall failed, timestamp invalid")
        waiting = self._waiting.pop((topic, handle.unique_key), None)
        if waiting is not None:
            waiting.cancel()
        return handle.unique_key

    def close(self) -> None:
        """Deliver nothing more."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()
