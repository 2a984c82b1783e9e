"""Metering: counts requests, failures and bytes by verb.

Stands below retrying, so that it counts what the store was really asked. A `put` counts once however it is cut into
parts; a listing counts once for each started page of 1000 keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from thermocline.remoting.errors import MQError
from thermocline.tiered.object_store import ObjectInfo, ObjectStore, ObjectSuffix
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

LIST_PAGE_COUNT = 1000


@dataclass(slots=True, kw_only=True)
class StoreCounters:
    """What has passed; `errors` counts every failure, not-found and already-exists included."""

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


class MeteringObjectStore(WrappingObjectStore):
    """Counts into `counters`."""

    def __init__(self, inner: ObjectStore, counters: StoreCounters | None = None) -> None:
        super().__init__(inner)
        self.counters = counters if counters is not None else StoreCounters()

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        counters = self.counters
        counters.requests[call.verb] += 1
        counters.sent_bytes += call.sent_bytes
        try:
            result = await attempt()
        except MQError:
            counters.errors[call.verb] += 1
            raise
        if isinstance(result, bytes):
            counters.received_bytes += len(result)
        elif isinstance(result, ObjectSuffix):
            counters.received_bytes += len(result.data)
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        counters, count = self.counters, 0
        counters.requests[Verb.LIST] += 1
        try:
            async for info in self._inner.list(prefix, start_after=start_after):
                if count and count % LIST_PAGE_COUNT == 0:
                    counters.requests[Verb.LIST] += 1
                count += 1
                yield info
        except MQError:
            counters.errors[Verb.LIST] += 1
            raise
