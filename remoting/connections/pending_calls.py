"""Calls that wait for the peer's answer, by opaque; one timer for all of their deadlines."""

from __future__ import annotations

import asyncio

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, RequestTimeoutError


class PendingCalls:
    """The calls of one connection. The caller that adds one checks the bound: `len()` tells how many wait.

    The timer runs at the earliest deadline, fails what is due and sleeps until the next.
    """

    __slots__ = ("_calls", "_deadline", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: dict[int, tuple[asyncio.Future[RemotingCommand], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, opaque: int, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """Expect an answer; cancelling the future is safe."""
        assert opaque not in self._calls, "every request has an opaque of its own"
        deadline = self._loop.time() + timeout_ms / 1000
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._calls[opaque] = (future, deadline)
        if self._timer is None or deadline < self._deadline:
            self._arm(deadline)
        return future

    def settle(self, response: RemotingCommand) -> None:
        """An answer came; one that came after its time, or answers nothing of ours, is passed over."""
        call = self._calls.pop(response.opaque, None)
        if call is not None and not call[0].done():
            call[0].set_result(response)

    def fail(self, error: MQError) -> None:
        """No answer will come any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calls, self._calls = self._calls, {}
        for future, _ in calls.values():
            if not future.done():
                future.set_exception(error)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        due = [opaque for opaque, (future, deadline) in self._calls.items() if deadline <= now or future.done()]
        for opaque in due:
            future, _ = self._calls.pop(opaque)
            if not future.done():
                future.set_exception(RequestTimeoutError("no answer in time", opaque=opaque))
        if self._calls:
            self._arm(min(deadline for _, deadline in self._calls.values()))
