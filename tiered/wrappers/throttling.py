"""Throttling: spaces calls so that requests and bytes a second stay under limits, of writes and of reads.

    writes   put, create_if_absent, deletes          reads   gets, heads, listings (a listing counts as one request)

Each call takes its share of its direction's time line and waits until the line has come there; after idleness a burst
worth `burst_ms` passes at once. A call is never cut in pieces: an object that is worth ten seconds goes out as fast as
it can, and the next call waits for the rest of them. So a limit holds on average, over the largest objects. Bytes of a
whole-object get are known only afterwards and delay the calls that follow.

Limits change while calls wait: those under way keep the share that they have taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from thermocline.tiered.objects import ObjectInfo, ObjectStore
from thermocline.tiered.wrappers.retrying import Sleep
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

READS = frozenset({Verb.GET, Verb.GET_RANGE, Verb.GET_SUFFIX, Verb.HEAD, Verb.LIST})
BURST_MS = 1_000


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Most bytes and requests in a second, in each direction; 0 is no limit."""

    write_bytes_per_second: int = 0
    write_requests_per_second: int = 0
    read_bytes_per_second: int = 0
    read_requests_per_second: int = 0


class _Direction:
    """One direction's time lines, in ms of the clock: up to where they are taken."""

    def __init__(self) -> None:
        self.ms_per_byte = 0.0
        self.ms_per_request = 0.0
        self._bytes_line_ms = self._requests_line_ms = float("-inf")

    def set(self, *, bytes_per_second: int, requests_per_second: int) -> None:
        self.ms_per_byte = 1_000 / bytes_per_second if bytes_per_second else 0.0
        self.ms_per_request = 1_000 / requests_per_second if requests_per_second else 0.0

    def reserve(self, size_bytes: int, *, now_ms: float, burst_ms: int) -> float:
        """Take a share of both lines; how long to wait for it, in ms."""
        earliest_ms = now_ms - burst_ms
        # A line without a limit delays no call.
        bytes_line_ms = max(self._bytes_line_ms, earliest_ms) if self.ms_per_byte else earliest_ms
        requests_line_ms = max(self._requests_line_ms, earliest_ms) if self.ms_per_request else earliest_ms
        self._bytes_line_ms = bytes_line_ms + size_bytes * self.ms_per_byte
        self._requests_line_ms = requests_line_ms + self.ms_per_request
        return max(0.0, bytes_line_ms - now_ms, requests_line_ms - now_ms)

    def add(self, size_bytes: int) -> None:
        """More bytes have passed than were taken."""
        self._bytes_line_ms += size_bytes * self.ms_per_byte


class StoreRates:
    """The limits of one store, which may change, and their present use; shared with the component that sets them."""

    def __init__(self, limits: StoreLimits | None = None) -> None:
        self.writes = _Direction()
        self.reads = _Direction()
        self.set(limits if limits is not None else StoreLimits())

    def set(self, limits: StoreLimits) -> None:
        """Keep to these limits from now on."""
        self.writes.set(
            bytes_per_second=limits.write_bytes_per_second, requests_per_second=limits.write_requests_per_second
        )
        self.reads.set(
            bytes_per_second=limits.read_bytes_per_second, requests_per_second=limits.read_requests_per_second
        )


class ThrottlingObjectStore(WrappingObjectStore):
    """Limits the rate of calls and bytes. The number of waiting calls is not bounded here, but by each caller."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        rates: StoreRates,
        clock_ms: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
        burst_ms: int = BURST_MS,
    ) -> None:
        super().__init__(inner)
        self._rates = rates
        self._clock_ms = clock_ms
        self._sleep = sleep
        self._burst_ms = burst_ms

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        is_read = call.verb in READS
        await self._pass(self._rates.reads if is_read else self._rates.writes, call.sent_bytes + call.wanted_bytes)
        result = await attempt()
        if call.verb is Verb.GET and isinstance(result, bytes):
            self._rates.reads.add(len(result))
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        await self._pass(self._rates.reads, 0)
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info

    async def _pass(self, direction: _Direction, size_bytes: int) -> None:
        wait_ms = direction.reserve(size_bytes, now_ms=self._clock_ms(), burst_ms=self._burst_ms)
        if wait_ms > 0:
            await self._sleep(wait_ms / 1_000)


def monotonic_ms() -> float:
    """The clock that limits go by outside tests."""
    return time.monotonic() * 1_000


def with_read_limit(store: ObjectStore, bytes_per_second: int | None) -> ObjectStore:
    """The store, with reads spaced to so many bytes a second; the store itself when None."""
    if bytes_per_second is None:
        return store
    rates = StoreRates(StoreLimits(read_bytes_per_second=bytes_per_second))
    return ThrottlingObjectStore(store, rates=rates, clock_ms=monotonic_ms)
