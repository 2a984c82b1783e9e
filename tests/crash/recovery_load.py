"""Load for recovery tests: remembers every offset that was ever assigned, over all runs of the broker.

Keyed messages to the queues of two topics, one of them with a time to live; topics of all shapes; groups that follow,
each at its own distance. Each message is read as soon as it is acknowledged: what the bucket says is committed must
come back byte for byte, by offset, by key, by time and by place; no offset of a queue, nor place in the log, may ever
be given out again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.crash.bucket import KEYS, newest
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.headers.broker import CreateTopicRequestHeader
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.objects.parallel import run_all
from thermocline.tiered.state.newest_state import read_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, StateSnapshot
from thermocline.tiered.state.snapshot import TOPICS as TOPIC_CONFIGS

ORDERS, FLEETING = "RecoveryOrders", "RecoveryFleeting"
TOPICS = (ORDERS, FLEETING)
QUEUES = 3
GROUPS = {"recovery-group": 1, "recovery-slow": 7, "recovery-once": 1_000_000}
"""Group -> how many messages behind the newest of a queue it commits; a larger lag than the queue commits the first."""
TTL_MS = 3_600_000
SHAPES = (
    CreateTopicRequestHeader(
        topic="RecoveryReadOnly", read_queue_nums=5, write_queue_nums=2, perm=4, attributes="+message.type=FIFO"
    ),
    CreateTopicRequestHeader(topic="RecoveryOrdered", read_queue_nums=1, write_queue_nums=1, perm=6, order=True),
    CreateTopicRequestHeader(
        topic="RecoveryDelayed",
        read_queue_nums=3,
        write_queue_nums=4,
        perm=2,
        topic_filter_type="MULTI_TAG",
        topic_sys_flag=1,
        attributes=f"+message.type=DELAY,+thermocline.ttl.ms={2 * TTL_MS + 1}",
    ),
)
"""Topics without messages."""
PAUSE_S = 0.003

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One acknowledged message."""

    body: bytes
    key: str
    physical_offset: int
    record: bytes | None = None
    """As it was read when it was acknowledged; None when the broker was gone before."""


@dataclass(slots=True)
class RecoveryLoad:
    """See the module's header. `start` and `stop` around each life of the broker."""

    broker: BrokerProcess
    seed: int
    sent: dict[Place, Sent] = field(default_factory=dict)
    lives_count: int = 0
    """How often it was started, and at most how often it was cut off between a message and its reading."""
    _places: set[int] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None
    _count: int = 0

    async def prepare(self) -> None:
        """Topics and group, once."""
        connection = await ClientConnection.open(self.broker.address)
        await wire.make_topic(connection, ORDERS, queues=QUEUES)
        await wire.make_topic(connection, FLEETING, queues=QUEUES, ttl_ms=TTL_MS)
        for shape in SHAPES:
            await wire.ask(connection, RequestCode.UPDATE_AND_CREATE_TOPIC, shape)
        for group in GROUPS:
            await wire.make_group(connection, group)
        connection.close()

    def start(self) -> None:
        """Send until `stop`, or until the broker is gone."""
        self.lives_count += 1
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
        """Send one, read it, and let the groups consume what was sent before it."""
        self._count += 1
        body, key = f"{self._count}/".encode().ljust(size, b"."), f"key{self._count}"
        answer = await wire.send(connection, topic, queue_id, body, properties=f"KEYS\x01{key}\x02")
        place = topic, queue_id, answer.queue_offset
        assert place not in self.sent, f"an offset was given out twice: {place}"
        assert answer.physical_offsets[0] not in self._places, "a place in the log was given out twice"
        self._places.add(answer.physical_offsets[0])
        sent = self.sent[place] = Sent(body, key, answer.physical_offsets[0])
        pulled = await wire.pull(connection, topic, queue_id, answer.queue_offset, count=1)
        (record,) = pulled.records
        assert (record.queue_offset, record.body, record.keys) == (answer.queue_offset, body, key)
        self.sent[place] = replace(sent, record=pulled.body)
        if self._count % 5 == 0:
            for group, distance in GROUPS.items():
                offset = max(answer.queue_offset + 1 - distance, 0)
                await wire.commit_offset(connection, group, topic, queue_id, offset)


@dataclass(frozen=True, slots=True)
class Remains:
    """What a lost broker left in its bucket."""

    state: StateSnapshot
    catalog: Catalog
    spans: dict[tuple[str, int], list[tuple[int, int]]]
    """Topic, queue id -> every range of offsets that segments and packs hold."""

    @classmethod
    async def read(cls, bucket: ObjectStore) -> Remains:
        """Read the newest state snapshot and catalog of the bucket."""
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

    def group_offsets(self) -> dict[tuple[str, str, int], int]:
        """Where the groups stood in each queue, by the snapshot."""
        table = self.state.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {})
        return {
            (group, topic, int(queue_id)): offset
            for group in GROUPS
            for topic in TOPICS
            for queue_id, offset in table.get(f"{topic}@{group}", {}).items()
        }

    def topic_configs(self) -> dict[str, dict[str, Any]]:
        """Every topic's configuration, by the snapshot."""
        configs: dict[str, dict[str, Any]] = self.state.documents[TOPIC_CONFIGS]["topicConfigTable"]
        return configs

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
    """All committed messages exist, and topics and offsets equal the snapshot; run before any client changes them."""
    offsets = remains.group_offsets()
    assert {group for group, _, _ in offsets} == GROUPS.keys()
    for (group, topic, queue_id), offset in offsets.items():
        assert await wire.consumer_offset(connection, group, topic, queue_id) == offset
    await _check_topics(connection, remains.topic_configs())
    status = await wire.tier_status(connection)
    ttls = {topic["topic"]: topic.get("ttlMs") for topic in status["topics"]}
    assert ttls[FLEETING] == TTL_MS
    assert not ttls[ORDERS]
    await check_messages(connection, load, remains)


