"""What lookups cost in requests, on the metering wrapper: of what is in segments of topics' own and in packs, indexed
or not, for readers that open the catalog later and for the tier that has written it.

Cold: in memory are the catalog and what lookups load at the start, which is counted apart. Warm: the same once more.
A bloom is false once in a while, and costs a request then: which ones are is found out beside, and they are all that is
added. Design: docs/adr/0037-lookups.md.

Covers `tiered/lookups/birth_windows.py`, `tiered/lookups/key_search.py`, `tiered/lookups/key_sources.py`,
`tiered/lookups/lookup_memory.py`, `tiered/lookups/place_search.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from benchmarks.lookup_history import (
    CONFIG,
    MERGED_AFTER,
    MIB,
    NAMES,
    QUEUES,
    History,
    LaterReader,
    Sent,
    metered_by,
    opened_later,
    tier_of,
)
from tests.full_cases import full
from thermocline.remoting.errors import QueryNotFoundError
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.index_format.index_object import IndexObject
from thermocline.tiered.index_format.key_pages import index_hash
from thermocline.tiered.indexes.fresh_index import FreshIndex
from thermocline.tiered.indexes.index_policy import ITEMS_MIN
from thermocline.tiered.indexes.log_items import LogItems
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.reading.cold_reader import Boundary, ColdReader
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.stores.memory import MemoryObjectStore

SAMPLES = 100
NEWEST = 200
ROUNDS = 8
ROUNDS_INDEXED = {False: 56, True: 72}
TIME_COLD_MAX, TIME_WARM_MAX, PLACE_MAX, KEY_HIT_MAX, SOURCES_MAX = 2, 0, 2, 3, 32

Lookup = Callable[[ColdReader], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests of a lookup, cold and warm, beyond those for which blooms are to blame, and what was found."""

    cold: int
    warm: int
    found: object


@dataclass(slots=True)
class Seen:
    """Most requests that any lookup of a kind took, and how often a bloom was false."""

    cold: Counter[str] = field(default_factory=Counter)
    warm: Counter[str] = field(default_factory=Counter)
    count: Counter[str] = field(default_factory=Counter)
    false_count: int = 0
    asked_count: int = 0

    def note(self, kind: str, cost: Cost) -> None:
        self.cold[kind] = max(self.cold[kind], cost.cold)
        self.warm[kind] = max(self.warm[kind], cost.warm)
        self.count[kind] += 1


async def cost_of(history: History, start: LaterReader, lookup: Lookup, *, keeps: bool = True) -> Cost:
    """Carry a lookup out twice, as a reader that has just started."""
    async with start.another(history.store, keeps=keeps) as later:
        found = await lookup(later.reader)
        cold = later.request_count
        assert await lookup(later.reader) == found
        return Cost(cold, later.request_count - cold, found)


def by_time(sent: Sent, time_ms: int, boundary: Boundary, cut_ms: int) -> Lookup:
    return lambda reader: reader.offset_by_time(sent.topic, sent.queue_id, time_ms, boundary=boundary, cut_ms=cut_ms)


def by_place(place: int) -> Lookup:
    async def view(reader: ColdReader) -> bytes | None:
        try:
            return bytes(await reader.view(place, cut_ms=lambda topic: 0))
        except QueryNotFoundError:
            return None

    return view


def by_key(
    topic: str, key: str, *, count_max: int = 32, times_ms: tuple[int, int] = (0, 1 << 60), is_unique: bool = True
) -> Lookup:
    async def query(reader: ColdReader) -> list[bytes]:
        begin_ms, end_ms = times_ms
        found = await reader.query_key(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max, cut_ms=0, is_unique=is_unique
        )
        return [bytes(record) for record in found]

    return query


