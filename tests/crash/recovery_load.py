"""Load for recovery tests: remembers every offset that was ever given out, over all lives of the broker.

Keyed messages to the queues of two topics, one of them with a time to live; a group that follows. What the bucket says
is committed must come back as it was sent; no offset of a queue, nor place in the log, may ever be given out again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.crash.bucket import KEYS, newest
from thermocline.remoting.client import ClientConnection
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.message_record import MessageRecord
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.packs.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, StateSnapshot
from thermocline.tiered.state.state_reader import read_newest

ORDERS, FLEETING = "RecoveryOrders", "RecoveryFleeting"
TOPICS = (ORDERS, FLEETING)
QUEUES = 3
GROUP = "recovery-group"
TTL_MS = 3_600_000
SAMPLES = 6
PAUSE_S = 0.003

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One acknowledged message."""

    body: bytes
    key: str
    physical_offset: int


@dataclass(slots=True)
class RecoveryLoad:
    """See the module's header. `start` and `stop` around each life of the broker."""

    broker: BrokerProcess
    seed: int
    sent: dict[Place, Sent] = field(default_factory=dict)
    _places: set[int] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None
    _count: int = 0

    async def prepare(self) -> None:
        """Topics and group, once."""
        connection = await ClientConnection.open(self.broker.address)
        await wire.make_topic(connection, ORDERS, queues=QUEUES)
        await wire.make_topic(connection, FLEETING, queues=QUEUES, ttl_ms=TTL_MS)
        await wire.make_group(connection, GROUP)
        connection.close()

    def start(self) -> None:
        """Send until `stop`, or until the broker is gone."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Raises what the load failed with, but for the broker's death."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def reach(self, count: int) -> None:
        """Wait until so many messages more were acknowledged."""
        wanted = len(self.sent) + count
        async with asyncio.timeout(wire.PATIENCE_S):
            while len(self.sent) < wanted:
                assert self._task is not None
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.005)

    async def _run(self) -> None:
        with contextlib.suppress(UnavailableError, OSError):
            connection = await ClientConnection.open(self.broker.address)
            chance = random.Random(f"{self.seed}/{self._count}")
            while True:
                await self.send(connection, chance.choice(TOPICS), chance.randrange(QUEUES), chance.randrange(1, 400))
                await asyncio.sleep(PAUSE_S)

    async def send(self, connection: ClientConnection, topic: str, queue_id: int, size: int) -> None:
        """Send one, and let the group consume what was sent before it."""
        self._count += 1
        body, key = f"{self._count}/".encode().ljust(size, b"."), f"key{self._count}"
        answer = await wire.send(connection, topic, queue_id, body, properties=f"KEYS\x01{key}\x02")
        place = topic, queue_id, answer.queue_offset
        assert place not in self.sent, f"an offset was given out twice: {place}"
        assert answer.physical_offsets[0] not in self._places, "a place in the log was given out twice"
        self._places.add(answer.physical_offsets[0])
        self.sent[place] = Sent(body, key, answer.physical_offsets[0])
        if self._count % 5 == 0:
            await wire.commit_offset(connection, GROUP, topic, queue_id, answer.queue_offset)


@dataclass(frozen=True, slots=True)
class Remains:
    """What a lost broker left in its bucket."""

    state: StateSnapshot
    catalog: Catalog
    spans: dict[tuple[str, int], list[tuple[int, int]]]
    """Topic, queue id -> every range of offsets that segments and packs hold."""

    @classmethod
    async def look(cls, bucket: ObjectStore) -> Remains:
        """Read it."""
        state = await read_newest(bucket, KEYS)
        assert state is not None
        catalog = await newest(bucket)
        spans: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for topic in TOPICS:
            entry = await with_pieces(PackPieces(bucket), catalog, topic)
            for segment in entry.segments if entry is not None else ():
                for run in segment.runs:
                    spans.setdefault((topic, run.queue_id), []).append((run.start_offset, run.end_offset))
        return cls(state, catalog, spans)

    def is_committed(self, place: Place) -> bool:
        """Whether a segment or a pack holds the message."""
        topic, queue_id, offset = place
        return any(start <= offset < end for start, end in self.spans.get((topic, queue_id), ()))

    def group_offsets(self) -> dict[tuple[str, int], int]:
        """Where the group stood in each queue, by the snapshot."""
        table = self.state.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {})
        return {
            (topic, int(queue_id)): offset
            for topic in TOPICS
            for queue_id, offset in table.get(f"{topic}@{GROUP}", {}).items()
        }

    def lost(self, topic: str) -> int:
        """How many messages the snapshot counted that no segment or pack holds, nor a hole declared before."""
        entry = self.catalog.topics.get(topic)
        cold = {
            queue_id: max(end for _, end in spans) for (name, queue_id), spans in self.spans.items() if name == topic
        }
        for hole in entry.holes if entry is not None else ():
            cold[hole.queue_id] = max(hole.end_offset, cold.get(hole.queue_id, 0))
        state = next(state for state in self.state.topics if state.topic == topic)
        return sum(max(0, end.end_offset - cold.get(end.queue_id, 0)) for end in state.ends)


async def check_recovered(connection: ClientConnection, load: RecoveryLoad, remains: Remains) -> None:
    """Everything committed is there, and topics and offsets are the snapshot's; before anybody has changed them."""
    for (topic, queue_id), offset in remains.group_offsets().items():
        assert await wire.consumer_offset(connection, GROUP, topic, queue_id) == offset
    status = await wire.tier_status(connection)
    ttls = {topic["topic"]: topic.get("ttlMs") for topic in status["topics"]}
    assert ttls[FLEETING] == TTL_MS
    assert not ttls[ORDERS]
    await check_messages(connection, load, remains)


