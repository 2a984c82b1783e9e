"""Object stores for code that blocks: one event loop in a thread of its own, and the stores opened on it, per process.

Spark's planner and workers call plain functions, while the project's stores are asyncio. A worker process runs many
tasks, so a store (with its connections) is opened at the first use of a URL and kept until the process ends or
`close_stores` is called.
A forked child opens its own stores: neither the thread nor the connections survive a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from thermocline.spark.access.store_options import BucketOptions, StoreOptions
from thermocline.spark.access.store_url import open_cold_store, split_url
from thermocline.tiered.objects import ObjectStore

Answer = TypeVar("Answer")
CLOSE_TIMEOUT_S = 2.0


class BlockingStore:
    """A store and the event loop that runs it. Any thread may call it, except the loop's own."""

    __slots__ = ("loop", "store")

    def __init__(self, store: ObjectStore, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.loop = loop

    def submit(self, call: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Start a call on the store's loop and return its future at once."""
        return asyncio.run_coroutine_threadsafe(call, self.loop)

    def run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Start a call and wait for its answer."""
        return self.submit(call).result()


OpenStore: TypeAlias = Callable[[str, StoreOptions], BlockingStore]
"""What opens the store of a cold tier's URL, as `blocking_store` does."""


class _StoresOfProcess:
    """What one process keeps: the loop's thread and the open stores."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.lock = threading.Lock()
        self.loop = asyncio.new_event_loop()
        self.stores: dict[tuple[str, BucketOptions], BlockingStore] = {}
        # A daemon: it holds nothing that must be flushed, and must not keep a worker alive.
        self.thread = threading.Thread(target=self.loop.run_forever, name="object-store", daemon=True)
        self.thread.start()

    def open(self, url: str, options: BucketOptions) -> BlockingStore:
        with self.lock:
            found = self.stores.get((url, options))
            if found is None:
                opening = asyncio.run_coroutine_threadsafe(open_cold_store(url, options), self.loop)
                found = self.stores[(url, options)] = BlockingStore(opening.result(), self.loop)
            return found

    def close(self) -> None:
        with self.lock:
            for opened in self.stores.values():
                with contextlib.suppress(TimeoutError):
                    opened.submit(opened.store.close()).result(CLOSE_TIMEOUT_S)
            self.stores.clear()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(CLOSE_TIMEOUT_S)
            if not self.thread.is_alive():
                self.loop.close()


_kept: _StoresOfProcess | None = None
_kept_lock = threading.Lock()


def blocking_store(url: str, options: StoreOptions) -> BlockingStore:
    """The store of a cold tier's URL, opened once per process.

    Raises:
        InvalidRequestError: The URL or an option cannot be used.
    """
    return _kept_here().open(url, options.for_bucket(split_url(url)[1]))


def loop_of_process() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process's stores, for a caller that opens a store itself."""
    return _kept_here().loop


def _kept_here() -> _StoresOfProcess:
    """Return this process's stores; a forked child gets an empty set of its own."""
    global _kept
    with _kept_lock:
        if _kept is None or _kept.process_id != os.getpid():
            _kept = _StoresOfProcess()
        return _kept


def close_stores() -> None:
    """Close this process's stores; no call may be running. Called at exit; the next use opens them again."""
    global _kept
    with _kept_lock:
        kept, _kept = _kept, None
    if kept is not None and kept.process_id == os.getpid():
        kept.close()


atexit.register(close_stores)
