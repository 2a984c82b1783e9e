"""Which messages are visible, and which segments hold none that is. What a change of the TTL fixes is the broker's:
tests/broker/tables/test_topic_table.py."""

from __future__ import annotations

import msgspec

from tests.tiered.ledger_data import make_entry
from thermocline.tiered.catalog.catalog import NEVER_EXPIRES, Catalog, TopicEntry
from thermocline.tiered.catalog.ledger_entry import CatalogSettings
from thermocline.tiered.catalog.ttl import (
    expired_segments,
    report,
    sweep,
    topic_visible_from_ms,
)
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_list import SegmentList


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


def test_a_sweep_uses_the_reported_cut_of_every_topic() -> None:
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


def test_visible_from_is_the_later_of_the_time_to_live_and_the_fixed_cut() -> None:
    """A topic's own time to live goes before the default, which a topic that the catalog does not have follows."""
    now_ms = 20_000
    catalog = make_catalog(
        default_ttl_ms=5_000,
        own=make_topic("own", [(0, 10)], ttl_ms=7),
        never=make_topic("never", [(0, 10)], ttl_ms=NEVER_EXPIRES),
        fixed=make_topic("fixed", [(0, 10)], ttl_ms=NEVER_EXPIRES, expired_before_ms=300),
        grown=make_topic("grown", [(0, 10)], ttl_ms=9_000, expired_before_ms=19_000),
        shrunk=make_topic("shrunk", [(0, 10)], ttl_ms=7, expired_before_ms=19_000),
        follows=make_topic("follows", [(0, 10)], expired_before_ms=300),
    )
    found = {topic: topic_visible_from_ms(catalog, topic, now_ms=now_ms) for topic in (*catalog.topics, "other")}
    assert found == {
        "own": 19_993,
        "never": 0,
        "fixed": 300,
        "grown": 19_000,
        "shrunk": 19_993,
        "follows": 15_000,
        "other": 15_000,
    }
    assert topic_visible_from_ms(make_catalog(), "other", now_ms=now_ms) == 0
