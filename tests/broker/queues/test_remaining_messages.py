"""A lag counts messages that exist: not expired ones, nor offsets that a hole, a recovery or a full disk skipped.

Covers `broker/stats/metrics_page.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.queues.test_queue_lookup import COLD_END, FIRST_MS, Cold
from tests.clock import Clock
from thermocline.broker.cold.cold_reads import ColdBounds
from thermocline.broker.stats.metrics_page import MetricsPage
from thermocline.remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
)
from thermocline.tiered.catalog.queue_gaps import QueueGaps

HOT_START = 1_000_000_000
HOLE = (5, 7)
"""Within the cold tier, which holds [2, 10)."""


class ColdWithHole(Cold):
    """The same, with a hole that an earlier recovery has declared."""

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:  # type: ignore[override]
        if self.is_away or queue_id:
            return super().bounds(topic, queue_id)
        return ColdBounds(min_offset=2, end_offset=COLD_END, gaps=QueueGaps((HOLE, (COLD_END, HOT_START))))


@pytest.fixture
def cold() -> ColdWithHole:
    return ColdWithHole()


@pytest.fixture
async def broker(tmp_path: Path, cold: ColdWithHole) -> AsyncIterator[ControlBroker]:
    """Queue 0: messages 2 to 4 and 7 to 9 in the cold tier, three local ones from HOT_START on."""
    clock = Clock()
    clock.now_ms = FIRST_MS + COLD_END * 1_000
    async with control_broker(tmp_path, clock=clock, cold=cold) as broker:
        await broker.create_topic("T", queues=1)
        broker.parts.base.store.queues.create("T", 0, next_offset=HOT_START, min_offset=HOT_START)
        for _ in range(3):
            broker.put("T", 0)
            broker.clock.now_ms += 1_000
        broker.parts.tables.groups.find_or_create("G")
        yield broker


async def progress(broker: ControlBroker) -> OffsetWrapper:
    """Return the group's progress as tools show it."""
    stats = ConsumeStats.decode((await broker.ask(208, {"consumerGroup": "G"})).body)
    everything = ConsumeStatsList.decode((await broker.ask(317, {"isOrder": "false"})).body)
    wrapper = stats.offset_table[MessageQueue(topic="T", broker_name="broker-a", queue_id=0)]
    assert everything.total_diff == wrapper.broker_offset - wrapper.consumer_offset
    assert everything.total_inflight_diff == wrapper.pull_offset - wrapper.consumer_offset
    return wrapper


class NoHelpers:
    def is_connected(self, role: str) -> bool:
        return False


async def metrics_lines(broker: ControlBroker) -> list[str]:
    parts = broker.parts
    page = MetricsPage(
        settings=parts.base.settings,
        store=parts.base.store,
        topics=parts.tables.topics,
        offsets=parts.tables.offsets,
        stats=parts.base.stats,
        remaining=parts.reads.remaining,
        hub=NoHelpers(),  # type: ignore[arg-type]
        helpers=lambda: (),
        committed_offset=lambda: None,
        is_fenced=lambda: False,
        dropped=lambda: (),
        limits=parts.base.limits,
        quotas=parts.tables.quotas,
    )
    return (await page.text()).decode().splitlines()


async def metric(broker: ControlBroker) -> int | None:
    """The group's lag on the metrics page; None when it is not there."""
    found = [line for line in await metrics_lines(broker) if line.startswith("thermocline_consumer_lag_messages{")]
    return int(found[0].rpartition(" ")[2]) if found else None


async def test_the_metrics_page_says_how_far_the_log_is(broker: ControlBroker) -> None:
    log = broker.parts.base.store.commit_log
    broker.put("T", 0, b"flushed")
    log.flush()
    broker.put("T", 0, b"not flushed")
    lines = await metrics_lines(broker)
    for name, offset in (
        ("append", log.append_offset),
        ("flush", log.flush_offset),
        ("min", log.min_offset),
    ):
        assert f"thermocline_log_{name}_offset_bytes {offset}" in lines
    assert log.min_offset < log.flush_offset < log.append_offset


@pytest.mark.parametrize(
    ("offset", "lag", "following"),
    [
        (0, 9, 2),
        (2, 9, 2),
        (4, 7, 4),
        (5, 6, 7),
        (6, 6, 7),
        (7, 6, 7),
        (9, 4, 9),
        (COLD_END, 3, HOT_START),
        (HOT_START - 1, 3, HOT_START),
        (HOT_START, 3, HOT_START),
        (HOT_START + 2, 1, HOT_START + 2),
        (HOT_START + 3, 0, HOT_START + 3),
    ],
)
async def test_offsets_without_a_message_do_not_count(
    broker: ControlBroker, offset: int, lag: int, following: int
) -> None:
    broker.parts.tables.offsets.commit("T", "G", 0, offset)
    wrapper = await progress(broker)
    assert wrapper.broker_offset - wrapper.consumer_offset == lag
    # Tools move groups by this offset, and say of messages below it that they were consumed.
    assert wrapper.consumer_offset == following
    assert (wrapper.end_offset or wrapper.broker_offset) == HOT_START + 3
    assert await metric(broker) == lag


async def test_messages_delivered_beyond_a_hole_are_counted_in_the_same_way(broker: ControlBroker) -> None:
    broker.parts.tables.offsets.commit("T", "G", 0, 9)
    broker.parts.tables.offsets.commit_pull("T", "G", 0, HOT_START + 2)
    wrapper = await progress(broker)
    assert (wrapper.consumer_offset, wrapper.pull_offset - wrapper.consumer_offset) == (9, 3)


@pytest.mark.parametrize(
    ("ttl_seconds", "lags"),
    [(9, {0: 7, 4: 7, 8: 5, 9: 4}), (3, {0: 3, HOT_START + 1: 2}), (1, {0: 1, HOT_START: 1, HOT_START + 2: 1})],
)
async def test_expired_messages_do_not_count(broker: ControlBroker, ttl_seconds: int, lags: dict[int, int]) -> None:
    """Now is three seconds after the first local message, thirteen after cold offset 0."""
    await broker.create_topic("T", queues=1, attributes=f"+thermocline.ttl.ms={ttl_seconds * 1_000 + 500}")
    for offset, lag in lags.items():
        broker.parts.tables.offsets.commit("T", "G", 0, offset)
        wrapper = await progress(broker)
        assert (wrapper.broker_offset - wrapper.consumer_offset, await metric(broker)) == (lag, lag), offset


async def test_a_group_in_front_of_a_hole_waits_for_the_message_behind_it(broker: ControlBroker) -> None:
    broker.parts.tables.offsets.commit("T", "G", 0, COLD_END)
    (span,) = QueryConsumeTimeSpanBody.decode(
        (await broker.ask(303, {"topic": "T", "group": "G"})).body
    ).consume_time_span_set
    assert span.delay_time == 3_000


async def test_while_the_cold_tier_is_not_known_nothing_is_made_up(broker: ControlBroker, cold: ColdWithHole) -> None:
    cold.is_away = True
    broker.parts.tables.offsets.commit("T", "G", 0, COLD_END)
    wrapper = await progress(broker)
    assert (wrapper.consumer_offset, wrapper.broker_offset) == (COLD_END, HOT_START + 3)
    assert await metric(broker) is None
    broker.parts.tables.offsets.commit("T", "G", 0, HOT_START)
    assert await metric(broker) == 3
