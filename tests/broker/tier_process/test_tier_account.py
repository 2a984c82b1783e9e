"""Forecasts of costs, requested all at once."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.synthetic_cold_tier import KEYS, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.broker.helpers.helper_protocol import CostRequest
from thermocline.broker.tier_process.tier_account import FORECASTS_WAITING_MAX, TierAccount
from thermocline.remoting.errors import BrokerBusyError
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.stores.memory import MemoryObjectStore


async def test_one_forecast_is_made_at_a_time_and_few_wait() -> None:
    hot, config = SyntheticHotTier(), TierConfig(cold_url="memory://costs")
    account = TierAccount(KEYS, config, seal_age_ms_max=config.seal_age_ms, clock=lambda: hot.now_ms)
    wanted = CostRequest(topic=None, is_forecast=True, ttl_ms=None, segment_bytes=None, seal_age_ms=None)
    async with opened(MemoryObjectStore(), config, hot=hot, topics={"alpha": SyntheticTopic()}) as tier:
        tier.report()
        hot.now_ms += 60_000
        calls = [asyncio.create_task(account.answer(tier.service, wanted)) for _ in range(FORECASTS_WAITING_MAX + 1)]
        await asyncio.sleep(0)
        with pytest.raises(BrokerBusyError):
            await account.answer(tier.service, wanted)
        assert all(reply.forecast is not None for reply in await asyncio.gather(*calls))
        assert (await account.answer(tier.service, wanted)).forecast is not None, "there is room again"
