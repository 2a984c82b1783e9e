"""What no index object covers, kept up with the catalog: the same as a look at everything, and each looked at once."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest

from tests.tiered.ledger_data import make_entry, open_writer
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, SegmentOut, TopicDelete
from thermocline.tiered.indexes.log_items import Item, LogItems, Unindexed, item_id
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.segments import segment_block
from thermocline.tiered.segments.segment_block import columns_of
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_list import LOOSE_MAX
from thermocline.tiered.stores.memory import MemoryObjectStore

TOPICS = ("a", "b", "c")


def behind(catalog: Catalog) -> list[Item]:
    """By a look at everything, as a catalog has it."""
    segments = [segment for topic in catalog.topics.values() for segment in topic.segments]
    return [item for item in (*segments, *catalog.packs.values()) if item.end_physical_offset > catalog.indexed_to]


def check(found: LogItems, expected: list[Item]) -> None:
    assert sorted(map(item_id, found.items)) == sorted(map(item_id, expected))
    for item, start, end, count in zip(
        found.items, found.starts.tolist(), found.ends.tolist(), found.record_counts.tolist(), strict=True
    ):
        assert (start, end) == (item.min_physical_offset, item.end_physical_offset)
        assert count == item.record_count
    newest_first = [item.end_physical_offset for item in found.newest_first()]
    assert newest_first == sorted(newest_first, reverse=True)


async def grown(writer: LedgerWriter, random: Random, *, count: int) -> list[SegmentEntry]:
    """So many segments more, one after another in the log."""
    start = max([0, *(item.end_physical_offset for item in LogItems.of_catalog(writer.catalog).items)]) // 100
    segments = []
    for _ in range(count):
        topic = random.choice(TOPICS)
        entry = writer.catalog.topics.get(topic)
        life = entry.incarnation + entry.deleted if entry is not None else 1
        segments.append(make_entry(writer.next_segment_id(), topic=topic, incarnation=life, start=start))
        start += random.randint(10, 30)
    await writer.commit(LedgerChanges(segments_in=tuple(segments)))
    return segments


@pytest.mark.parametrize("seed", range(8))
async def test_it_equals_an_examination_of_everything(seed: int) -> None:
    random, unindexed = Random(seed), Unindexed()
    writer = await open_writer(MemoryObjectStore())
    seen: list[Catalog] = []
    for _ in range(60):
        kind, catalog = random.choice(("grow", "grow", "go", "index", "delete", "nothing")), writer.catalog
        live = [segment for topic in catalog.topics.values() for segment in topic.segments]
        if kind == "grow":
            await grown(writer, random, count=random.randint(1, 5))
        elif kind == "go" and live:
            gone = random.sample(live, random.randint(1, min(4, len(live))))
            outs = tuple(SegmentOut(segment.topic, segment.segment_id) for segment in gone)
            await writer.commit(LedgerChanges(segments_out=outs))
        elif kind == "index" and live:
            end = max([catalog.indexed_to, *(segment.end_physical_offset for segment in live)])
            await writer.commit(LedgerChanges(indexed_to=random.randint(catalog.indexed_to, end)))
        elif kind == "delete" and live:
            topic = random.choice(live)
            await writer.commit(LedgerChanges(topics_deleted=(TopicDelete(topic.topic, topic.incarnation),)))
        seen.append(writer.catalog)
        if random.random() < 0.7:  # it need not be asked at every version
            check(unindexed.of(writer.catalog), behind(writer.catalog))
            assert unindexed.of(writer.catalog) is unindexed.of(writer.catalog)
    for catalog in random.sample(seen, 10):
        check(unindexed.of(catalog), behind(catalog))  # not even in order


async def test_a_segment_is_looked_at_once() -> None:
    random, unindexed = Random(1), Unindexed()

    def item_counts(catalog: Catalog) -> tuple[int, int]:
        """How many there are, and of how many segments numbers were looked up for it."""
        with patch.object(segment_block, "columns_of", autospec=True, side_effect=columns_of) as counting:
            return len(unindexed.of(catalog).items), sum(len(call.args[0]) for call in counting.call_args_list)

    writer = await open_writer(MemoryObjectStore())
    segments = await grown(writer, random, count=12)
    assert all(len(topic.segments) < LOOSE_MAX for topic in writer.catalog.topics.values())
    assert item_counts(writer.catalog) == (12, 12)
    await writer.commit(LedgerChanges(indexed_to=segments[5].end_physical_offset))
    assert item_counts(writer.catalog) == (6, 0)
    oldest = segments[0]
    await writer.commit(LedgerChanges(segments_out=(SegmentOut(oldest.topic, oldest.segment_id),)))
    assert item_counts(writer.catalog) == (6, 0)
    later = make_entry(writer.next_segment_id(), topic=oldest.topic, start=5_000)
    await writer.commit(LedgerChanges(segments_in=(later,)))
    assert item_counts(writer.catalog) == (7, 1)


def test_items_between_two_places() -> None:
    items = [make_entry(SegmentId(1, number + 1), start=number * 10) for number in range(10)]
    found = LogItems.of(items)
    assert found.between(0, 1 << 40) is found
    assert found.between(1_000, 3_000).items == items[1:3]
    assert found.between(999, 3_001).items == items[0:4]
    assert not found.between(10_000, 1 << 40).items
    assert not found.between(5_000, 5_000).items
