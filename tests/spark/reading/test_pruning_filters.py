"""Conditions that prune: whatever passes them is read, and what is ruled out by place is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.cold_tier import NOW_MS, ColdTier, by_place, flights, rows_of
from tests.spark.message_rows import EPOCH, normal_rows
from tests.tiered.cold_data import START_MS, Log
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.pruning_filters import SimpleFilter, filters_text, parse_filters
from thermocline.spark.reading.source_options import read_options_from

ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)
START_US = START_MS * 1_000
_names = itertools.count()


def new_url() -> str:
    return f"memory://pruned-{next(_names)}"


@pytest.fixture(scope="module")
def orders() -> tuple[str, list[dict[str, Any]]]:
    """Two brokers with 1500 messages each in three segments, with keys of one, two or no words; and all rows."""
    url, expected = new_url(), []
    for seed, broker in enumerate(("broker-a", "broker-b")):
        log = flights("orders", 1_300, seed=seed, queue_count=3)
        add_odd_keys(log)
        ColdTier(url, broker_name=broker).seal_in_pieces(log, 3)
        expected += rows_of(log, broker_name=broker)
    return url, expected


def add_odd_keys(log: Log) -> None:
    for number in range(200):
        log.now_ms += 1
        keys = [None, "k1 k2", "k2", " k3", "k1"][number % 5]
        log.append(number % 3, body=b"x" * 50, keys=keys, tag=["UA", None, "odd"][number % 3])


# -- comparisons as Spark makes them, and what they mean -------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["orders", "order", "payments", ""]),
    "brokerName": st.sampled_from(["broker-a", "broker-b", "broker-", "z"]),
    "queueId": st.integers(-1, 3),
    "queueOffset": st.integers(-2, 520),
    "timestamp": st.integers(START_US - 10_000, START_US + 1_000_000),
    "tag": st.sampled_from(["UA", "DL", "odd", "XX", ""]),
    "key": st.sampled_from(["k1 k2", "k2", "k1", " k3", "none", ""]),
}
ORDERED = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
MEANING: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda mine, value: mine == value,
    "EqualNullSafe": lambda mine, value: mine == value,
    "GreaterThan": lambda mine, value: mine > value,
    "GreaterThanOrEqual": lambda mine, value: mine >= value,
    "LessThan": lambda mine, value: mine < value,
    "LessThanOrEqual": lambda mine, value: mine <= value,
    "In": lambda mine, value: mine in value,
    "StringStartsWith": lambda mine, value: mine.startswith(value),
    "StringEndsWith": lambda mine, value: mine.endswith(value),
    "StringContains": lambda mine, value: value in mine,
}


@st.composite
def filters(draw: st.DrawFn) -> SimpleFilter:
    column = draw(st.sampled_from(sorted(VALUES)))
    names = [*ORDERED, "In", "IsNull", "IsNotNull"]
    if column in ("topic", "brokerName", "tag", "key"):
        names += ["StringStartsWith", "StringEndsWith", "StringContains"]
    name = draw(st.sampled_from(names))
    if name.startswith("Is"):
        value = None
    else:
        value = draw(st.lists(VALUES[column], min_size=1, max_size=5) if name == "In" else VALUES[column])
    return SimpleFilter(name, column, value, draw(st.booleans()) and draw(st.booleans()))


def holds(each: SimpleFilter, row: dict[str, Any]) -> bool:
    """Whether SQL says true of a row; false stands for unknown too."""
    mine, name = row[each.column], each.comparison
    if each.column == "timestamp":
        mine = (mine - EPOCH) // timedelta(microseconds=1)
    if name in ("IsNull", "IsNotNull"):
        return ((mine is None) == (name == "IsNull")) != each.negated
    if mine is None:
        return name == "EqualNullSafe" and each.negated
    return MEANING[name](mine, each.value) != each.negated


SETTLED = ("topic", "brokerName", "queueId", "queueOffset")


@given(given_filters=st.lists(filters(), min_size=1, max_size=4), data=st.data())
@settings(deadline=None, max_examples=60)
def test_matching_rows_are_read_and_excluded_places_are_not(
    orders: tuple[str, list[dict[str, Any]]], given_filters: list[SimpleFilter], data: st.DataObject
) -> None:
    url, everything = orders
    options = {"path": url, "topic": "orders", "columns": ALL_COLUMNS, "where": filters_text(given_filters)}
    options["maxPartitionBytes"] = data.draw(st.sampled_from(["20k", "256m"]))
    checked = read_options_from(options)
    plan = resolve_plan(checked, now_ms=NOW_MS)
    read = [row for task in plan.tasks for batch in FrameReader(checked).read(task) for row in batch.to_pylist()]
    found = by_place(row for row in normal_rows(read) if all(holds(each, row) for each in given_filters))
    assert found == by_place(row for row in everything if all(holds(each, row) for each in given_filters))
    by_places = [each for each in given_filters if each.column in SETTLED]
    assert all(holds(each, row) for row in read for each in by_places)


@pytest.mark.parametrize(
    "each",
    [
        SimpleFilter("IsNotNull", "tag"),
        SimpleFilter("EqualTo", "value", "x"),
        SimpleFilter("EqualTo", "properties.a", "b"),
        SimpleFilter("EqualTo", "queueOffset", None),
        SimpleFilter("EqualTo", "queueId", 1.5),
        SimpleFilter("EqualTo", "queueId", True),
        SimpleFilter("In", "queueId", [1, None]),
        SimpleFilter("EqualTo", "tag", "UA", negated=True),
        SimpleFilter("EqualTo", "timestamp", START_US, negated=True),
    ],
    ids=str,
)
def test_everything_else_rules_out_nothing(each: SimpleFilter) -> None:
    assert parse_filters(filters_text([each])) == parse_filters(None)


@pytest.mark.parametrize("text", ["tag = 'UA'", "{}", '["EqualTo"]', '[["EqualTo", "tag", {}]]'])
def test_a_condition_in_words_is_no_option(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="read_cold"):
        parse_filters(text)
