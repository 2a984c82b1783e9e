"""Calls that wait for a seal: while no round succeeds, and when one cannot seal all of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.remoting.errors import BrokerBusyError, CorruptDataError, UnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.tiered.budgets.tier_config import TierConfig
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
    taken.done(flush_offset=LOG_START)
    assert await asyncio.gather(*calls) == [[]] * WAITING_MAX


CONFIG = TierConfig(cold_url="memory://demands", seal_age_ms=3_600_000)


async def test_a_seal_of_records_that_cannot_be_read_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who seals all before a disk is given away must not take what the round has passed over for committed."""
    tier = MeteredTier({"whole": Sender(per_minute=600), "broken": Sender(per_minute=600)})
    async with tier.opened(CONFIG) as service:
        await tier.run(0.1)
        first = tier.hot.queues["broken", 0].units[0][0]
        read = tier.hot.record

        def record(physical_offset: PhysicalOffset, size_bytes: int) -> memoryview:
            if physical_offset == first:
                raise CorruptDataError("another record is here")
            return read(physical_offset, size_bytes)

        monkeypatch.setattr(tier.hot, "record", record)
        calls = [asyncio.create_task(service.seal(topic)) for topic in ("whole", "broken", None)]
        await asyncio.sleep(0)
        await tier.step()
        assert len(await calls[0]) == 1
        for call in calls[1:]:
            with pytest.raises(UnavailableError, match="not all is sealed"):
                await call
        monkeypatch.undo()
        again = asyncio.create_task(service.seal(None))
        await asyncio.sleep(0)
        await tier.step()
        assert {outcome.topic for outcome in await again} == {"whole", "broken"}