async def check_messages(connection: ClientConnection, load: RecoveryLoad, remains: Remains) -> None:
    """Everything committed is there by offset, by key, by time and by place, and nothing that was not sent."""
    committed = {place: sent for place, sent in load.sent.items() if remains.is_committed(place)}
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            records = await read_across_holes(connection, topic, queue_id)
            found = {record.queue_offset: record.body for record in records}
            for (known_topic, known_queue, offset), sent in committed.items():
                if (known_topic, known_queue) == (topic, queue_id):
                    assert found[offset] == sent.body, f"{topic}/{queue_id}/{offset}"
            for offset, body in found.items():
                known = load.sent.get((topic, queue_id, offset))
                assert known is None or known.body == body
            await _check_by_time(connection, topic, queue_id, records)
    chance = random.Random(load.seed)
    for place in chance.sample(sorted(committed), min(SAMPLES, len(committed))):
        sent = committed[place]
        by_key = await wire.patiently(lambda key=sent.key, topic=place[0]: wire.query_key(connection, topic, key))
        assert [record.body for record in by_key] == [sent.body]
        viewed = await wire.patiently(lambda offset=sent.physical_offset: wire.view(connection, offset))
        assert viewed.body == sent.body


async def read_across_holes(connection: ClientConnection, topic: str, queue_id: int) -> list[MessageRecord]:
    """A queue from its first offset to its end, as an official consumer reads it: it is never told to move."""
    end = await wire.max_offset(connection, topic, queue_id)
    records: list[MessageRecord] = []
    offset = 0
    async with asyncio.timeout(wire.PATIENCE_S):
        while offset < end:
            pulled = await wire.pull(connection, topic, queue_id, offset)
            assert pulled.code in (ResponseCode.SUCCESS, *wire.TRY_AGAIN), f"{topic}/{queue_id}/{offset}: {pulled.code}"
            records += pulled.records
            if pulled.next_offset == offset:
                await asyncio.sleep(0.02)
            offset = pulled.next_offset
    return records


async def _check_by_time(connection: ClientConnection, topic: str, queue_id: int, records: list[MessageRecord]) -> None:
    """The lower bound of a record's store time is the first record of that time."""
    for record in records[:: max(1, len(records) // 3)]:
        first = next(each for each in records if each.store_timestamp_ms >= record.store_timestamp_ms)
        found = await wire.patiently(
            lambda time_ms=record.store_timestamp_ms: wire.offset_by_time(connection, topic, queue_id, time_ms, "lower")
        )
        assert found == first.queue_offset
