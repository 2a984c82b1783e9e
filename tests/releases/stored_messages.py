"""Messages that every later life of a broker must have, at the same offsets and byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.crash import wire
from tests.crash.recovery_load import read_encoded
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.records.message_record import MessageRecord, iterate_records

PLAIN, KEPT, FLEETING, AGAIN = "ReleasePlain", "ReleaseKept", "ReleaseFleeting", "ReleaseAgain"
EXTENDED = "ReleaseExtended"
"""Its first messages expired before its time to live was extended."""
QUEUES = {PLAIN: 3, KEPT: 1, FLEETING: 1, AGAIN: 2, EXTENDED: 1}
TTLS_MS = {KEPT: 3_600_000, FLEETING: 2_000, EXTENDED: 3_600_000}
DELETED_KEY = "deleted"
GROUP = "release-group"
SENT, BODY_BYTES = 90, 1_500
LOOKUPS = 25
"""Messages that each life finds by key, by time and by place."""

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(slots=True)
class StoredMessages:
    """Everything that was acknowledged, over all starts of the broker."""

    random: Random
    records: dict[Place, bytes] = field(default_factory=dict)
    """As they were read in the life that they were sent in; without those of `FLEETING`."""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    group_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    async def prepare(self, connection: ClientConnection) -> None:
        """Make the topics and the group, once; one topic is deleted and made again."""
        for topic, queues in QUEUES.items():
            await wire.make_topic(connection, topic, queues=queues, ttl_ms=TTLS_MS.get(topic))
        await wire.make_group(connection, GROUP)
        for number in range(5):
            await wire.send(connection, AGAIN, number % 2, b"deleted", properties=f"KEYS\x01{DELETED_KEY}\x02")
        await wire.delete_topic(connection, AGAIN)
        await wire.make_topic(connection, AGAIN, queues=QUEUES[AGAIN])
        await wire.set_ttl(connection, EXTENDED, TTLS_MS[FLEETING])
        for _ in range(3):
            await wire.send(connection, EXTENDED, 0, b"expired")
        await _until_all_expired(connection, EXTENDED, 3)
        await wire.set_ttl(connection, EXTENDED, TTLS_MS[EXTENDED])

    async def leave(self, connection: ClientConnection, life: int) -> None:
        """Send messages of each kind, read them, and move the group."""
        for number in range(SENT):
            topic = self.random.choice(list(QUEUES))
            properties = f"KEYS\x01k{life}-{number} all\x02TAGS\x01{'AB'[number % 2]}\x02"
            body = b"%d/%d " % (life, number) + self.random.randbytes(self.random.randrange(BODY_BYTES))
            await wire.send(connection, topic, self.random.randrange(QUEUES[topic]), body, properties=properties)
        await wire.send_batch(connection, PLAIN, 0, [(b"batch %d" % number, "") for number in range(5)])
        for topic, queues in QUEUES.items():
            for queue_id in range(queues):
                end = await wire.max_offset(connection, topic, queue_id)
                assert end > self.ends.get((topic, queue_id), 0)
                self.ends[topic, queue_id] = end
                if topic == FLEETING:
                    continue
                for offset, record in (await read_encoded(connection, topic, queue_id)).items():
                    assert self.records.setdefault((topic, queue_id, offset), record) == record
                self.group_offsets[topic, queue_id] = end - 1
                await wire.commit_offset(connection, GROUP, topic, queue_id, end - 1)

    async def check(self, connection: ClientConnection) -> None:
        """Every message is there once; what is found by key, time and place is the same; groups are where they were."""
        for (topic, queue_id), end in self.ends.items():
            assert await wire.max_offset(connection, topic, queue_id) == end, (topic, queue_id)
            expected = {place[2]: record for place, record in self.records.items() if place[:2] == (topic, queue_id)}
            if topic == FLEETING:
                await self._check_expired(connection, queue_id, end)
                continue
            assert await read_encoded(connection, topic, queue_id) == expected, (topic, queue_id)
            assert await wire.min_offset(connection, topic, queue_id) == min(expected), (topic, queue_id)
            assert await wire.consumer_offset(connection, GROUP, topic, queue_id) == self.group_offsets[topic, queue_id]
        assert await wire.patiently(lambda: wire.query_key_body(connection, AGAIN, DELETED_KEY)) == b""
        status = {
            topic["topic"]: topic.get("ttlMs") or None for topic in (await wire.tier_status(connection))["topics"]
        }
        assert {topic: status[topic] for topic in QUEUES} == {topic: TTLS_MS.get(topic) for topic in QUEUES}
        places = sorted(self.records)
        for place in self.random.sample(places, LOOKUPS):
            await self._check_lookups(connection, place)

    async def _check_expired(self, connection: ClientConnection, queue_id: int, end: int) -> None:
        await _until_all_expired(connection, FLEETING, end)
        assert await read_encoded(connection, FLEETING, queue_id) == {}

    async def _check_lookups(self, connection: ClientConnection, place: Place) -> None:
        topic, queue_id, _ = place
        (record,) = iterate_records(self.records[place])
        viewed = await wire.patiently(lambda: wire.view_body(connection, record.physical_offset))
        assert viewed == self.records[place], place
        if record.keys is not None:
            key = record.keys.split()[0]
            assert await wire.patiently(lambda: wire.query_key_body(connection, topic, key)) == self.records[place]
        first = min(
            each[2]
            for each, found in self.records.items()
            if each[:2] == (topic, queue_id) and _decoded(found).store_timestamp_ms == record.store_timestamp_ms
        )
        found = await wire.patiently(
            lambda: wire.offset_by_time(connection, topic, queue_id, record.store_timestamp_ms, "lower")
        )
        assert found == first, f"{place} by time"


async def _until_all_expired(connection: ClientConnection, topic: str, end: int) -> None:
    async def is_empty() -> bool:
        return await wire.min_offset(connection, topic, 0) == end

    await wire.until_true(is_empty)


def _decoded(encoded: bytes) -> MessageRecord:
    (record,) = iterate_records(encoded)
    return record
