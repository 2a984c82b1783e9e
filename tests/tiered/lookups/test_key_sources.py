"""Key sources: which objects are searched for a key, what they find, and by how many requests.

Covers `tiered/lookups/lookup_memory.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from benchmarks.lookup_history import NAMES, History, Sent, metered_by, tier_of
from benchmarks.synthetic_cold_tier import SyntheticColdTier
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.catalog.catalog import Catalog, TopicEntry
from thermocline.tiered.catalog.pack_pieces import PackPieces
from thermocline.tiered.index_format.index_entry import IndexGap
from thermocline.tiered.lookups import key_sources
from thermocline.tiered.lookups.key_sources import (
    WHOLE_PARTS_MAX,
    KeySource,
    PackSource,
    PackTails,
    SegmentSource,
    packs_of,
    sources_between,
    sources_of_gaps,
)
from thermocline.tiered.lookups.lookup_memory import LookupMemory
from thermocline.tiered.segments import MAGIC_BYTES
from thermocline.tiered.segments.segment_readers import SegmentReaders

TOPIC = NAMES[0]
END = PhysicalOffset(1 << 62)


class World:
    """A history in a tier, and the parts that search it, with nothing in memory."""

    def __init__(self, history: History, tier: SyntheticColdTier) -> None:
        self.history, self.tier = history, tier
        store = tier.writer.store
        self.readers = SegmentReaders(store)
        self.tails = PackTails(store, PackPieces(store))
        self.memory = LookupMemory(store, catalog=lambda: self.catalog, blooms=None, fresh=None)

    @property
    def catalog(self) -> Catalog:
        return self.tier.writer.catalog

    @property
    def entry(self) -> TopicEntry:
        return self.catalog.topics[TOPIC]

    @property
    def sent(self) -> list[Sent]:
        return [each for each in self.history.sent if each.topic == TOPIC]

    async def between(self, start: int = 0, end: int = END) -> list[KeySource]:
        return await sources_between(
            self.catalog,
            self.entry,
            start=PhysicalOffset(start),
            end=PhysicalOffset(end),
            readers=self.readers,
            tails=self.tails,
            memory=self.memory,
        )

    async def of_gaps(self, *gaps: IndexGap) -> list[KeySource]:
        index = msgspec.structs.replace(next(iter(self.catalog.indexes.values())), gaps=gaps)
        catalog = msgspec.structs.replace(self.catalog, indexes={index.index_id: index})
        return await sources_of_gaps(catalog, self.entry, readers=self.readers, tails=self.tails)

    async def cost(self, source: KeySource, key: str) -> tuple[int, list[tuple[int, int]]]:
        """Requests, and what was found."""
        before = metered_by(self.tier)
        found = [place async for places in source.find(key) for place in places]
        return metered_by(self.tier) - before, found


@pytest.fixture(params=[True, False])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Parametrized: in packs, or in segments."""
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=3, is_packed=request.param)
        yield World(history, tier)


in_packs = pytest.mark.parametrize("world", [True], indirect=True)
in_segments = pytest.mark.parametrize("world", [False], indirect=True)


async def test_every_message_is_found_in_the_source_that_has_its_place(world: World) -> None:
    sources = await world.between()
    assert len(sources) == 3
    for sent in world.sent:
        (source,) = await world.between(sent.physical_offset, sent.physical_offset + 1)
        assert source.end_place > sent.physical_offset
        assert source.store_times[0] <= sent.store_ms <= source.store_times[1]
        assert (sent.queue_id, sent.offset) in (await world.cost(source, sent.key))[1]
    ends = [source.end_place for source in sources]
    assert len({source.name for source in sources}) == 3
    assert await world.between(max(ends)) == []
    assert [source.end_place for source in await world.between(max(ends) - 1)] == [max(ends)]


@in_packs
async def test_bounds_of_packs_are_half_open(world: World) -> None:
    for pack in packs_of(world.catalog, world.entry):
        names = [source.name for source in await world.between(pack.end_physical_offset)]
        assert pack.pack_id not in names
        names = [source.name for source in await world.between(0, pack.min_physical_offset)]
        assert pack.pack_id not in names
        between = await world.between(pack.end_physical_offset - 1, pack.min_physical_offset + 1)
        assert [source.name for source in between] in ([pack.pack_id], [])


@in_packs
async def test_a_pack_is_read_once_for_all_keys_of_a_topic(world: World) -> None:
    for source in await world.between():
        assert isinstance(source, PackSource)
        assert [(await world.cost(source, key))[0] for key in ("first", "second", world.sent[0].key)] == [1, 0, 0]
    world.tails.forget({source.pack.key for source in await world.between() if isinstance(source, PackSource)})
    assert world.tails._kept_bytes == 0
    (first, *_) = await world.between()
    assert (await world.cost(first, "first"))[0] == 1


@in_packs
async def test_damaged_bloom_pages_hide_no_key(world: World) -> None:
    """Nor are they kept: the next lookup reads them again."""
    (source, *_) = await world.between()
    assert isinstance(source, PackSource)
    (piece, _), *_ = await world.tails.keys_of(source.pack, TOPIC)
    world.tails.forget({source.pack.key})
    sound = bytearray(await world.history.store.get(source.pack.key))
    damaged = bytearray(sound)
    damaged[piece.idx.start + MAGIC_BYTES : piece.idx.start + MAGIC_BYTES + piece.bloom.size_bytes] = bytes(
        piece.bloom.size_bytes
    )
    await world.history.store.put(source.pack.key, damaged)
    with pytest.raises(CorruptDataError):
        await world.cost(source, "key")
    await world.history.store.put(source.pack.key, sound)
    assert (await world.cost(source, "key"))[0] == 1


