"""Filters that Spark pushes: with what is taken over and what is handed back, the rows are those of the filters."""

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
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.pushed_filters import push_filters
from thermocline.spark.reading.source_options import read_options_from

source = pytest.importorskip("pyspark.sql.datasource")

ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)
START = EPOCH + timedelta(milliseconds=START_MS)
_names = itertools.count()


def new_url() -> str:
    return f"memory://pushed-{next(_names)}"


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


# -- filters as Spark makes them, and what they mean -----------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["orders", "order", "payments", ""]),
    "brokerName": st.sampled_from(["broker-a", "broker-b", "broker-", "z"]),
    "queueId": st.integers(-1, 3),
    "queueOffset": st.integers(-2, 520),
    "timestamp": st.integers(-10_000, 1_000_000).map(lambda microseconds: START + timedelta(microseconds=microseconds)),
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
def filters(draw: st.DrawFn) -> Any:
    column = draw(st.sampled_from(sorted(VALUES)))
    names = [*ORDERED, "In", "IsNull", "IsNotNull"]
    if column in ("topic", "brokerName", "tag", "key"):
        names += ["StringStartsWith", "StringEndsWith", "StringContains"]
    name = draw(st.sampled_from(names))
    if name.startswith("Is"):
        made = getattr(source, name)((column,))
    elif name == "In":
        values = draw(st.lists(VALUES[column], min_size=1, max_size=5))
        made = source.In((column,), tuple(values))
    else:
        made = getattr(source, name)((column,), draw(VALUES[column]))
    return source.Not(made) if draw(st.booleans()) and draw(st.booleans()) else made


def holds(each: Any, row: dict[str, Any]) -> bool | None:
    """What SQL says of a row: true, false, or unknown (None)."""
    if type(each).__name__ == "Not":
        inside = holds(each.child, row)
        return None if inside is None else not inside
    mine, name = row[each.attribute[0]], type(each).__name__
    if name in ("IsNull", "IsNotNull"):
        return (mine is None) == (name == "IsNull")
    if mine is None:
        return False if name == "EqualNullSafe" else None
    return MEANING[name](mine, each.value)


@given(pushed_filters=st.lists(filters(), min_size=1, max_size=4), data=st.data())
@settings(deadline=None, max_examples=60)
def test_pushed_and_handed_back_together_are_the_filters(
    orders: tuple[str, list[dict[str, Any]]], pushed_filters: list[Any], data: st.DataObject
) -> None:
    url, everything = orders
    pushed, rest = push_filters(pushed_filters)
    assert all(any(each is given_one for given_one in pushed_filters) for each in rest)
    options = {"path": url, "topic": "orders", "columns": ALL_COLUMNS}
    options["maxPartitionBytes"] = data.draw(st.sampled_from(["20k", "256m"]))
    checked = read_options_from(options)
    plan = resolve_plan(checked, now_ms=NOW_MS, pushed=pushed)
    read = [row for task in plan.tasks for batch in FrameReader(checked).read(task) for row in batch.to_pylist()]
    found = by_place(row for row in normal_rows(read) if all(holds(each, row) for each in rest))
    assert found == by_place(row for row in everything if all(holds(each, row) for each in pushed_filters))


@pytest.mark.parametrize(
    "each",
    [
        source.EqualTo(("queueOffset",), 7),
        source.Not(source.In(("queueOffset",), (1, 2))),
        source.Not(source.EqualTo(("queueId",), 1)),
        source.In(("brokerName",), ("broker-a",)),
        source.StringStartsWith(("topic",), "ord"),
        source.IsNotNull(("timestamp",)),
    ],
    ids=str,
)
def test_places_are_settled_exactly(each: Any) -> None:
    assert push_filters([each])[1] == []


@pytest.mark.parametrize(
    "each",
    [
        source.EqualTo(("tag",), "UA"),
        source.EqualTo(("key",), "k1"),
        source.GreaterThan(("timestamp",), START),
        source.IsNotNull(("tag",)),
        source.EqualTo(("value",), b"x"),
        source.EqualTo(("properties", "a"), "b"),
        source.EqualTo(("queueOffset",), None),
        source.EqualTo(("queueId",), 1.5),
        source.In(("queueId",), (1, None)),
    ],
    ids=str,
)
def test_everything_else_goes_back_to_spark(each: Any) -> None:
    assert push_filters([each])[1] == [each]
