"""`kill -9` of the tier process during seal, upload, commit and delete: no gap, no duplicate, and no garbage for ever.

The tier process is killed as soon as something of one kind has happened in the bucket, or after a moment. Meanwhile
producers send, a topic is deleted and made again, messages of another expire, and a reader reads from anywhere. In the
end everything is read, and when garbage collection has come to rest the bucket's listing is what the ledger's readable
versions name.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.clock import now_ms
from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS, listed_keys, named_keys, newest
from tests.crash.mixed_load import KEYED, QUEUES, SMALL, MixedLoad
from tests.crash.test_kill_nine import check_from_both_tiers, move_to_cold, write_log_files
from tests.fixtures_s3 import new_bucket
from tests.waiting import until
from thermocline.localstack import S3Server
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.object_store_url import open_object_store

SEED = 20_261_122
KILLS_PER_BROKER = 50
FLEETING = "CrashFleeting"
TTL_MS = 2_000
GRACE_MS = 400
MOMENTS = ("seal", "upload", "commit", "checkpoint", "delete", "start")
SETTINGS = {
    **TINY_FILES_GO_AT_ONCE,
    "mappedFileSizeCommitLog": str(128 << 10),
    "coldSegmentBytes": str(64 << 10),
    "coldFrameBytes": str(8 << 10),
    "coldSweepIntervalMs": "200",
    "coldGraceMs": str(GRACE_MS),
}
COLLECTED_TIMEOUT_S = wire.PATIENCE_S
POLL_S = 0.03
MOMENT_TIMEOUT_S = wire.PATIENCE_S


@dataclass(slots=True)
class FleetingLoad:
    """Messages of a topic with a short time to live; remembers when each was sent and acknowledged."""

    broker: BrokerProcess
    bodies: dict[int, bytes] = field(default_factory=dict)
    acknowledged_ms: dict[int, int] = field(default_factory=dict)
    sent_ms: dict[int, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Send until cancelled; the broker itself is not killed."""
        connection = await ClientConnection.open(self.broker.address)
        await wire.make_topic(connection, FLEETING, queues=1, ttl_ms=TTL_MS)
        number = 0
        while True:
            number += 1
            body = f"{number}/".encode().ljust(300, b".")
            sent_ms = now_ms()
            answer = await wire.patiently(functools.partial(wire.send, connection, FLEETING, 0, body))
            self.bodies[answer.queue_offset] = body
            self.sent_ms[answer.queue_offset] = sent_ms
            self.acknowledged_ms[answer.queue_offset] = now_ms()
            await asyncio.sleep(0.01)

    async def check(self, connection: ClientConnection) -> None:
        """What has not expired is there, gapless, and nothing else."""
        before_ms = now_ms()
        start = await minimum_of(connection, FLEETING, 0)
        after_ms = now_ms()
        end = await wire.max_offset(connection, FLEETING, 0)
        assert all(offset >= start for offset, sent_ms in self.sent_ms.items() if sent_ms >= after_ms - TTL_MS)
        assert all(offset < start for offset, time_ms in self.acknowledged_ms.items() if time_ms < before_ms - TTL_MS)
        # It expires while it is read: then the front is missing, and nothing else.
        records = await wire.read_queue(connection, FLEETING, 0, start=start, end=end)
        offsets = [record.queue_offset for record in records]
        assert offsets == list(range(end - len(offsets), end))
        assert list(self.bodies) == list(range(len(self.bodies)))
        assert len(self.bodies) <= end <= len(self.bodies) + 1, "the last one may have got no answer"
        for record in records:
            assert record.body == self.bodies.get(record.queue_offset, record.body)


async def minimum_of(connection: ClientConnection, topic: str, queue_id: int) -> int:
    """A queue's minimum, asked until the tier process is there to say it."""
    return await wire.patiently(lambda: wire.min_offset(connection, topic, queue_id))


async def read_anywhere(broker: BrokerProcess, load: MixedLoad, seed: str) -> None:
    """Read stretches of queues until cancelled, while the tier process comes and goes."""
    chance = random.Random(seed)
    connection = await ClientConnection.open(broker.address)
    while True:
        await asyncio.sleep(POLL_S)
        topic, queue_id = chance.choice((SMALL, KEYED)), chance.randrange(QUEUES)
        offsets = load.acknowledged.get((topic, queue_id))
        if not offsets:
            continue
        known_end = max(offsets) + 1
        start = chance.choice((0, chance.randrange(known_end)))
        end = min(known_end, start + 200)
        records = await wire.read_queue(connection, topic, queue_id, start=start, end=end)
        assert [record.queue_offset for record in records][: end - start] == list(range(start, end))
        for record in records[: end - start]:
            assert offsets.get(record.queue_offset, record.body) == record.body


