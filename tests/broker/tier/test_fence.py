"""Fence: the first report counts; a broker that was taken over stays and takes nothing, one that was refused ends."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from thermocline.broker.helpers import Fenced
from thermocline.broker.tier.fence import Fence
from thermocline.remoting.errors import MQError, StoreClosedError


async def test_a_broker_that_was_taken_over_leaves_and_takes_no_message() -> None:
    store, unregistered = open_store(SimulatedDisk()), asyncio.Event()
    refusal: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def unregister() -> None:
        assert not unregistered.is_set(), "once"
        unregistered.set()

    fence = Fence(store.commit_log, refusal=refusal, unregister=unregister)
    assert (fence.reason, fence.later_epoch) == ("", 0)
    store.put(draft())
    fence.close(Fenced(reason="taken over", later_epoch=5))
    fence.close(Fenced(reason="another", later_epoch=6, is_refused=True))
    assert (fence.reason, fence.later_epoch) == ("taken over", 5)
    with pytest.raises(StoreClosedError, match="fenced: taken over"):
        store.put(draft())
    await asyncio.wait_for(unregistered.wait(), 30)
    assert not refusal.done()


async def test_a_broker_that_is_refused_is_told_so() -> None:
    store = open_store(SimulatedDisk())
    refusal: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def unregister() -> None:
        raise AssertionError("it never registered")

    fence = Fence(store.commit_log, refusal=refusal, unregister=unregister)
    fence.close(Fenced(reason="another store's history", later_epoch=0, is_refused=True))
    assert refusal.result() == fence.reason == "another store's history"
    with pytest.raises(MQError):
        store.put(draft())
    await asyncio.sleep(0)


async def test_a_broker_with_a_controller_waits_for_its_next_role() -> None:
    """Whichever is reported: its log is closed cleanly when the role changes, and the process goes on."""
    for is_refused in (False, True):
        store, unregistered = open_store(SimulatedDisk()), asyncio.Event()
        refusal: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def unregister(unregistered: asyncio.Event = unregistered) -> None:
            unregistered.set()

        fence = Fence(store.commit_log, refusal=refusal, unregister=unregister, has_controller=True)
        fence.close(Fenced(reason="another was elected", later_epoch=5, is_refused=is_refused))
        with pytest.raises(MQError, match="another was elected"):
            store.put(draft())
        await asyncio.wait_for(unregistered.wait(), 30)
        assert not refusal.done()
        assert not store.commit_log.is_failed
