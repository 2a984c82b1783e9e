"""Throttling: spaces calls so that requests and bytes a second stay under a limit.

Each call takes its share of a time line and waits until the line has come there; after idleness a burst worth
`burst_ms` passes at once. Bytes of a whole-object get are known only afterwards and delay the calls that follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from thermocline.tiered.object_store import ObjectInfo, ObjectStore
from thermocline.tiered.wrappers.retrying import Sleep
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore


class ThrottlingObjectStore(WrappingObjectStore):
    """Limits what passes; None is no limit. Waiting calls are not bounded here: whoever calls bounds its own number."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        clock_ms: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
        bytes_per_second: int | None = None,
        requests_per_second: int | None = None,
        burst_ms: int = 1_000,
    ) -> None:
        super().__init__(inner)
        assert bytes_per_second is None or bytes_per_second > 0
        assert requests_per_second is None or requests_per_second > 0
        self._clock_ms = clock_ms
        self._sleep = sleep
        self._ms_per_byte = 1000 / bytes_per_second if bytes_per_second else 0.0
        self._ms_per_request = 1000 / requests_per_second if requests_per_second else 0.0
        self._burst_ms = burst_ms
        self._bytes_line_ms = float("-inf")
        self._requests_line_ms = float("-inf")

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        await self._pass(call.sent_bytes + call.wanted_bytes)
        result = await attempt()
        if call.verb is Verb.GET and isinstance(result, bytes):
            self._bytes_line_ms += len(result) * self._ms_per_byte
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        await self._pass(0)
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info

    async def _pass(self, size_bytes: int) -> None:
        """Wait for room on both time lines, and take it."""
        now_ms = self._clock_ms()
        earliest_ms = now_ms - self._burst_ms
        self._bytes_line_ms = max(self._bytes_line_ms, earliest_ms)
        self._requests_line_ms = max(self._requests_line_ms, earliest_ms)
        start_ms = max(self._bytes_line_ms, self._requests_line_ms)
        self._bytes_line_ms += size_bytes * self._ms_per_byte
        self._requests_line_ms += self._ms_per_request
        if start_ms > now_ms:
            await self._sleep((start_ms - now_ms) / 1000)
