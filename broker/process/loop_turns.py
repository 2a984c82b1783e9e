"""Loop turns: runs work that takes longer than the loop may be blocked, one piece at a time.

    add(job)    job(is_time_up) works until it is done (True) or `is_time_up()` says that the turn is over (False)

Jobs wait in line. In each turn of the loop those in front work for `TURN_S` together, then the sockets are served; a
job that is not done goes to the end of the line. So a connection waits for one turn, however many jobs there are, and
a short job waits for one turn of each long one.

Rules
  - A job does not raise. One that does is a bug of ours: it is logged and counts as done.
  - At most `jobs_max` wait; beyond that `add` refuses, and the job's request is answered with flow control.
Belongs to the hot process's loop.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

TURN_S = 0.0005
JOBS_MAX = 100_000
"""As many as RocketMQ's broker lets pulls wait for a thread (`pullThreadPoolQueueCapacity`)."""

Job = Callable[[Callable[[], bool]], bool]


def job_of(steps: Iterator[None]) -> Job:
    """The job of taking all of these steps, one a turn at least."""

    def take_steps(is_time_up: Callable[[], bool]) -> bool:
        return all(not is_time_up() for _ in steps)

    return take_steps


class LoopTurns:
    """See the module's header."""

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        clock_s: Callable[[], float] = time.perf_counter,
        turn_s: float = TURN_S,
        jobs_max: int = JOBS_MAX,
    ) -> None:
        """`call_soon` runs a function in the loop's next turn; `clock_s` never steps back."""
        self._call_soon = call_soon
        self._clock_s = clock_s
        self._turn_s = turn_s
        self._jobs_max = jobs_max
        self._jobs: deque[Job] = deque()
        self._is_called = False

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> bool:
        """Have it done in the turns to come, the next one at the earliest; False when too many wait already."""
        if len(self._jobs) >= self._jobs_max:
            return False
        self._jobs.append(job)
        self._call()
        return True

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_called = False
        clock_s = self._clock_s
        end_s = clock_s() + self._turn_s

        def is_time_up() -> bool:
            return clock_s() >= end_s

        jobs = self._jobs
        for _ in range(len(jobs)):  # one that is added meanwhile has its first turn in the next one
            job = jobs.popleft()
            try:
                is_done = job(is_time_up)
            except Exception:
                logger.exception("job dropped, a bug of ours")
                is_done = True
            if not is_done:
                jobs.append(job)
            if is_time_up():
                break
        if jobs:
            self._call()
