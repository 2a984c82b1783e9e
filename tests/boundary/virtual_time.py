"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing else is left to do.

Hours of timeouts, pauses and backoff pass in milliseconds, and one seed gives one order of events. Work for threads is
done in place. For code without sockets: what comes from outside the process has no place in this time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from tests.store.inline_executor import InlineExecutor

P = ParamSpec("P")
T = TypeVar("T")


class _Threads(ThreadPoolExecutor):
    """No threads."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return InlineExecutor().submit(fn, *args, **kwargs)


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: what would be waited is added to the time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout != 0:
            assert timeout is not None, "everybody waits for something that never comes"
            self.now_s += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module's header."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.set_default_executor(_Threads(max_workers=1))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.now_s


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
