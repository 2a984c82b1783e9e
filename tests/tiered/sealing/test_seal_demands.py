"""Calls that wait for a seal, while no round succeeds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from thermocline.remoting.errors import BrokerBusyError
from thermocline.tiered.sealing.seal_backlog import SealBacklog
from thermocline.tiered.sealing.seal_demands import WAITING_MAX, SealDemands


async def test_so_many_calls_wait_while_the_store_is_away() -> None:
    """Each takes one of the requests that the tier process handles at a time: all of them would keep it from cold reads
    and reports of queues. A script that seals every minute makes thousands within days."""
    demands = SealDemands(cast("SealBacklog", SimpleNamespace(topics={})), wake=lambda: None)
    calls = [asyncio.create_task(demands.seal(None)) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(BrokerBusyError):
        await demands.seal(None)
    taken = demands.take_waiting()
    demands.give_back(taken)
    with pytest.raises(BrokerBusyError):
        await demands.seal(None)
    calls.pop().cancel()
    await asyncio.sleep(0)
    calls.append(asyncio.create_task(demands.seal(None)))
    await asyncio.sleep(0)
    taken = demands.take_waiting()
    assert len(taken.demands) == WAITING_MAX, "one that was given up is forgotten"
    taken.done()
    assert await asyncio.gather(*calls) == [[]] * WAITING_MAX
