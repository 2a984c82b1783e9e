"""Stop signals: SIGTERM and SIGINT ask a process to stop; further ones have no effect while it ends.

The handlers are the process's own, not the event loop's: a loop that removes its handlers installs the default actions
for a moment, and a signal in that moment, which any thread of the process may receive, ends the process with another
exit status than the first one's, or prints a traceback. These handlers are replaced by SIG_IGN in one step.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


@contextmanager
def stop_signals(numbers: Collection[signal.Signals] = STOP_SIGNALS) -> Iterator[asyncio.Event]:
    """The event that the first stop signal sets; call in the main thread's running loop.

    Behind this block the process ignores these signals: it is the last thing that the process does.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.set)  # it runs between any two instructions of the loop

    for number in numbers:
        signal.signal(number, request_stop)
    try:
        yield stop
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Do this, and give what it gives; None when the event came first, and the work was cancelled.

    A start may take as long as others let it: a master waits for its slaves, a resolver does not answer.
    """
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        return None
    finally:
        working.cancel()
        stopping.cancel()
