"""TierFeed: what a tier process is sent, from its HELLO on: everything in slices, then what changed, then cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.store.store_parts import draft
from tests.waiting import until
from thermocline.broker.helpers import TIER_ROLE, HelperHub, HelperRequestCode, QueueTable
from thermocline.broker.tables.kept_clock import KeptClock
from thermocline.broker.tier import tier_feed
from thermocline.broker.tier.tier_feed import TierFeed
from thermocline.remoting.errors import UnavailableError

INTERVAL_MS = 60_000


@dataclass
class Tier:
    """The tier process's end."""

    is_there: bool = True
    tables: list[QueueTable] = field(default_factory=list)

    def is_connected(self, role: str) -> bool:
        assert role == TIER_ROLE
        return self.is_there

    def tell(self, role: str, code: HelperRequestCode, body: msgspec.Struct) -> bool:
        assert (role, code) == (TIER_ROLE, HelperRequestCode.QUEUE_TABLE)
        assert isinstance(body, QueueTable)
        self.tables.append(body)
        return True

    def take_tables(self) -> list[QueueTable]:
        taken, self.tables = self.tables, []
        return taken


@dataclass
class Kept:
    """The time as it is on disk."""

    kept_ms: int
    is_away: bool = False
    kept_count: int = 0

    async def keep(self) -> None:
        if self.is_away:
            raise UnavailableError("disk")
        self.kept_count += 1


@dataclass
class World:
    broker: ControlBroker
    tier: Tier
    kept: Kept
    feed: TierFeed

    def put(self, topic: str, queue_id: int = 0) -> None:
        self.broker.put(topic, queue_id)

    def write(self) -> None:
        self.broker.parts.base.store.tick()

    @property
    def log_end(self) -> int:
        return self.broker.parts.base.store.commit_log.append_offset


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with control_broker(tmp_path) as broker:
        tables, store = broker.parts.tables, broker.parts.base.store
        tier, kept = Tier(), Kept(broker.clock())
        feed = TierFeed(
            cast("HelperHub", tier),
            topics=tables.topics,
            queues=store.queues,
            incarnations=store.incarnations,
            kept_clock=cast("KeptClock", kept),
            cut_interval_ms=INTERVAL_MS,
        )
        yield World(broker, tier, kept, feed)
        await feed.close()


def topics_of(tables: list[QueueTable]) -> list[str]:
    return [each.topic for table in tables for each in table.topics]


def queues_of(tables: list[QueueTable]) -> list[tuple[str, int, int]]:
    return [(each.topic, each.queue_id, each.end_offset) for table in tables for each in table.queues]


async def test_nothing_is_sent_before_a_tier_process_connects(world: World) -> None:
    await world.broker.create_topic("T")
    world.put("T")
    world.write()
    world.feed.ticked(pressure=True)
    await world.feed.flush()
    assert world.tier.tables == []


async def test_everything_in_slices_topics_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_feed, "ENTRIES_PER_SLICE", 4)
    monkeypatch.setattr(tier_feed, "SLICE_PAUSE_S", 0)
    for name in ("T", "U"):
        await world.broker.create_topic(name)
        for queue_id in range(4):
            world.put(name, queue_id)
    world.write()
    world.feed.restart()
    await world.feed.flush()
    tables = world.tier.take_tables()
    assert [table.sequence for table in tables] == list(range(1, len(tables) + 1))
    assert all(1 <= len(table.topics) + len(table.queues) <= 4 for table in tables)
    assert sorted(topics_of(tables)) == sorted(world.broker.parts.tables.topics)
    assert sorted(queues_of(tables)) == [(name, queue_id, 1) for name in ("T", "U") for queue_id in range(4)]
    last_topics = max(number for number, table in enumerate(tables) if table.topics)
    assert all(not table.queues for table in tables[:last_topics])
    assert [table.log_offset for table in tables] == [0] * (len(tables) - 1) + [world.log_end]
    await world.feed.flush()
    assert world.tier.take_tables() == [], "there is no news"


