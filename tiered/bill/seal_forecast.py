"""When topics would be sealed under given rules, if what came in lately came in again and again.

    full      `segment_bytes` of a topic wait: it takes a segment of its own, of so much
    moment    the oldest waiting message of any topic is `age_ms` old: all that waits goes. A topic of which half a
              segment waits takes one of its own, as one object; all others go in packs, one for each TTL class, more
              where that is more than `pack_bytes` or more topics than one ledger entry may name

As in `seal_backlog.py` and `tier_service.py`, which look once a round. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from thermocline.tiered.bill.arrivals import Arrivals
from thermocline.tiered.merging import own_bytes_of
from thermocline.tiered.packs import ttl_class
from thermocline.tiered.sealing import ENTRY_BYTES_MAX, TopicTraffic

_SAID_BYTES = 40
"""About what a ledger entry says of a topic of a few queues in a pack, beside its name."""


class SealRules(msgspec.Struct, frozen=True, kw_only=True):
    """As in TierConfig; `round_ms`: how often topics are looked at."""

    segment_bytes: int
    age_ms: int
    pack_bytes: int
    round_ms: int
    upload_budget_bytes: int
    put_requests: Callable[[float], int] = lambda size_bytes: 1
    """Of an object of so many bytes."""
    stored_part: float = 1.0
    """Stored bytes of a raw one."""

    def puts_of(self, raw_bytes: float) -> int:
        """Requests to put the object of so many raw bytes."""
        return self.put_requests(raw_bytes * self.stored_part)


class TopicLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to forecast. What waits now: so many bytes, the oldest stored `waited_ms` ago."""

    traffic: TopicTraffic
    ttl_ms: int | None = None
    waiting_bytes: int = 0
    waited_ms: int = 0

    @property
    def topic(self) -> str:
        """Its name."""
        return self.traffic.topic

    @property
    def record_bytes(self) -> float:
        """Of a message, on average."""
        return float(self.traffic.raw_bytes.sum()) / max(1, int(self.traffic.messages.sum()))


class ForecastSeal(msgspec.Struct, frozen=True):
    """One segment: sealed in the round at `round_ms`; its newest message was stored at `newest_ms`. `is_joined`: it is
    one object, not three."""

    round_ms: int
    newest_ms: int
    is_joined: bool = False


class ForecastMoment(msgspec.Struct, frozen=True):
    """All that waits is sealed in the round at `round_ms`, into so many packs, by so many PUTs."""

    round_ms: int
    pack_count: int
    put_count: int


class SealedStretch(msgspec.Struct, frozen=True):
    """A segment of a topic, or what a class has in packs (`topic` is empty then): records stored between two times.
    `is_joined`: see ForecastSeal."""

    topic: str
    ttl_class: str
    start_ms: float
    end_ms: float
    records: float
    is_joined: bool = False


@dataclass(slots=True)
class SealEvent:
    """What a round has sealed, from now on; nothing stored before `gate_ms` waits then."""

    round_ms: int
    gate_ms: float
    sealed: list[SealedStretch] = field(default_factory=list)


class ForecastSeals(msgspec.Struct, frozen=True, kw_only=True):
    """What is sealed in a stretch of time, from its start: moments, segments by topic, packed bytes by topic, and how
    many pieces these are. `events`: all of it, and what is sealed before, from now on."""

    moments: Sequence[ForecastMoment]
    segments: Mapping[str, Sequence[ForecastSeal]]
    packed_bytes: Mapping[str, float]
    packed_counts: Mapping[str, int]
    events: Sequence[SealEvent] = ()


class _Waiting:
    """What waits of one topic."""

    def __init__(self, load: TopicLoad, arrivals: Arrivals, rules: SealRules) -> None:
        self.load = load
        self.seals: list[ForecastSeal] = []
        self.packed_bytes = 0.0
        self.packed_count = 0
        self._arrivals = arrivals
        self._position = -float(load.waiting_bytes)
        self.first_ms = -float(load.waited_ms) if load.waiting_bytes else arrivals.first_from(0)
        """When the oldest waiting message came; `full_ms`: when so much waits that it fills a segment."""
        self.full_ms = 0.0
        self._note_full(rules)

    def seal_full(self, rules: SealRules) -> SealedStretch:
        """The segment that it has filled at `full_ms`."""
        name = ttl_class(self.load.ttl_ms)
        records = rules.segment_bytes / self.load.record_bytes
        sealed = SealedStretch(self.load.topic, name, self.first_ms, self.full_ms, records)
        self.seals.append(ForecastSeal(_round_from(self.full_ms, rules.round_ms), int(self.full_ms)))
        # No record is cut: some part of one does not fit.
        self._position += max(1.0, rules.segment_bytes - self.load.record_bytes / 2)
        if self._position > 0:
            self.first_ms = self._arrivals.time_of(self._position)
        self._note_full(rules)
        return sealed

    def go(self, round_ms: int, rules: SealRules) -> float:
        """All that waits goes, into a pack or, from half a segment on, by itself; how many bytes that is."""
        end = max(self._arrivals.bytes_before(round_ms), self._position)
        size_bytes, self._position = end - self._position, end
        self.first_ms = self._arrivals.first_from(round_ms)
        if size_bytes >= own_bytes_of(rules.segment_bytes):
            self.seals.append(ForecastSeal(round_ms, round_ms, is_joined=True))
        else:
            self.packed_bytes += size_bytes
            self.packed_count += size_bytes > 0
        self._note_full(rules)
        return size_bytes

    def _note_full(self, rules: SealRules) -> None:
        full_position = self._position + rules.segment_bytes
        self.full_ms = self._arrivals.time_of(full_position - 1) if full_position > 0 else 0.0


