"""Forecast of a broker's requests: what sealing, merging, expiry and garbage ask of the store under other settings.

    recorded traffic -> seals (seal_forecast.py) and merges (merge_forecast.py) -> commits -> checkpoints -> collections

What one of them asks for, in requests, as the code that does it
    segment       3 PUT; not full, or from a merge, 1            segment_upload.py, merging/pack_merger.py
    pack          1 PUT                                          sealing/pack_sealer.py, merging/pack_merger.py
    commit        1 PUT, 1 GET of the entry before               ledger_writer.py; ballots: 1 PUT, LIST and DELETE more
    checkpoint    1 PUT a changed bucket, the packs, its head, the hint    checkpoint.py
    collection    see `_add_collection`                          garbage.py

    index        PUT of each object, GETs of what it is made of; committed with a round   index_forecast.py
    state        1 PUT, 2 GETs of the ledger, 1 DELETE of an older one; none where a round's entry carries it
                                                                 state/state_log.py, state/carried_state.py

Expiry is forecast as it is once it has set in: as much goes as comes, one time to live later. One commit takes all that
is sealed in a round, and what has expired by it; what else expires is committed once a sweep. State is saved when
anything came in.

Not forecast: reads, and requests at a start. Pure: one seed, one forecast.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

import msgspec
import numpy as np

from thermocline.remoting.errors import InvalidParameterError
from thermocline.tiered.bill.arrivals import Arrivals, points_per_minute
from thermocline.tiered.bill.index_forecast import forecast_indexes
from thermocline.tiered.bill.merge_forecast import MergeForecast, forecast_merges
from thermocline.tiered.bill.seal_forecast import ForecastSeals, SealRules, TopicLoad, forecast_seals
from thermocline.tiered.cost import HOUR_MS, Purpose, RequestKind
from thermocline.tiered.ledger import BUCKET_COUNT_MAX, BUCKET_SEGMENTS, CHECKPOINT_INTERVAL, PACKS_BUCKET, bucket_of
from thermocline.tiered.packs import PUTS_PER_SEGMENT
from thermocline.tiered.sealing import MINUTE_MS, SWEEPS_WAITED_MAX

Requests: TypeAlias = dict[tuple[Purpose, RequestKind], float]

SEAL_AGES = 4
"""The horizon is at least so many seal ages long."""
GETS_PER_STATE = 2
"""Ledger entries that a state snapshot probes, to check that no other writer has claimed the ledger."""
SETTLING_SEAL_AGES = 8
"""So many go before it: topics that were due together drift apart."""
WORK_MAX = 5_000_000
"""Half a minute and some hundred megabytes."""
_NO_TOPIC = ""
"""Whose removed packs are, in a checkpoint."""


class ForecastSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about requests. `fan_in` None: nothing is merged. `collect_ms`: the least time from one collection
    of garbage to the next. `segment_count`: live segments there are now. `state_interval_ms` 0: no state is saved."""

    rules: SealRules
    fan_in: int | None
    sweep_ms: int
    grace_ms: int
    collect_ms: int
    is_ballots: bool = False
    state_interval_ms: int = 0
    segment_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BillForecast:
    """Requests an hour, by purpose and kind."""

    requests_per_hour: Requests
    segments_per_hour: float
    packs_per_hour: float
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
    """What is committed in one round of the tier service: segments by topic; topics of which something has expired;
    whether packs come or go."""

    segments: Counter[str] = field(default_factory=Counter)
    swept: set[str] = field(default_factory=set)
    has_packs: bool = False

    @property
    def commit_count(self) -> int:
        """A topic that is full more than once takes a commit for each of its segments."""
        return max(self.segments.values(), default=1)

    def buckets(self, bucket_count: int) -> set[int]:
        """The parts of a checkpoint that this changes."""
        names = {bucket_of(topic, bucket_count=bucket_count) for topic in {*self.segments, *self.swept}}
        return names | {PACKS_BUCKET} if self.has_packs else names


