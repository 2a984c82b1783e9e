"""Ballots: of two writers never both commit a version, on a store that ignores conditions, however slow they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from tests.clock import Clock
from tests.tiered.ledger_data import IDENTITY, KEYS, commit_segment
from tests.tiered.ledger_races import Believer, IgnoringStore, NewArbiter, SlowStore, judge, live
from thermocline.remoting.errors import FencedError, MQError
from thermocline.tiered.ledger.fencing import (
    BallotArbiter,
    ConditionalArbiter,
    EntryArbiter,
    FencingMode,
    ballot_of,
    new_arbiter,
    proposal_of,
)
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.objects.errors import AlreadyExistsError, ForeignLedgerError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import FaultInjectingObjectStore, MeteringObjectStore, Verb
from thermocline.tiered.wrappers.fault_injection import unreliable


def ballots(store: ObjectStore, random: Random) -> EntryArbiter:
    return BallotArbiter(store, KEYS, random=random)


def conditional(store: ObjectStore, _random: Random) -> EntryArbiter:
    return ConditionalArbiter(store, KEYS)


async def open_writer(
    store: ObjectStore, *, seed: int = 1, arbiter: EntryArbiter | None = None, identity: LedgerIdentity = IDENTITY
) -> LedgerWriter:
    return await LedgerWriter.open(
        store,
        KEYS,
        identity=identity,
        clock_ms=Clock(),
        random=Random(seed),
        arbiter=arbiter if arbiter is not None else ballots(store, Random(seed)),
        checkpoint_interval=4,
    )


async def race(seed: int, new: NewArbiter, *, with_faults: bool, honours_conditions: bool = False) -> list[str]:
    """One race of two brokers, replayed by its seed; what went wrong."""
    memory = MemoryObjectStore()
    random = Random(seed)
    believers = [Believer("one"), Believer("two")]

    def way_to_the_store(number: int) -> ObjectStore:
        inner: ObjectStore = memory if honours_conditions else IgnoringStore(memory)
        if with_faults:
            inner = FaultInjectingObjectStore(inner, unreliable(Random(f"{seed} {number}"), probability=0.05))
        return SlowStore(inner, random)

    await asyncio.gather(
        *(
            live(believer, way_to_the_store(number), new_arbiter=new, random=random)
            for number, believer in enumerate(believers)
        )
    )
    return await judge(believers, memory)


async def first_failure(new: NewArbiter, *, seeds: int) -> int | None:
    """The first seed whose race goes wrong."""
    for seed in range(seeds):
        try:
            wrong = bool(await race(seed, new, with_faults=seed % 2 == 1))
        except MQError:  # the ledger contradicts itself
            wrong = True
        if wrong:
            return seed
    return None


async def test_two_brokers_never_both_commit_a_version(case_count: Callable[..., int]) -> None:
    for seed in range(case_count(quick=200, soak=10_000)):
        assert await race(seed, ballots, with_faults=seed % 2 == 1) == [], f"seed {seed}"


async def test_nor_do_they_where_the_store_arbitrates(case_count: Callable[..., int]) -> None:
    for seed in range(case_count(quick=200, soak=10_000)):
        wrong = await race(seed, conditional, with_faults=seed % 2 == 1, honours_conditions=True)
        assert wrong == [], f"seed {seed}"


async def test_the_race_is_one() -> None:
    """What arbitrates by the store's condition loses it on this store: else the test above would show nothing."""
    assert await first_failure(conditional, seeds=20) is not None


class NoCheck(BallotArbiter):
    """Does not look whether there is a later ballot."""

    async def _check_highest(self, ballot: str) -> None:
        return


class ChecksFirst(BallotArbiter):
    """Looks for later ballots before its proposal is there."""

    async def create(self, version: int, data: bytes) -> None:
        assert self._ballot is not None
        await super()._check_highest(self._ballot)
        await super().create(version, data)

    async def _check_highest(self, ballot: str) -> None:
        return


class NoInheritance(BallotArbiter):
    """Does not carry through what was proposed before."""

    async def _inherit(self) -> None:
        return


class InheritsFirst(BallotArbiter):
    """Lists the proposals before its ballot is there."""

    async def begin(self, *, epoch: int) -> bool:
        if self._has_begun:
            return False
        await super()._inherit()
        return await super().begin(epoch=epoch)

    async def _inherit(self) -> None:
        return


class ReadsNoMore(BallotArbiter):
    """Goes by what was read of the ledger before its ballot was there."""

    async def begin(self, *, epoch: int) -> bool:
        await super().begin(epoch=epoch)
        return False


@pytest.mark.parametrize("mutant", [NoCheck, ChecksFirst, NoInheritance, InheritsFirst, ReadsNoMore])
async def test_each_rule_is_needed(mutant: type[BallotArbiter]) -> None:
    def new(store: ObjectStore, random: Random) -> EntryArbiter:
        return mutant(store, KEYS, random=random)

    assert await first_failure(new, seeds=1_000) is not None


