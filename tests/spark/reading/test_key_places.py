"""Reading by message key: exactly the messages, whatever the indexes cost and say."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.cold_tier import NOW_MS, ColdTier, by_place, rows_of
from tests.spark.message_rows import normal_rows
from tests.tiered.cold_data import Log
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS
from thermocline.spark.reading import key_places
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.pruning_filters import SimpleFilter, filters_text
from thermocline.spark.reading.source_options import read_options_from

ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)
_names = itertools.count()


def new_url() -> str:
    return f"memory://keys-{next(_names)}"


@pytest.fixture(scope="module")
def orders() -> tuple[ColdTier, Log]:
    """3000 messages of two queues in five segments; key `n` is with every message whose number n divides."""
    tier, log = ColdTier(new_url()), Log(topic="orders", random=Random(1), queue_count=2)
    for number in range(1, 3_001):
        log.append(
            number % 2,
            body=log.random.randbytes(300),
            keys=" ".join(str(factor) for factor in (2, 3, 500, 700, 1_999) if number % factor == 0) or None,
            unique_key=f"id-{number}",
        )
    tier.seal_in_pieces(log, 5)
    return tier, log


@pytest.fixture
def free_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes pay however small the segments are."""
    monkeypatch.setattr(key_places, "REQUEST_BYTES", 0)


def read(url: str, **options: str) -> tuple[list[dict[str, Any]], FrameReader]:
    checked = read_options_from({"path": url, "topic": "orders", "columns": ALL_COLUMNS} | options)
    plan = resolve_plan(checked, now_ms=NOW_MS)
    reader = FrameReader(checked)
    batches = [batch for task in plan.tasks for batch in reader.read(task)]
    return normal_rows([row for batch in batches for row in batch.to_pylist()]), reader


def with_keys(log: Log, *wanted: set[str]) -> list[dict[str, Any]]:
    return [row for row in rows_of(log) if all(keys & set((row["key"] or "").split(" ")) for keys in wanted)]


@given(
    keys=st.sets(st.sampled_from(["2", "3", "500", "700", "1999", "5", "id-7", "none"]), min_size=1),
    partition_bytes=st.sampled_from(["10k", "256m"]),
    request_bytes=st.sampled_from([0, 20_000, 1 << 40]),
)
@settings(deadline=None, max_examples=20)
def test_the_messages_with_one_of_the_keys_are_read(
    orders: tuple[ColdTier, Log], keys: set[str], partition_bytes: str, request_bytes: int
) -> None:
    tier, log = orders
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_places, "REQUEST_BYTES", request_bytes)
        found, _ = read(tier.url, keys=" ".join(keys), maxPartitionBytes=partition_bytes)
    assert by_place(found) == by_place(with_keys(log, keys))


@pytest.mark.usefixtures("free_requests")
def test_only_frames_that_hold_a_place_are_fetched(orders: tuple[ColdTier, Log]) -> None:
    tier, log = orders
    found, reader = read(tier.url, keys="1999")
    assert by_place(found) == by_place(with_keys(log, {"1999"}))
    assert (reader.counts.rows, reader.counts.frames_read) == (1, 1)
    assert reader.counts.gets <= 2  # one frame, and the footer of its segment unless that is at hand
    found, reader = read(tier.url, keys="none")
    assert (found, reader.counts.gets) == ([], 0)


@pytest.mark.usefixtures("free_requests")
def test_sets_of_keys_are_all_to_be_met(orders: tuple[ColdTier, Log]) -> None:
    tier, log = orders
    where = filters_text([SimpleFilter("EqualTo", "key", "3"), SimpleFilter("In", "key", ["700", "1999"])])
    found, _ = read(tier.url, where=where, keys="2 none")
    assert found
    assert by_place(found) == by_place(with_keys(log, {"2"}, {"3"}, {"700", "1999"}))


def test_an_index_is_read_by_pages_or_whole_or_not_at_all(
    orders: tuple[ColdTier, Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, _ = orders

    def index_gets(request_bytes: int, keys: str) -> int:
        monkeypatch.setattr(key_places, "REQUEST_BYTES", request_bytes)
        checked = read_options_from({"path": tier.url, "topic": "orders", "keys": keys})
        return resolve_plan(checked, now_ms=NOW_MS).counts.index_gets

    assert index_gets(1 << 40, "none") == 0
    assert index_gets(0, "none") == 5  # a bloom page of each segment
    assert index_gets(0, "1999") == 5 + 2
    many = " ".join(f"no{number}" for number in range(40))
    assert index_gets(0, many) == 5  # each index once, for all keys


@pytest.mark.usefixtures("free_requests")
@pytest.mark.parametrize("harm", [lambda tier, key: tier.delete_object(key), lambda tier, key: damage(tier, key)])
def test_an_index_that_is_damaged_or_gone_loses_no_message(
    harm: Callable[[ColdTier, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    tier, log = ColdTier(new_url()), Log(topic="orders", random=Random(2), queue_count=1)
    for number in range(400):
        log.append(0, body=log.random.randbytes(300), keys=f"k{number}")
    tier.seal_in_pieces(log, 2)
    harm(tier, tier.entries("orders")[0].idx.key)
    with caplog.at_level(logging.WARNING):
        found, _ = read(tier.url, keys="k3 k399")
    assert by_place(found) == by_place(with_keys(log, {"k3", "k399"}))
    assert "for want of a key index" in caplog.text


def damage(tier: ColdTier, key: str) -> None:
    tier.write_object(key, b"\xff" * len(tier.read_object(key)))
