"""Pieces of packs in memory: what two loads of one section count for."""

from __future__ import annotations

import asyncio

from benchmarks.lookup_history import NAMES, History, tier_of
from thermocline.tiered.catalog.pack_pieces import PackPieces, _memory_bytes
from thermocline.tiered.lookups.key_sources import PackTails, packs_of

TOPIC = NAMES[0]


async def test_a_section_that_comes_twice_counts_once() -> None:
    """A lookup by key that reads the whole footer may be faster than a pull that has requested the section."""
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=1, is_packed=True)
        store, catalog = tier.writer.store, tier.writer.catalog
        (pack,) = packs_of(catalog, catalog.topics[TOPIC])
        pieces = PackPieces(store)
        tails = PackTails(store, pieces)
        loading = asyncio.create_task(pieces.of_topic(pack, TOPIC))
        await asyncio.sleep(0)
        await tails.keys_of(pack, TOPIC)
        await loading
        assert pieces.size_bytes == sum(map(_memory_bytes, pieces._sections.values())) > 0