def forecast_bill(
    loads: Sequence[TopicLoad], settings: ForecastSettings, *, cycle_ms: int, seed: int = 1
) -> BillForecast:
    """The requests of an hour, if the traffic of `cycle_ms` repeats.

    Raises:
        InvalidParameterError: It would take minutes and more: seals are too many, or too far apart.
    """
    random, rules = Random(seed), settings.rules
    horizon_ms = -(-max(HOUR_MS, SEAL_AGES * rules.age_ms) // cycle_ms) * cycle_ms
    start_ms = -(-SETTLING_SEAL_AGES * rules.age_ms // cycle_ms) * cycle_ms
    _check_work(loads, rules, cycle_ms=cycle_ms, end_ms=start_ms + horizon_ms)
    hours = horizon_ms / HOUR_MS
    points = points_per_minute(topic_count=len(loads), minute_count=max(1, cycle_ms // MINUTE_MS))
    arrivals = {
        load.topic: Arrivals(load.traffic, cycle_ms=cycle_ms, random=random, points_per_minute=points) for load in loads
    }
    seals = forecast_seals(loads, rules, arrivals, start_ms=start_ms, horizon_ms=horizon_ms)
    merged = forecast_merges(loads, seals, rules, fan_in=settings.fan_in, hours=hours)
    rounds = _rounds(loads, seals, settings, horizon_ms)
    _add_commits_of_packs(rounds, merged, settings, horizon_ms)
    indexed = forecast_indexes(
        loads,
        seals,
        fan_in=settings.fan_in,
        segments_per_merge=merged.segments / merged.merges if merged.merges else 0.0,
        start_ms=start_ms,
    )
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
    has_objects = merged.merges > 0 or bool(indexed.index_gets) or any(load.ttl_ms is not None for load in loads)
    for gone_count in collections.values():
        _add_collection(counts, gone_count=gone_count, kept_count=kept_count, has_objects=has_objects)
    # Where the last checkpoint before now was is not known: on average there are just so many.
    part = commits / CHECKPOINT_INTERVAL / len(checkpoints) if checkpoints else 0.0
    requests: Requests = defaultdict(float, {key: count * part / hours for key, count in counts.items()})
    segments = sum(map(len, seals.segments.values())) / hours
    joined = sum(seal.is_joined for each in seals.segments.values() for seal in each) / hours
    packs = sum(moment.pack_count for moment in seals.moments) / hours
    pack_puts = sum(moment.put_count for moment in seals.moments) / hours
    puts_of_log = rules.puts_of(rules.segment_bytes)  # the other two parts are small
    requests[Purpose.SEGMENTS, RequestKind.PUT] += (PUTS_PER_SEGMENT - 1 + puts_of_log) * (segments - joined)
    requests[Purpose.SEGMENTS, RequestKind.PUT] += puts_of_log * (joined + merged.segments)
    requests[Purpose.PACKS, RequestKind.PUT] += pack_puts + merged.puts
    requests[Purpose.PACKS, RequestKind.GET] += merged.gets
    for kind in (RequestKind.PUT, RequestKind.GET):
        requests[Purpose.LEDGER, kind] += commits / hours
    requests[Purpose.INDEX, RequestKind.PUT] += indexed.index_puts / hours
    requests[Purpose.INDEX, RequestKind.GET] += indexed.index_gets / hours
    requests[Purpose.SEGMENTS, RequestKind.GET] += indexed.segment_gets / hours
    requests[Purpose.PACKS, RequestKind.GET] += indexed.pack_gets / hours
    if settings.state_interval_ms:
        sealed_ms = [event.round_ms - start_ms for event in seals.events if event.sealed]
        saves = _saves_per_hour(
            loads,
            settings.state_interval_ms,
            sealed_ms=[time_ms for time_ms in sealed_ms if time_ms >= 0],
            look_ms=rules.round_ms,
            cycle_ms=cycle_ms,
            horizon_ms=horizon_ms,
        )
        requests[Purpose.STATE, RequestKind.PUT] += saves
        requests[Purpose.STATE, RequestKind.DELETE] += saves
        requests[Purpose.LEDGER, RequestKind.GET] += GETS_PER_STATE * saves
    if settings.is_ballots:
        for kind in (RequestKind.PUT, RequestKind.LIST, RequestKind.DELETE):
            requests[Purpose.OTHER, kind] += commits / hours
    return BillForecast(
        requests_per_hour=requests, segments_per_hour=segments, packs_per_hour=packs, commits_per_hour=commits / hours
    )


def _check_work(loads: Sequence[TopicLoad], rules: SealRules, *, cycle_ms: int, end_ms: int) -> None:
    """Pass a forecast whose segments, and topics looked at in all rounds that seal, are few enough."""
    raw_bytes = sum(int(load.traffic.raw_bytes.sum()) for load in loads)
    segment_count = raw_bytes / cycle_ms * end_ms / rules.segment_bytes
    moment_count = end_ms / max(rules.age_ms, rules.round_ms)
    if segment_count + moment_count * len(loads) > WORK_MAX:
        raise InvalidParameterError(
            "too much to forecast", sealAgeMs=rules.age_ms, segmentBytes=rules.segment_bytes, topics=len(loads)
        )


def _rounds(
    loads: Iterable[TopicLoad], seals: ForecastSeals, settings: ForecastSettings, horizon_ms: int
) -> dict[int, _Round]:
    """Sealed and expired segments by the time of the round. In the steady state, segments expire at the same intervals
    as they were sealed."""
    rounds: dict[int, _Round] = {}
    for moment in seals.moments:
        rounds.setdefault(moment.round_ms, _Round()).has_packs |= moment.pack_count > 0
    for load in loads:
        for seal in seals.segments[load.topic]:
            rounds.setdefault(seal.round_ms, _Round()).segments[load.topic] += 1
            if load.ttl_ms is not None:
                expired_ms = (seal.newest_ms + load.ttl_ms) % horizon_ms
                swept_ms = -(-(expired_ms + 1) // settings.sweep_ms) * settings.sweep_ms
                rounds.setdefault(swept_ms % horizon_ms, _Round()).swept.add(load.topic)
    return rounds


def _add_commits_of_packs(
    rounds: dict[int, _Round], merged: MergeForecast, settings: ForecastSettings, horizon_ms: int
) -> None:
    """Merges commit by themselves; expired packs with the next commit, or by themselves when none comes soon."""
    pause_ms = horizon_ms / max(1, len(rounds))
    alone = max(0.0, 1 - (SWEEPS_WAITED_MAX + 1) * settings.sweep_ms / pause_ms)
    count = round((merged.merges + merged.expired * alone) * horizon_ms / HOUR_MS)
    for number in range(count):
        # A millisecond behind whatever else is committed then: rounds are at whole ones.
        time_ms = int((number + 0.5) * horizon_ms / count) // settings.rules.round_ms * settings.rules.round_ms + 1
        commit = rounds.setdefault(time_ms, _Round())
        commit.has_packs = True
        commit.swept.add(_NO_TOPIC)


def _saves_per_hour(
    loads: Iterable[TopicLoad],
    interval_ms: int,
    *,
    sealed_ms: Sequence[int],
    look_ms: int,
    cycle_ms: int,
    horizon_ms: int,
) -> float:
    """How many snapshots are put as objects: an interval behind the last one or what an entry has carried, if something
    has come in since, messages of a minute at random times in it. `sealed_ms`: when something is sealed, whose entry
    carries the state if that is half an interval old and an object has held it; behind that one an object is put for
    certain. `look_ms`: how often times are looked at."""
    counts = sum((load.traffic.messages for load in loads), np.zeros(1, np.int64))
    minute_ms = cycle_ms / len(counts)
    changed = 1 - np.exp(-counts * (interval_ms / minute_ms))
    rounds, saves = iter(sealed_ms), 0.0
    round_ms = next(rounds, None)
    saved_ms, is_carried = 0, False
    while True:
        due_ms = -(-(saved_ms + interval_ms) // look_ms) * look_ms
        while round_ms is not None and round_ms < due_ms and (is_carried or round_ms < saved_ms + interval_ms // 2):
            round_ms = next(rounds, None)
        if round_ms is not None and round_ms <= due_ms and not is_carried:
            saved_ms, is_carried = round_ms, True
            round_ms = next(rounds, None)
            continue
        if due_ms >= horizon_ms:
            return saves * HOUR_MS / horizon_ms
        saves += 1.0 if is_carried else float(changed[int(due_ms / minute_ms) % len(changed)])
        saved_ms, is_carried = due_ms, False


def _bucket_count(loads: Iterable[TopicLoad], seals: ForecastSeals, settings: ForecastSettings, hours: float) -> int:
    """As `checkpoint.bucket_count_for`, for as many live segments as there will be at least."""
    alive = sum(
        len(seals.segments[load.topic]) / hours * load.ttl_ms / HOUR_MS for load in loads if load.ttl_ms is not None
    )
    count = 1
    while count < BUCKET_COUNT_MAX and count * BUCKET_SEGMENTS < max(alive, settings.segment_count):
        count *= 2
    return count


def _checkpoints(rounds: Mapping[int, _Round], collected_ms: Sequence[int], bucket_count: int) -> dict[int, int]:
    """Time of each checkpoint, and how many objects it writes beside its head: those that have changed since the last;
    at least one checkpoint."""
    checkpoints: dict[int, int] = {}
    changed: set[int] = set()
    commits = 0
    moments = sorted([*((time_ms, False) for time_ms in rounds), *((time_ms, True) for time_ms in collected_ms)])
    for time_ms, is_collection in moments:
        if is_collection:
            changed.add(bucket_of(_NO_TOPIC, bucket_count=bucket_count))
            commits += 1
        else:
            changed |= rounds[time_ms].buckets(bucket_count)
            commits += rounds[time_ms].commit_count
        if commits >= CHECKPOINT_INTERVAL:
            checkpoints[time_ms] = checkpoints.get(time_ms, 0) + len(changed)
            commits -= CHECKPOINT_INTERVAL
            changed.clear()
    if not checkpoints and moments:
        checkpoints[moments[-1][0]] = len(changed)  # less than one in this time
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
