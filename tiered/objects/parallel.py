"""run_all: several awaitables side by side, at most so many at a time, with the one error that a caller can handle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")

CONCURRENCY_MAX = 16


async def run_all(
    coroutines: Iterable[Coroutine[Any, Any, Result]], *, concurrency_max: int = CONCURRENCY_MAX
) -> list[Result]:
    """Their results in order. The first failure cancels the others, waits for them, and is raised as it is."""
    waiting = list(coroutines)
    limit = asyncio.Semaphore(concurrency_max)

    async def limited(coroutine: Coroutine[Any, Any, Result]) -> Result:
        async with limit:
            return await coroutine

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(limited(coroutine)) for coroutine in waiting]
    except BaseExceptionGroup as failures:
        error: BaseException = failures
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from failures
    finally:
        for coroutine in waiting:
            coroutine.close()  # those cancelled before their turn would warn that they were never awaited
    return [task.result() for task in tasks]
