"""Drops on a full disk: none unless the policy allows it, oldest messages first, each recorded before its deletion.

Covers `broker/cold/tiered_topics.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import LOG_FILE_BYTES, draft, open_store, small_config
from thermocline.broker.cold.cold_reads import ColdBounds
from thermocline.broker.cold.dropped_ranges import DroppedRange, DroppedRanges
from thermocline.broker.tier import drop_oldest
from thermocline.broker.tier.drop_oldest import DropOldest
from thermocline.remoting.errors import ServiceUnavailableError, UnavailableError
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets.tier_config import FullPolicy

FILES = 6
AWAY = RetentionGate(committed_offset=0)


@dataclass
class World:
    """A store of six log files on a disk that is too full by `excess_files`, with a bucket that is away."""

    disk: SimulatedDisk
    store: MessageStore
    policies: dict[str, FullPolicy] = field(default_factory=dict)
    cold_ends: dict[tuple[str, int], int] = field(default_factory=dict)
    is_tier_known: bool = True
    cut_offset: int = 0
    saved: list[list[DroppedRange]] = field(default_factory=list)
    announced: list[DroppedRange] = field(default_factory=list)
    fails: bool = False

    def __post_init__(self) -> None:
        self.ranges = DroppedRanges(incarnation_of=lambda topic: self.store.incarnations.find(topic).id)
        self.oldest = DropOldest(
            self.store,
            bounds=self.bounds,
            policy_of=lambda topic: self.policies.get(topic, FullPolicy.REFUSE),
            visible_start=lambda queue: max(queue.min_offset, self.cut_offset),
            ranges=self.ranges,
            save=self.save,
            tell=self.announced.extend,
            clock=lambda: 77,
        )

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:
        if not self.is_tier_known:
            return None
        return ColdBounds(min_offset=0, end_offset=self.cold_ends.get((topic, queue_id), 0))

    async def save(self) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise UnavailableError("no room")
        assert self.store.commit_log.min_offset < max(map(self._end, self.ranges.live())), "before it goes"
        self.saved.append(self.ranges.live())

    def _end(self, lost: DroppedRange) -> int:
        """Physical offset of the last dropped message."""
        queue = self.store.queues.find(lost.topic, lost.queue_id)
        assert queue is not None
        return queue.unit(lost.end_offset - 1).physical_offset

    def fill(self, *topics: str, file_count: int = FILES) -> None:
        """Messages of these topics in turn, all durable."""
        number = 0
        while self.store.commit_log.append_offset < (file_count - 1) * LOG_FILE_BYTES + 100:
            topic = topics[number % len(topics)]
            self.store.put(draft(topic=topic, queue_id=number // len(topics) % 2, body=b"." * 300))
            number += 1
        self.store.sync_derived()

    def use_up(self, *, excess_files: float) -> None:
        """Fill the disk past the ratio from which sends are refused."""
        self.disk.total_bytes_there = 100 * LOG_FILE_BYTES
        self.disk.free_bytes_left = int((10 - excess_files) * LOG_FILE_BYTES)

    async def run(self, gate: RetentionGate = AWAY) -> None:
        """A round of retention."""
        gate = await self.oldest.relax(gate)
        self.store.retention.execute(self.store.retention.plan(gate, now_ms=0, hour=5))

    def lost(self, topic: str) -> dict[int, tuple[int, int]]:
        return {
            each.queue_id: (each.start_offset, each.end_offset) for each in self.ranges.live() if each.topic == topic
        }

    def gone_below(self, topic: str, queue_id: int) -> int:
        queue = self.store.queues.find(topic, queue_id)
        assert queue is not None
        return queue.min_offset


@pytest.fixture
def world() -> Iterator[World]:
    disk = SimulatedDisk()
    store = open_store(disk, small_config())
    yield World(disk, store)
    disk.free_bytes_left = 1 << 30
    store.close()


async def test_nothing_is_dropped_without_the_policy(world: World) -> None:
    world.fill("orders")
    world.use_up(excess_files=2.5)
    await world.run()
    assert world.store.commit_log.min_offset == 0
    assert list(world.ranges) == world.announced == world.saved == []
    with pytest.raises(ServiceUnavailableError):
        world.store.put(draft())


async def test_the_oldest_files_go_and_their_messages_are_listed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.fill("orders", "metrics")
    world.policies = dict.fromkeys(("orders", "metrics"), FullPolicy.DROP_OLDEST)
    world.cold_ends["orders", 0] = 3
    world.use_up(excess_files=1.5)
    with caplog.at_level(logging.ERROR):
        await world.run()
    assert world.store.commit_log.min_offset == 2 * LOG_FILE_BYTES, "as many as needed, no more"
    assert world.lost("orders") == {0: (3, world.gone_below("orders", 0)), 1: (0, world.gone_below("orders", 1))}
    assert world.lost("metrics") == {queue_id: (0, world.gone_below("metrics", queue_id)) for queue_id in (0, 1)}
    assert (
        sorted(world.announced, key=lambda each: (each.topic, each.queue_id)) == world.saved[0] == world.ranges.live()
    )
    assert {each.dropped_ms for each in world.announced} == {77}
    count = sum(each.message_count for each in world.announced if each.topic == "metrics")
    assert [
        record.getMessage() for record in caplog.records if f"topic=metrics messages={count} " in record.getMessage()
    ]
    world.store.put(draft())  # sends were not refused for a moment


async def test_dropping_goes_on_and_leaves_one_range_a_queue(world: World) -> None:
    world.fill("orders")
    world.policies["orders"] = FullPolicy.DROP_OLDEST
    for number in range(1, 4):
        world.use_up(excess_files=0.5)
        gate = await world.oldest.relax(AWAY)
        plan = world.store.retention.plan(gate, now_ms=0, hour=5)
        assert world.store.commit_log.min_offset == number * LOG_FILE_BYTES
        world.store.retention.execute(plan)
        assert world.lost("orders") == {queue_id: (0, world.gone_below("orders", queue_id)) for queue_id in (0, 1)}


async def test_one_message_of_a_topic_that_refuses_holds_its_file(world: World) -> None:
    world.fill("metrics", file_count=3)
    store = world.store
    kept = store.put(draft(topic="orders"))
    number = 0
    while store.commit_log.append_offset < (FILES - 1) * LOG_FILE_BYTES + 100:
        store.put(draft(topic="metrics", queue_id=number % 2, body=b"." * 300))
        number += 1
    store.sync_derived()
    world.policies["metrics"] = FullPolicy.DROP_OLDEST
    world.use_up(excess_files=4.5)
    await world.run()
    assert store.commit_log.min_offset == kept.physical_offset - kept.physical_offset % LOG_FILE_BYTES > 0
    assert store.read_record(kept.physical_offset).topic == "orders"
    assert not world.lost("orders")
    with pytest.raises(ServiceUnavailableError):
        store.put(draft(topic="metrics"))
    world.cold_ends["orders", 0] = 1
    await world.run()
    assert store.commit_log.min_offset == 5 * LOG_FILE_BYTES, "once it is committed its file goes with the others"


@pytest.mark.parametrize("name", ["index_offset", "held_offset", "timers_offset", "transactions_offset"])
async def test_files_that_others_need_are_kept(world: World, name: str) -> None:
    world.fill("orders")
    world.policies["orders"] = FullPolicy.DROP_OLDEST
    world.use_up(excess_files=4.5)
    await world.run(replace(AWAY, **{name: LOG_FILE_BYTES}))
    assert world.store.commit_log.min_offset == LOG_FILE_BYTES


async def test_committed_messages_are_not_reported_as_dropped(world: World) -> None:
    """Neither is what has expired."""
    world.fill("orders")
    world.policies["orders"] = FullPolicy.DROP_OLDEST
    world.use_up(excess_files=1.5)
    await world.run(RetentionGate(committed_offset=2 * LOG_FILE_BYTES))
    assert world.store.commit_log.min_offset == 2 * LOG_FILE_BYTES
    assert list(world.ranges) == []
    world.cut_offset = 1 << 40
    world.use_up(excess_files=0.5)
    await world.run()
    assert world.store.commit_log.min_offset == 3 * LOG_FILE_BYTES
    assert list(world.ranges) == []


async def test_a_tier_that_was_not_heard_of_is_taken_to_hold_nothing(world: World) -> None:
    world.fill("orders")
    world.policies["orders"] = FullPolicy.DROP_OLDEST
    world.cold_ends["orders", 0] = 4
    world.is_tier_known = False
    world.use_up(excess_files=0.5)
    await world.run()
    assert world.lost("orders")[0] == (0, world.gone_below("orders", 0))


async def test_nothing_goes_that_could_not_be_written_down(world: World) -> None:
    world.fill("orders")
    world.policies["orders"] = FullPolicy.DROP_OLDEST
    world.use_up(excess_files=0.5)
    world.fails = True
    await world.run()
    assert world.store.commit_log.min_offset == 0
    assert world.announced == list(world.ranges) == []
    with pytest.raises(ServiceUnavailableError):
        world.store.put(draft())
    world.fails = False
    await world.run()
    assert world.store.commit_log.min_offset == LOG_FILE_BYTES
    world.store.put(draft())


async def test_a_disk_with_room_costs_no_look_at_any_queue(world: World) -> None:
    world.fill("orders")
    world.policies["orders"] = FullPolicy.DROP_OLDEST
    world.use_up(excess_files=-1)
    looks = []
    world.oldest._bounds = lambda topic, queue_id: looks.append(topic)
    await world.run()
    assert looks == []
    assert world.store.commit_log.min_offset == 0


async def test_a_look_at_many_queues_lets_requests_in_between_and_waits_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill("orders", "bills")
    world.policies.update(orders=FullPolicy.DROP_OLDEST, bills=FullPolicy.DROP_OLDEST)
    world.use_up(excess_files=0.5)
    pauses_s: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses_s.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(drop_oldest, "QUEUES_AT_ONCE", 1)
    monkeypatch.setattr(drop_oldest.asyncio, "sleep", sleep)
    await world.run()
    assert len(pauses_s) >= 4, "one for each queue"
    assert set(pauses_s) == {0}
