"""Offset lookup: the answers of one endless queue, wherever its messages are.

Covers `broker/assembly/pops.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import TOPIC, Consumer, expire_local_files
from thermocline.store.config.store_config import FlushDiskType


async def number(broker: DataBroker, code: int, **fields: Any) -> int:
    """An offset or a time; -100 - code for an error."""
    answer = await broker.ask_wire(code, **fields)
    if answer.code:
        return -100 - answer.code
    assert answer.ext_fields is not None
    return int(answer.ext_fields.get("offset") or answer.ext_fields["timestamp"])


async def search(broker: DataBroker, timestamp_ms: int, boundary: str | None = None) -> int:
    fields = {} if boundary is None else {"boundaryType": boundary}
    return await number(broker, 29, timestamp=timestamp_ms, **fields)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


def send_each_second(broker: DataBroker, count: int, *, twice: bool = False) -> list[int]:
    """Store messages, one a second (or two); their times."""
    consumer = Consumer(broker)
    times = []
    for _ in range(count):
        consumer.send(2 if twice else 1)
        times += [broker.clock.now_ms] * (2 if twice else 1)
        broker.clock.now_ms += 1_000
    return times


async def test_a_queue_without_messages(broker: DataBroker) -> None:
    """It begins and ends at 0, and has no first message."""
    for make in (False, True):
        if make:
            broker.store.queues.find_or_create(TOPIC, 0)
        assert await number(broker, 30) == 0
        assert await number(broker, 31) == 0
        assert await number(broker, 32) == -1
        assert await search(broker, 5) == 0
        assert await search(broker, 5, "upper") == 0


async def test_minimum_keeps_an_empty_remark(broker: DataBroker) -> None:
    """As RocketMQ answers it."""
    assert (await broker.ask_wire(31)).remark == ""
    assert (await broker.ask_wire(30)).remark is None


async def test_search_by_time(broker: DataBroker) -> None:
    """Equal times are widened to the first (lower) and the last (upper) of them."""
    times = send_each_second(broker, 5, twice=True)
    assert await search(broker, times[0]) == 0
    assert await search(broker, times[2]) == 2
    assert await search(broker, times[2], "LOWER") == 2
    assert await search(broker, times[2] - 1) == 2
    assert await search(broker, times[2] + 1) == 4
    assert await search(broker, times[-1] + 1) == 10
    assert await search(broker, 0) == 0
    assert await search(broker, times[2], "upper") == 3
    assert await search(broker, times[2] - 1, "UPPER") == 1
    assert await search(broker, times[-1] + 9_999, "upper") == 9
    assert await search(broker, 0, "upper") == 0
    assert (await broker.ask_wire(29, timestamp=5, boundaryType="middle")).code == 1
    assert await number(broker, 32) == times[0]


async def test_unflushed_messages_are_not_counted(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        broker.store.flush.use(lambda job, done: None)
        Consumer(broker).send(2)
        assert await number(broker, 30) == 0


class OneList:
    """The queue as one endless list: what every lookup must agree with."""

    def __init__(self, times: list[int], cut_ms: int) -> None:
        self._times = times
        self.start = next((offset for offset, time_ms in enumerate(times) if time_ms >= cut_ms), len(times))

    def lower(self, timestamp_ms: int) -> int:
        found = (o for o in range(self.start, len(self._times)) if self._times[o] >= timestamp_ms)
        return next(found, len(self._times))

    def upper(self, timestamp_ms: int) -> int:
        found = (o for o in range(len(self._times) - 1, self.start - 1, -1) if self._times[o] <= timestamp_ms)
        return next(found, self.start)

    def earliest(self) -> int:
        return self._times[self.start] if self.start < len(self._times) else -1


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    count=st.integers(1, 60),
    cold_count=st.integers(0, 60),
    ttl_s=st.one_of(st.none(), st.integers(1, 70)),
    probes=st.lists(st.integers(-2, 62), min_size=4, max_size=8),
)
async def test_hot_and_cold_answer_as_one_list(
    tmp_path_factory: pytest.TempPathFactory, count: int, cold_count: int, ttl_s: int | None, probes: list[int]
) -> None:
    """Whatever part is local, cold or expired."""
    cold = MemoryColdTier()
    root = tmp_path_factory.mktemp("store")
    async with data_broker(root, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        start_ms = broker.clock.now_ms
        times = send_each_second(broker, count)
        cold_count = min(cold_count, count)
        if cold_count:
            cold.copy_from(broker.store, TOPIC, 0, end=cold_count)
            expire_local_files(broker, cold_count - 1)
        if ttl_s is not None:
            await broker.make_topic(TOPIC, attributes=f"+thermocline.ttl.ms={ttl_s * 1_000}")
        expected = OneList(times, 0 if ttl_s is None else broker.clock.now_ms - ttl_s * 1_000)
        assert await number(broker, 30) == count
        assert await number(broker, 31) == expected.start
        assert await number(broker, 32) == expected.earliest()
        for probe in probes:
            timestamp_ms = start_ms + probe * 1_000
            for around in (timestamp_ms - 1, timestamp_ms, timestamp_ms + 1):
                assert await search(broker, around) == expected.lower(around)
                assert await search(broker, around, "upper") == expected.upper(around)


@pytest.mark.parametrize("trouble", ["is_away", "is_known"])
async def test_an_offset_of_the_cold_tier_is_busy_without_it(tmp_path: Path, trouble: str) -> None:
    """Never the local minimum: a new group would start behind the history."""
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=8_192) as broker:
        times = send_each_second(broker, 60)
        cold.copy_from(broker.store, TOPIC, 0, end=40)
        minimum = expire_local_files(broker, 40)
        setattr(cold, trouble, trouble == "is_away")
        assert await number(broker, 31) == -102
        assert await number(broker, 32) == -102
        assert await search(broker, times[0]) == -102
        assert await search(broker, times[0], "upper") == -102
        assert await number(broker, 30) == 60
        assert await search(broker, times[minimum] + 1) == minimum + 1
        assert await search(broker, times[minimum], "upper") == minimum
