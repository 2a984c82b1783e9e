"""Durations and counts, as Hadoop writes them."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.access.hadoop_values import count, duration_ms


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [("1500", 1_500), ("30s", 30_000), (" 5 M ", 300_000), ("500ms", 500), ("2h", 7_200_000), ("7d", 604_800_000)],
)
def test_a_number_without_a_suffix_is_milliseconds(value: str, milliseconds: int) -> None:
    assert duration_ms("timeout", value) == milliseconds


@pytest.mark.parametrize("value", ["", "s", "-5s", "1.5s", "5 weeks", "8d", "0", "10us", "١s", "9" * 30])
def test_invalid_request_durations_are_refused(value: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"a duration is .* option=timeout"):
        duration_ms("timeout", value)


def test_none_at_all_can_be_meant() -> None:
    assert duration_ms("interval", "0", zero=True) == 0


@pytest.mark.parametrize("value", ["-1", "0", "1.0", "many", "1000000", "²"])
def test_invalid_counts_are_refused(value: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"from 1 to 100000 is wanted option=n value={value}"):
        count("n", value, least=1)
    assert count("n", " 7 ") == 7
