"""Which messages are visible, which segments hold none that is, and what a change of the TTL fixes."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiered.ledger_data import make_entry
from thermocline.tiered.catalog import NEVER_EXPIRES, Catalog, TopicEntry
from thermocline.tiered.ledger_entry import CatalogSettings
from thermocline.tiered.segment_format import SegmentId
from thermocline.tiered.segment_list import SegmentList
from thermocline.tiered.ttl import (
    change_default_ttl,
    change_ttl,
    expired_segments,
    report,
    sweep,
    topic_visible_from_ms,
)

TIMES = st.integers(0, 10_000)


def make_catalog(*, default_ttl_ms: int | None = None, **topics: TopicEntry) -> Catalog:
    catalog = Catalog.empty()
    return msgspec.structs.replace(
        catalog, topics=dict(topics), settings=CatalogSettings(default_ttl_ms=default_ttl_ms)
    )


def make_topic(name: str, spans: list[tuple[int, int]], **fields: int) -> TopicEntry:
    """A topic with a segment for each (least, greatest store time)."""
    segments = SegmentList.of(
        make_entry(SegmentId(1, number + 1), topic=name, start=number * 10, min_store_ms=least, max_store_ms=greatest)
        for number, (least, greatest) in enumerate(spans)
    )
    return msgspec.structs.replace(TopicEntry(topic=name, incarnation=1, segments=segments), **fields)


def test_segments_go_when_their_last_message_has() -> None:
    topic = make_topic("a", [(0, 99), (100, 199), (200, 299)])
    assert expired_segments(topic, visible_from_ms=99) == ()
    assert expired_segments(topic, visible_from_ms=100) == topic.segments[:1]
    assert expired_segments(topic, visible_from_ms=199) == topic.segments[:1]
    assert expired_segments(topic, visible_from_ms=200) == topic.segments[:2]


def test_a_sweep_takes_every_topic_by_the_cut_that_was_told() -> None:
    """Not by the time to live in the catalog, which may have grown since."""
    catalog = make_catalog(
        default_ttl_ms=1,
        a=make_topic("a", [(0, 10), (500, 900)]),
        b=make_topic("b", [(0, 10)], ttl_ms=1),
        c=make_topic("c", [(0, 10), (1_000, 1_100)], ttl_ms=NEVER_EXPIRES),
    )
    gone = [(out.topic, out.segment_id) for out in sweep(catalog, {"a": 150, "c": 1_050, "d": 9}).segments_out]
    assert gone == [("a", str(SegmentId(1, 1))), ("c", str(SegmentId(1, 1)))]
    assert sweep(catalog, {"a": 10}).is_empty


def test_a_report_for_a_dry_run() -> None:
    topic = make_topic("a", [(0, 99), (100, 199), (200, 299)])
    found = report(topic.segments, visible_from_ms=150)
    assert (found.segment_count, found.record_count, found.partly_segment_count) == (1, 10, 1)
    assert (found.raw_bytes, found.stored_bytes, found.object_count) == (1000, 1200, 3)
    assert (found.partly_stored_bytes, found.partly_max_store_ms) == (1200, 199)


@settings(deadline=None)
@given(ttls=st.lists(st.tuples(st.one_of(st.none(), TIMES), TIMES), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_what_has_expired_once_never_comes_back(ttls: list[tuple[int | None, int]], seed: int) -> None:
    """Over any changes of the TTL the cut never falls, and an unexpired message is never lost by a change alone."""
    random = Random(seed)
    now_ms, cut_ms = 20_000, 0
    entry = make_topic("a", [(0, 10)])
    for ttl_ms, pause_ms in ttls:
        now_ms += pause_ms
        catalog = make_catalog(default_ttl_ms=random.choice([None, 5_000]), a=entry)
        before_ms = topic_visible_from_ms(catalog, "a", now_ms=now_ms)
        assert before_ms >= cut_ms or catalog.settings.default_ttl_ms is None
        change = change_ttl(catalog, "a", incarnation=1, ttl_ms=ttl_ms, now_ms=now_ms)
        assert change.expired_before_ms == max(0, before_ms)
        entry = msgspec.structs.replace(
            entry, ttl_ms=ttl_ms, expired_before_ms=max(entry.expired_before_ms, change.expired_before_ms)
        )
        cut_ms = entry.expired_before_ms
    grown = make_catalog(a=msgspec.structs.replace(entry, ttl_ms=10**9))
    assert topic_visible_from_ms(grown, "a", now_ms=now_ms) == max(cut_ms, now_ms - 10**9)


def test_a_new_incarnation_starts_without_a_cut() -> None:
    catalog = make_catalog(a=make_topic("a", [(0, 10)], ttl_ms=5))
    assert change_ttl(catalog, "a", incarnation=1, ttl_ms=9, now_ms=100).expired_before_ms == 95
    assert change_ttl(catalog, "a", incarnation=2, ttl_ms=9, now_ms=100).expired_before_ms == 0


def test_another_default_fixes_the_cut_of_those_that_follow_it() -> None:
    catalog = make_catalog(
        default_ttl_ms=100,
        a=make_topic("a", [(0, 10)]),
        b=make_topic("b", [(0, 10)], ttl_ms=7),
        c=TopicEntry(topic="c", incarnation=1, deleted=True),
    )
    changes = change_default_ttl(catalog, now_ms=1_000)
    assert [(change.topic, change.ttl_ms, change.expired_before_ms) for change in changes] == [("a", None, 900)]
