"""LoadingCache: values by name, loaded at their first use, refreshed while they are used, and dropped unused.

    younger than `refresh_ms`   given
    older                       given, and loaded anew beside it; what cannot be loaded stays as it was
    older than `expiry_ms`      loaded before it is given

`confirm` says that values which were loaded after some time were still true at a later one; they are as old as that.

So a name server that is away leaves a working proxy for `expiry_ms`. A value that does not exist any more (NotFound) is
dropped at the refresh. Bound: `entries_max`; beyond it the one that was used least recently goes. Callers at the same
time share one load; at most LOADS_MAX loads run, and further ones are refused: names come from clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from thermocline.remoting.errors import BrokerBusyError, MQError, ObjectNotFoundError

__all__ = ["LoadingCache"]

logger = logging.getLogger(__name__)

V = TypeVar("V")

LOADS_MAX = 1_000


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    loaded_ms: float


class LoadingCache(Generic[V]):
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        load: Callable[[str], Awaitable[V]],
        *,
        refresh_ms: int,
        expiry_ms: int,
        entries_max: int,
        clock_ms: Callable[[], float],
    ) -> None:
        self._load = load
        self._refresh_ms, self._expiry_ms, self._entries_max = refresh_ms, expiry_ms, entries_max
        self._clock_ms = clock_ms
        self._confirmed_since_ms, self._confirmed_at_ms = float("inf"), 0.0
        self._entries: dict[str, _Entry[V]] = {}  # the least recently used first
        self._loads: dict[str, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def peek(self, name: str) -> V | None:
        """Return the value that is kept, however old; None without one."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def confirm(self, *, since_ms: float, at_ms: float) -> None:
        """Take values whose load began after `since_ms` for what was true at `at_ms`."""
        self._confirmed_since_ms, self._confirmed_at_ms = since_ms, at_ms

    def values(self) -> list[V]:
        """All values, however old."""
        return [entry.value for entry in self._entries.values()]

    async def get(self, name: str) -> V:
        """Return the value; errors of the load."""
        entry = self._entries.get(name)
        if entry is None:
            return await self._load_shared(name)
        known_ms = entry.loaded_ms
        if known_ms > self._confirmed_since_ms:
            known_ms = max(known_ms, self._confirmed_at_ms)
        age_ms = self._clock_ms() - known_ms
        if age_ms >= self._expiry_ms:
            return await self._load_shared(name)
        if next(reversed(self._entries)) != name:
            del self._entries[name]
            self._entries[name] = entry
        if age_ms >= self._refresh_ms:
            self._begin_beside(name)
        return entry.value

    def refresh(self, name: str, *, asked_before_ms: float) -> None:
        """Load a value anew beside its use, if there is none or its load began before this time; returns at once."""
        entry = self._entries.get(name)
        if entry is None or entry.loaded_ms < asked_before_ms:
            self._begin_beside(name)

    def drop(self, name: str) -> None:
        """Load this name anew at its next use."""
        self._entries.pop(name, None)

    async def close(self) -> None:
        """Abandon the loads under way."""
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def _load_shared(self, name: str) -> V:
        task = self._loads.get(name)
        if task is None:
            if len(self._loads) >= LOADS_MAX:
                raise BrokerBusyError("too many names are being looked up")
            task = self._begin(name)
        return await asyncio.shield(task)

    def _begin_beside(self, name: str) -> None:
        if name not in self._loads and len(self._loads) < LOADS_MAX:
            self._begin(name)

    def _begin(self, name: str) -> asyncio.Task[V]:
        task = self._loads[name] = asyncio.get_running_loop().create_task(self._fetch(name))
        task.add_done_callback(lambda done: self._loaded(name, done))
        return task

    async def _fetch(self, name: str) -> V:
        started_ms = self._clock_ms()  # the load that was confirmed, or a later one
        value = await self._load(name)
        self._entries.pop(name, None)
        self._entries[name] = _Entry(value, started_ms)
        if len(self._entries) > self._entries_max:
            del self._entries[next(iter(self._entries))]
        return value

    def _loaded(self, name: str, task: asyncio.Task[V]) -> None:
        self._loads.pop(name, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ObjectNotFoundError):
            self._entries.pop(name, None)
        elif isinstance(error, MQError):
            logger.debug("look-up failed name=%s error=%s", name, error)