class Blooms:
    """Which index objects of a topic cannot be excluded, by their pages as they are stored."""

    def __init__(self, store: MemoryObjectStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._pages: dict[str, bytes] = {}

    def of_topic(self, topic: str) -> list[IndexObject]:
        """The objects that hold keys of it."""
        indexes = self._catalog.indexes.values()
        return [IndexObject(self._store, each) for each in indexes if each.page_count and each.may_hold(topic)]

    async def not_excluded(self, topic: str, key: str) -> int:
        """How many say that they may have a key."""
        hash_value = index_hash(topic, self._catalog.topics[topic].incarnation, key)
        count = 0
        for each in self.of_topic(topic):
            if each.entry.index_id not in self._pages:
                self._pages[each.entry.index_id] = await each.blooms()
            count += each.shape.may_hold(self._pages[each.entry.index_id], hash_value)
        return count


def fresh_items(catalog: Catalog) -> list[SegmentEntry | PackEntry]:
    """What no index object covers."""
    return list(LogItems.of_catalog(catalog).between(catalog.indexed_to, 1 << 62).items)


async def look_up(history: History, start: LaterReader, blooms: Blooms, seen: Seen) -> None:
    """Look for one message in each way."""
    random, catalog = history.random, start.catalog
    sent = random.choice(random.choice((history.sent, history.sent[-NEWEST:])))
    is_indexed = sent.physical_offset < catalog.indexed_to
    state = "indexed" if is_indexed else "fresh"

    time_ms, cut_ms = sent.store_ms + random.randint(-1, 1), random.choice((0, random.choice(history.sent).store_ms))
    for boundary in Boundary:
        seen.note("time", await cost_of(history, start, by_time(sent, time_ms, boundary, cut_ms), keeps=False))

    cost = await cost_of(history, start, by_place(sent.physical_offset))
    assert cost.found == sent.record
    seen.note(f"place, {state}", cost)
    cost = await cost_of(history, start, by_place(sent.physical_offset + 1))
    assert cost.found is None
    seen.note(f"no place, {state}", cost)

    false_count = await blooms.not_excluded(sent.topic, sent.key) - is_indexed
    cost = await cost_of(history, start, by_key(sent.topic, sent.key))
    assert cost.found == [sent.record]
    assert cost.cold <= KEY_HIT_MAX + false_count
    if not false_count:
        seen.note(f"key hit, {state}", cost)
    missing = f"not {sent.key}"
    false_count = await blooms.not_excluded(sent.topic, missing)
    cost = await cost_of(history, start, by_key(sent.topic, missing))
    assert cost.found == []
    assert (cost.cold, cost.warm) == (false_count, false_count), "a miss costs nothing but what blooms say falsely"
    seen.false_count += false_count
    seen.asked_count += len(blooms.of_topic(sent.topic))

    sources = len(blooms.of_topic(sent.topic)) + sum(
        isinstance(item, PackEntry) or item.topic == sent.topic for item in fresh_items(catalog)
    )
    assert sources <= SOURCES_MAX
    cost = await cost_of(history, start, by_key(sent.topic, missing), keeps=False)
    assert cost.cold <= sources, "with nothing in memory one for each index object, or segment that is in none"
    seen.note("bare key miss", cost)
    cost = await cost_of(history, start, by_key(sent.topic, sent.key), keeps=False)
    assert cost.cold <= sources + KEY_HIT_MAX - 1
    seen.note("bare key hit", cost)


@pytest.mark.parametrize("is_indexed", [False, True], ids=["not indexed", "indexed"])
@pytest.mark.parametrize("is_packed", [True, *full(False)], ids=["packs", "own segments"])
async def test_requests_of_lookups(is_packed: bool, is_indexed: bool) -> None:
    """By time two and none, by place two, by key three, none for one that is not there."""
    history, seen = History(hours_between_rounds=6 if is_indexed else 0), Seen()
    rounds = ROUNDS_INDEXED[is_packed] if is_indexed else ROUNDS
    async with tier_of(history) as tier:
        await history.write(tier, rounds=rounds, is_packed=is_packed, is_indexed=is_indexed)
        catalog = tier.catalog
        if is_indexed:
            check_index_objects(history, catalog, is_packed=is_packed)
        elif is_packed:
            assert {pack.level for pack in catalog.packs.values()} == {0, 1}
        else:
            assert catalog.segment_count == ROUNDS * len(NAMES)
        async with opened_later(history.store) as start:
            blooms = Blooms(history.store, start.catalog)
            for _ in range(SAMPLES):
                await look_up(history, start, blooms, seen)
    assert seen.cold["time"] <= TIME_COLD_MAX
    assert seen.warm["time"] <= TIME_WARM_MAX
    for kind in seen.count:
        if kind.startswith("place"):
            assert seen.cold[kind] <= PLACE_MAX, kind
            assert seen.warm[kind] <= PLACE_MAX, kind
        elif kind.startswith("no place"):
            assert seen.cold[kind] <= (0 if kind.endswith("fresh") else 1), kind
        elif kind.startswith("key hit"):
            assert seen.cold[kind] <= KEY_HIT_MAX, kind
    assert {"place, fresh", "key hit, fresh"} <= set(seen.count) or not fresh_items(catalog)
    assert {"place, indexed", "key hit, indexed"} <= set(seen.count) or not is_indexed
    assert seen.false_count <= seen.asked_count * 0.04, "blooms are false 1.3 times in a hundred"


def check_index_objects(history: History, catalog: Catalog, *, is_packed: bool) -> None:
    """They have been merged, and of what they do not cover there are few."""
    by_class = Counter(index.ttl_class for index in catalog.indexes.values())
    assert by_class == {"places": by_class["forever"], "forever": by_class["forever"]}
    assert max(index.level for index in catalog.indexes.values()) >= 1
    items = fresh_items(catalog)
    behind = max(sum(isinstance(item, PackEntry) or item.topic == name for item in items) for name in NAMES)
    assert behind < ITEMS_MIN
    assert bool(behind) == is_packed


@pytest.mark.parametrize("is_indexed", [False, True], ids=["not indexed", "indexed"])
@pytest.mark.parametrize("is_packed", [True, *full(False)], ids=["packs", "own segments"])
async def test_requests_of_lookups_in_large_objects(is_packed: bool, is_indexed: bool) -> None:
    """In pieces that are not read for one record, and among frames of which eight are too much to read for one."""
    history = History()
    config = replace(CONFIG, segment_bytes=64 * MIB, frame_bytes=MIB, pack_bytes=64 * MIB)
    async with tier_of(history, config) as tier:
        for _ in range(ITEMS_MIN):
            for number in range(36 if is_packed else 6):
                if is_packed:
                    history.send(NAMES[0], number % QUEUES, body_bytes=MIB // 3)
                else:
                    history.send(NAMES[0], 0, body_bytes=3 * MIB)
                history.send(NAMES[1], 0, body_bytes=100)
            await (history.pack(tier) if is_packed else history.seal(tier))
        if is_indexed:
            assert await tier.index_all()
            assert not fresh_items(tier.catalog)
        if is_packed:
            assert {bool(pack.groups) for pack in tier.catalog.packs.values()} == {True}
        large = [each for each in history.sent if each.topic == NAMES[0]]
        async with opened_later(history.store) as start:
            for sent in history.random.sample(large, 16):
                cost = await cost_of(history, start, by_place(sent.physical_offset))
                assert (cost.found, cost.cold <= PLACE_MAX) == (sent.record, True)
                cost = await cost_of(history, start, by_key(sent.topic, sent.key))
                assert (cost.found, cost.cold <= KEY_HIT_MAX) == ([sent.record], True)


@pytest.mark.parametrize("is_packed", [False, True], ids=["own segments", "packs"])
async def test_the_requests_of_the_start(is_packed: bool) -> None:
    """One for the bloom pages of each index object, one for each pack that is in none, two for each such segment."""
    history = History(hours_between_rounds=6)
    async with tier_of(history) as tier:
        await history.write(tier, rounds=14, is_packed=is_packed, is_indexed=True)
        await history.write(tier, rounds=2, is_packed=is_packed)
        items = fresh_items(tier.catalog)
        packs = sum(isinstance(item, PackEntry) for item in items)
        assert packs if is_packed else len(items) > packs
        with_pages = sum(index.page_count > 0 for index in tier.catalog.indexes.values())
        async with opened_later(history.store) as later:
            assert later.request_count == with_pages + packs + 2 * (len(items) - packs)
            assert later.fresh is not None
            assert later.fresh.count == len(items)
            await later.reader.load_lookups()
            assert later.request_count == with_pages + packs + 2 * (len(items) - packs), "nothing is missing any more"


@pytest.mark.parametrize("is_packed", [False, True], ids=["own segments", "packs"])
async def test_the_writer_has_its_own_records_in_memory(is_packed: bool) -> None:
    """Sealed, merged, indexed a moment ago: it has fetched nothing, and a lookup costs what it should."""
    history = History()
    async with tier_of(history) as tier:
        for number in range(MERGED_AFTER + 7):
            await history.write(tier, rounds=1, is_packed=is_packed)
            if is_packed and number in (MERGED_AFTER, MERGED_AFTER + 3):
                assert await tier.merge_all()
            if number == MERGED_AFTER + 4:
                assert await tier.index_all()
            before = metered_by(tier)
            assert tier.fresh.count == len(fresh_items(tier.catalog))
            for sent in history.random.sample(history.sent, 12):
                missing = by_key(sent.topic, f"not {sent.key}")
                assert await missing(tier.reader) == []
                assert metered_by(tier) == before, "a miss"
                assert await by_key(sent.topic, sent.key)(tier.reader) == [sent.record]
                assert metered_by(tier) - before <= KEY_HIT_MAX
                before = metered_by(tier)
                assert await by_place(sent.physical_offset)(tier.reader) == sent.record
                assert metered_by(tier) - before <= PLACE_MAX
                before = metered_by(tier)


@pytest.mark.parametrize("is_packed", [False, True], ids=["own segments", "packs"])
async def test_records_beyond_the_memory_bound_are_found_by_requests(is_packed: bool) -> None:
    """The newest stay, within the bound; every record is found, and a cached one costs no more than it should."""
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=MERGED_AFTER, is_packed=is_packed)
        items = fresh_items(tier.catalog)
        for fresh in (FreshIndex(bytes_max=tier.fresh.size_bytes // 2), FreshIndex(items_max=len(items) // 2)):
            async with opened_later(history.store, fresh=fresh) as later:
                assert 0 < fresh.count < len(items)
                assert fresh.size_bytes <= tier.fresh.size_bytes // 2 + 1_000 * len(items)
                oldest_kept = min(item.end_physical_offset for item in items if fresh.get(item) is not None)
                assert all(fresh.get(item) for item in items if item.end_physical_offset > oldest_kept)
                for sent in history.random.sample(history.sent, 40):
                    before = later.request_count
                    assert await by_place(sent.physical_offset)(later.reader) == sent.record
                    if sent.physical_offset >= oldest_kept:
                        assert later.request_count - before <= PLACE_MAX
                    assert await by_key(sent.topic, sent.key)(later.reader) == [sent.record]


@pytest.mark.parametrize("is_indexed", [False, True], ids=["not indexed", "the older part indexed"])
async def test_results_are_those_of_the_hot_index(is_indexed: bool) -> None:
    """As many as wanted, of the times wanted, the newest first, of keys that many records have; with what is in memory
    and without."""
    history, keys = History(), [f"{number:032}" for number in range(3)]
    async with tier_of(history) as tier:
        for number in range(9):
            for _ in range(50):
                key = history.random.choice((keys[0], keys[0], keys[1], "", "", "")) if number else keys[2]
                history.send(history.random.choice(NAMES[:3]), history.random.randrange(2), body_bytes=20, key=key)
                history.hot.now_ms += history.random.choice((0, 3))
            await (history.seal(tier) if number % 3 == 1 else history.pack(tier))
            if is_indexed and number == 6:
                assert await tier.index_all()
        assert bool(tier.catalog.indexed_to) == is_indexed
        assert fresh_items(tier.catalog)
        async with (
            opened_later(history.store) as later,
            opened_later(history.store, keeps=False) as bare,
        ):
            for _ in range(150):
                topic, key = history.random.choice(NAMES[:3]), history.random.choice(keys)
                begin_ms, end_ms = sorted(history.random.choice(history.sent).store_ms for _ in range(2))
                count_max = history.random.choice((1, 2, 5, 64))
                expected = [
                    each.record
                    for each in reversed(history.sent)
                    if (each.topic, each.key) == (topic, key) and begin_ms <= each.store_ms <= end_ms
                ][:count_max]
                lookup = by_key(topic, key, count_max=count_max, times_ms=(begin_ms, end_ms), is_unique=False)
                for reader in (tier.reader, later.reader, bare.reader):
                    assert await lookup(reader) == expected
