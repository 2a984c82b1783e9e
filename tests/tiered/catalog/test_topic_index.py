"""TopicIndex: which span holds an offset or a time, lost records between them, and offsets that are missing."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.synthetic_cold_tier import SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from tests.tiered.ledger_data import make_entry
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import TopicEntry
from thermocline.tiered.catalog.ledger_entry import DamagedPart, LostRange, Quarantine, QueueHole
from thermocline.tiered.catalog.topic_index import MADE_SPANS_MAX, PackedSpan, QueueIndex, QueueSpan, TopicIndex
from thermocline.tiered.objects import QuarantinedError, QueueGapError
from thermocline.tiered.packs import PackedTopic
from thermocline.tiered.packs.pack_entry import QueueBounds
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_list import SegmentList
from thermocline.tiered.stores.memory import MemoryObjectStore


def segment(number: int, start: int, end: int, *, times_ms: tuple[int, int], queue_id: int = 0) -> SegmentEntry:
    return make_entry(
        SegmentId(1, number),
        start=start,
        count=end - start,
        queue_id=queue_id,
        min_store_ms=times_ms[0],
        max_store_ms=times_ms[1],
    )


FIRST = segment(1, 0, 10, times_ms=(100, 190))
SECOND = segment(2, 10, 20, times_ms=(190, 290))
BEHIND_A_HOLE = segment(3, 30, 40, times_ms=(300, 390))
OTHER_QUEUE = segment(4, 5, 15, times_ms=(100, 400), queue_id=7)


def entry(*segments: SegmentEntry, **parts: object) -> TopicEntry:
    made = TopicEntry(topic="orders", incarnation=1, segments=SegmentList.of(segments))
    return msgspec.structs.replace(made, **parts)


def lost(of: SegmentEntry, *ranges: LostRange) -> Quarantine:
    return Quarantine(segment=of, damage=(DamagedPart(of.log.key, "missing"),), lost=ranges)


@pytest.fixture
def index() -> TopicIndex:
    return TopicIndex(entry(BEHIND_A_HOLE, OTHER_QUEUE, SECOND, FIRST, holes=(QueueHole(0, 20, 30),)))


def of_queue(index: TopicIndex, queue_id: int = 0) -> QueueIndex:
    return index.queues[queue_id]


def test_spans_are_by_rising_offset_whatever_the_order_of_segments(index: TopicIndex) -> None:
    queue = of_queue(index)
    expected = [FIRST, SECOND, BEHIND_A_HOLE]
    assert [span.segment for span in queue.spans if isinstance(span, QueueSpan)] == expected
    assert [span.run for span in queue.spans[1:]] == [each.runs[0] for each in expected[1:]]
    assert queue.spans[-1].run == BEHIND_A_HOLE.runs[0]
    assert (queue.start_offset, queue.end_offset, index.span_count) == (0, 40, 4)
    other = of_queue(index, 7)
    assert (other.start_offset, other.end_offset, len(other.spans)) == (5, 15, 1)
    with pytest.raises(IndexError):
        queue.spans[3]


def test_few_spans_are_kept_as_objects() -> None:
    count = MADE_SPANS_MAX + 2
    segments = [segment(1 + at, 10 * at, 10 * at + 10, times_ms=(at, at)) for at in range(count)]
    spans = of_queue(TopicIndex(entry(*segments))).spans
    assert spans[0] is spans[0]
    for at in range(count):
        assert spans[at].run.start_offset == 10 * at
        assert len(spans._made) <= MADE_SPANS_MAX


@pytest.mark.parametrize(
    ("offset", "position"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 2), (39, 2), (40, 3), (99, 3)]
)
def test_the_span_that_holds_an_offset_or_the_first_behind_it(index: TopicIndex, offset: int, position: int) -> None:
    assert of_queue(index).position_of(offset) == position
    assert of_queue(index, 7).position_of(offset) == (0 if offset < 15 else 1)


def test_spans_by_time(index: TopicIndex) -> None:
    queue = of_queue(index)
    reaching = [queue.first_reaching(time_ms, start=0) for time_ms in (0, 190, 191, 290, 291, 390, 391)]
    assert reaching == [0, 0, 1, 1, 2, 2, None]
    assert [queue.first_reaching(0, start=start) for start in (1, 2, 3)] == [1, 2, None]
    last = [queue.last_reaching(time_ms, end=3) for time_ms in (99, 100, 189, 190, 299, 300, 999)]
    assert last == [None, 0, 0, 1, 1, 2, 2]
    assert [queue.last_reaching(999, end=end) for end in (2, 1, 0)] == [1, 0, None]


@pytest.mark.parametrize(("offset", "count"), [(0, 30), (1, 29), (10, 20), (19, 11), (25, 10), (39, 1), (40, 0)])
def test_records_from_an_offset_on(index: TopicIndex, offset: int, count: int) -> None:
    assert of_queue(index).count_from(offset) == count


def test_every_missing_offset_is_declared_lost() -> None:
    holes = (QueueHole(0, 25, 30), QueueHole(7, 0, 99), QueueHole(0, 20, 25))
    queue = of_queue(TopicIndex(entry(FIRST, SECOND, BEHIND_A_HOLE, OTHER_QUEUE, holes=holes)))
    for bounds in ((20, 30), (22, 27), (20, 20), (29, 30)):
        queue.check_hole(*bounds)
    for bounds, missing in (((19, 30), 19), ((20, 31), 30), ((30, 31), 30)):
        with pytest.raises(QueueGapError, match=f"start_offset={missing}"):
            queue.check_hole(*bounds)


def test_the_end_is_behind_all_that_was_ever_held() -> None:
    packed = PackedTopic(
        topic="orders",
        incarnation=1,
        packs=(),
        queues=(QueueBounds(0, 0, 25), QueueBounds(7, 0, 3), QueueBounds(9, 4, 6)),
        raw_bytes=0,
        stored_bytes=0,
    )
    index = TopicIndex(entry(FIRST, SECOND, OTHER_QUEUE), packed=packed)
    assert [index.end_offset(queue_id) for queue_id in (0, 7, 9, 8)] == [25, 15, 6, 0]
    assert TopicIndex(entry(FIRST, OTHER_QUEUE)).end_offset(0) == 10


def test_lost_records_are_a_span_that_cannot_be_read() -> None:
    """They do not count, and their times are between those of their neighbours, as far as these are exact."""
    broken = segment(5, 10, 20, times_ms=(150, 350))
    whole = entry(FIRST, BEHIND_A_HOLE, quarantine=(lost(broken, LostRange(0, 12, 14, 0), LostRange(0, 16, 18)),))
    queue = of_queue(TopicIndex(whole))
    bounds = [(span.run.start_offset, span.run.end_offset) for span in queue.spans]
    assert bounds == [(0, 10), (12, 14), (16, 18), (30, 40)]
    assert queue.spans.lost.tolist() == [False, True, True, False]
    assert queue.count_from(0) == 20
    first, second = queue.spans[1], queue.spans[2]
    assert (first.run.min_store_ms, first.run.max_store_ms) == (190, 300)
    assert (second.run.min_store_ms, second.run.max_store_ms) == (190, 300)
    assert isinstance(first, QueueSpan)
    assert isinstance(second, QueueSpan)
    error = first.lost_error(queue_offset=13)
    assert isinstance(error, QuarantinedError)
    for part in ("queue_offset=13", "lost_offsets=[12, 14)", "frame=0", f"{broken.log.key} (missing)"):
        assert part in str(error)
    assert "frame=unknown" in str(second.lost_error(queue_offset=16))


def test_times_of_lost_records_at_either_end_are_those_of_their_segment() -> None:
    broken = segment(5, 0, 20, times_ms=(150, 350))
    queue = of_queue(TopicIndex(entry(quarantine=(lost(broken, LostRange(0, 0, 20)),))))
    (span,) = queue.spans
    assert (span.run.min_store_ms, span.run.max_store_ms) == (150, 350)
    late = segment(6, 20, 30, times_ms=(100, 120))  # clocks that went back
    queue = of_queue(TopicIndex(entry(late, quarantine=(lost(broken, LostRange(0, 0, 20)),))))
    assert (queue.spans[0].run.min_store_ms, queue.spans[0].run.max_store_ms) == (150, 150)


def test_a_segment_that_never_held_the_lost_queue_is_refused() -> None:
    with pytest.raises(QueueGapError):
        TopicIndex(entry(FIRST, quarantine=(lost(SECOND, LostRange(3, 12, 14)),)))


async def test_a_piece_of_a_pack_is_a_span_with_the_pieces_times() -> None:
    """Those of the pack where the ledger has none of the piece."""
    hot = SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in ("orders", "others")}
    async with opened(MemoryObjectStore(), TierConfig(cold_url="memory://packs"), hot=hot, topics=topics) as tier:
        for name in ("others", "orders", "orders", "others"):
            hot.append(name, 0, body_bytes=100)
            hot.now_ms += 1_000
        hot.now_ms += 3_600_000
        tier.report()
        await tier.service.run_once()
        catalog = tier.catalog
    (pack,) = catalog.packs.values()
    topic = catalog.topics["orders"]
    index = TopicIndex(topic, packed=catalog.packed["orders"], packs=[pack])
    (span,) = of_queue(index).spans
    assert isinstance(span, PackedSpan)
    assert (span.topic, span.pack, span.run.start_offset, span.run.end_offset) == ("orders", pack, 0, 2)
    first_ms, last_ms = pack.min_store_ms, pack.max_store_ms
    assert (span.run.min_store_ms, span.run.max_store_ms) == (first_ms + 1_000, last_ms - 1_000)
    assert (span.run.min_physical_offset, span.run.end_physical_offset) == (0, pack.end_physical_offset)
    assert (index.end_offset(0), index.span_count, of_queue(index).count_from(1)) == (2, 1, 1)
    old = msgspec.structs.replace(pack, times=b"")
    (span,) = of_queue(TopicIndex(topic, packs=[old])).spans
    assert (span.run.min_store_ms, span.run.max_store_ms) == (first_ms, last_ms)
