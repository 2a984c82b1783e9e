"""State snapshots that a sweep finds: superseded ones go, and none that a recovery may have to fall back to.

Covers `tiered/catalog/live_names.py`.
"""

from __future__ import annotations

import pytest

from tests.clock import Clock
from tests.tiered.garbage.test_garbage import collect
from tests.tiered.ledger_data import KEYS, open_writer
from tests.tiered.state_data import snapshot
from thermocline.tiered.garbage.garbage import GarbageCollector
from thermocline.tiered.state.newest_state import find_last
from thermocline.tiered.state.snapshot import StateName, encode_state
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.stores.memory import MemoryObjectStore


async def put_states(store: MemoryObjectStore, *places: tuple[int, int], data: bytes | None = None) -> None:
    """State snapshots of these epochs and sequences: whole ones, or whatever `data` is."""
    for epoch, sequence in places:
        whole = encode_state(snapshot(StateName(epoch, sequence)))
        await store.put(KEYS.state(epoch=epoch, sequence=sequence), whole if data is None else data)


def states_in(store: MemoryObjectStore) -> list[tuple[int, int] | None]:
    """Epoch and sequence of each that is there."""
    return [KEYS.state_of(key) for key in sorted(store.objects) if key.startswith(KEYS.state_prefix)]


async def test_states_that_a_slept_writer_has_left_go_with_the_orphans() -> None:
    """It has put one after its successor had looked; the newest two stay, and so do those of its own epoch."""
    store, clock = MemoryObjectStore(), Clock()
    await open_writer(store, clock=clock, seed=1)
    second = await open_writer(store, clock=clock, seed=2)
    states = StateLog(second)
    for _ in range(3):
        await states.write(snapshot(states.next_name()))
    await put_states(store, (1, 1), (1, 7), (1, 8), (2, 1), (3, 1))
    await collect(GarbageCollector(second, states), clock, sweep=True)
    assert states_in(store) == [(2, 1), (2, 2), (2, 3), (3, 1)]


@pytest.mark.parametrize("is_known", [True, False])
async def test_only_old_states_beyond_the_newest_two_go(is_known: bool) -> None:
    store, clock = MemoryObjectStore(), Clock()
    await open_writer(store, clock=clock, seed=1)
    second = await open_writer(store, clock=clock, seed=2)
    await put_states(store, (1, 1), (1, 2), (1, 3))
    await collect(GarbageCollector(second, StateLog(second) if is_known else None), clock, sweep=True)
    assert states_in(store) == [(1, 2), (1, 3)]


@pytest.mark.parametrize("data", [None, b"{}"])
@pytest.mark.parametrize("has_written", [True, False])
async def test_a_state_of_this_epoch_that_its_writer_has_not_made_makes_no_good_one_go(
    has_written: bool, data: bytes | None
) -> None:
    """Whole or not: after foreign objects are removed, the writer's reservations remain."""
    store, clock = MemoryObjectStore(), Clock()
    await open_writer(store, clock=clock, seed=1)
    second = await open_writer(store, clock=clock, seed=2)
    states = StateLog(second)
    await put_states(store, (1, 7), (1, 8))
    await states.newest()
    if has_written:
        await states.write(snapshot(states.next_name()))
    kept = states.kept
    await put_states(store, (1, 6), (2, 98), (2, 99), data=data)
    await collect(GarbageCollector(second, states), clock, sweep=True)
    assert {(name.epoch, name.sequence) for name in kept} <= set(states_in(store))
    assert (1, 6) not in states_in(store)
    for sequence in (98, 99):
        await store.delete(KEYS.state(epoch=2, sequence=sequence))
    found = await find_last(store, KEYS, epoch=second.epoch)
    assert found.names == kept


async def test_a_damaged_state_makes_no_good_one_go() -> None:
    store, clock = MemoryObjectStore(), Clock()
    await open_writer(store, clock=clock, seed=1)
    second = await open_writer(store, clock=clock, seed=2)
    await put_states(store, (1, 4), (1, 5), (1, 6), (1, 8))
    await put_states(store, (1, 7), (1, 9), data=b"damaged")
    await collect(GarbageCollector(second, StateLog(second)), clock, sweep=True)
    assert states_in(store) == [(1, 6), (1, 7), (1, 8), (1, 9)]
