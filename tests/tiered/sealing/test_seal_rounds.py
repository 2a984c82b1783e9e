"""A topic whose local files cannot be read: it is tried again now and then, and holds up nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.remoting.errors import CorruptDataError, UnavailableError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.sealing.seal_rounds import REST_MS

CONFIG = TierConfig(cold_url="memory://rounds", seal_age_ms=2_000)


async def test_a_topic_that_cannot_be_read_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt reads and compresses up to a segment, and writes a line into the log."""
    tier = MeteredTier({"whole": Sender(per_minute=600), "broken": Sender(per_minute=600)})
    async with tier.opened(CONFIG) as service:
        await tier.run(0.02)
        first, read, attempts = tier.hot.queues["broken", 0].units[0][0], tier.hot.record, 0

        def record(physical_offset: PhysicalOffset, size_bytes: int) -> memoryview:
            nonlocal attempts
            if physical_offset == first:
                attempts += 1
                raise CorruptDataError("another record is here")
            return read(physical_offset, size_bytes)

        monkeypatch.setattr(tier.hot, "record", record)
        await tier.run(2 * REST_MS / 60_000)
        assert 2 <= attempts <= 3
        assert service.catalog.packed["whole"].queues
        assert "broken" not in service.catalog.packed
        asked = asyncio.create_task(service.seal("broken"))
        await asyncio.sleep(0)
        attempts = 0
        await tier.step()
        assert attempts == 1
        with pytest.raises(UnavailableError):
            await asked
        monkeypatch.undo()
        await tier.run(REST_MS / 60_000 + 0.1)
        assert [queue.start_offset for queue in service.catalog.packed["broken"].queues] == [0, 0]
