"""What a client does when a broker answers that it is busy: it asks again, until the call's own deadline.

A broker answers SYSTEM_BUSY (RocketMQ's code 2) to what it cannot serve now and has not begun: a bound was reached, or
the cold tier has not been heard of yet, as in the first seconds after a start. A moment later the same question has its
answer; so callers of the SDK see `BrokerBusyError` only when it stays so for as long as they were ready to wait.

`RETRIED_CODES` are the questions, and the one command that moves a group by them. Other commands are refused at once:
what is busy there may stay so for long (a scrub that runs), and the caller decides. Sends have their own rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.request_code import RequestCode

__all__ = ["RETRIED_CODES", "BusyPauses", "retry_while_busy"]

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
PAUSE_MAX_S = 1.0

RETRIED_CODES = frozenset(
    {
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.QUERY_MESSAGE,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)


class BusyPauses:
    """Pauses that double, from 50 ms to `most_s`."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._next_s = min(FIRST_PAUSE_S, most_s)

    def next_s(self) -> float:
        """Return the next pause."""
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, self._most_s)
        return pause_s

    def reset(self) -> None:
        """Begin with short ones again: the broker has answered."""
        self._next_s = min(FIRST_PAUSE_S, self._most_s)


async def retry_while_busy(ask: Callable[[int], Awaitable[T]], *, timeout_ms: int) -> T:
    """Call `ask` with the milliseconds that are left, again and again while it raises BrokerBusyError.

    Raises:
        BrokerBusyError: So it was when the time was up.
        MQError: Whatever else `ask` raises.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    pauses = BusyPauses(PAUSE_MAX_S)
    while True:
        try:
            return await ask(max(1, round((deadline - loop.time()) * 1000)))
        except BrokerBusyError:
            pause_s = pauses.next_s()
            if loop.time() + pause_s >= deadline:
                raise
        await asyncio.sleep(pause_s)
