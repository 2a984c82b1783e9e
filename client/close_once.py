"""CloseOnce: closes a client object once, also when a caller of `close` is cancelled.

Closing waits for brokers and for the application's own work. It runs in a task of its own: a caller that is cancelled
meanwhile (a time limit, Ctrl-C) leaves nothing half closed behind, a member of a group that sends heartbeats and reads
nothing; and a second caller returns when everything is closed, not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["CloseOnce"]


class CloseOnce:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether `run` was called."""
        return self._task is not None

    async def run(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin to close, if that is not done yet, and return when it is done. Cancelling stops only the waiting."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(close())
        await asyncio.shield(self._task)
