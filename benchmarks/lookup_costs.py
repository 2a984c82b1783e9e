"""How many requests does a look into history cost? `python -m benchmarks.lookup_costs`

Workload: six topics of three queues, between each other in the log, two of them larger than the others, ids that tell
when they were made; 120 messages a round, six hours between rounds; sealed into segments of topics' own (56 rounds) or
into packs (72), merged and indexed as soon as that is due. Then SAMPLES messages are looked for in each way, half of
them among the newest, each by a reader that has just opened the catalog and loaded the memory of lookups, and once
more. The metering wrapper counts GETs; nothing is timed. `tests/tiered/lookups/test_lookup_costs.py` and
`tests/tiered/reading/test_first_byte_costs.py` hold the bounds.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from statistics import fmean

from benchmarks.lookup_history import History, LaterReader, opened_later, tier_of
from thermocline.remoting.errors import QueryNotFoundError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.tiered.reading import Boundary, ColdPull, ColdReader

SAMPLES = 200
NEWEST = 200
ROUNDS = {False: 56, True: 72}
HOURS_BETWEEN_ROUNDS = 6

Lookup = Callable[[ColdReader], Awaitable[object]]
Costs = dict[str, list[tuple[int, int]]]
"""By kind: requests cold, requests warm."""


async def measure(*, is_packed: bool) -> tuple[str, Costs]:
    """The history's objects, and the cost of lookups in it."""
    history, costs = History(hours_between_rounds=HOURS_BETWEEN_ROUNDS), Costs()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=ROUNDS[is_packed], is_packed=is_packed, is_indexed=True)
        catalog = tier.catalog
        keys_count = sum(index.page_count > 0 for index in catalog.indexes.values())
    async with opened_later(history.store) as start:
        assert start.fresh is not None
        title = (
            f"{catalog.segment_count} segments, {len(catalog.packs)} packs; {keys_count} index objects of keys,"
            f" {start.fresh.count} segments or packs in none; loaded at the start by {start.request_count} requests"
        )
        for _ in range(SAMPLES):
            await _look_up(history, start, costs)
    return title, costs


async def _look_up(history: History, start: LaterReader, costs: Costs) -> None:
    random = history.random
    sent = random.choice(random.choice((history.sent, history.sent[-NEWEST:])))

    async def note(kind: str, lookup: Lookup, *, keeps: bool = True) -> None:
        async with start.another(history.store, keeps=keeps) as later:
            await lookup(later.reader)
            cold = later.request_count
            await lookup(later.reader)
            costs.setdefault(kind, []).append((cold, later.request_count - cold))

    def by_key(key: str) -> Lookup:
        return lambda reader: reader.query_key(
            sent.topic, key, begin_ms=0, end_ms=1 << 60, count_max=32, cut_ms=0, is_unique=True
        )

    def by_place(place: int) -> Lookup:
        async def view(reader: ColdReader) -> object:
            try:
                return await reader.view(PhysicalOffset(place), cut_ms=lambda topic: 0)
            except QueryNotFoundError:
                return None

        return view

    def by_time(boundary: Boundary, time_ms: int) -> Lookup:
        return lambda reader: reader.offset_by_time(sent.topic, sent.queue_id, time_ms, boundary=boundary, cut_ms=0)

    for boundary in Boundary:
        await note("by time", by_time(boundary, sent.store_ms + random.randint(-1, 1)), keeps=False)
    state = "indexed" if sent.physical_offset < start.catalog.indexed_to else "not indexed yet"
    await note(f"by offsetMsgId, {state}", by_place(sent.physical_offset))
    await note(f"by key, {state}", by_key(sent.key))
    await note("by a key that is not there", by_key(f"not {sent.key}"))
    await note("by key, nothing loaded", by_key(sent.key), keeps=False)
    await note("by a key that is not there, nothing loaded", by_key(f"not {sent.key}"), keeps=False)
    pull = ColdPull(
        topic=sent.topic,
        queue_id=sent.queue_id,
        offset=QueueOffset(sent.offset),
        count_max=32,
        bytes_max=1 << 20,
        cut_ms=0,
    )
    await note("first pull", lambda reader: reader.pull(pull), keeps=False)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for is_packed in (False, True):
        title, costs = asyncio.run(measure(is_packed=is_packed))
        print(title)
        for kind, found in sorted(costs.items()):
            cold, warm = [each for each, _ in found], [each for _, each in found]
            print(
                f"  {kind:<44} mean {fmean(cold):5.2f}, most {max(cold)}; once more mean {fmean(warm):5.2f},"
                f" most {max(warm)}"
            )


if __name__ == "__main__":
    main()