async def test_then_only_what_changed(world: World) -> None:
    await world.broker.create_topic("T")
    world.feed.restart()
    await world.feed.flush()
    (first,) = world.tier.take_tables()
    world.put("T", 2)
    world.put("T", 2)
    world.write()
    await world.feed.flush()
    (table,) = world.tier.take_tables()
    assert (table.topics, queues_of([table])) == ([], [("T", 2, 2)])
    assert (table.sequence, table.log_offset) == (first.sequence + 1, world.log_end)
    await world.broker.create_topic("U")
    await world.feed.flush()
    (table,) = world.tier.take_tables()
    assert (topics_of([table]), table.queues) == (["U"], [])


async def test_a_deleted_topic_is_reported_as_such_and_its_queues_no_more(world: World) -> None:
    await world.broker.create_topic("T")
    world.put("T")
    world.write()
    world.feed.restart()
    await world.feed.flush()
    (table,) = world.tier.take_tables()
    (there,) = [each for each in table.topics if each.topic == "T"]
    assert (there.deleted, there.tiered) == (False, True)
    world.put("T")
    world.write()
    assert (await world.broker.ask(215, {"topic": "T"})).code == 0
    await world.feed.flush()
    (table,) = world.tier.take_tables()
    (gone,) = table.topics
    assert (gone.topic, gone.deleted, gone.incarnation) == ("T", True, there.incarnation)
    assert (gone.ttl_ms, gone.cut_ms) == (None, 0)
    assert table.queues == []
    world.feed.restart()
    await world.feed.flush()
    assert "T" in topics_of(world.tier.take_tables()), "a later tier process learns it, too"