async def _check_topics(connection: ClientConnection, saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Every topic's whole configuration is the snapshot's, and there is none that it has not."""
    for shape in SHAPES:
        config = saved[shape.topic]
        assert (config["readQueueNums"], config["writeQueueNums"]) == (shape.read_queue_nums, shape.write_queue_nums)
        assert (config["perm"], config["order"]) == (shape.perm, shape.order)
        wanted = dict(part.removeprefix("+").split("=") for part in (shape.attributes or "").split(",") if part)
        assert wanted.items() <= (config.get("attributes") or {}).items(), f"{shape.topic}: {config}"
    response = await wire.ask(connection, RequestCode.GET_ALL_TOPIC_CONFIG)
    recovered = json.loads(bytes(response.body))["topicConfigTable"]
    assert recovered.keys() == saved.keys()
    for name, config in saved.items():
        assert recovered[name] == config, name


async def check_messages(connection: ClientConnection, load: RecoveryLoad, remains: Remains) -> None:
    """Everything committed is there, byte for byte, by offset, key, time and place, and nothing that was not sent."""
    committed = {place: sent for place, sent in load.sent.items() if remains.is_committed(place)}
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            encoded = await read_encoded(connection, topic, queue_id)
            missing = {place for place in committed if place[:2] == (topic, queue_id) and place[2] not in encoded}
            assert not missing, f"{topic}/{queue_id}: {sorted(missing)}"
            for offset, record in encoded.items():
                sent = load.sent.get((topic, queue_id, offset))
                if sent is not None:
                    _check_record(record, sent, f"{topic}/{queue_id}/{offset}")
            await _check_by_time(connection, topic, queue_id, encoded)
    assert sum(sent.record is not None for sent in committed.values()) >= len(committed) - load.lives_count

    async def check_lookups(place: Place, sent: Sent) -> None:
        by_key = await wire.patiently(lambda: wire.query_key_body(connection, place[0], sent.key))
        _check_record(by_key, sent, f"{place} by key {sent.key}")
        viewed = await wire.patiently(lambda: wire.view_body(connection, sent.physical_offset))
        _check_record(viewed, sent, f"{place} by its place {sent.physical_offset}")

    await run_all(check_lookups(place, sent) for place, sent in committed.items())


def _check_record(found: bytes, sent: Sent, where: str) -> None:
    """One encoded record, that of the message."""
    (record,) = iterate_records(found)
    assert (record.body, record.keys, record.physical_offset) == (sent.body, sent.key, sent.physical_offset), where
    assert sent.record in (None, found), where


async def read_encoded(connection: ClientConnection, topic: str, queue_id: int) -> dict[int, bytes]:
    """Read a queue from its first offset to its end, as an official consumer does: no answer moves its offset.

    Returns queue offset -> encoded record.
    """
    end = await wire.max_offset(connection, topic, queue_id)
    encoded: dict[int, bytes] = {}
    offset = 0
    async with asyncio.timeout(wire.PATIENCE_S):
        while offset < end:
            pulled = await wire.pull(connection, topic, queue_id, offset)
            assert pulled.code in (ResponseCode.SUCCESS, *wire.TRY_AGAIN), f"{topic}/{queue_id}/{offset}: {pulled.code}"
            position = 0
            for record in pulled.records:
                assert record.queue_offset not in encoded, f"{topic}/{queue_id}/{record.queue_offset} comes twice"
                encoded[record.queue_offset] = pulled.body[position : position + record.size_bytes]
                position += record.size_bytes
            if pulled.next_offset == offset:
                await asyncio.sleep(0.02)
            offset = pulled.next_offset
    return encoded


async def read_across_holes(connection: ClientConnection, topic: str, queue_id: int) -> list[MessageRecord]:
    """The same, decoded, in the order of offsets."""
    encoded = await read_encoded(connection, topic, queue_id)
    assert list(encoded) == sorted(encoded)
    return [record for data in encoded.values() for record in iterate_records(data)]


async def _check_by_time(connection: ClientConnection, topic: str, queue_id: int, encoded: Mapping[int, bytes]) -> None:
    """The lower bound of each record's store time is the first record of that time."""
    first: dict[int, int] = {}
    for data in encoded.values():
        (record,) = iterate_records(data)
        first.setdefault(record.store_timestamp_ms, record.queue_offset)

    async def check(time_ms: int, offset: int) -> None:
        found = await wire.patiently(lambda: wire.offset_by_time(connection, topic, queue_id, time_ms, "lower"))
        assert found == offset, f"{topic}/{queue_id} by time {time_ms}"
        pulled = await wire.patiently(lambda: _pull_one(connection, topic, queue_id, found))
        assert pulled.body == encoded[found], f"{topic}/{queue_id}/{found} by time {time_ms}"

    await run_all(check(time_ms, offset) for time_ms, offset in first.items())


async def _pull_one(connection: ClientConnection, topic: str, queue_id: int, offset: int) -> wire.Pulled:
    pulled = await wire.pull(connection, topic, queue_id, offset, count=1)
    if pulled.code != ResponseCode.SUCCESS:
        raise wire.Refused(pulled.code, pulled.remark)
    return pulled
