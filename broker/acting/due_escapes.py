"""Due escapes: what comes due at a slave that stands in for its master goes to other masters of the cluster.

    delay levels      as DelayService would deliver, level by level
    timed messages    as TimerService would: due ones at once, those that are due beyond the wheel with their time

A slice of messages is sent at once; those up to the first that failed count as delivered, the others are sent again.
Owner: the hot process's event loop.
Source: broker/schedule/ScheduleMessageService.java, store/timer/TimerMessageStore.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from thermocline.broker.acting.escape_bridge import EscapeBridge
from thermocline.broker.due import DelayService
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import PropertyName, find_property
from thermocline.store.log import MessageDraft
from thermocline.timers.due_message import DueKind, DueMessage
from thermocline.timers.timer_message_store import TimerMessageStore

logger = logging.getLogger(__name__)

SLICE_MAX = 64
PAUSE_MS = 100
REST_MS_MAX = 1_000
_OUT, _REAL_TOPIC = PropertyName.TIMER_OUT_MS.encode(), PropertyName.REAL_TOPIC.encode()


class Failures:
    """One line in the log when trouble begins, changes, and ends."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._text = ""

    async def sent_count(self, sends: Sequence[Awaitable[None]]) -> int:
        """Await these sends; how many succeeded before the first that did not."""
        results = await asyncio.gather(*sends, return_exceptions=True)
        for count, result in enumerate(results):
            if result is not None:
                if not isinstance(result, MQError):
                    raise result
                if str(result) != self._text:
                    self._text = str(result)
                    logger.error("%s wait error=%s", self._what, result)
                return count
        if self._text and results:
            self._text = ""
            logger.info("%s are sent again", self._what)
        return len(results)


class DelayEscapes:
    """Delivers messages of the delay levels."""

    def __init__(self, delays: DelayService, bridge: EscapeBridge) -> None:
        self._delays = delays
        self._bridge = bridge
        self._failures = Failures("delayed messages")

    async def deliver_slice(self) -> int | None:
        """Deliver what is due, up to a slice of each level; how long to rest afterwards, in ms;
        None: a message could not be sent."""
        pause_ms = PAUSE_MS
        has_failed = False
        for level in self._delays.levels:
            due = self._delays.due(level, SLICE_MAX)
            sent_count = await self._failures.sent_count([self._send(draft) for _, draft in due])
            if sent_count:
                last_offset, _ = due[sent_count - 1]
                self._delays.delivered_up_to(level, QueueOffset(last_offset + 1), count=sent_count)
            has_failed = has_failed or sent_count < len(due)
            if len(due) == SLICE_MAX:
                pause_ms = 0
        return None if has_failed else pause_ms

    async def _send(self, draft: MessageDraft | None) -> None:
        if draft is not None:
            await self._bridge.send(draft)


class TimerEscapes:
    """Delivers timed messages."""

    def __init__(self, timers: TimerMessageStore, bridge: EscapeBridge, *, precision_ms: int) -> None:
        self._timers = timers
        self._bridge = bridge
        self._precision_ms = precision_ms
        self._failures = Failures("timed messages")

    async def deliver_slice(self) -> int | None:
        """Send what is due, up to a slice; how long to rest afterwards, in ms; None: a message could not be sent.

        Raises:
            CorruptDataError: The timers' files are damaged.
        """
        timers = self._timers
        due = timers.step()
        count = 0
        try:
            count = await self._failures.sent_count([self._send(message) for message in due])
        finally:
            timers.confirm(count)
        if count < len(due):
            return None
        return 0 if timers.has_more else max(1, min(timers.idle_ms, REST_MS_MAX))

    async def _send(self, message: DueMessage) -> None:
        draft = message.draft
        if message.kind is DueKind.DELIVER:
            await self._bridge.send(draft)
            return
        out, topic = find_property(draft.properties_text, _OUT), find_property(draft.properties_text, _REAL_TOPIC)
        assert out is not None
        assert topic is not None
        # The tick before this time is TIMER_OUT_MS again.
        await self._bridge.send(draft, topic=topic.decode(), due_ms=int(out) + self._precision_ms)
