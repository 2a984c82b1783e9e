"""Writes of a request body that no call awaits any more.

aiohttp writes a body in a task of its own. When the connection is lost before that task has begun, the request itself
fails, and is retried; the task's own error is never retrieved, and asyncio would log it with a traceback, as if it were
a bug.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

WRITER = aiohttp.ClientRequest.write_bytes.__qualname__
Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class _UnlessOrphanedWrite:
    """An exception handler of a loop, for all but these."""

    def __init__(self, otherwise: Handler | None) -> None:
        self._otherwise = otherwise

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if _is_orphaned_write(context):
            return
        if self._otherwise is None:
            loop.default_exception_handler(context)
        else:
            self._otherwise(loop, context)


def pass_over_orphaned_writes(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop not speak of them; of everything else it does as before. Again is as good as once."""
    handler = loop.get_exception_handler()
    if not isinstance(handler, _UnlessOrphanedWrite):
        loop.set_exception_handler(_UnlessOrphanedWrite(handler))


def _is_orphaned_write(context: dict[str, Any]) -> bool:
    task = context.get("future")
    return (
        isinstance(context.get("exception"), aiohttp.ClientConnectionError)
        and isinstance(task, asyncio.Task)
        and getattr(task.get_coro(), "__qualname__", "") == WRITER
    )
