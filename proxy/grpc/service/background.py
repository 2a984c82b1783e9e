"""Background: tasks that outlive the RPC that began them, and end with the proxy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from thermocline.remoting.errors import MQError

__all__ = ["Background"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """Bound: one task for each RPC, and one for each question of a broker, at most. Owner: the proxy's event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something until it ends or the proxy stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self, *, timeout_ms: int) -> None:
        """Wait for the tasks, and for those that they start, then cancel those that are left. Idempotent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while self._tasks and (remaining_s := deadline - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=remaining_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MQError):
            logger.error("a background task failed, a bug of ours", exc_info=error)
