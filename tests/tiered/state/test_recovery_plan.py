"""Recovery plan: where queues and log go on, which life of a topic counts, what is declared lost."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.tiered.ledger_data import make_entry
from thermocline.tiered.catalog.catalog import Catalog, TopicEntry
from thermocline.tiered.catalog.ledger_entry import QueueHole
from thermocline.tiered.packs.pack_entry import PackedTopic, PackEntry, QueueBounds
from thermocline.tiered.packs.piece_table import PieceExtent, QueueRange, encode_piece_table
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_list import SegmentList
from thermocline.tiered.state.recovery_plan import (
    GROUP_AHEAD_MAX,
    INCARNATIONS_SKIPPED,
    QueuePlan,
    RecoveryPlan,
    plan_recovery,
)
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, QueueEnd, StateSnapshot, TopicState

UNITS = 100
FILE_BYTES = 1_000
UNSEEN = 10
BASE = StateSnapshot(
    format=1,
    epoch=1,
    sequence=1,
    store_uuid="store-1",
    cluster="DefaultCluster",
    broker_name="broker-a",
    captured_ms=1,
    log_offset=5_000,
    log_ceiling=5_000 + 91 * UNSEEN,
    record_bytes_min=91,
    last_incarnation=4,
)


def state(*topics: TopicState, **fields: object) -> StateSnapshot:
    return msgspec.structs.replace(BASE, topics=topics, **fields)


def cold(start: int, end: int, *, topic: str = "orders", incarnation: int = 1, **fields: object) -> TopicEntry:
    """A topic with one segment of queue 0."""
    segment = make_entry(SegmentId(1, 1), topic=topic, incarnation=incarnation, start=start, count=end - start)
    segments = SegmentList.of((segment,))
    return TopicEntry(topic=topic, incarnation=incarnation, segments=segments, **fields)  # type: ignore[arg-type]


def catalog(*topics: TopicEntry) -> Catalog:
    return msgspec.structs.replace(Catalog.empty(), version=7, topics={topic.topic: topic for topic in topics})


def plan(snapshot: StateSnapshot, ledger: Catalog, *, written_ms: int = 0) -> RecoveryPlan:
    return plan_recovery(
        snapshot,
        ledger,
        written_ms=written_ms,
        is_internal=lambda topic: topic.startswith("rmq_sys_"),
        units_per_file=UNITS,
        log_file_bytes=FILE_BYTES,
    )


def orders(*ends: tuple[int, int], incarnation: int = 1, **fields: object) -> TopicState:
    queues = tuple(QueueEnd(*end) for end in ends)
    return TopicState(topic="orders", incarnation=incarnation, ends=queues, **fields)  # type: ignore[arg-type]


def test_a_queue_goes_on_behind_all_that_it_can_have_reached() -> None:
    planned = plan(state(orders((0, 95))), catalog(cold(0, 90)))
    assert planned.topics[0].queues == (
        QueuePlan(queue_id=0, cold_end=90, hole_start=90, next_offset=200, known_lost_count=5),
    )
    assert planned.topics[0].known_lost_count == 5
    assert planned.topics[0].committed_count == 90
    assert planned.log_offset == 9_000, "behind the cold tier's records, too, at a file's start"
    assert planned.last_incarnation == 4 + INCARNATIONS_SKIPPED
    assert planned.new_queue_offset == 100


def test_messages_expired_by_the_ledger_stay_hidden() -> None:
    """A time to live that was set after the snapshot has taken segments away, and left what shares a pack."""
    # The claim was committed at 70 000: records that expired since the last write before it have not been deleted.
    ledger = msgspec.structs.replace(catalog(cold(0, 90, ttl_ms=1_000)), committed_ms=70_000)
    assert plan(state(orders((0, 95))), ledger, written_ms=50_000).topics[0].expired_before_ms == 49_000
    later = state(orders((0, 95), expired_before_ms=49_500))
    assert plan(later, ledger, written_ms=50_000).topics[0].expired_before_ms == 49_500
    kept = msgspec.structs.replace(catalog(cold(0, 90)), committed_ms=70_000)
    assert plan(state(orders((0, 95))), kept, written_ms=50_000).topics[0].expired_before_ms == 0


def packed(start: int, end: int, *, topic: str = "orders", incarnation: int = 1, **fields: object) -> Catalog:
    """A catalog with one pack, which holds queue 0 of a topic."""
    extent = PieceExtent(incarnation=incarnation, raw_bytes=1, stored_bytes=1, queues=(QueueRange(0, start, end),))
    pack = PackEntry(
        pack_id="0000000001-0000000001",
        ttl_class="forever",
        key="packs/forever/0000000001-0000000001.pack",
        object_bytes=100,
        footer_start=50,
        section_ends=(68,),
        crc32=0,
        topics=(topic,),
        pieces=encode_piece_table([extent]),
        record_count=end - start,
        raw_bytes=1,
        min_store_ms=1,
        max_store_ms=2,
        min_physical_offset=700,
        end_physical_offset=8_500,
        created_ms=3,
    )
    share = PackedTopic(
        topic=topic,
        incarnation=incarnation,
        packs=(pack.pack_id,),
        queues=(QueueBounds(0, start, end),),
        raw_bytes=1,
        stored_bytes=1,
    )
    ledger = catalog(TopicEntry(topic=topic, incarnation=incarnation, **fields))  # type: ignore[arg-type]
    return msgspec.structs.replace(ledger, packs={pack.pack_id: pack}, packed={topic: share})


def test_offsets_in_packs_are_committed() -> None:
    planned = plan(state(orders((0, 95))), packed(0, 90))
    assert planned.topics[0].queues == (
        QueuePlan(queue_id=0, cold_end=90, hole_start=90, next_offset=200, known_lost_count=5),
    )
    assert planned.topics[0].committed_count == 90
    assert planned.log_offset == 9_000, "behind a pack's records, too"
    unknown = plan(state(), packed(0, 250)).topics[0]
    assert (unknown.start_offset, unknown.queues[0].hole_start) == (700, 250)


def test_packs_of_an_earlier_life_are_not_the_topics() -> None:
    planned = plan(state(orders((0, 95), incarnation=3)), packed(0, 900))
    assert (planned.topics[0].committed_count, planned.topics[0].queues[0].cold_end) == (0, 0)
    assert planned.changes(packed(0, 900)) == [], "the broker ends that life in the ledger when it runs"


def test_the_log_goes_on_behind_the_ceiling() -> None:
    assert plan(state(orders((0, 5))), catalog()).log_offset == 6_000


def test_the_cold_tier_may_be_ahead_of_the_snapshot() -> None:
    (topic,) = plan(state(orders((0, 95))), catalog(cold(0, 250))).topics
    assert topic.queues == (QueuePlan(queue_id=0, cold_end=250, hole_start=250, next_offset=300, known_lost_count=0),)


def test_a_group_may_be_ahead_of_both() -> None:
    offsets = {CONSUMER_OFFSETS: {"offsetTable": {"orders@g": {"0": 301, "3": 7}, "other@g": {"0": 900}}}}
    (topic,) = plan(state(orders((0, 95)), documents=offsets), catalog(cold(0, 90))).topics
    assert [(queue.queue_id, queue.next_offset) for queue in topic.queues] == [(0, 400), (3, 100)]


def test_no_queue_follows_a_group_to_the_end_of_numbers() -> None:
    """Clients commit any offset: an entry of the ledger that declared such a hole could never be taken back."""
    near, far = 300 + GROUP_AHEAD_MAX, 2**63 - 1
    offsets = {CONSUMER_OFFSETS: {"offsetTable": {"orders@g": {"0": far, "1": near, "2": far}, "other@g": {"0": far}}}}
    offsets[CONSUMER_OFFSETS]["offsetTable"]["orders@slow"] = {"0": 301}
    snapshot = state(orders((0, 95), (1, 290)), documents=offsets)
    (topic,) = plan(snapshot, catalog(cold(0, 90))).topics
    ends = {queue.queue_id: queue.next_offset for queue in topic.queues}
    assert ends == {0: 400, 1: -(-near // UNITS) * UNITS, 2: 100}


def test_a_hole_begins_behind_the_one_before() -> None:
    (topic,) = plan(state(orders((0, 300))), catalog(cold(0, 90, holes=(QueueHole(0, 90, 300),)))).topics
    assert topic.queues == (QueuePlan(queue_id=0, cold_end=90, hole_start=300, next_offset=400, known_lost_count=0),)


def test_ranges_declared_by_an_interrupted_try_are_still_reported_as_lost() -> None:
    """It was cut off before it saved a state that says so: the next one goes by the same snapshot, and the hole."""
    snapshot, ledger = state(orders((0, 195))), catalog(cold(0, 90, holes=(QueueHole(0, 90, 150),)))
    first = plan(snapshot, ledger)
    (queue,) = first.topics[0].queues
    assert queue == QueuePlan(queue_id=0, cold_end=90, hole_start=150, next_offset=300, known_lost_count=45)
    (changes,) = first.changes(ledger)
    declared = catalog(cold(0, 90, holes=(QueueHole(0, 90, 150), *changes.topics[0].holes)))
    (queue,) = plan(snapshot, declared).topics[0].queues
    assert queue == QueuePlan(queue_id=0, cold_end=90, hole_start=300, next_offset=300, known_lost_count=45)


def test_a_topic_that_only_the_catalog_has() -> None:
    (topic,) = plan(state(), catalog(cold(0, 30, incarnation=6, ttl_ms=5, expired_before_ms=3))).topics
    assert not topic.is_known
    assert (topic.incarnation, topic.ttl_ms, topic.expired_before_ms, topic.start_offset) == (6, 5, 3, 0)
    assert topic.queues == (QueuePlan(queue_id=0, cold_end=30, hole_start=30, next_offset=100, known_lost_count=0),)


def test_the_later_life_of_a_topic_counts() -> None:
    (topic,) = plan(state(orders((0, 950), (1, 5))), catalog(cold(0, 30, incarnation=6))).topics
    assert (topic.incarnation, topic.is_known) == (6, False)
    assert topic.queues == (QueuePlan(queue_id=0, cold_end=30, hole_start=30, next_offset=100, known_lost_count=0),)
    (topic,) = plan(state(orders((0, 20), incarnation=6)), catalog(cold(0, 90))).topics
    assert (topic.incarnation, topic.is_known, topic.committed_count) == (6, True, 0)
    assert topic.queues == (QueuePlan(queue_id=0, cold_end=0, hole_start=0, next_offset=100, known_lost_count=20),)


def test_deleted_topics_stay_deleted() -> None:
    gone = TopicEntry(topic="orders", incarnation=1, deleted=True)
    for snapshot, ledger in (
        (state(orders((0, 9), deleted=True)), catalog(cold(0, 5))),
        (state(orders((0, 9))), catalog(gone)),
        (state(), catalog(gone)),
    ):
        planned = plan(snapshot, ledger)
        assert [(topic.deleted, topic.queues) for topic in planned.topics] == [(True, ())]
        assert planned.changes(ledger) == []


def test_the_cut_is_the_later_one() -> None:
    for ours, theirs in ((5, 9), (9, 5)):
        planned = plan(state(orders((0, 9), expired_before_ms=ours)), catalog(cold(0, 5, expired_before_ms=theirs)))
        assert planned.topics[0].expired_before_ms == 9


def test_the_brokers_own_work_is_not_brought_back() -> None:
    own = TopicState(topic="rmq_sys_wheel_timer", ends=(QueueEnd(0, 5),))
    assert plan(state(own), catalog()).topics == ()


def test_unknown_queues_begin_where_no_offset_was_assigned() -> None:
    """Also after a second recovery: what the first one gave new queues adds up."""
    planned = plan(state(new_queue_offset=200), catalog())
    assert planned.new_queue_offset == 300


def test_holes_are_committed_with_the_settings_that_stand() -> None:
    ledger = catalog(cold(0, 90, ttl_ms=77, expired_before_ms=2))
    (changes,) = plan(state(orders((0, 95), (1, 5))), ledger).changes(ledger)
    (change,) = changes.topics
    assert (change.topic, change.incarnation, change.ttl_ms, change.expired_before_ms) == ("orders", 1, 77, 2)
    assert change.holes == (QueueHole(0, 90, 200), QueueHole(1, 0, 100))


def test_many_queues_are_declared_in_several_commits() -> None:
    topics = [TopicState(topic=f"t{number}", incarnation=1, ends=(QueueEnd(0, 1),)) for number in range(4_500)]
    commits = plan(state(*topics), catalog()).changes(catalog())
    assert [len(changes.topics) for changes in commits] == [2_000, 2_000, 500]


@given(
    end=st.integers(0, 10_000),
    cold_end=st.integers(1, 10_000),
    group=st.integers(0, 10_000),
    unseen=st.integers(0, 500),
)
def test_nothing_is_ever_given_out_twice(end: int, cold_end: int, group: int, unseen: int) -> None:
    """Whatever a queue came to below the ceiling, the new one begins behind it."""
    offsets = {CONSUMER_OFFSETS: {"offsetTable": {"orders@g": {"0": group}}}}
    snapshot = state(orders((0, end)), documents=offsets, log_ceiling=5_000 + unseen * 91)
    (topic,) = plan(snapshot, catalog(cold(0, cold_end))).topics
    (queue,) = topic.queues
    assert queue.next_offset >= max(end + unseen, cold_end, group)
    assert queue.next_offset % UNITS == 0
    assert queue.hole_start == cold_end
