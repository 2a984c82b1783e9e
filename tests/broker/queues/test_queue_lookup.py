"""Offsets and times of queues, hot and cold together."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.clock import Clock
from thermocline.broker.cold.cold_reads import ColdBounds, ColdPull, ColdPullResult, ColdTimeSearch, NoColdTier
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.records.message_record import encode_record

FIRST_MS = 1_600_000_000_000
COLD_END = 10


class Cold(NoColdTier):
    """Holds `[2, 10)` of queue 0 of every topic, offset n stored n seconds after FIRST_MS."""

    is_away = False

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:  # type: ignore[override]
        if self.is_away:
            return None
        return (
            ColdBounds(min_offset=2, end_offset=COLD_END) if queue_id == 0 else ColdBounds(min_offset=0, end_offset=0)
        )

    async def min_offset(self, topic: str, queue_id: int, *, expired_before_ms: int) -> int | None:
        return self._visible_from(2, expired_before_ms)

    async def offset_by_time(self, search: ColdTimeSearch) -> int | None:
        return self._visible_from(2, max(search.timestamp_ms, search.expired_before_ms))

    async def pull(self, pull: ColdPull) -> ColdPullResult:
        if self.is_away:
            raise UnavailableError("the cold tier is away")
        record = encode_record(
            topic=pull.topic,
            queue_id=pull.queue_id,
            queue_offset=pull.offset,
            physical_offset=0,
            body=b"x",
            properties_text=b"",
            born_timestamp_ms=1,
            born_host=("10.0.0.1", 1),
            store_timestamp_ms=FIRST_MS + pull.offset * 1_000,
            store_host=("10.0.0.1", 1),
        )
        return ColdPullResult(records=[record], message_count=1, next_offset=pull.offset + 1)

    def _visible_from(self, offset: int, from_ms: int) -> int | None:
        offset = max(offset, -(-(from_ms - FIRST_MS) // 1_000))
        return offset if offset < COLD_END else None


@pytest.fixture
def cold() -> Cold:
    return Cold()


@pytest.fixture
async def broker(tmp_path: Path, cold: Cold) -> AsyncIterator[ControlBroker]:
    clock = Clock()
    clock.now_ms = FIRST_MS + COLD_END * 1_000
    async with control_broker(tmp_path, clock=clock, cold=cold) as broker:
        await broker.create_topic("T", queues=2)
        broker.parts.base.store.queues.create("T", 0, next_offset=COLD_END, min_offset=COLD_END)
        for _ in range(5):
            broker.put("T", 0)
            clock.now_ms += 1_000
        yield broker


async def test_a_queue_goes_from_its_cold_minimum_to_its_hot_end(broker: ControlBroker) -> None:
    lookup = broker.parts.reads.lookup
    assert (await lookup.minimum("T", 0), lookup.end("T", 0)) == (2, 15)
    assert (await lookup.minimum("T", 1), lookup.end("T", 1)) == (0, 0)
    assert await lookup.message_time("T", 1, 0) is None


@pytest.mark.parametrize(
    ("seconds", "offset"),
    [(-5, 2), (2, 2), (4.5, 5), (9, 9), (9.5, 10), (10, 10), (10.5, 11), (14, 14), (14.5, 15), (99, 15)],
)
async def test_an_offset_is_found_by_time_on_either_side(broker: ControlBroker, seconds: float, offset: int) -> None:
    assert await broker.parts.reads.lookup.offset_at("T", 0, FIRST_MS + int(seconds * 1_000)) == offset


async def test_times_are_found_on_either_side(broker: ControlBroker) -> None:
    lookup = broker.parts.reads.lookup
    assert await lookup.message_time("T", 0, 4) == FIRST_MS + 4_000
    assert await lookup.message_time("T", 0, 12) == FIRST_MS + 12_000
    assert await lookup.message_time("T", 0, 15) is None
    assert await lookup.message_time("T", 0, -1) is None


async def test_expired_messages_are_not_found(broker: ControlBroker) -> None:
    lookup = broker.parts.reads.lookup
    await broker.create_topic("T", queues=2, attributes="+thermocline.ttl.ms=7500")
    assert await lookup.minimum("T", 0) == 8
    assert await lookup.offset_at("T", 0, FIRST_MS) == 8
    broker.clock.now_ms += 4_000
    assert await lookup.minimum("T", 0) == 12
    assert await lookup.offset_at("T", 0, FIRST_MS) == 12


async def test_while_the_tier_is_away_only_cold_lookups_fail(broker: ControlBroker, cold: Cold) -> None:
    lookup = broker.parts.reads.lookup
    cold.is_away = True
    assert lookup.end("T", 0) == 15
    assert await lookup.offset_at("T", 0, FIRST_MS + 12_000) == 12
    assert await lookup.message_time("T", 0, 12) == FIRST_MS + 12_000
    with pytest.raises(UnavailableError):
        await lookup.minimum("T", 0)
    with pytest.raises(UnavailableError):
        await lookup.offset_at("T", 0, FIRST_MS)
    with pytest.raises(UnavailableError):
        await lookup.message_time("T", 0, 4)
