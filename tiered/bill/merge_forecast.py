"""What merging of packs would ask for, on average.

    level 0    a generation is what goes up at one moment (seal_forecast.py)
    level n    a generation is what one merge of level n - 1 has made; it comes `fan_in` times more seldom

Packs of a level are merged when there are `fan_in` generations of them, each range of topics by itself, unless they
span too much of the time to live (merge_policy.py). What comes out is cut into twice as many ranges, as often as it
takes for a pack to be of `pack_bytes`. A topic that reaches half a segment in a merge goes by itself from then on. One
that fills segments between two moments is in some of the packs only, with what was left, anything up to half a segment:
how often its pieces of one merge reach that is a matter of chance.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from thermocline.tiered.bill.seal_forecast import ForecastSeals, SealRules, TopicLoad
from thermocline.tiered.cost import HOUR_MS
from thermocline.tiered.merging import MERGE_COUNT_MIN, buffer_bytes_of, own_bytes_of
from thermocline.tiered.packs import SPAN_OF_TTL, longest_ttl_ms, ttl_class

LEVELS_MAX = 8
ALL_BUT = 0.001
"""What is left of a topic counts as none."""
GETS_PER_PACK = 2
"""Its footer and the columns, beside the records."""


class MergeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """In an hour: merges, PUTs of packs, segments (one PUT each), GETs of packs; packs that expire, and leave the
    catalog."""

    merges: float = 0.0
    puts: float = 0.0
    segments: float = 0.0
    gets: float = 0.0
    expired: float = 0.0

    def plus(self, other: MergeForecast) -> MergeForecast:
        """Both."""
        return MergeForecast(
            merges=self.merges + other.merges,
            puts=self.puts + other.puts,
            segments=self.segments + other.segments,
            gets=self.gets + other.gets,
            expired=self.expired + other.expired,
        )


def forecast_merges(
    loads: Sequence[TopicLoad], seals: ForecastSeals, rules: SealRules, *, fan_in: int | None, hours: float
) -> MergeForecast:
    """What merging asks for in an hour, if `seals` were sealed in so many. `fan_in` None: nothing is merged."""
    rates: dict[str, dict[str, float]] = {}
    for load in loads:
        packed_bytes = seals.packed_bytes.get(load.topic, 0.0)
        if packed_bytes:
            rates.setdefault(ttl_class(load.ttl_ms), {})[load.topic] = packed_bytes / hours
    merged = MergeForecast()
    for name, of_class in rates.items():
        generations = len(seals.moments) / hours
        filling = {
            topic: seals.packed_counts[topic] / len(seals.moments)
            for topic in of_class
            if sum(not seal.is_joined for seal in seals.segments[topic]) >= len(seals.moments)
        }
        ttl_ms = longest_ttl_ms(name)
        merged = merged.plus(_of_class(of_class, filling, ttl_ms, rules, fan_in=fan_in, generations=generations))
    return merged


def _of_class(
    rates: dict[str, float],
    filling: Mapping[str, float],
    ttl_ms: int | None,
    rules: SealRules,
    *,
    fan_in: int | None,
    generations: float,
) -> MergeForecast:
    """Level by level. `rates`: bytes an hour of each topic that is packed; `filling`: those that fill segments between
    two moments, and in what part of the moments they are packed; `generations`: of level 0, in an hour."""
    rates, merged, ranges = dict(rates), MergeForecast(), 1
    packs_per_generation = math.ceil(sum(rates.values()) / generations / rules.pack_bytes) if generations else 0
    for _ in range(LEVELS_MAX if fan_in is not None and generations else 0):
        assert fan_in is not None
        count = fan_in
        if ttl_ms is not None:
            count = min(count, math.floor(ttl_ms / SPAN_OF_TTL / HOUR_MS * generations))
        if count < MERGE_COUNT_MIN or not rates:
            break
        generations /= count
        level, bits = _of_level(
            rates, filling, rules, generations=generations, ranges=ranges, pack_count=count * packs_per_generation
        )
        merged = merged.plus(level)
        ranges, packs_per_generation = ranges * 2**bits, 1
    return merged.plus(MergeForecast(expired=generations if ttl_ms is not None else 0.0))


def _of_level(
    rates: dict[str, float],
    filling: Mapping[str, float],
    rules: SealRules,
    *,
    generations: float,
    ranges: int,
    pack_count: int,
) -> tuple[MergeForecast, int]:
    """One level, and by how many bits its ranges are cut; topics that go by themselves leave `rates`."""
    merge_bytes = sum(rates.values()) / generations / ranges
    bits = max(0, math.ceil(math.log2(merge_bytes / rules.pack_bytes)))
    segments = 0.0
    for topic, rate in list(rates.items()):
        if topic in filling:
            # Pieces with segments between them are not joined.
            piece_count = filling[topic] * pack_count
            own = _own_pieces(
                rate / generations / piece_count,
                part=filling[topic],
                pack_count=pack_count,
                own_bytes=own_bytes_of(rules.segment_bytes),
            )
            segments += own * generations
            rates[topic] = rate * max(0.0, 1 - own / piece_count)
            if rates[topic] < rate * ALL_BUT:
                del rates[topic]
        elif rate / generations >= own_bytes_of(rules.segment_bytes):
            segments += math.ceil(rate / generations / rules.segment_bytes) * generations
            del rates[topic]
    outputs = min(2**bits, len(rates))
    buffer_bytes = buffer_bytes_of(pack_count, budget_bytes=rules.upload_budget_bytes)
    gets = pack_count * (GETS_PER_PACK + math.ceil(merge_bytes / pack_count / buffer_bytes))
    merges = generations * ranges
    puts = merges * outputs * rules.puts_of(merge_bytes / outputs) if outputs else 0.0
    return MergeForecast(merges=merges, puts=puts, segments=segments, gets=merges * gets), bits


def _own_pieces(piece_bytes: float, *, part: float, pack_count: int, own_bytes: int) -> float:
    """How many pieces of a topic a merge makes segments of, on average: all that it meets once they are `own_bytes`
    together. Each pack has one with the chance `part`, of up to twice `piece_bytes`, any size as likely."""
    pieces = 0.0
    for count in range(1, pack_count + 1):
        chance = math.comb(pack_count, count) * part**count * (1 - part) ** (pack_count - count)
        deviation = piece_bytes * math.sqrt(count / 3)
        reaches = 0.5 * (1 + math.erf((count * piece_bytes - own_bytes) / (deviation * math.sqrt(2))))
        pieces += count * chance * reaches
    return pieces