class Moments:
    """Waits for something to happen in the bucket."""

    def __init__(self, store: ObjectStore, chance: random.Random) -> None:
        self._store = store
        self._chance = chance

    async def wait(self, moment: str) -> None:
        """Return soon after the moment has come."""
        match moment:
            case "seal":
                await asyncio.sleep(self._chance.random() * 0.5)
            case "upload":
                await self._see_new(KEYS.topics_prefix, KEYS.packs_prefix)
            case "commit":
                await self._see_new(KEYS.ledger_prefix)
            case "checkpoint":
                await self._see_new(KEYS.checkpoints_prefix)
            case "delete":
                await self._see_gone(KEYS.ledger_prefix)
        await asyncio.sleep(self._chance.choice((0, 0.01, 0.05, 0.2)) * self._chance.random())

    async def _see_new(self, *prefixes: str) -> None:
        async def listed() -> set[str]:
            return set().union(*[await listed_keys(self._store, prefix) for prefix in prefixes])

        listed_before = await listed()
        async with asyncio.timeout(MOMENT_TIMEOUT_S):
            while not await listed() - listed_before:  # noqa: ASYNC110 - another process
                await asyncio.sleep(POLL_S)

    async def _see_gone(self, prefix: str) -> None:
        seen_keys: set[str] = set()
        async with asyncio.timeout(MOMENT_TIMEOUT_S):
            while not seen_keys - (now := await listed_keys(self._store, prefix)):
                seen_keys |= now
                await asyncio.sleep(POLL_S)


def moments(chance: random.Random) -> Iterator[str]:
    """Each kind as often as the others, in no order."""
    while True:
        yield from chance.sample(MOMENTS, len(MOMENTS))


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[ObjectStore]:
    """A store of the test's own on the same bucket."""
    store = await open_object_store(url)
    try:
        yield store
    finally:
        await store.close()


async def kill_and_check(folder: Path, cold_url: str, *, kills: int, seed: str) -> None:
    """One broker's life."""
    chance = random.Random(seed)
    broker = BrokerProcess(folder, {**SETTINGS, "coldUrl": cold_url})
    await broker.start()
    load = MixedLoad(broker, seed, large_bytes_max=4_000, pause_s=0.02)
    fleeting = FleetingLoad(broker)
    tasks: list[asyncio.Task[None]] = []
    try:
        async with opened(cold_url) as store:
            await load.start(3)
            tasks = [
                asyncio.create_task(fleeting.run()),
                asyncio.create_task(read_anywhere(broker, load, seed)),
            ]
            seen = Moments(store, chance)
            for _, moment in zip(range(kills), moments(chance), strict=False):
                if moment == "start":
                    await until(lambda: broker.helper_pid("tier") is not None)
                await seen.wait(moment)
                await until(lambda: broker.kill_helper("tier"))
                for task in tasks:
                    if task.done():
                        task.result()
            await write_log_files(broker, 2)
            await load.stop()
            await cancel(tasks)
            await check_fleeting(broker, fleeting)
            await move_to_cold(broker)
            await check_from_both_tiers(broker, load)
            await check_bucket(store)
        assert await broker.stop() == 0
        broker.check_log()
    finally:
        await cancel(tasks)
        await load.stop()
        if broker.is_running:
            await broker.kill()


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    """End tasks that never end by themselves; raises what one of them failed with."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
    tasks.clear()


async def check_fleeting(broker: BrokerProcess, fleeting: FleetingLoad) -> None:
    """While some of it is there, and when all of it is gone."""
    connection = await ClientConnection.open(broker.address)
    try:
        await fleeting.check(connection)
        await asyncio.sleep(TTL_MS / 1_000)
        await fleeting.check(connection)
        end = await wire.max_offset(connection, FLEETING, 0)
        assert await minimum_of(connection, FLEETING, 0) == end
    finally:
        connection.close()


async def check_bucket(store: ObjectStore) -> None:
    """When garbage collection has come to rest there is what readable versions name, and nothing more."""
    deadline = time.monotonic() + COLLECTED_TIMEOUT_S
    while True:
        try:
            named, there = await named_keys(store), await listed_keys(store)
            catalog = await newest(store)
        except (UnavailableError, MQError) as error:  # collected while it was looked at
            named, there, catalog = {str(error)}, set(), None
        fleeting = None if catalog is None else catalog.topics.get(FLEETING)
        is_resting = catalog is not None and not catalog.removed and (fleeting is None or not fleeting.segments)
        is_resting = is_resting and catalog is not None and FLEETING not in catalog.packed
        if is_resting and named == there:
            break
        assert time.monotonic() < deadline, (
            f"too much: {sorted(there - named)[:20]}, missing: {sorted(named - there)[:20]}, "
            f"removed: {catalog.removed if catalog else None}"
        )
        await asyncio.sleep(0.2)
    for key in sorted(there):
        assert (await store.head(key)).size_bytes > 0, key


@pytest.mark.crash
async def test_tier_kills_leave_neither_gap_nor_duplicate_nor_garbage(
    tmp_path: Path, case_count: Callable[..., int]
) -> None:
    kills = case_count(quick=3, full=5, soak=1_000)
    for number, done in enumerate(range(0, kills, KILLS_PER_BROKER)):
        count = min(KILLS_PER_BROKER, kills - done)
        folder = tmp_path / f"{number}"
        await kill_and_check(folder / "broker", f"file://{folder}/cold", kills=count, seed=f"{SEED}/{number}")
        partial = [path for path in (folder / "cold" / ".partial").rglob("*") if path.is_file()]
        assert not partial, "unfinished objects were left behind"


@pytest.mark.crash
@pytest.mark.s3
@pytest.mark.full
async def test_tier_kills_on_s3(tmp_path: Path, case_count: Callable[..., int], s3_server: S3Server) -> None:
    url = new_bucket(s3_server).cold_url
    await kill_and_check(tmp_path / "broker", url, kills=case_count(quick=1, soak=100), seed=f"{SEED}/s3")
