"""Requests of one task to a store, counted apart from other tasks and from retries."""

from __future__ import annotations

from random import Random

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.spark.access.blocking_store import BlockingStore, loop_of_process
from thermocline.spark.access.counted_store import CountedStore
from thermocline.spark.access.request_counts import RequestCounts, counting_requests
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import RetryingObjectStore, RetryPolicy
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore


class FailsFirst(WrappingObjectStore):
    """Gives no answer to the first `failures` ranges."""

    def __init__(self, inner: ObjectStore, *, failures: int) -> None:
        super().__init__(inner)
        self._failures = failures

    async def get_range(self, key: str, *, start: int, end: int) -> bytes:
        if self._failures:
            self._failures -= 1
            raise ObjectStoreUnavailableError("not now")
        return await super().get_range(key, start=start, end=end)


def shared_store(*, failures: int) -> BlockingStore:
    """A store as a process keeps it: retries above the place where requests are counted."""
    memory = MemoryObjectStore()
    policy = RetryPolicy(first_delay_ms=1)
    retrying = RetryingObjectStore(
        counting_requests(FailsFirst(memory, failures=failures)), policy=policy, random=Random(1)
    )
    store = BlockingStore(retrying, loop_of_process())
    store.run(memory.put("a/key", b"0123456789"))
    return store


def read(store: BlockingStore, count: int) -> None:
    calls = [store.submit(store.store.get_range("a/key", start=at, end=at + 2)) for at in range(count)]
    assert [call.result() for call in calls] == [b"0123456789"[at : at + 2] for at in range(count)]


def test_retries_are_requests_but_no_calls() -> None:
    counts = RequestCounts()
    read(CountedStore(shared_store(failures=2), counts), 5)
    assert (counts.gets, counts.retries, counts.fetched_bytes) == (7, 2, 10)


def test_tasks_that_share_a_store_are_counted_apart() -> None:
    store, first, second = shared_store(failures=0), RequestCounts(), RequestCounts()
    read(CountedStore(store, first), 3)
    read(CountedStore(store, second), 1)
    read(store, 4)
    assert (first.gets, second.gets) == (3, 1)
    assert (first.retries, second.retries) == (0, 0)


def test_a_store_without_a_counter_below_has_no_retries() -> None:
    memory, counts = MemoryObjectStore(), RequestCounts()
    base = BlockingStore(memory, loop_of_process())
    base.run(memory.put("a/key", b"0123456789"))
    read(CountedStore(base, counts), 2)
    assert (counts.gets, counts.retries, counts.fetched_bytes) == (2, 0, 4)
