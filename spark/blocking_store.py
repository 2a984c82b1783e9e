"""Object stores for code that blocks: one event loop in a thread of its own, and the stores opened on it, per process.

Spark's planner and workers call plain functions, the project's stores are asyncio. A worker process lives through many
tasks, so a store (with its connections) is opened at the first use of a URL and kept until the process ends.
A forked child starts afresh: neither the thread nor the connections survive a fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from thermocline.spark.store_options import BucketOptions, StoreOptions
from thermocline.spark.store_url import open_cold_store, split_url
from thermocline.tiered.object_store import ObjectStore

Answer = TypeVar("Answer")


class BlockingStore:
    """A store and the loop that it lives on; any thread may use it, except the loop's own."""

    __slots__ = ("loop", "store")

    def __init__(self, store: ObjectStore, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.loop = loop

    def submit(self, call: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Start a call on the store's loop; it goes on while the caller does something else."""
        return asyncio.run_coroutine_threadsafe(call, self.loop)

    def run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Start a call and wait for its answer."""
        return self.submit(call).result()


class _StoresOfProcess:
    """What one process keeps: the loop's thread and the open stores."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.lock = threading.Lock()
        self.loop = asyncio.new_event_loop()
        self.stores: dict[tuple[str, BucketOptions], BlockingStore] = {}
        # A daemon: it holds nothing that must be flushed, and must not keep a worker alive.
        threading.Thread(target=self.loop.run_forever, name="object-store", daemon=True).start()

    def open(self, url: str, options: BucketOptions) -> BlockingStore:
        with self.lock:
            found = self.stores.get((url, options))
            if found is None:
                opening = asyncio.run_coroutine_threadsafe(open_cold_store(url, options), self.loop)
                found = self.stores[(url, options)] = BlockingStore(opening.result(), self.loop)
            return found


_kept: _StoresOfProcess | None = None
_kept_lock = threading.Lock()


def blocking_store(url: str, options: StoreOptions) -> BlockingStore:
    """The store of a cold tier's URL, opened once per process.

    Raises:
        InvalidRequestError: The URL or an option cannot be used.
    """
    global _kept
    bucket_options = options.for_bucket(split_url(url)[1])
    with _kept_lock:
        if _kept is None or _kept.process_id != os.getpid():
            _kept = _StoresOfProcess()
        kept = _kept
    return kept.open(url, bucket_options)
