"""TopicShares: each topic's requests to the object store, for its own objects and its share of shared objects.

    segments               the topic's own: the meter has an account for it
    packs                  each request for a pack, by the topics' bytes in it, as they are stored
    ledger, checkpoints,   the requests since the last commit with sealed records, by the raw bytes of each topic that
    index, state, ...      this one has sealed: topics with more traffic cause more of them. Including requests for
                           packs that are gone by then, and listings of packs
    doctor                 no topic's

So shares only grow, and the sum over topics, with the unassigned requests, is the meter's total. Shares are
fractions; `rows` rounds them so that the sums stay exact.

Bounded: TOPICS_MAX topics have shares, further ones together; requests for packs are divided at each commit, those of
at most PACKS_MAX packs one by one. Belongs to the tier process's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.cost import OTHER_TOPICS, TOPICS_MAX, CostMeter, Purpose, RequestKind, requests_by_kind
from thermocline.tiered.segments import escape_name, segment_id_of
from thermocline.tiered.wrappers import StoreCounters

_OWN = (Purpose.SEGMENTS,)
_NOBODYS = (Purpose.DOCTOR,)
ERRORS, SENT, RECEIVED = "errors", "sent_bytes", "received_bytes"
NAMES = (*(kind.value for kind in RequestKind), ERRORS, SENT, RECEIVED)

Amounts = dict[str, float]
"""By the names in NAMES."""


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """One topic; OTHER_TOPICS: whatever is no living topic's. Counts by the names in NAMES."""

    topic: str
    own: Mapping[str, int]
    shared: Mapping[str, int]


@dataclass(slots=True)
class TopicShares:
    """See the module's header."""

    meter: CostMeter
    _shares: dict[str, Amounts] = field(default_factory=dict)
    _pending: Amounts = field(default_factory=dict)
    _settled: dict[Purpose, StoreCounters] = field(default_factory=dict)

    def settle(self, catalog: Catalog, sealed_bytes: Mapping[str, int]) -> None:
        """Divide the requests so far: after a commit with these raw bytes of each topic, or empty for a query."""
        for key, counters in self.meter.take_packs().items():
            stored = _stored_bytes(catalog, key)
            if stored:
                self._credit(stored, _amounts(counters))
            else:
                _add(self._pending, _amounts(counters), 1.0)
        for purpose, counters in self.meter.by_purpose.items():
            if purpose in _OWN or purpose in _NOBODYS or purpose is Purpose.PACKS:
                continue
            before = self._settled.get(purpose, StoreCounters())
            _add(self._pending, _amounts(counters.since(before)), 1.0)
            self._settled[purpose] = counters.copy()
        if any(sealed_bytes.values()):
            pending, self._pending = self._pending, {}
            self._credit(sealed_bytes, pending)

    def of(self, topic: str) -> Amounts:
        """All requests of a topic, its share as a fraction; they only grow."""
        amounts = _amounts(self._own(topic))
        _add(amounts, self._shares.get(topic, {}), 1.0)
        return amounts

    def total(self) -> Amounts:
        """The requests of all topics, and the unassigned ones."""
        return _amounts(self.meter.totals)

    def rows(self, topics: Iterable[str]) -> list[TopicRow]:
        """A row for each of these topics, and one for all else; their sums are what the meter has counted."""
        names = list(dict.fromkeys(topics))
        own = {topic: _whole(self._own(topic)) for topic in names}
        own_total = _whole(self.meter.by_purpose[Purpose.SEGMENTS])
        shared_total = {name: count - own_total[name] for name, count in _whole(self.meter.totals).items()}
        shared: dict[str, dict[str, int]] = {topic: {} for topic in [*names, OTHER_TOPICS]}
        for name in NAMES:
            parts = {topic: self._shares.get(topic, {}).get(name, 0.0) for topic in names}
            parts[OTHER_TOPICS] = max(0.0, shared_total[name] - sum(parts.values()))
            for topic, count in rounded(parts, shared_total[name]).items():
                shared[topic][name] = count
        rest = {name: own_total[name] - sum(each[name] for each in own.values()) for name in NAMES}
        rows = [TopicRow(topic=topic, own=own[topic], shared=shared[topic]) for topic in names]
        return [*rows, TopicRow(topic=OTHER_TOPICS, own=rest, shared=shared[OTHER_TOPICS])]

    def _own(self, topic: str) -> StoreCounters:
        return self.meter.by_topic.get(escape_name(topic)) or StoreCounters()

    def _credit(self, weights: Mapping[str, int], amounts: Amounts) -> None:
        whole = sum(weights.values())
        if not any(amounts.values()):
            return
        for topic, weight in weights.items():
            share = self._shares.get(topic)
            if share is None:
                name = topic if len(self._shares) < TOPICS_MAX else OTHER_TOPICS
                share = self._shares.setdefault(name, {})
            _add(share, amounts, weight / whole)


def rounded(parts: Mapping[str, float], total: int) -> dict[str, int]:
    """The parts as whole numbers that add up to `total`: those nearest to the next one are rounded up."""
    floors = {name: int(part) for name, part in parts.items()}
    missing = total - sum(floors.values())
    by_rest = sorted(parts, key=lambda name: (floors[name] - parts[name], name))
    for name in by_rest[: max(0, missing)]:
        floors[name] += 1
    for name in reversed(by_rest):
        if missing >= 0:
            break
        if floors[name]:  # fractions that should have added up to a whole number were a little too large
            floors[name] -= 1
            missing += 1
    assert sum(floors.values()) == total
    return floors


def _stored_bytes(catalog: Catalog, key: str) -> dict[str, int]:
    """The topics in a pack and their bytes; none when it is not in the catalog."""
    pack_id = segment_id_of(key)
    pack = catalog.packs.get(str(pack_id)) if pack_id is not None else None
    sizes: dict[str, int] = {}
    if pack is not None:
        for topic, piece in zip(pack.topics, pack.table().pieces(), strict=True):
            sizes[topic] = sizes.get(topic, 0) + piece.stored_bytes
    return sizes


def _whole(counters: StoreCounters) -> dict[str, int]:
    kinds = {kind.value: count for kind, count in requests_by_kind(counters.requests).items()}
    return kinds | {
        ERRORS: counters.errors.total(),
        SENT: counters.sent_bytes,
        RECEIVED: counters.received_bytes,
    }


def _amounts(counters: StoreCounters) -> Amounts:
    return {name: float(count) for name, count in _whole(counters).items()}


def _add(to: Amounts, amounts: Mapping[str, float], part: float) -> None:
    for name, amount in amounts.items():
        to[name] = to.get(name, 0.0) + amount * part
