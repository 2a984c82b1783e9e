"""RequestCounts: the store requests of one task, counted separately for each task that a worker process runs.

Calls are counted where the task makes them; requests are counted below the retries, where they are sent. The context
that a call was submitted in names the task. Requests beyond the number of calls are retries.
"""

from __future__ import annotations

from contextvars import ContextVar

from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore, StoreCounters


class RequestCounts:
    """The requests that one task has sent to its stores so far."""

    __slots__ = ("calls", "requests")

    def __init__(self) -> None:
        self.calls = StoreCounters()
        self.requests = StoreCounters()

    @property
    def gets(self) -> int:
        """Requests that were sent; calls, where the store below counts no requests."""
        return max(self.requests.request_count, self.calls.request_count)

    @property
    def retries(self) -> int:
        """Requests that repeated another one."""
        return self.gets - self.calls.request_count

    @property
    def fetched_bytes(self) -> int:
        """Bytes of all answers."""
        return self.calls.received_bytes


def counting_requests(store: ObjectStore) -> ObjectStore:
    """Stands below retrying: counts each request for the task on whose behalf it is sent."""
    return MeteringObjectStore(store, accounts_of=_accounts_of)


def count_for(counts: RequestCounts) -> None:
    """From here on in this context, requests count for `counts`."""
    _current.set(counts)


def _accounts_of(_key: str) -> tuple[StoreCounters, ...]:
    counts = _current.get()
    return () if counts is None else (counts.requests,)


_current: ContextVar[RequestCounts | None] = ContextVar("task of a request", default=None)
