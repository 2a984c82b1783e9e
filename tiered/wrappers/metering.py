"""Metering: counts requests, failures and bytes by verb, and into further accounts by key where it is given any.

Stands below retrying, so that it counts what the store was really asked. A provider that tells of its requests
(`TellsRequests`) is believed: of S3 each part of an upload counts, each 1000 keys of a bulk delete, each page of a
listing, each repetition. Of others a call counts once, and a listing once for each started page of 1000 keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from thermocline.remoting.errors import MQError, ObjectNotFoundError
from thermocline.tiered.objects import AlreadyExistsError, ObjectInfo, ObjectStore, ObjectSuffix
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

LIST_PAGE_COUNT = 1000


@dataclass(slots=True, kw_only=True)
class StoreCounters:
    """What has passed. `errors` counts failures; that an object is not there, or is there already, is an answer."""

    requests: Counter[Verb] = field(default_factory=Counter)
    errors: Counter[Verb] = field(default_factory=Counter)
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def request_count(self) -> int:
        """Requests of all verbs."""
        return self.requests.total()

    @property
    def put_count(self) -> int:
        """Requests that store cost most for: put and create-if-absent."""
        return self.requests[Verb.PUT] + self.requests[Verb.CREATE_IF_ABSENT]

    def copy(self) -> StoreCounters:
        """The counters as they are now."""
        return StoreCounters(
            requests=self.requests.copy(),
            errors=self.errors.copy(),
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
        )

    def since(self, earlier: StoreCounters) -> StoreCounters:
        """What has been added since `earlier`, a copy."""
        return StoreCounters(
            requests=self.requests - earlier.requests,
            errors=self.errors - earlier.errors,
            sent_bytes=self.sent_bytes - earlier.sent_bytes,
            received_bytes=self.received_bytes - earlier.received_bytes,
        )


@runtime_checkable
class TellsRequests(Protocol):
    """A store of which a call may be any number of requests, and that says of each when it is sent."""

    def tell_requests(self, listener: Callable[[Verb, str], None]) -> None:
        """Tell of each request from now on: for which verb, about which key."""


AccountsOf = Callable[[str], tuple[StoreCounters, ...]]
"""Which counters a request for a key, or for names that begin like it, counts into as well."""


class MeteringObjectStore(WrappingObjectStore):
    """Counts into `counters`, and by `accounts_of` where there is one."""

    def __init__(
        self, inner: ObjectStore, counters: StoreCounters | None = None, accounts_of: AccountsOf | None = None
    ) -> None:
        super().__init__(inner)
        self.counters = counters if counters is not None else StoreCounters()
        self._accounts_of = accounts_of
        self._is_told = isinstance(inner, TellsRequests)
        if isinstance(inner, TellsRequests):
            inner.tell_requests(self._sent)

    def _sent(self, verb: Verb, key: str) -> None:
        for counters in self._books(key):
            counters.requests[verb] += 1

    def _books(self, key: str) -> tuple[StoreCounters, ...]:
        return (self.counters,) if self._accounts_of is None else (self.counters, *self._accounts_of(key))

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        books = self._books(call.key)
        for counters in books:
            if not self._is_told:
                counters.requests[call.verb] += 1
            counters.sent_bytes += call.sent_bytes
        try:
            result = await attempt()
        except (ObjectNotFoundError, AlreadyExistsError):
            raise
        except MQError:
            for counters in books:
                counters.errors[call.verb] += 1
            raise
        received_bytes = _received_bytes(result)
        if received_bytes:
            for counters in books:
                counters.received_bytes += received_bytes
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        books, count = self._books(prefix), 0
        if not self._is_told:
            _count_page(books)
        try:
            async for info in self._inner.list(prefix, start_after=start_after):
                if count and count % LIST_PAGE_COUNT == 0 and not self._is_told:
                    _count_page(books)
                count += 1
                yield info
        except MQError:
            for counters in books:
                counters.errors[Verb.LIST] += 1
            raise


def _received_bytes(result: object) -> int:
    if isinstance(result, bytes):
        return len(result)
    return len(result.data) if isinstance(result, ObjectSuffix) else 0


def _count_page(books: Iterable[StoreCounters]) -> None:
    for counters in books:
        counters.requests[Verb.LIST] += 1
