"""How many bytes a key takes, on objects that are really made: what the limits for 100 million keys rest on.

`python -m benchmarks.index_objects` measures five million of them.
"""

from __future__ import annotations

import pytest

from benchmarks.index_objects import WANTED_KEYS, measure

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
