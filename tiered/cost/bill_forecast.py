"""Forecast of a broker's requests: what sealing, expiry and garbage ask of the store under other settings.

    recorded traffic -> seals of each topic (seal_forecast.py) -> rounds -> commits -> checkpoints -> garbage

What one of them asks for, in requests, as the code that does it
    segment       3 PUT                                          segment_upload.py
    commit        1 PUT, 1 GET of the entry before               ledger_writer.py; ballots: 1 PUT, LIST and DELETE more
    checkpoint    1 PUT a changed bucket, 1 its head, 1 hint     checkpoint.py; every `CHECKPOINT_INTERVAL` commits
    collection    see `_collections`                             garbage.py

Expiry is forecast as it is once it has set in: as much goes as comes, one time to live later. One commit takes all that
is sealed in a round, and what has expired by it; what else expires is committed once a sweep.

Not forecast but taken over as counted: state snapshots, reads, whatever is asked for at a start. Pure: one seed, one
forecast.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

from thermocline.tiered.checkpoint import BUCKET_COUNT_MAX, BUCKET_SEGMENTS, bucket_of
from thermocline.tiered.cost.cost_meter import HOUR_MS, Purpose
from thermocline.tiered.cost.request_kind import RequestKind
from thermocline.tiered.cost.seal_forecast import Arrivals, ForecastSeal, SealRules, TopicLoad, forecast_seals
from thermocline.tiered.ledger_writer import CHECKPOINT_INTERVAL
from thermocline.tiered.segment_upload import PUTS_PER_SEGMENT

Requests: TypeAlias = dict[tuple[Purpose, RequestKind], float]

SEAL_AGES = 4
"""The horizon is at least so many seal ages long."""
SETTLING_SEAL_AGES = 8
"""So many go before it: topics that were due together drift apart, which takes more commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """What decides about requests. `collect_ms`: the least time from one collection of garbage to the next."""

    rules: SealRules
    sweep_ms: int
    grace_ms: int
    collect_ms: int
    is_ballots: bool = False
    segment_count: int = 0
    """Live segments there are now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillForecast:
    """Requests an hour, by purpose and kind."""

    requests_per_hour: Requests
    segments_per_hour: Mapping[str, float]
    """By topic."""
    commits_per_hour: float

    def plus(self, others: Requests) -> BillForecast:
        """With further requests."""
        names = self.requests_per_hour.keys() | others.keys()
        requests = {name: self.requests_per_hour.get(name, 0.0) + others.get(name, 0.0) for name in names}
        return replace(self, requests_per_hour=requests)

    def per_hour(self, kind: RequestKind) -> float:
        """Of all purposes."""
        return sum(count for (_, each), count in self.requests_per_hour.items() if each is kind)


@dataclass(slots=True)
class _Round:
    """What one round of the tier service commits: segments by topic, and topics of which something has expired."""

    seals: Counter[str] = field(default_factory=Counter)
    swept: set[str] = field(default_factory=set)

    @property
    def commit_count(self) -> int:
        """A topic that is full more than once takes a commit for each of its segments."""
        return max(self.seals.values(), default=1)


def forecast_bill(
    loads: Sequence[TopicLoad], settings: ForecastSettings, *, cycle_ms: int, seed: int = 1
) -> BillForecast:
    """What is asked for in an hour, if the traffic of `cycle_ms` comes again and again."""
    random = Random(seed)
    horizon_ms = -(-max(HOUR_MS, SEAL_AGES * settings.rules.age_ms) // cycle_ms) * cycle_ms
    start_ms = -(-SETTLING_SEAL_AGES * settings.rules.age_ms // cycle_ms) * cycle_ms
    rounds: dict[int, _Round] = {}
    seals: dict[str, list[ForecastSeal]] = {}
    for load in loads:
        arrivals = Arrivals(load.traffic, cycle_ms=cycle_ms, random=random)
        until_horizon = forecast_seals(load, settings.rules, arrivals, horizon_ms=start_ms + horizon_ms)
        seals[load.topic] = [
            ForecastSeal(seal.round_ms - start_ms, seal.newest_ms - start_ms)
            for seal in until_horizon
            if seal.round_ms >= start_ms
        ]
        for seal in seals[load.topic]:
            rounds.setdefault(seal.round_ms, _Round()).seals[load.topic] += 1
    _add_sweeps(rounds, loads, seals, settings, horizon_ms)
    segment_count = sum(map(len, seals.values()))
    hours = horizon_ms / HOUR_MS
    bucket_count = _bucket_count(loads, seals, settings, hours)
    checkpoints = _checkpoints(rounds, (), bucket_count)
    collections = _collections(checkpoints, settings, horizon_ms)
    # Collections commit too, which brings the checkpoints somewhat closer together.
    checkpoints = _checkpoints(rounds, tuple(collections), bucket_count)
    collections = _collections(checkpoints, settings, horizon_ms)
    commits = sum(each.commit_count for each in rounds.values()) + len(collections)
    counts: Requests = defaultdict(float)
    counts[Purpose.CHECKPOINTS, RequestKind.PUT] = sum(count + 1 for count in checkpoints.values())
    counts[Purpose.LEDGER, RequestKind.PUT] = len(checkpoints)
    kept_count = round(len(checkpoints) * settings.grace_ms / horizon_ms) + 1
    has_expiry = any(load.ttl_ms is not None for load in loads)
    for gone_count in collections.values():
        _add_collection(counts, gone_count=gone_count, kept_count=kept_count, has_objects=has_expiry)
    # Where the last checkpoint before now was is not known: on average there are just so many.
    part = commits / CHECKPOINT_INTERVAL / len(checkpoints) if checkpoints else 0.0
    requests: Requests = defaultdict(float, {key: count * part for key, count in counts.items()})
    requests[Purpose.SEGMENTS, RequestKind.PUT] += PUTS_PER_SEGMENT * segment_count
    for kind in (RequestKind.PUT, RequestKind.GET):
        requests[Purpose.LEDGER, kind] += commits
    if settings.is_ballots:
        for kind in (RequestKind.PUT, RequestKind.LIST, RequestKind.DELETE):
            requests[Purpose.OTHER, kind] += commits
    return BillForecast(
        requests_per_hour={key: count / hours for key, count in requests.items()},
        segments_per_hour={topic: len(each) / hours for topic, each in seals.items()},
        commits_per_hour=commits / hours,
    )


def _add_sweeps(
    rounds: dict[int, _Round],
    loads: Iterable[TopicLoad],
    seals: Mapping[str, Sequence[ForecastSeal]],
    settings: ForecastSettings,
    horizon_ms: int,
) -> None:
    """Once expiry has set in, each segment's end is as far from that of another as their sealing was."""
    for load in loads:
        if load.ttl_ms is None:
            continue
        for seal in seals[load.topic]:
            expired_ms = (seal.newest_ms + load.ttl_ms) % horizon_ms
            swept_ms = -(-(expired_ms + 1) // settings.sweep_ms) * settings.sweep_ms
            rounds.setdefault(swept_ms % horizon_ms, _Round()).swept.add(load.topic)


def _bucket_count(
    loads: Iterable[TopicLoad],
    seals: Mapping[str, Sequence[ForecastSeal]],
    settings: ForecastSettings,
    hours: float,
) -> int:
    """As `checkpoint.bucket_count_for`, for as many live segments as there will be at least."""
    alive = sum(len(seals[load.topic]) / hours * load.ttl_ms / HOUR_MS for load in loads if load.ttl_ms is not None)
    count = 1
    while count < BUCKET_COUNT_MAX and count * BUCKET_SEGMENTS < max(alive, settings.segment_count):
        count *= 2
    return count


def _checkpoints(rounds: Mapping[int, _Round], collected_ms: Sequence[int], bucket_count: int) -> dict[int, int]:
    """Time of each checkpoint, and how many buckets it writes: those of topics that have changed since the last."""
    checkpoints: dict[int, int] = {}
    changed: set[int] = set()
    commits = 0
    moments = sorted([*((time_ms, 0) for time_ms in rounds), *((time_ms, 1) for time_ms in collected_ms)])
    for time_ms, is_collection in moments:
        each = _Round() if is_collection else rounds[time_ms]
        changed |= {bucket_of(topic, bucket_count=bucket_count) for topic in {*each.seals, *each.swept}}
        commits += each.commit_count
        if commits >= CHECKPOINT_INTERVAL:
            checkpoints[time_ms] = checkpoints.get(time_ms, 0) + max(1, len(changed))
            commits -= CHECKPOINT_INTERVAL
            changed.clear()
    if not checkpoints and moments:
        checkpoints[moments[-1][0]] = max(1, len(changed))  # less than one in this time
    return checkpoints


def _collections(checkpoints: Mapping[int, int], settings: ForecastSettings, horizon_ms: int) -> dict[int, int]:
    """Time of each collection of garbage, and how many checkpoints go with it: those over the grace period."""
    collections: dict[int, int] = {}
    collected_ms, not_before_ms = -1, 0
    for over_ms in sorted((time_ms + settings.grace_ms) % horizon_ms for time_ms in checkpoints):
        if over_ms > collected_ms:
            collected_ms = max(over_ms, not_before_ms)
            not_before_ms = collected_ms + settings.collect_ms
        collections[collected_ms] = collections.get(collected_ms, 0) + 1
    return collections


def _add_collection(counts: Requests, *, gone_count: int, kept_count: int, has_objects: bool) -> None:
    """Pins are listed twice, heads of kept checkpoints and of those that go are read; one commit, and the hint."""
    counts[Purpose.PINS, RequestKind.LIST] += 2
    counts[Purpose.CHECKPOINTS, RequestKind.GET] += kept_count + gone_count
    counts[Purpose.LEDGER, RequestKind.GET] += 1
    counts[Purpose.LEDGER, RequestKind.PUT] += 1
    counts[Purpose.CHECKPOINTS, RequestKind.DELETE] += gone_count + 1
    counts[Purpose.LEDGER, RequestKind.DELETE] += gone_count * CHECKPOINT_INTERVAL
    if has_objects:
        counts[Purpose.SEGMENTS, RequestKind.DELETE] += 1