def forecast_seals(
    loads: Sequence[TopicLoad],
    rules: SealRules,
    arrivals: Mapping[str, Arrivals],
    *,
    start_ms: int,
    horizon_ms: int,
) -> ForecastSeals:
    """The seals in [start_ms, start_ms + horizon_ms) from now; earlier ones are simulated, not returned."""
    topics = [_Waiting(load, arrivals[load.topic], rules) for load in loads]
    moments: list[ForecastMoment] = []
    packed_before: dict[str, float] = {}
    counted_before: dict[str, int] = {}
    events: list[SealEvent] = []
    end_ms = start_ms + horizon_ms
    while topics:
        round_ms = _round_from(_seal_full(topics, rules, events, end_ms=end_ms), rules.round_ms)
        if round_ms >= end_ms:
            break
        pack_count, put_count = _seal_small(topics, rules, events, round_ms=round_ms)
        if round_ms >= start_ms:
            moments.append(ForecastMoment(round_ms - start_ms, pack_count, put_count))
        else:
            packed_before = {topic.load.topic: topic.packed_bytes for topic in topics}
            counted_before = {topic.load.topic: topic.packed_count for topic in topics}
    return ForecastSeals(
        moments=moments,
        segments={
            topic.load.topic: [
                ForecastSeal(seal.round_ms - start_ms, seal.newest_ms - start_ms, seal.is_joined)
                for seal in topic.seals
                if start_ms <= seal.round_ms < end_ms
            ]
            for topic in topics
        },
        packed_bytes={
            topic.load.topic: topic.packed_bytes - packed_before.get(topic.load.topic, 0.0) for topic in topics
        },
        packed_counts={
            topic.load.topic: topic.packed_count - counted_before.get(topic.load.topic, 0) for topic in topics
        },
        events=events,
    )


def _seal_full(topics: Sequence[_Waiting], rules: SealRules, events: list[SealEvent], *, end_ms: int) -> float:
    """The segments that topics fill before the next moment, in the order of time; when that is due, or `end_ms`."""
    filling = [topic for topic in topics if topic.full_ms <= topic.first_ms + rules.age_ms]
    others = [topic for topic in topics if topic.full_ms > topic.first_ms + rules.age_ms]
    oldest_of_others_ms = min((topic.first_ms for topic in others), default=math.inf)
    event: SealEvent | None = None
    while True:
        oldest_ms = min((topic.first_ms for topic in filling), default=math.inf)
        oldest_ms = min(oldest_ms, oldest_of_others_ms)
        due_ms = min(oldest_ms + rules.age_ms, end_ms)
        if event is not None:
            event.gate_ms = min(oldest_ms, event.round_ms)
        first = min(filling, key=lambda topic: topic.full_ms, default=None)
        if first is None or first.full_ms > due_ms:
            return due_ms
        event = _event_at(events, _round_from(first.full_ms, rules.round_ms))
        event.sealed.append(first.seal_full(rules))


def _seal_small(
    topics: Sequence[_Waiting], rules: SealRules, events: list[SealEvent], *, round_ms: int
) -> tuple[int, int]:
    """All that waits goes; into how many packs, by how many PUTs."""
    raw_bytes: dict[str, float] = {}
    said_bytes: dict[str, int] = {}
    records: dict[str, float] = {}
    starts_ms: dict[str, float] = {}
    event = _event_at(events, round_ms)
    event.gate_ms = round_ms
    for topic in topics:
        first_ms = topic.first_ms
        size_bytes = topic.go(round_ms, rules)
        name = ttl_class(topic.load.ttl_ms)
        if size_bytes >= own_bytes_of(rules.segment_bytes):
            count = size_bytes / topic.load.record_bytes
            event.sealed.append(SealedStretch(topic.load.topic, name, first_ms, round_ms, count, is_joined=True))
        elif size_bytes:
            raw_bytes[name] = raw_bytes.get(name, 0.0) + size_bytes
            said_bytes[name] = said_bytes.get(name, 0) + len(topic.load.topic) + _SAID_BYTES
            records[name] = records.get(name, 0.0) + size_bytes / topic.load.record_bytes
            starts_ms[name] = min(starts_ms.get(name, first_ms), first_ms)
    packs = puts = 0
    for name, size_bytes in raw_bytes.items():
        count = max(math.ceil(size_bytes / rules.pack_bytes), math.ceil(said_bytes[name] / ENTRY_BYTES_MAX))
        packs += count
        puts += count * rules.puts_of(size_bytes / count)
        each = SealedStretch("", name, starts_ms[name], round_ms, records[name] / count)
        event.sealed.extend([each] * count)
    return packs, puts


def _event_at(events: list[SealEvent], round_ms: int) -> SealEvent:
    """The last event, if it is of this round, else a new one."""
    if not events or events[-1].round_ms != round_ms:
        events.append(SealEvent(round_ms, -math.inf))
    return events[-1]


def _round_from(time_ms: float, round_ms: int) -> int:
    """The first round at or after a time, and not before now."""
    return max(0, -int(-time_ms // round_ms)) * round_ms
