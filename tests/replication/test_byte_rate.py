"""Bytes by the second."""

from __future__ import annotations

from thermocline.replication.byte_rate import ByteRate


def test_counts_by_the_second_of_the_clock() -> None:
    rate = ByteRate()
    rate.add(5, 1_000)
    rate.add(7, 1_999)
    assert (rate.this_second(1_999), rate.last_second(1_999)) == (12, 0)
    assert (rate.this_second(2_000), rate.last_second(2_000)) == (0, 12)
    assert rate.last_second(3_000) == 0


def test_a_pause_is_no_last_second() -> None:
    rate = ByteRate()
    rate.add(5, 1_000)
    assert rate.last_second(9_000) == 0
