"""Lookups by time equal those in a plain list, whatever has been sealed, packed, merged, expired and collected before
and goes on meanwhile; and cost at most two requests, none the second time. A failure names its seed.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from tests.tiered.packs.model import NAMES, Model
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.reading.cold_reader import Boundary, ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.wrappers import MeteringObjectStore

STEPS = 40
QUERIES_AT_ONCE = 20
ATTEMPTS_MAX = 5
FAR_MS = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeQuery:
    """One lookup, and its answer by the list."""

    topic: str
    queue_id: int
    timestamp_ms: int
    boundary: Boundary
    cut_ms: int
    expected: int | None


def make_query(model: Model) -> TimeQuery | None:
    """At, or next to, a time at which something was stored, or far from all; None when nothing of a queue is cold."""
    random, name = model.random, model.random.choice(NAMES)
    queue_id = random.randrange(3)
    entry = model.tier.catalog.topics.get(name)
    if entry is None or entry.deleted or entry.incarnation != model.topics[name].incarnation:
        return None
    end = model.tier.catalog.queue_ends(name).get(queue_id, 0)
    times = [sent.store_ms for sent in model.incarnations[name].queues.get(queue_id, [])[:end]]
    if not times:
        return None
    cut_ms = model.topics[name].cut_ms(model.hot.now_ms)
    near_ms = random.choice(times) + random.choice((-1, 0, 0, 1, 20_000))
    timestamp_ms = random.choice((near_ms, near_ms, near_ms, cut_ms, 0, -1, FAR_MS))
    first, boundary = bisect_left(times, cut_ms), random.choice(list(Boundary))
    if boundary is Boundary.LOWER:
        found = max(first, bisect_left(times, timestamp_ms))
        expected = found if found < end else None
    else:
        found = bisect_right(times, timestamp_ms) - 1
        expected = found if found >= first else None
    return TimeQuery(
        topic=name, queue_id=queue_id, timestamp_ms=timestamp_ms, boundary=boundary, cut_ms=cut_ms, expected=expected
    )


async def check(reader: ColdReader, query: TimeQuery) -> None:
    """The answer is the list's; asked again while the catalog changes faster than it is read."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            found = await reader.offset_by_time(
                query.topic, query.queue_id, query.timestamp_ms, boundary=query.boundary, cut_ms=query.cut_ms
            )
        except ObjectStoreUnavailableError:
            if attempt + 1 == ATTEMPTS_MAX:
                raise
            continue
        assert found == query.expected, query
        return


async def check_cost(model: Model, query: TimeQuery) -> None:
    """With nothing in memory but the catalog at most two requests, then none."""
    metered, cache = MeteringObjectStore(model.store), FrameCache()
    reader = ColdReader(metered, catalog=lambda: model.tier.catalog, cache=cache)
    await check(reader, query)
    cold_count = metered.counters.request_count
    assert cold_count <= 2, query
    await check(reader, query)
    assert metered.counters.request_count == cold_count, query
    await reader.close()
    await cache.close()


async def test_times_are_found_as_in_a_list(case_count: Callable[..., int]) -> None:
    """Merging and collecting, without a grace period, go on beside half of the queries."""
    wanted = case_count(quick=1_500, soak=100_000)
    asked = found = merges = seed = 0
    while asked < wanted:
        seed += 1
        model = Model(seed)
        try:
            await model.start()
            for _ in range(STEPS):
                await model.step()
                queries = [query for _ in range(QUERIES_AT_ONCE) if (query := make_query(model)) is not None]
                for query in queries[:2]:
                    await check_cost(model, query)
                beside = [check(model.tier.reader, query) for query in queries]
                collecting = model.random.random() < 0.5
                if collecting:
                    merging = asyncio.create_task(model.tier.merging.run_once())
                    collected = asyncio.create_task(model.tier.service.collect_now())
                    await asyncio.gather(*beside, merging, collected)
                    merges += merging.result() is not None
                else:
                    await asyncio.gather(*beside)
                asked += len(queries)
                found += sum(query.expected is not None for query in queries)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            await model.stop()
    assert found > asked // 4
    assert merges
