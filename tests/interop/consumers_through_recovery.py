"""Consumers of an official client while their broker loses its disk and comes back from the bucket.

One consumer runs throughout, another was stopped half-way and starts afterwards: each gets the committed messages and
those sent to the recovered broker, once, and continues without a reset.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS
from tests.interop.test_java_replay_outage import JavaReplay
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clients.client import ClientConnection
from thermocline.tiered.state.newest_state import read_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS
from thermocline.tiered.stores.object_store_url import open_object_store

TOPIC = "Replayed"
QUEUES = 4
COUNT = 120
SECONDS_MAX = 60.0
HOLE_MIN = 1_000
"""Offsets of the recovered broker lie behind a hole that ends beyond this, those of the lost one in front."""
OffsetTable = dict[str, dict[str, int]]
"""`topic@group` -> queue id -> offset."""
_numbers = itertools.count(1)


class Bodies:
    """What was sent, by queue and offset."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], bytes] = {}

    async def send(self, broker: BrokerProcess, count: int) -> None:
        """Send to all queues in turn."""
        connection = await ClientConnection.open(broker.address)
        for number in range(count):
            body = f"{next(_numbers)}".encode()
            answer = await wire.patiently(
                lambda queue_id=number % QUEUES, body=body: wire.send(connection, TOPIC, queue_id, body)  # type: ignore[misc]
            )
            place = answer.queue_id, answer.queue_offset
            assert place not in self.sent
            self.sent[place] = body
        connection.close()


async def seen_all(replay: JavaReplay, wanted: dict[tuple[int, int], bytes]) -> None:
    """Wait until a consumer has had everything."""
    async with asyncio.timeout(SECONDS_MAX):
        while not wanted.keys() <= replay.seen.keys():
            await asyncio.sleep(0.1)
            await replay.refresh()
    assert {place: replay.bodies[place] for place in wanted} == wanted


async def saved(url: str, is_enough: Callable[[OffsetTable], bool]) -> OffsetTable:
    """Wait until a snapshot in the bucket has group offsets of which this is true; these."""
    bucket = await open_object_store(url)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            state = await read_newest(bucket, KEYS)
            table: OffsetTable = state.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {}) if state else {}
            if state is not None and is_enough(table):
                await bucket.close()
                return table
            await asyncio.sleep(0.1)


def check_not_again(replay: JavaReplay, saved_offsets: dict[str, int]) -> None:
    """That a consumer had nothing twice but what it may have: what it had consumed since the state was saved."""
    for (queue_id, offset), count in replay.seen.items():
        assert count == 1 or saved_offsets.get(str(queue_id), 0) <= offset < HOLE_MIN, (queue_id, offset, count)


async def go_on_through_recovery(
    folder: Path,
    url: str,
    new_replay: Callable[[str, str], JavaReplay],
    *,
    lag_of: Callable[[str, str], int] | None = None,
) -> None:
    """The whole story, with a cold tier at `url`; `new_replay(group, name_server)` is a consumer, not started.

    `lag_of(group, name_server)`: what an official tool says, which must not count the hole.
    """
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))  # it outlives the broker
    name_server = f"127.0.0.1:{await server.start()}"

    def replay(group: str) -> JavaReplay:
        return new_replay(group, name_server)

    settings = {
        **TINY_FILES_GO_AT_ONCE,
        "namesrvAddr": name_server,
        "coldUrl": url,
        "coldSealAgeMs": "3600000",
        "coldStateIntervalMs": "200",
        "flushConsumerOffsetInterval": "200",
    }
    broker = BrokerProcess(folder / "broker", settings)
    bodies = Bodies()
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=QUEUES)
        await bodies.send(broker, COUNT)
        async with replay("recovery-stopped") as stopped:
            await seen_all(stopped, bodies.sent)
        await bodies.send(broker, COUNT)
        await wire.patiently(lambda: wire.seal(connection))
        committed = dict(bodies.sent)
        async with replay("recovery-living") as living:
            await seen_all(living, committed)
            await bodies.send(broker, 8)  # these never reach the bucket; the living one has them
            await seen_all(living, bodies.sent)
            await saved(url, lambda table: sum(table.get(f"{TOPIC}@recovery-stopped", {}).values()) >= COUNT)
            connection.close()
            await broker.kill()
            shutil.rmtree(broker.store)
            kept = await saved(url, lambda _: True)
            broker.arguments = ("--recover-from", url)
            await broker.start()
            new = Bodies()
            new.sent = bodies.sent  # no offset may come twice
            before = set(new.sent)
            await new.send(broker, COUNT)
            fresh = {place: body for place, body in new.sent.items() if place not in before}
            assert all(offset > HOLE_MIN for _, offset in fresh), "behind a hole"
            await seen_all(living, fresh)
            check_not_again(living, kept.get(f"{TOPIC}@recovery-living", {}))
        if lag_of is not None:
            unread_count = len(committed) + len(fresh) - len(stopped.seen)
            assert await asyncio.to_thread(lag_of, "recovery-stopped", name_server) == unread_count
        async with replay("recovery-stopped") as started:
            wanted = {place: body for place, body in committed.items() if place not in stopped.seen} | fresh
            await seen_all(started, wanted)
            assert set(started.seen) == set(wanted)
            assert set(started.seen.values()) == {1}
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()
        await server.close()
