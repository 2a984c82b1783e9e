"""Outages of the bucket that last longer than local retention: no gap, no duplicate, nothing lost but by name.

Each case is one seed: messages to several topics, seals by size and age, and one or two outages of up to ten times the
local retention, meanwhile kills of the tier process and of the broker. Afterwards the tier catches up, and every
acknowledged message is read once, from the bucket alone where local files are gone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tests.boundary.outage_world import GRACE_MS, RETENTION_MS, OutageWorld
from tests.crash.bucket import KEYS, listed_keys, named_keys
from tests.virtual_loop import run_virtually
from thermocline.tiered.budgets.tier_config import FullPolicy, TierConfig
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.reading.cold_pull import ColdPull
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache

CATCH_UP_S = 600.0
TOPICS = ("orders", "events", "metrics")
RARE_SHARE = 0.005
CASES_QUICK = 27
CASES_SOAK = 1_000


def policies_of(seed: int, policy: FullPolicy | None) -> dict[str, FullPolicy]:
    """Each topic's policy; without one of all, some topics' differ from the others'."""
    if policy is not None:
        return dict.fromkeys(TOPICS, policy)
    refusing = TOPICS[seed % len(TOPICS) :][: 1 + seed // len(TOPICS) % 2]
    return {topic: FullPolicy.REFUSE if topic in refusing else FullPolicy.DROP_OLDEST for topic in TOPICS}


def make_world(seed: int, *, policy: FullPolicy | None) -> OutageWorld:
    """A world whose disk holds a whole outage, or a part of it. With policies of each topic's own those that refuse
    send less: one message of theirs holds its file and all after it."""
    capacity_files = ((400, 60, 25) if policy is not None else (25, 12, 12))[seed % 3]
    config = TierConfig(
        cold_url="memory://outage",
        segment_bytes=64 << 10,
        seal_age_ms=(1_000, 5_000, 15_000)[seed % 7 % 3],
        frame_bytes=4 << 10,
        grace_ms=GRACE_MS,
        sweep_interval_ms=5_000,
        account_interval_ms=1_000,
        pack_bytes=64 << 10,
        merge_fan_in=(2, 4, 16)[seed % 5 % 3],
        merge_bytes_per_second=1 << 20,
    )
    policies = policies_of(seed, policy)
    shares = {topic: RARE_SHARE if policy is None and policies[topic] is FullPolicy.REFUSE else 1 for topic in TOPICS}
    return OutageWorld(seed, policies=policies, shares=shares, capacity_files=capacity_files, config=config)


async def run_case(seed: int, policy: FullPolicy | None) -> Counter[str]:
    """One history, and everything that must hold after it."""
    world = make_world(seed, policy=policy)
    random = world.random
    world.bucket.is_away = random.random() < 0.2  # a first start without the bucket
    async with world:
        for _ in range(random.randint(1, 2)):
            await asyncio.sleep(random.uniform(5, 60))
            world.bucket.is_away, world.bucket.lost_answers = True, random.randint(0, 3)
            outage_ms = random.uniform(1, 10) * RETENTION_MS
            world.witness["outages longer than five times retention"] += outage_ms > 5 * RETENTION_MS
            kills = sorted(random.uniform(0, outage_ms / 1_000) for _ in range(random.choice((0, 0, 1, 2))))
            passed_s = 0.0
            for kill_s in kills:
                await asyncio.sleep(kill_s - passed_s)
                passed_s = kill_s
                if random.random() < 0.5:
                    await world.kill_tier()
                    world.start_tier()
                else:
                    await world.kill_broker()
                world.witness["kills"] += 1
            await asyncio.sleep(outage_ms / 1_000 - passed_s)
            world.bucket.is_away = False
            world.bucket.fault_share = random.choice((0.0, 0.05))
        await asyncio.sleep(random.uniform(1, 30))
        await catch_up(world)
        await check_whole(world)
    return world.witness


async def catch_up(world: OutageWorld) -> None:
    """Wait until all messages are committed and read, and the collector has deleted the objects without a name."""
    world.is_producing = False
    async with asyncio.timeout(CATCH_UP_S):
        while True:
            await asyncio.sleep(1)  # of virtual time
            service = world.service
            if service is None or world.outages[-1:] not in ([], [None]):
                continue
            end_offset = world.store.commit_log.append_offset
            is_committed = world.committed_offset == end_offset
            if is_committed and all(
                world.next_read[place] == len(world.acknowledged[place]) for place in world.acknowledged
            ):
                break
        world.bucket.fault_share = 0.0
        while await listed_keys(world.bucket.objects) != await named_keys(world.bucket.objects):  # noqa: ASYNC110
            await asyncio.sleep(5)  # of virtual time


async def check_whole(world: OutageWorld) -> None:
    """The bucket alone holds every acknowledged message once, but for what was given up by name."""
    catalog = await open_catalog(world.bucket.objects, KEYS)
    cache = FrameCache()
    reader = ColdReader(world.bucket.objects, catalog=lambda: catalog, cache=cache)
    for place, bodies in world.acknowledged.items():
        topic, queue_id = place
        runs = world.cold_runs(catalog, place)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs)), f"twice: {runs}"
        held = {offset for start, end in runs for offset in range(start, end)}
        missing = set(range(len(bodies))) - held
        holes = {
            offset
            for hole in catalog.topics[topic].holes
            if hole.queue_id == queue_id
            for offset in range(hole.start_offset, hole.end_offset)
        }
        assert missing == holes, f"{place}: neither held nor declared {sorted(missing ^ holes)[:10]}"
        assert missing <= world.dropped_offsets(place)
        assert world.policies[topic] is FullPolicy.DROP_OLDEST or not missing
        for start, end in runs:
            offset = start
            while offset < end:
                pull = ColdPull(
                    topic=topic, queue_id=queue_id, offset=offset, count_max=1_000, bytes_max=1 << 20, cut_ms=0
                )
                found = await reader.pull(pull)
                assert found.next_offset > offset
                offset = found.next_offset
        assert world.read[place] == {
            offset: body for offset, body in enumerate(bodies) if offset in world.read[place]
        }, "the messages read equal the messages sent"
        assert set(range(len(bodies))) - world.read[place].keys() <= world.dropped_offsets(place)
        world.witness["lost by name"] += len(missing)
        world.witness["messages"] += len(bodies)
    await reader.close()
    await cache.close()


@pytest.mark.parametrize("policy", [*FullPolicy, None], ids=lambda policy: policy.value if policy else "each its own")
def test_outages_longer_than_local_retention(policy: FullPolicy | None, case_count: Callable[..., int]) -> None:
    """0 gaps, 0 duplicates: in a third of the cases under each policy, in a third each topic has its own."""
    witness: Counter[str] = Counter()
    for seed in range(case_count(quick=CASES_QUICK // 3, soak=CASES_SOAK // 3 + 1)):
        try:
            witness += run_virtually(partial(run_case, seed, policy))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    expected = ["outages longer than five times retention", "kills", "cold pulls", "hot pulls", "files deleted"]
    expected += ["starts without the bucket", "cold pulls answered with try again", "packs", "merged packs"]
    if policy is not FullPolicy.REFUSE:
        expected.append("lost by name")
    if policy is not FullPolicy.DROP_OLDEST:
        expected.append("refused")
    for name in expected:
        assert witness[name], f"no case met this: {name}; {witness}"
    assert policy is not FullPolicy.REFUSE or not witness["dropped"]
