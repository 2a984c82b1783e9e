"""Listener runners: where the user's listeners run, with a bound on how many at once.

The consumer's loop submits a call and receives its outcome, on the loop, later. There are two runners of one shape:
threads, for blocking listeners, and tasks on the loop itself, for coroutine listeners. What is submitted beyond the
bound waits in line; the line is bounded by the consumer's flow control, which counts a message from its pull to its
outcome.

Threads post their outcomes to one deque and wake the loop once for many.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from thermocline.remoting.errors import ClosedError, MQError

__all__ = [
    "ListenerCancelledError",
    "ListenerJob",
    "ListenerNotRunError",
    "ListenerRunner",
    "TaskRunner",
    "ThreadRunner",
    "is_own_cancellation",
    "run_directly",
]


class ListenerNotRunError(ClosedError):
    """Outcome of a call that was cancelled, or whose runner closed, before it began."""


class ListenerCancelledError(MQError):
    """Outcome of a coroutine listener that raised CancelledError by itself: what it waited for was cancelled."""


@dataclass(slots=True, eq=False)
class ListenerJob:
    """One call of a listener. `done` gets its result or its exception, on the loop, once."""

    call: Callable[[], Any]
    done: Callable[[ListenerJob, object], None]
    started_at: float | None = None
    """When the call began, by the monotonic clock, in seconds."""
    is_cancelled: bool = False
    """Set by the caller to cancel the call: if it has not begun, its outcome is ListenerNotRunError."""


class ListenerRunner(Protocol):
    """Runs listener calls, a bounded number at once."""

    def submit(self, job: ListenerJob) -> None:
        """Run the job in its turn. Only from the loop."""

    async def close(self, *, timeout_ms: int) -> bool:
        """Leave out the jobs that have not begun and wait for the others; False when they did not end in time."""


class ThreadRunner:
    """Blocking listeners in daemon threads, started as they are needed, at most `count_max`."""

    def __init__(self, *, count_max: int, name: str) -> None:
        assert count_max >= 1
        self._count_max = count_max
        self._name = name
        self._jobs: queue.SimpleQueue[ListenerJob | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._outcomes: deque[tuple[ListenerJob, object]] = deque()
        self._wake_up_due = False
        self._submitted_count = 0
        self._finished_count = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def submit(self, job: ListenerJob) -> None:
        """Run the job in its turn; see `ListenerRunner`."""
        assert not self._closed
        self._submitted_count += 1
        self._jobs.put(job)
        if len(self._threads) < min(self._count_max, self._submitted_count - self._finished_count):
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    async def close(self, *, timeout_ms: int) -> bool:
        """Leave out what has not begun, wait for the rest; see `ListenerRunner`."""
        self._closed = True
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            assert job is not None
            self._finished_count += 1
            job.done(job, ListenerNotRunError())
        for _ in self._threads:
            self._jobs.put(None)
        if self._finished_count < self._submitted_count:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._idle.wait()
            except TimeoutError:
                return False
        return True

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome: object
            try:
                outcome = ListenerNotRunError() if job.is_cancelled else self._call(job)
            except BaseException as error:  # noqa: BLE001 - the user's code ends here, and its outcome is handed on
                outcome = error
            self._outcomes.append((job, outcome))
            if not self._wake_up_due:
                self._wake_up_due = True
                try:
                    self._loop.call_soon_threadsafe(self._report)
                except RuntimeError:  # the loop is gone: the listener outlived the time that close() gave it
                    return

    def _call(self, job: ListenerJob) -> object:
        job.started_at = time.monotonic()
        return job.call()

    def _report(self) -> None:
        self._wake_up_due = False  # first: a later append is seen below, or wakes the loop again
        for _ in range(len(self._outcomes)):
            job, outcome = self._outcomes.popleft()
            self._finished_count += 1
            job.done(job, outcome)
        if self._closed and self._finished_count == self._submitted_count:
            self._idle.set()


class TaskRunner:
    """Coroutine listeners as tasks on the loop, at most `count_max` at once."""

    def __init__(self, *, count_max: int) -> None:
        assert count_max >= 1
        self._count_max = count_max
        self._waiting: deque[ListenerJob] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(self, job: ListenerJob) -> None:
        """Run the job in its turn; see `ListenerRunner`."""
        assert not self._closed
        self._waiting.append(job)
        if len(self._running) < self._count_max:
            task = asyncio.get_running_loop().create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def close(self, *, timeout_ms: int) -> bool:
        """Leave out what has not begun, wait for the rest; what is not done in time is cancelled."""
        self._closed = True
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            job.done(job, ListenerNotRunError())
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
            job = self._waiting.popleft()
            outcome: object
            try:
                if job.is_cancelled:
                    outcome = ListenerNotRunError()
                else:
                    job.started_at = time.monotonic()
                    outcome = await job.call()
            except asyncio.CancelledError as error:
                if is_own_cancellation():
                    raise
                outcome = ListenerCancelledError("a listener raised CancelledError", reason=repr(error))
            except BaseException as error:  # noqa: BLE001 - the user's code ends here, and its outcome is handed on
                outcome = error
            job.done(job, outcome)


def is_own_cancellation() -> bool:
    """Whether the task that runs was cancelled; else a CancelledError is of something that its code waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def run_directly(runner: ListenerRunner, call: Callable[[], Any]) -> object:
    """Run one call in its turn and return its result, or raise its exception."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def done(job: ListenerJob, outcome: object) -> None:
        if future.done():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    runner.submit(ListenerJob(call, done))
    return await future
