"""The garbage collector pauses while a checkpoint is coded, and runs again afterwards, also when that fails.

Covers `_collector_paused` of `tiered/ledger/checkpoint.py`; the tests of the ledger writer cover the rest.
"""

from __future__ import annotations

import gc
import zlib
from collections.abc import Iterator

import pytest
import zstandard

from thermocline.tiered.ledger.checkpoint import BucketReference, decode_bucket
from thermocline.tiered.objects.errors import LedgerCorruptError


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_as_it_was_before(*, is_enabled: bool) -> None:
    raw = b"no bucket"
    data = zstandard.compress(raw)
    reference = BucketReference(bucket=0, key="k", stored_bytes=len(data), raw_bytes=len(raw), crc32=zlib.crc32(data))
    (gc.enable if is_enabled else gc.disable)()
    with pytest.raises(LedgerCorruptError, match="cannot be decoded"):
        decode_bucket(data, reference)
    assert gc.isenabled() == is_enabled
