"""Which index objects would be made, merged and dropped: the rules of index_policy.py played on forecast seals.

    item      a segment or a pack: it covers an interval of time, as its records do in the log
    gate      the place of the oldest message of any topic that is not sealed yet
    range     from the end of the last one up to the gate, once it has ITEMS_MIN segments and packs of one topic, or
              RECORDS_MAX records: an object of places, and one for each TTL class
    merge     as `choose_of_class` says, of objects as they are here

Packs that are merged before they are indexed are one item then, and segments of topics' own. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from thermocline.tiered.bill.seal_forecast import ForecastSeals, TopicLoad
from thermocline.tiered.index_format import PLACES
from thermocline.tiered.indexes import ITEMS_MIN, RECORDS_MAX, SLOTS, choose_of_class
from thermocline.tiered.merging import MERGE_COUNT_MIN
from thermocline.tiered.packs import SPAN_OF_TTL, longest_ttl_ms, ttl_class

GETS_PER_SEGMENT = 2
GETS_PER_JOINED_SEGMENT = 1
GETS_PER_PACK = 1
GETS_PER_INPUT = 2
"""Its size, and its bytes: of up to FETCH_BYTES of wrappers/spooled_object.py."""


class IndexForecast(msgspec.Struct):
    """The requests for segments, packs and index objects in an interval. Commits are those of rounds, which include
    new, merged and dropped objects."""

    segment_gets: float = 0.0
    pack_gets: int = 0
    index_gets: int = 0
    index_puts: int = 0


class _Item(msgspec.Struct, frozen=True):
    """A segment of a topic, or a pack of a class (`topic` is empty then)."""

    topic: str
    ttl_class: str
    start_ms: float
    end_ms: float
    records: float
    level: int = 0
    is_joined: bool = False


class _Object(msgspec.Struct, frozen=True):
    """An index object as its policy looks at it."""

    level: int
    max_store_ms: int
    object_bytes: int


class _Player:
    """Plays on events in the order of time."""

    def __init__(self, loads: Sequence[TopicLoad], *, fan_in: int, segments_per_merge: float) -> None:
        self.forecast = IndexForecast()
        self.is_counted = False
        self._fan_in = fan_in
        self._segments_per_merge = segments_per_merge
        self._items: list[_Item] = []
        self._recent_packs: dict[tuple[str, int], list[_Item]] = defaultdict(list)
        self._indexed_ms = -math.inf
        self._objects: dict[str, list[_Object]] = defaultdict(list)
        self._class_of = {load.topic: ttl_class(load.ttl_ms) for load in loads}
        self._class_ttl_ms: dict[str, int | None] = {}
        for load in loads:
            name = ttl_class(load.ttl_ms)
            longest_ms = self._class_ttl_ms.get(name, 0)
            is_endless = load.ttl_ms is None or longest_ms is None
            self._class_ttl_ms[name] = None if is_endless else max(longest_ms or 0, load.ttl_ms or 0)
        ttls_ms = list(self._class_ttl_ms.values())
        self._class_ttl_ms[PLACES] = None if None in ttls_ms else max((each or 0 for each in ttls_ms), default=0)

    def add(self, item: _Item) -> None:
        self._items.append(item)
        if not item.topic:
            self._merge_packs(item)

    def play_round(self, now_ms: float, gate_ms: float) -> None:
        """Process a round that committed; no record before `gate_ms` waits."""
        self._expire(now_ms)
        whole = [item for item in self._items if item.end_ms <= gate_ms and item.end_ms > self._indexed_ms]
        packs = Counter(item.ttl_class for item in whole if not item.topic)
        segments = Counter(item.topic for item in whole if item.topic)
        records = sum(item.records for item in whole)
        is_many = max(packs.values(), default=0) + max(segments.values(), default=0) >= ITEMS_MIN
        if whole and (is_many or records >= RECORDS_MAX):
            self._build(gate_ms)
            self._merge_objects()

    def _build(self, gate_ms: float) -> None:
        within = [item for item in self._items if item.start_ms < gate_ms and item.end_ms > self._indexed_ms]
        end_ms = min(gate_ms, max(item.end_ms for item in within))
        classes = {self._class_of[item.topic] if item.topic else item.ttl_class for item in within} | {PLACES}
        count = max(1, math.ceil(sum(item.records for item in within) / RECORDS_MAX))
        for name in classes:
            self._objects[name] += [_Object(0, int(end_ms), 1)] * count
        if self.is_counted:
            forecast = self.forecast
            joined_count = sum(item.is_joined for item in within)
            forecast.segment_gets += GETS_PER_SEGMENT * (sum(bool(item.topic) for item in within) - joined_count)
            forecast.segment_gets += GETS_PER_JOINED_SEGMENT * joined_count
            forecast.pack_gets += GETS_PER_PACK * sum(not item.topic for item in within)
            forecast.index_puts += count * len(classes)
        self._indexed_ms = end_ms
        self._items = [item for item in self._items if item.end_ms > end_ms]

    def _merge_objects(self) -> None:
        for name, objects in self._objects.items():
            ttl_ms = self._class_ttl_ms[name] if name == PLACES else longest_ttl_ms(name)
            slot_ms = None if ttl_ms is None else max(1, ttl_ms // SLOTS)
            while chosen := choose_of_class(objects, slot_ms):
                start = objects.index(chosen[0])
                merged = _Object(
                    max(each.level for each in chosen) + 1,
                    max(each.max_store_ms for each in chosen),
                    sum(each.object_bytes for each in chosen),
                )
                objects[start : start + len(chosen)] = [merged]
                if self.is_counted:
                    self.forecast.index_gets += GETS_PER_INPUT * len(chosen)
                    self.forecast.index_puts += 1

    def _expire(self, now_ms: float) -> None:
        """Once everything in it has."""
        for name, objects in self._objects.items():
            ttl_ms = self._class_ttl_ms[name]
            while ttl_ms is not None and objects and objects[0].max_store_ms + ttl_ms < now_ms:
                del objects[0]

    def _merge_packs(self, pack: _Item) -> None:
        """Packs of one level become one of the next, if they are still to be indexed: as an item they are one."""
        ttl_ms = longest_ttl_ms(pack.ttl_class)
        level = self._recent_packs[pack.ttl_class, pack.level]
        level.append(pack)
        if len(level) < self._fan_in:
            return
        packs, self._recent_packs[pack.ttl_class, pack.level] = list(level), []
        if ttl_ms is not None:
            # They may span so much only: the oldest ones that do are merged, the others wait for more.
            packs = [each for each in packs if each.end_ms - packs[0].start_ms <= ttl_ms / SPAN_OF_TTL]
            if len(packs) < MERGE_COUNT_MIN:
                self._recent_packs[pack.ttl_class, pack.level] = level[1:]
                return
            self._recent_packs[pack.ttl_class, pack.level] = level[len(packs) :]
        merged = _Item(
            "",
            pack.ttl_class,
            packs[0].start_ms,
            packs[-1].end_ms,
            sum(each.records for each in packs),
            pack.level + 1,
        )
        others = [item for item in self._items if not any(item is each for each in packs)]
        if self.is_counted:
            part = (len(self._items) - len(others)) / len(packs)
            self.forecast.segment_gets += GETS_PER_JOINED_SEGMENT * self._segments_per_merge * part
        self._items = others
        if merged.end_ms > self._indexed_ms:
            self._items.append(merged)
        self._merge_packs(merged)


def forecast_indexes(
    loads: Sequence[TopicLoad],
    seals: ForecastSeals,
    *,
    fan_in: int | None,
    segments_per_merge: float,
    start_ms: int,
) -> IndexForecast:
    """What is indexed from `start_ms` on, by what is sealed before it and behind. `fan_in` None: nothing is.
    `segments_per_merge`: of topics' own, on average."""
    if fan_in is None:
        return IndexForecast()
    player = _Player(loads, fan_in=fan_in, segments_per_merge=segments_per_merge)
    for event in seals.events:
        player.is_counted = event.round_ms >= start_ms
        for sealed in event.sealed:
            player.add(
                _Item(
                    sealed.topic,
                    sealed.ttl_class,
                    sealed.start_ms,
                    sealed.end_ms,
                    sealed.records,
                    is_joined=sealed.is_joined,
                )
            )
        player.play_round(event.round_ms, event.gate_ms)
    return player.forecast