async def test_a_writer_that_slept_through_its_successors_life_is_fenced() -> None:
    """Whatever was collected meanwhile: entries, proposals, everything but the ballots."""
    store = IgnoringStore(MemoryObjectStore())
    sleeper = await open_writer(store, seed=1)
    await commit_segment(sleeper)
    sleeper_version = sleeper.version
    successor = await open_writer(store, seed=2)
    for number in range(10):
        await commit_segment(successor, start=100 + number * 10)
    for version in range(1, sleeper_version):
        await store.delete(KEYS.ledger_entry(version))
    await store.delete(KEYS.ledger_entry(sleeper_version + 1))  # not the sleeper's own newest entry
    with pytest.raises(FencedError):
        await commit_segment(sleeper, start=50)
    assert sleeper.is_fenced
    assert await open_catalog(store, KEYS) == successor.catalog


async def test_a_successor_publishes_a_chosen_unpublished_entry() -> None:
    memory = MemoryObjectStore()
    store = IgnoringStore(memory)

    class DiesBeforePublishing(BallotArbiter):
        async def _publish(self, version: int, value: bytes) -> None:
            if version == 2:
                raise asyncio.CancelledError
            await super()._publish(version, value)

    first = await open_writer(store, arbiter=DiesBeforePublishing(store, KEYS, random=Random(1)))
    with pytest.raises(asyncio.CancelledError):
        await commit_segment(first)
    assert (await open_catalog(store, KEYS)).version == 1
    second = await open_writer(store, seed=2)
    assert (second.version, second.epoch) == (3, 2)
    assert len(second.catalog.topics["orders"].segments) == 1
    assert not [key for key in memory.objects if key.startswith(KEYS.proposals_prefix)]


async def test_a_ballot_proposes_one_entry_for_a_version() -> None:
    store = IgnoringStore(MemoryObjectStore())
    arbiter = ballots(store, Random(1))
    await arbiter.begin(epoch=0)
    await arbiter.create(1, b"first")
    with pytest.raises(AlreadyExistsError):
        await arbiter.create(1, b"second")
    await arbiter.create(1, b"first")
    assert await store.get(KEYS.ledger_entry(1)) == b"first"


async def test_requests_of_a_commit() -> None:
    store = MeteringObjectStore(MemoryObjectStore())
    writer = await open_writer(store)
    await commit_segment(writer)
    before = store.counters.copy()
    await commit_segment(writer, start=10)
    spent = store.counters.since(before).requests
    assert spent == {
        Verb.PUT: 3 + 1,  # the segment's parts; the proposal
        Verb.CREATE_IF_ABSENT: 1,
        Verb.LIST: 1,  # the ballots
        Verb.GET: 1,  # the entry before
        Verb.DELETE_MANY: 1,
    }


@pytest.mark.parametrize("is_collected", [False, True])
async def test_a_writer_sees_that_a_later_one_has_committed(is_collected: bool) -> None:
    """Without a commit of its own, also when the entries behind its own have been collected."""
    store = IgnoringStore(MemoryObjectStore())
    sleeper = await open_writer(store, seed=1)
    await commit_segment(sleeper)
    await sleeper.check_newest()
    successor = await open_writer(store, seed=2)
    await commit_segment(successor, start=100)
    if is_collected:
        await successor.renew_hint()
        await store.delete(KEYS.ledger_entry(sleeper.version + 1))
    for _ in range(2):
        with pytest.raises(FencedError):
            await sleeper.check_newest()
    assert sleeper.is_fenced
    await successor.check_newest()


async def test_a_stranger_is_refused_without_fencing_the_owner() -> None:
    store = IgnoringStore(MemoryObjectStore())
    writer = await open_writer(store)
    stranger = LedgerIdentity(store_uuid="store-2", cluster="DefaultCluster", broker_name="broker-a")
    with pytest.raises(ForeignLedgerError):
        await open_writer(store, seed=2, identity=stranger)
    await commit_segment(writer)


async def test_a_broker_in_the_other_mode_is_met_where_the_store_honours_conditions() -> None:
    store = MemoryObjectStore()
    by_ballots = await open_writer(store, seed=1)
    by_condition = await open_writer(store, seed=2, arbiter=ConditionalArbiter(store, KEYS))
    with pytest.raises(FencedError):
        await commit_segment(by_ballots)
    await commit_segment(by_condition)
    again = await open_writer(store, seed=3)
    with pytest.raises(FencedError):
        await commit_segment(by_condition, start=10)
    await commit_segment(again, start=10)
    assert await open_catalog(store, KEYS) == again.catalog


def test_modes_have_names() -> None:
    store = MemoryObjectStore()
    assert isinstance(new_arbiter(FencingMode("ballots"), store, KEYS, random=Random(1)), BallotArbiter)
    assert isinstance(new_arbiter(FencingMode("conditional"), store, KEYS, random=Random(1)), ConditionalArbiter)


def test_names_of_ballots_and_proposals_are_read_and_others_passed_over() -> None:
    ballot = f"{7:020}-{'a' * 32}"
    assert proposal_of(KEYS.proposal(3, ballot), KEYS) == (3, ballot)
    assert ballot_of(f"{KEYS.ballots_prefix}{ballot}.json", KEYS) == ballot
    proposal_name = KEYS.proposal(3, ballot).removeprefix(KEYS.proposals_prefix)
    for foreign in (f"{KEYS.proposals_prefix}notes.txt", f"elsewhere/{proposal_name}", proposal_name):
        assert proposal_of(foreign, KEYS) is None
    for foreign in (f"{KEYS.ballots_prefix}notes.txt", f"elsewhere/{ballot}.json", f"{ballot}.json"):
        assert ballot_of(foreign, KEYS) is None
