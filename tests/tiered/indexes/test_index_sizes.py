"""How many bytes a key takes, on objects that are really made: what the limits for 100 million keys rest on.

`python -m benchmarks.index_objects` measures five million of them.
"""

from __future__ import annotations

import pytest

from benchmarks.index_objects import WANTED_KEYS, measure
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.indexes.index_policy import SLOTS

BYTES_PER_KEY_MAX = 14
BLOOM_BYTES_MAX = 128_000_000


@pytest.mark.parametrize("topic_count", [1, 20])
async def test_a_key_takes_at_most_fourteen_bytes(topic_count: int) -> None:
    found = await measure(200_000, topic_count=topic_count, keys_of_object=25_000)
    assert found.key_count == 200_000
    assert found.bytes_per_key <= BYTES_PER_KEY_MAX
    # Entries of a smaller object cost more, never less: gaps between hashes are wider.
    assert found.bloom_bytes * 8 / found.key_count <= 9.5
    assert found.blooms_of_wanted <= BLOOM_BYTES_MAX
    assert found.ledger_bytes / found.key_count * WANTED_KEYS <= 3_000_000
    assert found.resident_bytes == found.bloom_bytes


async def test_all_blooms_of_the_wanted_keys_are_resident_by_default() -> None:
    """A small part of them in as small a part of the default cache: those that were kept, and those that are loaded."""
    keys = 600_000
    index_bytes = TierConfig().index_bytes * keys // WANTED_KEYS
    everything = keys // SLOTS * (SLOTS + 1)
    found = await measure(
        everything, topic_count=1, keys_of_object=25_000, slot_count=SLOTS + 1, index_bytes=index_bytes
    )
    assert found.key_count == everything
    assert found.resident_bytes == found.bloom_bytes > 0
    assert found.bloom_bytes * WANTED_KEYS / keys <= BLOOM_BYTES_MAX


async def test_without_room_the_newest_blooms_are_resident() -> None:
    found = await measure(130_000, topic_count=1, keys_of_object=10_000, slot_count=13, index_bytes=100_000)
    assert 0 < found.resident_bytes <= 100_000 < found.bloom_bytes
