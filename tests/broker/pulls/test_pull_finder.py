"""A cold pull drops what has expired since it was asked for: the records at the front, and the count of those.

Covers `without_expired` of `broker/pulls/pull_finder.py`.
"""

from __future__ import annotations

import pytest

from thermocline.broker.pulls.pull_finder import without_expired
from thermocline.remoting.records.message_record import encode_record


def record(number: int) -> bytes:
    """A record that was stored at `number` ms."""
    return encode_record(
        topic="orders",
        queue_id=1,
        queue_offset=number,
        physical_offset=100 * number,
        body=b"x" * number,
        properties_text=b"",
        born_timestamp_ms=3,
        born_host=("10.0.0.1", 1),
        store_timestamp_ms=number,
        store_host=("10.0.0.1", 1),
    )


RECORDS = [record(number) for number in range(1, 7)]
RUNS = [RECORDS[0] + RECORDS[1], RECORDS[2], RECORDS[3] + RECORDS[4] + RECORDS[5]]


@pytest.mark.parametrize(("cut_ms", "dropped_count"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (6, 5), (7, 6)])
def test_expired_records_at_the_front_are_dropped_and_counted(cut_ms: int, dropped_count: int) -> None:
    kept, count = without_expired(RUNS, cut_ms)
    assert b"".join(kept) == b"".join(RECORDS[dropped_count:])
    assert count == dropped_count
