"""MergePolicy on catalogs of packs: how many of one level, class and range of topics, and how far apart in time."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.merging.merge_policy import DEPTH_MAX, MergePolicy, own_bytes_of
from thermocline.tiered.packs import SPAN_OF_TTL, PackEntry, longest_ttl_ms, ttl_class
from thermocline.tiered.packs.ttl_classes import FOREVER
from thermocline.tiered.segments.segment_format import SegmentId

POLICY = MergePolicy(fan_in=3, pack_bytes=1_000)
CLASS = ttl_class(3_600_000)
SPAN_MS = (longest_ttl_ms(CLASS) or 0) // SPAN_OF_TTL
numbers = count(1)


def pack(start_ms: int = 0, end_ms: int | None = None, **fields: Any) -> PackEntry:
    values: dict[str, Any] = {
        "pack_id": str(SegmentId(1, next(numbers))),
        "ttl_class": FOREVER,
        "key": "k",
        "object_bytes": 1,
        "footer_start": 0,
        "section_ends": (),
        "crc32": 0,
        "topics": ("orders",),
        "pieces": b"",
        "record_count": 1,
        "raw_bytes": 100,
        "min_store_ms": start_ms,
        "max_store_ms": start_ms if end_ms is None else end_ms,
        "min_physical_offset": 0,
        "end_physical_offset": 1,
        "created_ms": 0,
    }
    return PackEntry(**values | fields)


def chosen(*packs: PackEntry, policy: MergePolicy = POLICY) -> list[PackEntry] | None:
    catalog = msgspec.structs.replace(Catalog.empty(), packs={each.pack_id: each for each in packs})
    plan = policy.choose(catalog)
    return None if plan is None else list(plan.packs)


def topic_of(prefix: int, depth: int) -> str:
    return next(name for name in map(str, range(10_000)) if pack(topics=(name,), depth=depth).prefix == prefix)


def test_so_many_of_a_level_and_class_the_oldest_first() -> None:
    packs = [pack(start_ms) for start_ms in (30, 10, 20, 40)]
    assert chosen(*packs[:2]) is None
    assert chosen(*packs) == [packs[1], packs[2], packs[0]]
    assert chosen(*packs[:2], pack(level=1), pack(ttl_class=CLASS)) is None
    assert chosen() is None


def test_the_lowest_level_is_merged_first() -> None:
    high, low = [pack(level=1) for _ in range(3)], [pack(50, level=0) for _ in range(3)]
    assert chosen(*high, *low) == low
    assert chosen(*high, *low[:2]) == high
    plan = POLICY.choose(msgspec.structs.replace(Catalog.empty(), packs={each.pack_id: each for each in high}))
    assert plan is not None
    assert plan.level == 2


def test_packs_of_a_class_span_a_part_of_its_time_to_live() -> None:
    near = [pack(start_ms, ttl_class=CLASS) for start_ms in (SPAN_MS + 1, 2 * SPAN_MS + 1)]
    assert chosen(pack(0, ttl_class=CLASS), *near) == near, "the longest run that is near enough"
    assert chosen(*near, pack(2 * SPAN_MS + 2, ttl_class=CLASS)) == near, "the older one of two as long"
    far = [pack(start_ms * (SPAN_MS + 1), ttl_class=CLASS) for start_ms in range(3)]
    assert chosen(*far) is None
    assert chosen(*[pack(each.min_store_ms) for each in far]) is not None, "what is kept may span anything"
    long = pack(0, SPAN_MS + 1, ttl_class=CLASS)
    assert chosen(long, *near) == near, "one that spans too much itself"


@pytest.mark.parametrize(("raw_bytes", "depth"), [(333, 0), (334, 1), (666, 1), (667, 2)])
def test_what_comes_out_is_cut_so_that_a_pack_is_of_its_size(raw_bytes: int, depth: int) -> None:
    plan = POLICY.plan_of([pack(raw_bytes=raw_bytes) for _ in range(3)], level=2)
    assert (plan.level, plan.depth, plan.raw_bytes) == (2, depth, 3 * raw_bytes)
    deeper = POLICY.plan_of([pack(raw_bytes=raw_bytes, depth=each) for each in (4, 3, 5)], level=2)
    assert deeper.depth == 3 + depth
    assert POLICY.plan_of([pack(raw_bytes=1 << 60, depth=DEPTH_MAX)], level=2).depth == DEPTH_MAX


def test_ranges_of_topics_are_merged_each_by_itself() -> None:
    """Two halves are one generation; packs of one range that are cut deeper count as a part of one."""
    low, high = topic_of(0, 1), topic_of(1, 1)
    lows = [pack(start_ms, topics=(low,), depth=1, level=1) for start_ms in range(3)]
    highs = [pack(start_ms, topics=(high,), depth=1, level=1) for start_ms in range(2)]
    assert chosen(*highs, *lows) == lows
    assert chosen(*highs, *lows[:2]) is None
    quarters = [topic_of(prefix, 2) for prefix in (0, 1)]
    deeper = [pack(3, topics=(name,), depth=2, level=1) for name in quarters]
    assert chosen(*lows[:2], deeper[0], *highs) is None, "half a generation"
    assert chosen(*lows[:2], *deeper, *highs) == [*lows[:2], *deeper]


def test_half_a_segment_is_a_topics_own() -> None:
    assert [own_bytes_of(size) for size in (1_000, 3, 1, 0)] == [500, 1, 1, 1]
