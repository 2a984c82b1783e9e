"""The official Java push consumer, unmodified, while its broker loses its disk and comes back from the bucket.

One consumer lives through it, another was stopped half-way and starts afterwards: each gets what was committed and what
is sent to the recovered broker, once, and goes on without a reset.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS
from tests.fixtures_s3 import new_bucket
from tests.interop.java_agent import JavaAgent
from tests.interop.test_java_replay_outage import JavaReplay
from thermocline.localstack import S3Server
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.client import ClientConnection
from thermocline.tiered.object_store_url import open_object_store
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS
from thermocline.tiered.state.state_reader import read_newest

pytestmark = [pytest.mark.java, pytest.mark.crash, pytest.mark.s3, pytest.mark.xdist_group("interop-replay")]

TOPIC = "Replayed"
QUEUES = 4
COUNT = 120
SECONDS_MAX = 60.0
_numbers = itertools.count(1)


@pytest.fixture
async def name_server() -> AsyncIterator[str]:
    """The address of a NameServer, which outlives the broker."""
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    yield f"127.0.0.1:{await server.start()}"
    await server.close()


class Bodies:
    """What was sent, by queue and offset."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], bytes] = {}

    async def send(self, broker: BrokerProcess, count: int) -> None:
        """Send to all queues in turn."""
        connection = await ClientConnection.open(broker.address)
        for number in range(count):
            body = f"{next(_numbers)}".encode()
            answer = await wire.send(connection, TOPIC, number % QUEUES, body)
            place = answer.queue_id, answer.queue_offset
            assert place not in self.sent
            self.sent[place] = body
        connection.close()


async def seen_all(replay: JavaReplay, wanted: dict[tuple[int, int], bytes]) -> None:
    """Wait until a consumer has had everything."""
    async with asyncio.timeout(SECONDS_MAX):
        while not wanted.keys() <= replay.seen.keys():
            await asyncio.sleep(0.1)
            await replay.look()
    assert {place: replay.bodies[place] for place in wanted} == wanted


async def saved(url: str, offsets: Callable[[dict[str, dict[str, int]]], bool]) -> None:
    """Wait until a snapshot in the bucket has group offsets of which this is true."""
    bucket = await open_object_store(url)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            state = await read_newest(bucket, KEYS)
            if state is not None and offsets(state.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {})):
                break
            await asyncio.sleep(0.1)
    await bucket.close()


async def test_consumers_go_on_without_a_reset(
    tmp_path: Path, s3_servers: Callable[[str], S3Server], java_agent_process: JavaAgent, name_server: str
) -> None:
    url = new_bucket(s3_servers("minio")).cold_url
    settings = {
        **TINY_FILES_GO_AT_ONCE,
        "namesrvAddr": name_server,
        "coldUrl": url,
        "coldSealAgeMs": "3600000",
        "coldStateIntervalMs": "200",
        "flushConsumerOffsetInterval": "200",
    }
    broker = BrokerProcess(tmp_path / "broker", settings)
    bodies = Bodies()
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=QUEUES)
        await bodies.send(broker, COUNT)
        async with JavaReplay(java_agent_process, "recovery-stopped", name_server) as stopped:
            await seen_all(stopped, bodies.sent)
        await bodies.send(broker, COUNT)
        await wire.patiently(lambda: wire.seal(connection))
        committed = dict(bodies.sent)
        async with JavaReplay(java_agent_process, "recovery-living", name_server) as living:
            await seen_all(living, committed)
            await bodies.send(broker, 8)  # these never reach the bucket; the living one has them
            await seen_all(living, bodies.sent)
            await saved(url, lambda table: sum(table.get(f"{TOPIC}@recovery-stopped", {}).values()) >= COUNT)
            connection.close()
            await broker.kill()
            shutil.rmtree(broker.store)
            broker.arguments = ("--recover-from", url)
            await broker.start()
            new = Bodies()
            new.sent = bodies.sent  # no offset may come twice
            before = set(new.sent)
            await new.send(broker, COUNT)
            fresh = {place: body for place, body in new.sent.items() if place not in before}
            assert all(offset > 1_000 for _, offset in fresh), "behind a hole"
            await seen_all(living, fresh)
            assert all(living.seen[place] == 1 for place in fresh)
        async with JavaReplay(java_agent_process, "recovery-stopped", name_server) as started:
            wanted = {place: body for place, body in committed.items() if place not in stopped.seen} | fresh
            await seen_all(started, wanted)
            assert set(started.seen) == set(wanted)
            assert set(started.seen.values()) == {1}
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()
