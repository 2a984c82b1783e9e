"""Finding records and reading their heads, in bytes that are whole, misleading or damaged."""

from __future__ import annotations

import numpy as np
import pytest

from tests.spark.sample_records import HOST_V6, TIME_MS, record
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.record_heads import find_records, read_heads


def test_heads_are_read_whatever_the_hosts() -> None:
    heads = read_heads(
        record(1, b"one")
        + record(2, b"two!", born_host=HOST_V6)
        + record(3, b"", store_host=HOST_V6, reconsume_times=4)
        + record(4, b"four", born_host=HOST_V6, store_host=HOST_V6, topic="t" * 200)
    )
    assert heads.integers("queue_offset").tolist() == [1, 2, 3, 4]
    assert heads.integers("store_timestamp_ms").tolist() == [TIME_MS + 5 + offset for offset in (1, 2, 3, 4)]
    assert heads.integers("reconsume_times").tolist() == [0, 0, 4, 0]
    assert heads.integers("body_bytes").tolist() == [3, 4, 0, 4]
    assert heads.topic_bytes.tolist() == [6, 6, 6, 200]
    bodies = [
        bytes(heads.data[start : start + size]) for start, size in zip(heads.body_starts, (3, 4, 0, 4), strict=True)
    ]
    assert bodies == [b"one", b"two!", b"", b"four"]


def test_some_rows_can_be_taken() -> None:
    heads = read_heads(b"".join(record(offset) for offset in range(5)))
    assert heads.select(np.array([True, False, True, False, False])).integers("queue_offset").tolist() == [0, 2]
    assert heads.select(np.array([4, 1])).integers("queue_offset").tolist() == [4, 1]


def test_bodies_that_hold_records_do_not_mislead_the_scan() -> None:
    inner = record(9) + record(10)
    records = record(0, inner) + record(1, b"\xda\xa3\x20\xa7") + record(2)
    starts, sizes = find_records(np.frombuffer(records, np.uint8))
    assert len(starts) == 3
    assert (starts + sizes).tolist() == [*starts[1:].tolist(), len(records)]


def test_an_invalid_record_is_reported_with_its_position() -> None:
    first = record(0)
    broken_magic = bytearray(record(1))
    broken_magic[4] ^= 1
    with pytest.raises(CorruptDataError, match=f"no record magic position={len(first)}"):
        read_heads(first + bytes(broken_magic))
    longer = bytearray(record(1))
    longer[0:4] = (10_000).to_bytes(4, "big")
    with pytest.raises(CorruptDataError, match=f"impossible record size position={len(first)}"):
        read_heads(first + bytes(longer))
    wrong_sum = bytearray(record(1))
    wrong_sum[84:88] = (3).to_bytes(4, "big")
    with pytest.raises(CorruptDataError, match="queue_offset=1"):
        read_heads(first + bytes(wrong_sum))
