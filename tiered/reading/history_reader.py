"""A cold reader on one fixed catalog, with its own frame cache, for a bucket that is read once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache

CACHE_BYTES = 64 << 20


@asynccontextmanager
async def catalog_reader(store: ObjectStore, catalog: Catalog) -> AsyncIterator[ColdReader]:
    """Open the reader, and close it with its cache."""
    cache = FrameCache(bytes_max=CACHE_BYTES)
    reader = ColdReader(store, catalog=lambda: catalog, cache=cache)
    try:
        yield reader
    finally:
        await reader.close()
        await cache.close()