async def test_deletions_that_find_no_room_on_the_disk_hold_up_no_queue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait, and what other topics have is reported: it is to be committed, so that local files may go."""
    monkeypatch.setattr(tier_feed, "ENTRIES_PER_SLICE", 2)
    monkeypatch.setattr(tier_feed, "SLICE_PAUSE_S", 0)
    topics = world.broker.parts.tables.topics
    for name in ("D1", "D2", "D3", "T"):
        await world.broker.create_topic(name)
    world.feed.restart()
    await world.feed.flush()
    world.tier.take_tables()

    async def no_room(name: str) -> None:
        raise UnavailableError("no room", file=name)

    with monkeypatch.context() as patch:
        patch.setattr(world.broker.parts.tables.persister, "save", no_room)
        for name in ("D1", "D2", "D3"):
            with pytest.raises(UnavailableError):
                await topics.delete(name)
    world.put("T")
    world.write()
    async with asyncio.timeout(10):
        await world.feed.flush()
    sent = world.tier.take_tables()
    assert (topics_of(sent), queues_of(sent)) == ([], [("T", 0, 1)])
    assert sent[-1].log_offset == world.log_end
    for name in ("D1", "D2", "D3"):
        await topics.delete(name)
    await world.feed.flush()
    assert topics_of(world.tier.take_tables()) == ["D1", "D2", "D3"]


async def test_a_tier_process_that_went_away_gets_everything_again(world: World) -> None:
    await world.broker.create_topic("T")
    world.put("T")
    world.write()
    world.feed.restart()
    await world.feed.flush()
    (first,) = world.tier.take_tables()
    world.tier.is_there = False
    world.put("T")
    world.write()
    await world.feed.flush()
    world.tier.is_there = True
    world.put("T")
    world.write()
    await world.feed.flush()
    assert world.tier.take_tables() == [], "it has not said HELLO"
    world.feed.restart()
    await world.feed.flush()
    (again,) = world.tier.take_tables()
    assert (again.sequence, queues_of([again])) == (1, [("T", 0, 3)])
    assert topics_of([again]) == topics_of([first])


async def test_pressure_is_reported_while_it_lasts(world: World) -> None:
    world.feed.start()
    with pytest.raises(AssertionError):
        world.feed.start()
    world.feed.restart()
    await until(lambda: world.tier.tables)
    assert not world.tier.take_tables()[-1].pressure
    for _ in range(2):
        world.feed.ticked(pressure=True)
        await until(lambda: world.tier.tables)
        assert [table.pressure for table in world.tier.take_tables()] == [True]
    world.feed.ticked(pressure=False)
    await until(lambda: world.tier.tables)
    assert [table.pressure for table in world.tier.take_tables()] == [False], "the tier process gets its end, too"
    await world.feed.flush()
    assert world.tier.take_tables() == []


async def test_cuts_are_those_of_the_kept_time(world: World) -> None:
    ttl_ms = 3_600_000
    await world.broker.create_topic("T", attributes="+reserve.time=1")
    await world.broker.create_topic("U")
    world.feed.restart()
    await world.feed.flush()
    states = {each.topic: each for table in world.tier.take_tables() for each in table.topics}
    assert (states["T"].ttl_ms, states["T"].cut_ms) == (ttl_ms, world.kept.kept_ms - ttl_ms)
    assert (states["U"].ttl_ms, states["U"].cut_ms) == (None, 0)
    world.kept.kept_ms += 5
    await world.feed.tell_cuts()
    await world.feed.flush()
    assert world.kept.kept_count == 1
    ((sent,),) = [table.topics for table in world.tier.take_tables()]
    assert (sent.topic, sent.cut_ms) == ("T", world.kept.kept_ms - ttl_ms)


async def test_cuts_are_told_at_an_interval(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s[0], raising=False)
    feed = world.feed
    feed._is_telling = True
    monkeypatch.setattr(world.broker.parts.tables.topics, "topics_with_ttl", lambda: ["T"])
    due: list[bool] = []
    for step_s in (0.0, INTERVAL_MS / 1_000 - 0.001, 0.001, 0.0):
        now_s[0] += step_s
        feed.ticked(pressure=False)
        due.append(feed._cuts_are_due)
        feed._cuts_are_due = False
    assert due == [True, False, True, False]


async def test_at_a_slave_a_queue_waits_for_its_topic_and_holds_the_log_offset(tmp_path: Path) -> None:
    """Records are copied before their topic is followed: what is below the reported offset is within reported ends."""
    async with control_broker(tmp_path) as broker:
        tables, store = broker.parts.tables, broker.parts.base.store
        tier = Tier()
        feed = TierFeed(
            cast("HelperHub", tier),
            topics=tables.topics,
            queues=store.queues,
            incarnations=store.incarnations,
            kept_clock=cast("KeptClock", Kept(broker.clock())),
            cut_interval_ms=INTERVAL_MS,
            waits_for_topics=True,
        )
        feed.restart()
        await feed.flush()
        before = tier.take_tables()[-1].log_offset
        store.put(draft("unknown", 1))
        store.tick()
        await feed.flush()
        sent = tier.take_tables()
        assert queues_of(sent) == []
        assert all(table.log_offset == before for table in sent)
        await broker.create_topic("unknown")
        store.tick()
        await feed.flush()
        sent = tier.take_tables()
        assert "unknown" in topics_of(sent)
        assert queues_of(sent) == [("unknown", 1, 1)]
        assert sent[-1].log_offset == store.commit_log.append_offset
        await feed.close()


async def test_at_a_slave_a_topic_that_ended_before_it_came_holds_nothing(tmp_path: Path) -> None:
    """The master has made a topic, taken a message and deleted it between two of the slave's questions. Else the slave
    would delete no local file before its tier process is started again, and its disk would become full."""
    async with control_broker(tmp_path) as broker:
        tables, store = broker.parts.tables, broker.parts.base.store
        tier = Tier()
        feed = TierFeed(
            cast("HelperHub", tier),
            topics=tables.topics,
            queues=store.queues,
            incarnations=store.incarnations,
            kept_clock=cast("KeptClock", Kept(broker.clock())),
            cut_interval_ms=INTERVAL_MS,
            waits_for_topics=True,
        )
        feed.restart()
        store.put(draft("short-lived", 0))
        store.tick()
        await feed.flush()
        assert tier.take_tables()[-1].log_offset < store.commit_log.append_offset
        await tables.topics.delete("short-lived")
        await feed.flush()
        sent = tier.take_tables()
        assert sent[-1].log_offset == store.commit_log.append_offset
        assert queues_of(sent) == []
        await feed.close()
