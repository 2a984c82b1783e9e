"""HiddenMessages: which expired messages are stored still, in which files, and how many samples are given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.control_broker import STORE_HOST
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import TOPIC, Consumer, expire_local_files
from thermocline.broker.queues.visible_queues import VisibleQueues
from thermocline.broker.tier import hidden_messages
from thermocline.broker.tier.hidden_messages import RELEASED_WITH_LOG, HiddenFile, HiddenMessages, HiddenQueue
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.store.index import IndexHeader
from thermocline.store.index.index_service import IndexService
from thermocline.store.queues.consume_queue import UNIT
from thermocline.store.retention import RetentionGate

COUNT = 40
STEP_MS = 10


class World:
    """Queue 0 of a topic with COUNT messages, STEP_MS apart, and a cut that the test sets."""

    def __init__(self, broker: DataBroker, cold: MemoryColdTier) -> None:
        self.broker, self.cold = broker, cold
        self.consumer = Consumer(broker)
        self.first_ms = broker.clock.now_ms
        self.cut_ms = 0
        self.gate = RetentionGate()
        visible = VisibleQueues(broker.store, cold, expired_before_ms=lambda topic: self.cut_ms)
        self.hidden = HiddenMessages(
            disk=broker.parts.base.disk,
            store=broker.store,
            cold=cold,
            visible=visible,
            lookup=broker.parts.reads.lookup,
            store_host=STORE_HOST,
            gate=lambda: self.gate,
        )

    def fill(self, queue_id: int = 0) -> None:
        for _ in range(COUNT):
            self.consumer.send(body=bytes(200), queue_id=queue_id, properties={"KEYS": "one two"})
            self.broker.clock.now_ms += STEP_MS

    def expire(self, count: int) -> None:
        """The first `count` messages of each queue."""
        self.cut_ms = self.first_ms + count * STEP_MS

    async def offsets(self) -> list[tuple[int, int, bool]]:
        samples = await self.hidden.samples(TOPIC, await self.hidden.queues(TOPIC))
        return [(each.queue_id, each.offset, each.is_cold) for each in samples]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        yield World(broker, cold)


async def test_nothing_is_hidden_before_anything_expires(world: World) -> None:
    world.fill()
    (queue,) = await world.hidden.queues(TOPIC)
    assert queue == HiddenQueue(
        queue_id=0, minimum=0, end=COUNT, local_minimum=0, cold_minimum=None, oldest_visible_ms=world.first_ms
    )
    assert await world.offsets() == []
    assert await world.hidden.local_files(TOPIC, now_ms=world.broker.clock()) == []
    assert await world.hidden.queues("NoSuchTopic") == []


async def test_the_oldest_and_the_newest_of_each_queue_and_tier(world: World) -> None:
    world.fill()
    world.cold.copy_from(world.broker.store, TOPIC, 0, end=30)
    local = expire_local_files(world.broker, 20)
    world.expire(1)
    assert await world.offsets() == [(0, 0, True)], "the oldest is the newest"
    world.expire(5)
    assert await world.offsets() == [(0, 4, True), (0, 0, True)], "the local ones are visible"
    world.expire(local + 3)
    (queue,) = await world.hidden.queues(TOPIC)
    assert (queue.minimum, queue.end) == (local + 3, COUNT)
    assert (queue.local_minimum, queue.cold_minimum) == (local, 0)
    assert queue.oldest_visible_ms == world.cut_ms
    assert await world.offsets() == [(0, local + 2, False), (0, local, False), (0, local - 1, True), (0, 0, True)]
    world.expire(COUNT)
    (queue,) = await world.hidden.queues(TOPIC)
    assert (queue.minimum, queue.oldest_visible_ms) == (COUNT, None)
    assert (await world.offsets())[0] == (0, COUNT - 1, False)


async def test_a_sample_names_its_message(world: World) -> None:
    world.fill()
    world.expire(1)
    (sample,) = await world.hidden.samples(TOPIC, await world.hidden.queues(TOPIC))
    record = world.broker.store.read_record(0)
    assert (sample.store_ms, sample.unique_key, sample.keys) == (world.first_ms, record.unique_key, ["one", "two"])
    assert sample.message_id == encode_message_id(STORE_HOST, 0)


async def test_samples_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for queue_id in range(3):
        world.fill(queue_id)
    world.cut_ms = world.broker.clock()
    last = COUNT - 1
    assert await world.offsets() == [(each, offset, False) for each in range(3) for offset in (last, 0)]
    monkeypatch.setattr(hidden_messages, "SAMPLES_MAX", 3)
    assert await world.offsets() == [(0, last, False), (0, 0, False), (1, last, False)]


async def test_files_have_the_numbers_of_their_hidden_messages(world: World) -> None:
    world.fill()
    expired = 30
    world.expire(expired)
    store, now_ms = world.broker.store, world.broker.clock()
    *logs, queue = await world.hidden.local_files(TOPIC, now_ms=now_ms)
    found = store.queues.find(TOPIC, 0)
    assert found is not None
    counts: dict[str, int] = {}
    for offset in range(expired):
        place = found.unit(offset).physical_offset
        (name,) = [each.name for each in store.commit_log.files if each.base_offset <= place < each.end_offset]
        counts[name] = counts.get(name, 0) + 1
    assert {Path(each.path).name: each.messages for each in logs} == counts
    assert len(counts) > 2
    assert {each.kind for each in logs} == {"log"}
    assert {each.bytes for each in logs} == {store.config.log_file_bytes}
    assert (queue.kind, queue.messages, queue.bytes) == ("queue", expired, expired * UNIT.size)
    assert (queue.due_ms, queue.why) == (None, RELEASED_WITH_LOG)
    assert queue.path == f"{store.config.consume_queue_path}/{TOPIC}/0"


async def test_a_file_that_stays_holds_up_those_behind_it(world: World) -> None:
    world.fill()
    world.expire(COUNT)
    store, now_ms = world.broker.store, world.broker.clock()
    store.commit_log.flush()
    store.sync_derived()
    free = [each for each in await world.hidden.local_files(TOPIC, now_ms=now_ms) if each.kind == "log"]
    assert all(each.due_ms is not None and each.due_ms >= now_ms for each in free[:-1])
    assert (free[-1].due_ms, free[-1].why[-26:]) == (None, "newest, which always stays")
    world.gate = RetentionGate(committed_offset=list(store.commit_log.files)[1].base_offset)
    held = [each for each in await world.hidden.local_files(TOPIC, now_ms=now_ms) if each.kind == "log"]
    assert held[0] == free[0]
    assert [each.due_ms for each in held[1:]] == [None] * (len(free) - 1)
    assert {each.why for each in held[1:]} == {held[1].why}
    assert "not all in it is in the bucket" in held[1].why


async def test_an_index_file_counts_while_it_may_name_an_expired_message(world: World) -> None:
    """By the places in the log that it has: of the first and the last record."""
    world.fill()
    store = world.broker.store
    store.commit_log.flush()
    index = IndexService.open(
        world.broker.parts.base.disk,
        store.config,
        log_end_offset=store.commit_log.append_offset,
        was_clean=True,
        clock=world.broker.clock,
    )
    while index.build(store.commit_log.flush_offset):
        continue
    index.checkpoint()
    index.close()
    folder = Path(store.config.index_path)
    (name,) = [each.name for each in folder.iterdir()]
    (folder / "0-not-an-index").write_bytes(b"half written")

    async def index_files() -> list[HiddenFile]:
        return [each for each in await world.hidden.local_files(TOPIC, now_ms=0) if each.kind == "index"]

    assert await index_files() == [], "nothing has expired"
    world.expire(1)
    (found,) = await index_files()
    assert (Path(found.path).name, found.bytes) == (name, (folder / name).stat().st_size)
    assert (found.messages, found.due_ms, found.why) == (0, None, RELEASED_WITH_LOG)
    world.cold.copy_from(store, TOPIC, 0, end=COUNT)
    header = found_header(world, found.path)
    assert expire_local_files(world.broker, COUNT - 1) > 0
    assert header.last_physical_offset >= store.commit_log.min_offset
    world.expire(COUNT)
    assert [Path(each.path).name for each in await index_files()] == [name]


def found_header(world: World, path: str) -> IndexHeader:
    return world.hidden._index_header(path)[0]
