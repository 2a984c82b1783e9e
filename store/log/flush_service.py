"""Flush: group commit for callers that wait, and a periodic flush for those that do not.

One fdatasync is in flight. It makes durable what was appended before it began; if callers still wait at its end, the
next one begins at once. So a thousand waiting sends cost two or three syncs, and a lone one waits for one.
A failed sync answers all callers with SERVICE_NOT_AVAILABLE, is not tried again, and the log takes no more writes
(commit_log.py). A caller that has waited too long gets FLUSH_DISK_TIMEOUT: the message is in the log, perhaps not
durable.
Owner: the loop thread. The job that `run_in_thread` gets is CommitLog.flush.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.log.commit_log import CommitLog
from thermocline.store.log.message_draft import PutStatus

logger = logging.getLogger(__name__)

FlushCallback = Callable[[PutStatus], None]
RunInThread = Callable[[Callable[[], int], Callable[[BaseException | None], None]], None]
"""Run a job in a helper thread, then call back on the loop's thread with what it raised."""


def run_inline(job: Callable[[], int], done: Callable[[BaseException | None], None]) -> None:
    """Run the job here and now: for tools and tests without a loop."""
    try:
        job()
    except (MQError, OSError) as error:
        done(error)
    else:
        done(None)


class FlushGate:
    """The callers that wait, by offset. Unbounded in itself: the server bounds the requests that may be waiting."""

    def __init__(self, log: CommitLog, run_in_thread: RunInThread = run_inline) -> None:
        self._log = log
        self._run_in_thread = run_in_thread
        self._waiting: deque[tuple[PhysicalOffset, int, FlushCallback]] = deque()
        self._in_flight = False

    def use(self, run_in_thread: RunInThread) -> None:
        """Run flushes this way from now on; while none is in flight."""
        assert not self._in_flight
        self._run_in_thread = run_in_thread

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def wait(self, offset: PhysicalOffset, callback: FlushCallback, *, deadline_ms: int = 1 << 62) -> None:
        """Call back once the log is durable up to `offset`, at once if it is. In order of offsets."""
        if offset <= self._log.flush_offset:
            callback(PutStatus.PUT_OK)
            return
        self._waiting.append((offset, deadline_ms, callback))
        self.flush()

    def flush(self) -> None:
        """Begin a flush, unless one is in flight."""
        if not self._in_flight:
            self._in_flight = True
            self._run_in_thread(self._log.flush, self._finished)

    def expire(self, now_ms: int) -> None:
        """Answer those whose deadline has passed. Called now and then."""
        if any(deadline_ms <= now_ms for _, deadline_ms, _ in self._waiting):
            late = [callback for _, deadline_ms, callback in self._waiting if deadline_ms <= now_ms]
            self._waiting = deque(entry for entry in self._waiting if entry[1] > now_ms)
            for callback in late:
                callback(PutStatus.FLUSH_DISK_TIMEOUT)

    def _finished(self, error: BaseException | None) -> None:
        self._in_flight = False
        if error is not None:
            logger.error("flush failed waiting=%d error=%s", len(self._waiting), error)
            self._answer_all(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        waiting, flush_offset = self._waiting, self._log.flush_offset
        while waiting and waiting[0][0] <= flush_offset:
            _, _, callback = waiting.popleft()
            callback(PutStatus.PUT_OK)
        if waiting:
            self.flush()

    def _answer_all(self, status: PutStatus) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, _, callback in waiting:
            callback(status)


def run_in_executor(loop: asyncio.AbstractEventLoop, executor: Executor) -> RunInThread:
    """A way to run flushes for a gate that belongs to an asyncio loop. The executor needs one thread."""

    def run(job: Callable[[], int], done: Callable[[BaseException | None], None]) -> None:
        def finished(future: asyncio.Future[int]) -> None:
            if not future.cancelled():
                done(future.exception())

        loop.run_in_executor(executor, job).add_done_callback(finished)

    return run
