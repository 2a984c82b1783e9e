"""The catalog is the sum of its entries, and an entry that does not follow is refused.

Covers `tiered/catalog/topic_index.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.tiered.ledger_data import make_entry
from thermocline.tiered.catalog.catalog import NEVER_EXPIRES, Catalog, apply
from thermocline.tiered.catalog.ledger_entry import (
    CheckpointMark,
    DamagedPart,
    LedgerEntry,
    LostRange,
    Quarantine,
    QueueHole,
    SegmentOut,
    TopicChange,
    TopicDelete,
    decode_entry,
    encode_entry,
)
from thermocline.tiered.catalog.topic_index import TopicIndex
from thermocline.tiered.objects.errors import LedgerCorruptError, QuarantinedError, QueueGapError
from thermocline.tiered.segments.segment_format import SegmentId


def entry_after(catalog: Catalog, **fields: object) -> LedgerEntry:
    """The next entry, with these changes."""
    base = LedgerEntry(
        format=1,
        version=catalog.version + 1,
        epoch=max(1, catalog.epoch),
        nonce=f"nonce-{catalog.version + 1}",
        previous_nonce=catalog.nonce,
        store_uuid="store",
        cluster="c",
        broker_name="b",
        committed_ms=1_000 + catalog.version,
    )
    return msgspec.structs.replace(base, **fields)


def test_entries_come_back_from_json() -> None:
    entry = entry_after(
        Catalog.empty(),
        segments_in=(make_entry(SegmentId(1, 1)),),
        segments_out=(SegmentOut("a", "b"),),
        topics=(TopicChange(topic="t", incarnation=1, ttl_ms=5, holes=(QueueHole(0, 1, 2),)),),
        topics_deleted=(TopicDelete("d", 4),),
        checkpoint=CheckpointMark(3, 4),
    )
    data = encode_entry(entry)
    assert decode_entry(data, version=1) == entry
    assert decode_entry(data[:-1] + b',"later":1}', version=1) == entry
    for damaged in (b"", data[:-5], data.replace(b'"format":1', b'"format":9')):
        with pytest.raises(LedgerCorruptError):
            decode_entry(damaged, version=1)
    with pytest.raises(LedgerCorruptError):
        decode_entry(data, version=2)


def test_quarantine_keeps_a_segment_apart() -> None:
    one, two = (make_entry(SegmentId(1, number), start=10 * number) for number in (1, 2))
    catalog = apply(Catalog.empty(), entry_after(Catalog.empty(), claim=True, segments_in=(one, two)))
    kept = Quarantine(segment=one, damage=(DamagedPart(one.log.key, "missing"),), lost=(LostRange(0, 10, 20, 3),))
    entry = entry_after(catalog, quarantine=(kept,), segments_in=())
    assert decode_entry(encode_entry(entry), version=2) == entry
    after = apply(catalog, entry)
    topic = after.topics["orders"]
    assert (topic.segments, topic.quarantine, after.removed) == ((two,), (kept,), ())
    assert [(each.queue_id, each.start_offset, each.end_offset) for each in topic.ranges()] == [
        (0, 20, 30),
        (0, 10, 20),
    ]
    assert topic.queue_ends() == {0: 30}
    assert after.live_keys() == {*one.keys, *two.keys}
    with pytest.raises(QuarantinedError):
        raise TopicIndex(topic).queues[0].spans[0].lost_error(queue_offset=12)
    less = msgspec.structs.replace(kept, lost=(LostRange(0, 15, 20, 3),))
    assert apply(after, entry_after(after, quarantine=(less,))).topics["orders"].quarantine == (less,)
    gone = apply(after, entry_after(after, quarantine_out=(SegmentOut("orders", one.segment_id),)))
    assert gone.topics["orders"].quarantine == ()
    assert [segment.segment_id for segment in gone.removed] == [one.segment_id]
    ended = apply(after, entry_after(after, topics_deleted=(TopicDelete("orders", 1),)))
    assert {segment.segment_id for segment in ended.removed} == {one.segment_id, two.segment_id}
    for wrong in (
        {"quarantine": (msgspec.structs.replace(kept, segment=make_entry(SegmentId(1, 9))),)},
        {"quarantine": (msgspec.structs.replace(kept, segment=make_entry(SegmentId(1, 1), incarnation=2)),)},
        {"quarantine_out": (SegmentOut("orders", two.segment_id),)},
    ):
        with pytest.raises(LedgerCorruptError):
            apply(after, entry_after(after, **wrong))


def test_a_change_that_does_not_follow_is_refused() -> None:
    first = apply(Catalog.empty(), entry_after(Catalog.empty(), segments_in=(make_entry(SegmentId(1, 1)),)))
    for wrong in (
        {"version": 3},
        {"previous_nonce": "another"},
        {"epoch": 0},
        {"claim": True},
        {"segments_out": (SegmentOut("orders", str(SegmentId(1, 9))),)},
        {"segments_out": (SegmentOut("nothing", str(SegmentId(1, 1))),)},
        {"segments_in": (make_entry(SegmentId(1, 1), start=100),)},
        {"topics": (TopicChange(topic="orders", incarnation=0),)},
    ):
        with pytest.raises(LedgerCorruptError):
            apply(first, entry_after(first, **wrong))


def test_removed_segments_are_remembered_until_they_are_unreadable() -> None:
    segment = make_entry(SegmentId(1, 1))
    first = apply(Catalog.empty(), entry_after(Catalog.empty(), segments_in=(segment,)))
    second = apply(first, entry_after(first, segments_out=(SegmentOut("orders", segment.segment_id),)))
    assert [removed.removed_in for removed in second.removed] == [2]
    assert second.removed[0].keys == segment.keys
    third = apply(second, entry_after(second, readable_from=1))
    assert third.removed == second.removed
    fourth = apply(third, entry_after(third, readable_from=2, checkpoint=CheckpointMark(2, 5)))
    assert fourth.removed == ()
    assert fourth.checkpoints == (CheckpointMark(2, 5),)


def test_some_topics_only() -> None:
    catalog = Catalog.empty(only_topics=frozenset({"a"}))
    segments = (make_entry(SegmentId(1, 1), topic="a"), make_entry(SegmentId(1, 2), topic="b"))
    catalog = apply(catalog, entry_after(catalog, segments_in=segments))
    catalog = apply(catalog, entry_after(catalog, segments_out=(SegmentOut("b", segments[1].segment_id),)))
    assert set(catalog.topics) == {"a"}
    assert catalog.removed == ()


def test_time_to_live() -> None:
    catalog = Catalog.empty()
    changes = (
        TopicChange(topic="a", incarnation=1, ttl_ms=7),
        TopicChange(topic="b", incarnation=1, ttl_ms=NEVER_EXPIRES),
        TopicChange(topic="c", incarnation=1),
    )
    catalog = apply(catalog, entry_after(catalog, topics=changes))
    assert [catalog.ttl_ms(topic) for topic in "abcd"] == [7, None, None, None]


def test_an_index_finds_spans_and_gaps() -> None:
    segments = tuple(make_entry(SegmentId(1, number), start=start) for number, start in ((2, 20), (1, 0), (3, 40)))
    catalog = apply(Catalog.empty(), entry_after(Catalog.empty(), segments_in=segments))
    hole = TopicChange(topic="orders", incarnation=1, holes=(QueueHole(0, 30, 35), QueueHole(0, 35, 40)))
    catalog = apply(catalog, entry_after(catalog, topics=(hole,)))
    queue = TopicIndex(catalog.topics["orders"]).queues[0]
    assert (queue.start_offset, queue.end_offset) == (0, 50)
    assert [queue.position_of(offset) for offset in (0, 9, 10, 19, 20, 29, 30, 45, 50)] == [0, 0, 1, 1, 1, 1, 2, 2, 3]
    queue.check_hole(32, 40)
    with pytest.raises(QueueGapError):
        queue.check_hole(10, 20)
