"""One random schedule of time to live on a whole broker, drawn from a seed, and all reads that a broker answers.

Steps are puts, time that passes, seals, sweeps, collections, local deletion, merges of packs, index objects made and
merged, purges (after which no object of the bucket holds a body that was hidden), changes of the time to live (by the
command and by RocketMQ's attribute; shrunk and extended at once, around sweeps and beside seals), topics deleted and
made again, and restarts, some of them with the wall clock set back. Merges, index objects and purges are under way
while the time to live changes, a collection takes what they work on, or a topic goes. After each step every queue's
bounds are read, and one random read is made; at the end all reads: by offset, by time, by key, by physical offset, and
by Spark's plan and reader, which get the bucket and nothing else.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.boundary.ttl_model import Message, TtlModel
from tests.boundary.whole_broker import GRACE_MS, WholeBroker
from tests.crash import wire
from tests.crash.bucket import KEYS, listed_keys, named_keys, newest
from tests.tiered.bucket_bytes import found_in
from thermocline.remoting.duration import duration_text
from thermocline.remoting.errors import TopicNotFoundError
from thermocline.remoting.headers import CreateTopicRequestHeader
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.source_options import read_options_from
from thermocline.tiered.packs.packed_catalog import live_topics
from thermocline.tiered.packs.piece_table import QueueRange
from thermocline.tiered.sealing.due_changes import SWEEPS_WAITED_MAX
from thermocline.tiered.segments.segment_format import QueueRun

TOPICS = ("Steam", "Brine")
QUEUES = 2
KEYS_SENT = ("red", "green")
SWEEP_MS = 100
PACK_SWEEP_MS = (1 + SWEEPS_WAITED_MAX) * SWEEP_MS
TTLS_MS = (None, 200, 1_000, 1_500, 5_000, 3_600_000)
PAUSES_MS = (1, 50, 199, 200, 201, 700, 1_000, 4_000)
STEPS_MIN, STEPS_MAX = 8, 20
COLLECTING_ROUNDS_MAX = 30
SAMPLES = 3
MERGE_FAN_IN = 2
INDEXED_ITEMS = 4
"""So many packs of a class, or segments of a topic, are indexed at a time."""
TURNS_BESIDE = 60
SPARK_COLUMNS = "topic,queueId,queueOffset,key,value,timestamp"

Result = TypeVar("Result")


class Schedule:
    """See the module's header. `witness` counts what schedules met."""

    def __init__(self, seed: int, folder: Path, witness: Counter[str]) -> None:
        self.seed = seed
        self.broker = WholeBroker(folder, merge_fan_in=MERGE_FAN_IN)
        self._chance = random.Random(seed)
        self._witness = witness
        self._model = TtlModel(self.broker.clock.now_ms)
        self._number = 0

    async def run(self, *, keep: Callable[[WholeBroker, TtlModel], Awaitable[None]] | None = None) -> None:
        """All of it; `keep` is given the broker, everything committed, before the bucket goes."""
        broker, chance = self.broker, self._chance
        await broker.start()
        try:
            for topic in TOPICS:
                await self._make_topic(topic)
            for _ in range(chance.randint(STEPS_MIN, STEPS_MAX)):
                step = chance.choices(*zip(*self._steps(), strict=True))[0]
                await step()
                await self._check_bounds()
                await self._check_something()
            await self._check_everything()
            await self._seal()
            await asyncio.to_thread(self._check_spark)
            if keep is not None:
                await keep(broker, self._model)
            if chance.random() < 0.2:
                await self._check_bucket()
        finally:
            await broker.stop(is_crash=True)
            await broker.remove_objects()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _steps(self) -> list[tuple[Callable[[], Awaitable[None]], int]]:
        return [
            (self._put, 22),
            (self._put_layers, 12),
            (self._pass, 18),
            (self._seal, 5),
            (self._sweep, 8),
            (self._collect, 3),
            (self._move_to_cold, 7),
            (self._set_ttl, 14),
            (self._shrink_and_extend, 8),
            (self._remake, 3),
            (self._restart_tier, 2),
            (self._restart_broker, 5),
            (self._merge, 5),
            (self._index, 4),
            (self._purge, 5),
        ]

    async def _put_layers(self) -> None:
        """Messages of several times in one segment, so that a cut may fall between them; and sometimes it does."""
        topic = self._chance.choice(TOPICS)
        await self._seal_layers(topic)
        if self._chance.random() < 0.7:
            await self._hide_some(topic)
            await self._chance.choice((self._sweep, self._sweep, self._pass))()

    async def _seal_layers(self, topic: str) -> None:
        for _ in range(3):
            await self._put(topic)
            await self._pass(self._chance.choice((1, 250, 600)))
        await self._chance.choice((self._seal, self._move_to_cold))()

    async def _hide_some(self, topic: str) -> None:
        ttl_ms = self._age_of_some(topic)
        await self._ask_for_ttl(topic, ttl_ms)
        self._model.set_ttl(topic, ttl_ms)

    async def _put(self, topic: str | None = None) -> None:
        chance, connection = self._chance, self.broker.connection
        topic, queue_id = topic or chance.choice(TOPICS), chance.randrange(QUEUES)
        messages = []
        for _ in range(chance.randint(1, 5)):
            self._number += 1
            messages.append((f"{self._number}".encode().ljust(chance.choice((1, 60)), b"."), chance.choice(KEYS_SENT)))
        texts = [(body, f"KEYS\x01{key}\x02") for body, key in messages]
        answer = await wire.send_batch(connection, topic, queue_id, texts)
        for index, (body, key) in enumerate(messages):
            place = answer.physical_offsets[index]
            offset = answer.queue_offset + index
            self._model.put(Message(topic, queue_id, offset, place, self._model.now_ms, key, body))

    async def _pass(self, duration_ms: int | None = None) -> None:
        clock = self.broker.clock
        clock.now_ms += self._chance.choice(PAUSES_MS) if duration_ms is None else duration_ms
        self.broker.disk.now_ms = clock.now_ms - 1
        # While the wall clock, set back before a restart, has not caught up, no time passes.
        self._model.pass_until(max(self._model.now_ms, clock.now_ms))

    async def _seal(self) -> None:
        """Everything: all at once, which puts it into packs, or topic by topic into segments of their own."""
        connection, chance = self.broker.connection, self._chance
        names: list[str | None] = [None] if chance.random() < 0.5 else [*chance.sample(TOPICS, len(TOPICS))]
        for name in names:
            sealed = await wire.seal(connection, name)
            self._witness["packed" if name is None else "segments"] += len(sealed)

    async def _sweep(self) -> None:
        """A sweep that is due; what it leaves in the catalog has something visible in it."""
        is_for_packs = self._chance.random() < 0.5
        await self._pass(PACK_SWEEP_MS if is_for_packs else SWEEP_MS)
        await self._seal()
        catalog = await newest(self.broker.objects)
        for topic in catalog.topics.values():
            for segment in topic.segments:
                held = {(topic.topic, run.queue_id, at) for run in segment.runs for at in span(run)}
                self._check_swept("segments", segment.segment_id, held)
        for pack in catalog.packs.values() if is_for_packs else ():
            live = live_topics(pack, catalog.packed)
            pieces = zip(pack.topics, pack.table().pieces(), strict=True)
            held = {
                (name, queue.queue_id, at)
                for name, piece in pieces
                if name in live
                for queue in piece.queues
                for at in span(queue)
            }
            self._check_swept("packs", pack.pack_id, held)

    def _check_swept(self, kind: str, name: str, held: set[tuple[str, int, int]]) -> None:
        messages = [each for topic in self._model.topics.values() for each in topic.messages]
        visible = {each.place for each in messages if not each.has_expired}
        assert held & visible, f"{name} has expired and is named"
        self._witness[f"{kind} after a sweep"] += 1
        self._witness[f"partly expired {kind}"] += not held <= visible

    async def _collect(self) -> None:
        await self._pass(GRACE_MS)
        await self.broker.report()
        await self._seal()

    async def _merge(self) -> None:
        """Packs are merged, some of which were sealed for that."""
        for _ in range(self._chance.randint(1, MERGE_FAN_IN)):
            await self._put()
            await wire.seal(self.broker.connection)
        self._witness["packs merged"] += await self._beside(self.broker.merge_packs())

    async def _index(self) -> None:
        """Index objects are made, of which some may be merged then."""
        topic = self._chance.choice((None, *TOPICS))
        for _ in range(self._chance.randint(1, INDEXED_ITEMS)):
            await self._put(topic)
            await wire.seal(self.broker.connection, topic)
        self._witness["indexed"] += await self._beside(self.broker.index())
        self._witness["index objects"] += len((await newest(self.broker.objects)).indexes)

    async def _purge(self) -> None:
        """What is hidden of a topic goes; nothing of it is left anywhere in the bucket."""
        topic = self._chance.choice(TOPICS)
        if self._chance.random() < 0.6:
            await self._seal_layers(topic)
        if self._chance.random() < 0.6:
            await self._hide_some(topic)
        hidden = [each for each in self._model.hidden() if each.topic == topic]
        report = await self._beside(wire.purge(self.broker.connection, topic))
        self._witness["packs purged"] += report["packsRewritten"]
        self._witness["segments purged"] += report["segmentsRewritten"]
        assert (report["leftObjects"], report["ownSegments"], report["heldByPin"]) == ([], 0, False)
        found = found_in(self.broker.objects.objects, [as_stored(each) for each in hidden])
        assert not found, f"a purge of {topic} has left {found}"
        self._witness["purged"] += len(hidden)

    async def _beside(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Half of the time something else happens while it goes on."""
        if self._chance.random() < 0.5:
            return await work
        working = asyncio.create_task(work)
        for _ in range(self._chance.randrange(TURNS_BESIDE)):
            await asyncio.sleep(0)
        self._witness["beside"] += not working.done()
        await self._chance.choice(
            (self._set_ttl, self._shrink_and_extend_at_once, self._collect, self._remake, self._put)
        )()
        return await working

    async def _shrink_and_extend_at_once(self) -> None:
        topic = self._chance.choice(TOPICS)
        for ttl_ms in (self._age_of_some(topic), self._chance.choice((None, 5_000, 3_600_000))):
            await self._ask_for_ttl(topic, ttl_ms)
            self._model.set_ttl(topic, ttl_ms)

    async def _move_to_cold(self) -> None:
        await self._seal()
        await self.broker.delete_local_files()

    async def _set_ttl(self) -> None:
        topic = self._chance.choice(TOPICS)
        ttl_ms = self._chance.choice((*TTLS_MS, self._age_of_some(topic)))
        await self._ask_for_ttl(topic, ttl_ms)
        self._model.set_ttl(topic, ttl_ms)

    async def _shrink_and_extend(self) -> None:
        """Both at one moment, or with something between; a seal, which also sweeps, may be under way meanwhile."""
        chance, topic = self._chance, self._chance.choice(TOPICS)
        before = len([each for each in self._model.topics[topic].messages if each.has_expired])
        short_ms = chance.choice((1, 200, self._age_of_some(topic), self._age_of_some(topic)))
        long_ms = chance.choice((None, 5_000, 3_600_000))
        beside = chance.choice((None, self._seal, self._restart_tier))
        task = None if beside is not self._seal else asyncio.create_task(self._seal())
        await self._ask_for_ttl(topic, short_ms)
        self._model.set_ttl(topic, short_ms)
        if chance.random() < 0.4:
            await chance.choice((self._sweep, self._pass, self._collect, self._restart_broker))()
        if beside is self._restart_tier:
            await self._restart_tier()
        await self._ask_for_ttl(topic, long_ms)
        self._model.set_ttl(topic, long_ms)
        if task is not None:
            await task
        after = len([each for each in self._model.topics[topic].messages if each.has_expired])
        self._witness["expired in a moment"] += after > before

    async def _remake(self) -> None:
        topic, connection = self._chance.choice(TOPICS), self.broker.connection
        await wire.delete_topic(connection, topic)
        self._model.delete_topic(topic)
        if self._chance.random() < 0.5:
            await self.broker.report()
        await self._make_topic(topic)

    async def _restart_tier(self) -> None:
        await self.broker.stop_tier()
        await self.broker.start_tier()

    async def _restart_broker(self) -> None:
        chance, clock = self._chance, self.broker.clock
        is_crash = chance.random() < 0.5
        is_set_back = chance.random() < 0.5 and any(topic.ttl_ms for topic in self._model.topics.values())
        if is_set_back:
            await self.broker.report()  # keeps the time, as is done every few seconds
        await self.broker.stop(is_crash=is_crash)
        if is_set_back:
            clock.now_ms -= chance.choice((1, 201, 1_000, 4_000, 10_000))
            self._witness["clocks set back"] += 1
        elif chance.random() < 0.5:
            await self._pass()
        await self.broker.start()
        self._witness["restarts"] += 1

    async def _make_topic(self, topic: str) -> None:
        ttl_ms = self._chance.choice(TTLS_MS)
        await wire.make_topic(self.broker.connection, topic, queues=QUEUES, ttl_ms=ttl_ms or 0)
        self._model.make_topic(topic, ttl_ms)

    def _age_of_some(self, topic: str) -> int:
        """A time to live by which the cut falls beside a message, or right onto it."""
        messages = self._model.topics[topic].messages
        age_ms = self._model.now_ms - self._chance.choice(messages).store_ms if messages else 0
        return max(1, age_ms + self._chance.choice((-1, 0, 1)))

    async def _ask_for_ttl(self, topic: str, ttl_ms: int | None) -> None:
        """By one of the ways that there are."""
        connection, chance = self.broker.connection, self._chance
        way = chance.randrange(3)
        if way == 0 or (ttl_ms is None and way == 1):
            await wire.set_ttl(connection, topic, ttl_ms or 0)
            return
        text = f"+thermocline.ttl.ms={ttl_ms or 0}"
        if way == 1:
            text = f"+reserve.time={duration_text(ttl_ms or 0)}"
        header = CreateTopicRequestHeader(topic=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES, attributes=text)
        await wire.ask(connection, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    # -- checks --------------------------------------------------------------------------------------------------------

    async def _check_bounds(self) -> None:
        connection, model = self.broker.connection, self._model
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                place = f"{topic}/{queue_id}"
                assert await wire.max_offset(connection, topic, queue_id) == model.end(topic, queue_id), place
                assert await wire.min_offset(connection, topic, queue_id) == model.minimum(topic, queue_id), place

    async def _check_something(self) -> None:
        topic, queue_id = self._chance.choice(TOPICS), self._chance.randrange(QUEUES)
        await self._chance.choice((self._check_offsets, self._check_times))(topic, queue_id)
        await self._check_key(topic, self._chance.choice(KEYS_SENT))

    async def _check_everything(self) -> None:
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                await self._check_offsets(topic, queue_id)
                await self._check_times(topic, queue_id)
            for key in KEYS_SENT:
                await self._check_key(topic, key)
        await self._check_views()

    async def _check_offsets(self, topic: str, queue_id: int) -> None:
        """What a consumer gets that begins anywhere, expired or not, and goes where it is sent."""
        connection, model = self.broker.connection, self._model
        end = model.end(topic, queue_id)
        start = offset = self._chance.choice((0, self._chance.randint(0, end)))
        records: list[MessageRecord] = []
        while offset < end:
            pulled = await wire.pull(connection, topic, queue_id, offset, count=self._chance.choice((1, 32)))
            what = f"{topic}/{queue_id}/{offset} of {end}: code {pulled.code}"
            assert pulled.code in (
                ResponseCode.SUCCESS,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                ResponseCode.PULL_OFFSET_MOVED,
            ), what
            assert pulled.next_offset > offset, what
            records += pulled.records
            offset = pulled.next_offset
        expected = [each for each in model.visible(topic, queue_id) if each.queue_offset >= start]
        self._check_same(records, expected)
        self._witness["read"] += len(records)
        self._witness["not read"] += end - start - len(records)

    async def _check_times(self, topic: str, queue_id: int) -> None:
        connection, model, chance = self.broker.connection, self._model, self._chance
        place = f"{topic}/{queue_id}"
        visible = model.visible(topic, queue_id)
        earliest_ms = visible[0].store_ms if visible else -1
        assert await wire.earliest_time_ms(connection, topic, queue_id) == earliest_ms, place
        stored = sorted({each.store_ms for each in model.queue(topic, queue_id)})
        for time_ms in (model.now_ms, *chance.sample(stored, min(SAMPLES, len(stored)))):
            asked_ms = time_ms + chance.choice((-1, 0, 1))
            lower = await wire.offset_by_time(connection, topic, queue_id, asked_ms, "lower")
            assert lower == model.first_at_or_after(topic, queue_id, asked_ms), (place, asked_ms)
            upper = await wire.offset_by_time(connection, topic, queue_id, asked_ms, "upper")
            assert upper == model.last_at_or_before(topic, queue_id, asked_ms), (place, asked_ms)

    async def _check_key(self, topic: str, key: str) -> None:
        found = await wire.query_key(self.broker.connection, topic, key)
        self._check_same(found, self._model.with_key(topic, key)[:64])

    async def _check_views(self) -> None:
        connection, model = self.broker.connection, self._model
        visible = [each for topic in model.topics.values() for each in topic.messages if not each.has_expired]
        for message in self._chance.sample(visible, min(SAMPLES, len(visible))):
            self._check_same([await wire.view(connection, message.physical_offset)], [message])
        hidden = model.hidden()
        for message in self._chance.sample(hidden, min(SAMPLES, len(hidden))):
            with pytest.raises(wire.Refused):
                await wire.view(connection, message.physical_offset)

    def _check_same(self, records: list[MessageRecord], expected: list[Message]) -> None:
        found = [(record.queue_id, record.queue_offset, record.body, record.keys) for record in records]
        assert found == [(each.queue_id, each.queue_offset, each.body, each.key) for each in expected]
        assert [record.store_timestamp_ms for record in records] == [each.store_ms for each in expected]
        assert [record.physical_offset for record in records] == [each.physical_offset for each in expected]

    def _check_spark(self) -> None:
        """Everything is committed. What Spark's driver plans and its workers read, in this process."""
        url = f"memory://{self.broker.cold_name}"
        for topic in TOPICS:
            rows = spark_rows(url, topic, now_ms=self._model.now_ms)
            check_rows(rows, self._model, topic)
            self._witness["rows"] += len(rows)

    async def _check_bucket(self) -> None:
        """When the grace period is over, nothing is in the bucket that no readable version names."""
        broker = self.broker
        await self._restart_tier()
        for _ in range(COLLECTING_ROUNDS_MAX):
            await self._collect()
            await self._seal()
            there, named = await listed_keys(broker.objects), await named_keys(broker.objects)
            if there == named and not (await newest(broker.objects)).removed:
                break
        else:
            raise AssertionError(f"too much: {sorted(there - named)}, missing: {sorted(named - there)}")
        self._witness["objects in the end"] += len(await listed_keys(broker.objects, KEYS.topics_prefix))


def as_stored(message: Message) -> bytes:
    """A message's body as it stands in its record, between its length and its topic, like no other."""
    size, topic = len(message.body).to_bytes(4, "big"), message.topic.encode()
    return size + message.body + bytes([len(topic)]) + topic


def span(part: QueueRun | QueueRange) -> range:
    """Its offsets."""
    return range(part.start_offset, part.end_offset)


def spark_rows(url: str, topic: str, *, now_ms: int) -> list[dict[str, Any]]:
    """All rows, task by task; none of a topic of which nothing was ever committed."""
    options = read_options_from(spark_options(url, topic, now_ms=now_ms))
    try:
        plan = resolve_plan(options, now_ms=now_ms)
    except TopicNotFoundError:
        return []
    return [row for task in plan.tasks for batch in FrameReader(options).read(task) for row in batch.to_pylist()]


def spark_options(url: str, topic: str, *, now_ms: int) -> dict[str, str]:
    """A read of one topic at a moment."""
    return {"path": url, "topic": topic, "columns": SPARK_COLUMNS, "snapshotTimestamp": str(now_ms)}


def check_rows(rows: list[dict[str, Any]], model: TtlModel, topic: str) -> None:
    """Rows are the visible messages of a topic, each once."""
    found = sorted((row["queueId"], row["queueOffset"], bytes(row["value"]), row["key"]) for row in rows)
    visible = (each for queue_id in range(QUEUES) for each in model.visible(topic, queue_id))
    assert found == [(each.queue_id, each.queue_offset, each.body, each.key) for each in visible], topic
