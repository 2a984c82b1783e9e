"""Listener runners: where the user's listeners run, with a bound on how many at once.

The consumer's loop submits a call and is told its outcome, on the loop, later. There are two runners of one shape:
threads, for blocking listeners, and tasks on the loop itself, for coroutine listeners. What is submitted beyond the
bound waits in line; the line is bounded by the consumer's flow control, which counts a message from its pull to its
outcome.

Threads post their outcomes to one deque and wake the loop once for many.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

__all__ = ["ListenerOutcome", "ListenerRunner", "TaskRunner", "ThreadRunner"]

ListenerOutcome: TypeAlias = "object | BaseException"
OutcomeCallback: TypeAlias = Callable[[ListenerOutcome], None]


class ListenerRunner(Protocol):
    """Runs listener calls, a bounded number at once."""

    def submit(self, call: Callable[[], Any], done: OutcomeCallback) -> None:
        """Run `call` in its turn and give `done` its result or its exception, on the loop. Only from the loop."""

    async def close(self, *, timeout_ms: int) -> bool:
        """Forget the calls that have not begun and wait for the others; False when they did not end in time."""


class ThreadRunner:
    """Blocking listeners in daemon threads, started as they are needed, at most `count_max`."""

    def __init__(self, *, count_max: int, name: str) -> None:
        assert count_max >= 1
        self._count_max = count_max
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], OutcomeCallback] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._outcomes: deque[tuple[OutcomeCallback, ListenerOutcome]] = deque()
        self._wake_up_due = False
        self._submitted_count = 0
        self._finished_count = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def submit(self, call: Callable[[], Any], done: OutcomeCallback) -> None:
        """Run `call` in its turn; see `ListenerRunner`."""
        assert not self._closed
        self._submitted_count += 1
        self._calls.put((call, done))
        if len(self._threads) < min(self._count_max, self._submitted_count - self._finished_count):
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    async def close(self, *, timeout_ms: int) -> bool:
        """Forget what has not begun, wait for the rest; see `ListenerRunner`."""
        self._closed = True
        while True:
            try:
                self._calls.get_nowait()
            except queue.Empty:
                break
            self._finished_count += 1
        for _ in self._threads:
            self._calls.put(None)
        finished = True
        if self._finished_count < self._submitted_count:
            try:
                await asyncio.wait_for(self._idle.wait(), timeout_ms / 1000)
            except TimeoutError:
                finished = False
        return finished

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            outcome: ListenerOutcome
            try:
                outcome = call()
            except BaseException as error:  # noqa: BLE001 - the user's code ends here, and its outcome is handed on
                outcome = error
            self._outcomes.append((done, outcome))
            if not self._wake_up_due:
                self._wake_up_due = True
                try:
                    self._loop.call_soon_threadsafe(self._report)
                except RuntimeError:  # the loop is gone: the listener outlived the time that close() gave it
                    return

    def _report(self) -> None:
        self._wake_up_due = False  # first: whoever appends from here on is seen below or wakes us again
        for _ in range(len(self._outcomes)):
            done, outcome = self._outcomes.popleft()
            self._finished_count += 1
            done(outcome)
        if self._closed and self._finished_count == self._submitted_count:
            self._idle.set()


class TaskRunner:
    """Coroutine listeners as tasks on the loop, at most `count_max` at once."""

    def __init__(self, *, count_max: int) -> None:
        assert count_max >= 1
        self._count_max = count_max
        self._waiting: deque[tuple[Callable[[], Awaitable[Any]], OutcomeCallback]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(self, call: Callable[[], Awaitable[Any]], done: OutcomeCallback) -> None:
        """Run `call` in its turn; see `ListenerRunner`."""
        assert not self._closed
        self._waiting.append((call, done))
        if len(self._running) < self._count_max:
            task = asyncio.get_running_loop().create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def close(self, *, timeout_ms: int) -> bool:
        """Forget what has not begun, wait for the rest; what is not done in time is cancelled."""
        self._closed = True
        self._waiting.clear()
        if not self._running:
            return True
        _, unfinished = await asyncio.wait(self._running, timeout=timeout_ms / 1000)
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)
        return not unfinished

    async def _work(self) -> None:
        while self._waiting:
            call, done = self._waiting.popleft()
            outcome: ListenerOutcome
            try:
                outcome = await call()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the user's code ends here, and its outcome is handed on
                outcome = error
            done(outcome)
