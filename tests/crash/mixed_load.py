"""Mixed load for crash tests: producers that remember what was acknowledged, and the check of all of it afterwards.

    small, large, keyed messages one by one, batches, delayed ones; on the side a topic that is deleted and made again

Promises that are checked: each acknowledged (queue, offset) is served exactly once with its body, in order, without a
gap between the queue's first offset and its end, and found by its key; a delayed message at least once; a topic that
was created again shows no message of its earlier incarnations, nor do the offsets of its groups.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.crash.repeated_steps import repeat
from thermocline.remoting.clients.client import ClientConnection

QUEUES = 4
SMALL, LARGE, KEYED, BATCHED, DELAYED, REMADE = (
    "CrashSmall",
    "CrashLarge",
    "CrashKeys",
    "CrashBatch",
    "CrashDelayed",
    "CrashRemade",
)
TOPICS = (SMALL, LARGE, KEYED, BATCHED)
DELAY = "DELAY\x011\x02"
DELAYED_DEADLINE_S = wire.PATIENCE_S
LIFE_MESSAGES = 20
GROUP = "crash-group"
KEYS_CHECKED = 40

Acknowledgements = dict[tuple[str, int], dict[int, bytes]]


class MixedLoad:
    """Tasks that reconnect for ever, until `stop`. A send without an answer may have been stored or not."""

    def __init__(
        self, broker: BrokerProcess, seed: int | str, *, large_bytes_max: int = 60_000, pause_s: float = 0
    ) -> None:
        """`pause_s`: between two sends of a producer."""
        self._broker = broker
        self._random = random.Random(seed)
        self._large_bytes_max = large_bytes_max
        self._pause_s = pause_s
        self._tasks: list[asyncio.Task[None]] = []
        self._count = 0
        self.acknowledged: Acknowledgements = defaultdict(dict)
        self.delayed: set[bytes] = set()
        self.keyed: dict[str, bytes] = {}
        self.life = 0
        """Which life of the topic that is made again its acknowledged messages are of."""

    async def start(self, producers: int) -> None:
        """Make topics and group, then start: one connection each."""
        connection = await ClientConnection.open(self._broker.address)
        for topic in (*TOPICS, DELAYED):
            await wire.make_topic(connection, topic, queues=QUEUES)
        await wire.make_group(connection, GROUP)
        connection.close()
        self._tasks = [
            *(asyncio.create_task(repeat(self._broker, self._send_some, pause_s=0.0)) for _ in range(producers)),
            asyncio.create_task(repeat(self._broker, self._live_once, pause_s=0.0)),
        ]

    async def stop(self) -> None:
        """Stop them all; what was not answered by now was not acknowledged. Raises what a task failed with."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    @property
    def acknowledged_count(self) -> int:
        """Messages acknowledged so far; raises what a task failed with."""
        for task in self._tasks:
            if task.done():
                task.result()
        return sum(map(len, self.acknowledged.values())) + len(self.delayed)

    def _body(self, size: int) -> bytes:
        self._count += 1
        return f"{self._count}/".encode().ljust(size, b".")

    async def _send_some(self, connection: ClientConnection) -> None:
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
        chance = self._random
        topic, queue_id = chance.choice((*TOPICS, DELAYED)), chance.randrange(QUEUES)
        if topic == BATCHED:
            messages = [(self._body(chance.randrange(1, 500)), "TAGS\x01b\x02") for _ in range(chance.randrange(1, 20))]
            answer = await wire.send_batch(connection, topic, queue_id, messages)
            for index, (body, _) in enumerate(messages):
                self._acknowledge(topic, queue_id, answer.queue_offset + index, body)
            return
        large_bytes = chance.randrange(self._large_bytes_max // 30, self._large_bytes_max)
        body = self._body(large_bytes if topic == LARGE else chance.randrange(1, 200))
        if topic == DELAYED:
            await wire.send(connection, topic, queue_id, body, properties=DELAY)
            self.delayed.add(body)
            return
        key = f"k{self._count}"
        properties = f"KEYS\x01{key}\x02TAGS\x01t{self._count % 3}\x02" if topic == KEYED else ""
        answer = await wire.send(connection, topic, queue_id, body, properties=properties)
        self._acknowledge(topic, answer.queue_id, answer.queue_offset, body)
        if topic == KEYED:
            self.keyed[key] = body

    def _acknowledge(self, topic: str, queue_id: int, queue_offset: int, body: bytes) -> None:
        offsets = self.acknowledged[topic, queue_id]
        assert queue_offset not in offsets, f"offset given twice: {topic}/{queue_id}/{queue_offset}"
        offsets[queue_offset] = body

    async def _live_once(self, connection: ClientConnection) -> None:
        """One life of a topic: begins when the end of the one before is sure."""
        for queue_id in range(QUEUES):
            self.acknowledged.pop((REMADE, queue_id), None)  # from here on it may be gone
        await wire.delete_topic(connection, REMADE)
        self.life += 1
        await wire.make_topic(connection, REMADE, queues=QUEUES)
        for queue_id in range(QUEUES):
            offset = await wire.patiently(
                lambda queue_id=queue_id: wire.consumer_offset(connection, GROUP, REMADE, queue_id)
            )
            assert not offset, f"the group begins a new life at {offset}"
        for number in range(self._random.randrange(1, LIFE_MESSAGES)):
            body = f"life {self.life}/{number}".encode()
            answer = await wire.send(connection, REMADE, self._random.randrange(QUEUES), body)
            assert answer.queue_offset <= number, f"a new life begins at {answer.queue_offset}"
            self._acknowledge(REMADE, answer.queue_id, answer.queue_offset, body)
            await wire.commit_offset(connection, GROUP, REMADE, answer.queue_id, answer.queue_offset + 1)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    async def check(self, connection: ClientConnection) -> None:
        """Read every queue from its start to its end."""
        for (topic, queue_id), bodies in sorted(self.acknowledged.items()):
            end = await wire.max_offset(connection, topic, queue_id)
            assert end > max(bodies), f"{topic}/{queue_id} ends at {end}, acknowledged up to {max(bodies)}"
            records = await wire.read_queue(connection, topic, queue_id, start=0, end=end)
            assert [record.queue_offset for record in records] == list(range(end)), f"{topic}/{queue_id}"
            for offset, body in bodies.items():
                assert records[offset].body == body, f"{topic}/{queue_id}/{offset}"
            if topic == REMADE:
                incarnations = {record.body.partition(b"/")[0] for record in records}
                assert incarnations == {f"life {self.life}".encode()}, f"{topic}/{queue_id}"
        for key in self._random.sample(sorted(self.keyed), min(KEYS_CHECKED, len(self.keyed))):
            found = await wire.patiently(lambda key=key: wire.query_key(connection, KEYED, key))
            assert [record.body for record in found] == [self.keyed[key]], key
        await self._check_delayed(connection)

    async def _check_delayed(self, connection: ClientConnection) -> None:
        missing = set(self.delayed)
        read = dict.fromkeys(range(QUEUES), 0)
        async with asyncio.timeout(DELAYED_DEADLINE_S):
            while missing:
                for queue_id, start in read.items():
                    end = await wire.max_offset(connection, DELAYED, queue_id)
                    records = await wire.read_queue(connection, DELAYED, queue_id, start=start, end=end)
                    read[queue_id] = end
                    missing.difference_update(record.body for record in records)
                if missing:
                    await asyncio.sleep(0.1)
