"""The price table: required entries of a file, and costs computed from it.

Covers `tiered/cost/request_kind.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.cost.price_table import EXAMPLE_PATH, GIB, HOURS_PER_MONTH, PriceTable
from thermocline.tiered.cost.request_kind import RequestKind, requests_by_kind
from thermocline.tiered.wrappers.wrapping import Verb

TEXT = """
name = "ours"
currency = "EUR"
[per_1000_requests]
put = 5
get = 0.5
list = 4
delete = 0
[per_gib]
sent = 1
received = 2.5
[per_gib_month]
stored = 3
"""


def test_requests_traffic_and_storage_have_their_prices() -> None:
    prices = PriceTable.parse(TEXT, source="ours.toml")
    assert (prices.name, prices.currency) == ("ours", "EUR")
    counts = {RequestKind.PUT: 2_000, RequestKind.GET: 1_000, RequestKind.LIST: 250, RequestKind.DELETE: 9}
    assert prices.requests(counts) == pytest.approx(10 + 0.5 + 1)
    assert prices.traffic(sent_bytes=2 * GIB, received_bytes=GIB) == pytest.approx(4.5)
    assert prices.stored(10 * GIB) == pytest.approx(30)
    assert prices.stored(10 * GIB, hours=HOURS_PER_MONTH / 2) == pytest.approx(15)


def test_verbs_are_billed_by_kind() -> None:
    counts = requests_by_kind({Verb.PUT: 3, Verb.CREATE_IF_ABSENT: 4, Verb.HEAD: 1, Verb.GET_SUFFIX: 2, Verb.LIST: 5})
    assert counts == {RequestKind.PUT: 7, RequestKind.GET: 3, RequestKind.LIST: 5, RequestKind.DELETE: 0}


def test_the_example_is_whole_and_calls_itself_an_example() -> None:
    example = PriceTable.example()
    assert example.name == "example"
    assert set(example.per_1000_requests) == set(RequestKind)
    assert "not an offer" in EXAMPLE_PATH.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('name = "ours"', "", "name and currency"),
        ("put = 5", "", "per_1000_requests.put"),
        ("put = 5", "putt = 5", "per_1000_requests.putt"),
        ("put = 5", "put = -1", "per_1000_requests.put"),
        ("put = 5", "put = true", "per_1000_requests.put"),
        ("put = 5", "put = nan", "per_1000_requests.put"),
        ("[per_gib]\nsent = 1\nreceived = 2.5", "", "missing=per_gib"),
        ("[per_gib_month]", "[per_month]", "per_month"),
        ("put = 5", "put =", "no TOML"),
    ],
)
def test_a_price_that_is_missing_or_misspelt_is_not_taken_for_nothing(before: str, after: str, message: str) -> None:
    assert before in TEXT
    with pytest.raises(InvalidRequestError) as raised:
        PriceTable.parse(TEXT.replace(before, after), source="ours.toml")
    assert message in str(raised.value)
    assert "ours.toml" in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"gone\.toml"):
        PriceTable.load(tmp_path / "gone.toml")
