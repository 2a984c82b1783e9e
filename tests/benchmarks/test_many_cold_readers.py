"""A small `benchmarks/many_cold_readers.py`: a real broker, a cold tier in a directory, and twelve readers at once.

What the tier process takes more than before is bounded by its settings and by how many read, not by what they read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.many_cold_readers import measure

MIB = 1 << 20
READERS = 12
RAW_BYTES = 10 * MIB
CACHE_BYTES = 8 * MIB
READ_BYTES = 4 * MIB
READER_MB = 2.0
"""What a reader may take: answers on their way, frames being decoded, its connection."""


@pytest.mark.full
def test_readers_cost_what_the_settings_allow(tmp_path: Path) -> None:
    outcome = measure(
        tmp_path,
        cold_url=(tmp_path / "cold").as_uri(),
        topic_count=READERS,
        raw_bytes=RAW_BYTES,
        body_bytes=1_024,
        log_file_bytes=4 * MIB,
        properties={"coldCacheBytes": str(CACHE_BYTES), "coldReadBudgetBytes": str(READ_BYTES)},
    )
    assert outcome.progress.size_bytes > READERS * RAW_BYTES * 2 // 3  # half of them leave half way
    grown_mb = outcome.resident_mb - outcome.idle_mb
    allowed_mb = (CACHE_BYTES + READ_BYTES) / 1e6 + READERS * READER_MB
    assert grown_mb <= allowed_mb < outcome.progress.size_bytes / 2e6
