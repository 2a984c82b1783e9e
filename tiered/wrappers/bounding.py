"""Bounding: reads of parts of objects wait until the bytes that they ask for fit a budget, held until they end.

    held       ranges and suffixes, by their requested size: nearly all reads of large objects
    passes     everything else: ledger entries, heads, listings, all writes

A cancelled call gives its share back at once. Stands above retrying: a call that is repeated holds its share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from thermocline.tiered.objects import ByteBudget, ObjectStore
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, WrappingObjectStore


class BoundingObjectStore(WrappingObjectStore):
    """See the module's header. Belongs to one event loop."""

    def __init__(self, inner: ObjectStore, reads: ByteBudget) -> None:
        super().__init__(inner)
        self._reads = reads

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if not call.wanted_bytes:
            return await attempt()
        async with self._reads.hold(call.wanted_bytes):
            return await attempt()