@in_packs
async def test_the_parts_that_were_used_last_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sources, "KEPT_BYTES_MAX", 0)
    first, second, _ = await world.between()
    assert [(await world.cost(each, "key"))[0] for each in (first, first, second, second, first)] == [1, 0, 1, 0, 1]
    assert len(world.tails._kept) == 1
    monkeypatch.undo()
    assert [(await world.cost(each, "key"))[0] for each in (first, second, first, second)] == [0, 1, 0, 0]
    assert world.tails._kept_bytes > 0
    monkeypatch.setattr(key_sources, "KEPT_BYTES_MAX", world.tails._kept_bytes)
    _, _, third = await world.between()
    await world.cost(first, "key")  # so that the second is the oldest
    await world.cost(third, "key")
    assert {pack_key for pack_key, _ in world.tails._kept} >= {third.pack.key}  # type: ignore[attr-defined]
    assert (await world.cost(second, "key"))[0] == 1


@in_packs
async def test_of_a_pack_that_is_large_only_the_needed_parts_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the whole `.idx` part of each piece: the tail was too large to be read as well."""
    (pack, *_) = packs_of(world.catalog, world.entry)
    monkeypatch.setattr(key_sources, "TAIL_BYTES_MAX", pack.object_bytes - pack.columns_start)
    assert world.tails.is_readable(pack)
    monkeypatch.setattr(key_sources, "TAIL_BYTES_MAX", pack.object_bytes - pack.columns_start - 1)
    assert not world.tails.is_readable(pack)
    monkeypatch.setattr(key_sources, "TAIL_BYTES_MAX", 0)
    sources = await world.between()
    assert sources
    for source in sources:
        assert isinstance(source, SegmentSource)
        assert not source.reads_whole
        assert source.segment.key_count
    held = {sent.key for sent in world.sent}
    for key in held:
        found = [await world.cost(source, key) for source in sources]
        assert sum(bool(places) for _, places in found) >= 1
        assert all(requests <= 3 for requests, _ in found)


@in_segments
async def test_few_segments_are_read_whole_and_many_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(await world.between())
    for parts_max, reads_whole in ((WHOLE_PARTS_MAX, True), (count, True), (count - 1, False)):
        monkeypatch.setattr(key_sources, "WHOLE_PARTS_MAX", parts_max)
        sources = await world.between()
        assert [source.reads_whole for source in sources if isinstance(source, SegmentSource)] == [reads_whole] * count
    monkeypatch.undo()
    for source in await world.between():
        assert (await world.cost(source, "first"))[0] == 1
        assert (await world.cost(source, "second"))[0] <= 1, "its blooms stay"


async def test_an_earlier_topic_of_the_name_has_no_packs(world: World) -> None:
    other = msgspec.structs.replace(world.entry, incarnation=world.entry.incarnation + 1)
    assert packs_of(world.catalog, other) == []
    missing = msgspec.structs.replace(world.entry, topic="none")
    assert packs_of(world.catalog, missing) == []


@pytest.fixture
async def indexed() -> AsyncIterator[World]:
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=5, is_packed=False, is_indexed=True)
        await history.write(tier, rounds=2, is_packed=True)
        assert tier.writer.catalog.indexes
        yield World(history, tier)


async def test_what_was_in_quarantine_is_searched_where_it_is_now(indexed: World) -> None:
    def gap(start: int, end: int, *, topic: str = TOPIC, incarnation: int | None = None) -> IndexGap:
        life = indexed.entry.incarnation if incarnation is None else incarnation
        return IndexGap(topic=topic, incarnation=life, queue_id=0, start_offset=start, end_offset=end)

    assert await indexed.of_gaps() == []
    assert await indexed.of_gaps(gap(0, 1, topic=NAMES[1])) == []
    assert await indexed.of_gaps(gap(0, 1, incarnation=indexed.entry.incarnation + 1)) == []
    last = max(sent.offset for sent in indexed.sent if sent.queue_id == 0)
    assert await indexed.of_gaps(gap(last + 1, last + 9)) == [], "nothing is there any more"
    (first,) = await indexed.of_gaps(gap(0, 1))
    assert isinstance(first, SegmentSource)
    assert not first.reads_whole
    (newest,) = await indexed.of_gaps(gap(last, last + 1))
    assert isinstance(newest, PackSource)
    (run,) = [each for each in first.segment.runs if each.queue_id == 0]
    border = run.end_offset
    assert [each.name for each in await indexed.of_gaps(gap(border - 1, border))] == [first.name]
    (second,) = await indexed.of_gaps(gap(border, border + 1))
    assert second.name != first.name
    assert {each.name for each in await indexed.of_gaps(gap(border - 1, border + 1))} == {first.name, second.name}
    assert {each.name for each in await indexed.of_gaps(gap(0, 1), gap(last, last + 1))} == {first.name, newest.name}
