"""CountedStore: a store whose calls count for one task, though the process keeps one store for all its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from thermocline.spark.access.blocking_store import BlockingStore
from thermocline.spark.access.request_counts import RequestCounts, count_for
from thermocline.tiered.wrappers import MeteringObjectStore

Answer = TypeVar("Answer")


class CountedStore(BlockingStore):
    """The same store, counting into `counts`."""

    __slots__ = ("_counts",)

    def __init__(self, base: BlockingStore, counts: RequestCounts) -> None:
        super().__init__(MeteringObjectStore(base.store, counts.calls), base.loop)
        self._counts = counts

    def submit(self, call: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """See BlockingStore."""
        context = copy_context()
        context.run(count_for, self._counts)
        return context.run(asyncio.run_coroutine_threadsafe, call, self.loop)
