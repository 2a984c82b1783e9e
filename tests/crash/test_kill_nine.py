"""`kill -9` of a broker's processes during mixed load: nothing acknowledged is lost, doubled or moved."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess, until
from thermocline.remoting.client import ClientConnection
from thermocline.remoting.errors import UnavailableError

SEED = 20_261_121
QUEUES = 4
TOPICS = ("CrashSmall", "CrashLarge", "CrashKeys")
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "600",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "fileReservedTime": "0",
    "deleteWhen": "",
    "coldSegmentBytes": str(512 << 10),
    "coldFrameBytes": str(64 << 10),
    "coldSealAgeMs": "500",
    "coldAccountIntervalMs": "100",
}

Acknowledgements = dict[tuple[str, int], dict[int, bytes]]


class MixedLoad:
    """Producers that remember what was acknowledged; they reconnect for ever, until `stop`."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        self._count = 0
        self.acknowledged: Acknowledgements = defaultdict(dict)

    def start(self, producers: int) -> None:
        """Start producers, one connection each."""
        self._tasks = [asyncio.create_task(self._produce(number)) for number in range(producers)]

    async def stop(self) -> None:
        """Stop them all; what was not answered by now was not acknowledged."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def acknowledged_count(self) -> int:
        """Messages acknowledged so far."""
        return sum(map(len, self.acknowledged.values()))

    async def _produce(self, number: int) -> None:
        while True:
            with contextlib.suppress(UnavailableError, OSError):
                connection = await ClientConnection.open(self._broker.address)
                try:
                    while True:
                        await self._send_one(connection, number)
                finally:
                    connection.close()
            await asyncio.sleep(0.02)

    async def _send_one(self, connection: ClientConnection, number: int) -> None:
        self._count += 1
        topic = self._random.choice(TOPICS)
        queue_id = self._random.randrange(QUEUES)
        size = self._random.randrange(2_000, 60_000) if topic == "CrashLarge" else self._random.randrange(1, 200)
        body = f"{number}/{self._count}/".encode().ljust(size, b".")
        properties = f"KEYS\x01k{self._count}\x02TAGS\x01t{self._count % 3}\x02" if topic == "CrashKeys" else ""
        answer = await wire.send(connection, topic, queue_id, body, properties=properties)
        if answer is None:
            return
        offsets = self.acknowledged[answer.topic, answer.queue_id]
        assert answer.queue_offset not in offsets, f"offset given twice: {answer}"
        offsets[answer.queue_offset] = body


async def check_everything(broker: BrokerProcess, acknowledged: Acknowledgements) -> None:
    """Read every queue from its start: each acknowledged message exactly once, at its offset, with its body."""
    connection = await ClientConnection.open(broker.address)
    try:
        for (topic, queue_id), bodies in acknowledged.items():
            end = await wire.max_offset(connection, topic, queue_id)
            assert end > max(bodies), f"{topic}/{queue_id} ends at {end}, acknowledged up to {max(bodies)}"
            records = await wire.read_queue(connection, topic, queue_id, start=0, end=end)
            assert [record.queue_offset for record in records] == list(range(end)), f"{topic}/{queue_id}"
            for offset, body in bodies.items():
                assert records[offset].body == body, f"{topic}/{queue_id}/{offset}"
    finally:
        connection.close()


@pytest.mark.crash
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_kills_lose_nothing_acknowledged(tmp_path: Path, case_count: Callable[..., int], flush: str) -> None:
    kills = case_count(quick=6, soak=100)
    chance = random.Random(f"{SEED}/{flush}")
    cold = f"file://{tmp_path}/cold"
    broker = BrokerProcess(tmp_path / "broker", {**SMALL_FILES, "flushDiskType": flush, "coldUrl": cold})
    await broker.start()
    load = MixedLoad(broker, SEED)
    load.start(6)
    try:
        for number in range(kills):
            wanted = load.acknowledged_count + chance.randrange(50, 600)
            await until(lambda wanted=wanted: load.acknowledged_count >= wanted)
            victim = chance.choice(("hot", "index", "tier", "all"))
            if victim in ("index", "tier"):
                broker.kill_helper(victim)
                continue
            await broker.kill()
            await broker.start()
            assert broker.start_seconds < 20, f"kill {number}: serving after {broker.start_seconds:.1f} s"
        await load.stop()
        assert await broker.stop() == 0
        await broker.start()
        await check_everything(broker, load.acknowledged)
    finally:
        await load.stop()
        if broker.is_running:
            await broker.kill()
