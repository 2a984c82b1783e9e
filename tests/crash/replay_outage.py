"""Outages during a cold replay: the tier process dies, or the object store does, while a consumer reads history.

A push consumer that starts at the first offset, and a second one that starts while no process can read history, must
both get every message exactly once when the outage is over: the broker asks them to come back meanwhile, and never
sends them on to what it still has locally. `test_replay_outage.py` does so with the SDK, the interop tests with the
official Java client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.test_kill_nine import MOVE_TIMEOUT_S, local_minimums, move_to_cold
from tests.waiting import until
from thermocline.localstack import S3Server
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clients.client import ClientConnection

TOPIC = "Replayed"
QUEUES = 4
BATCH = 50
REPLAY_TIMEOUT_S = wire.PATIENCE_S
OUTAGE_S = 1.5


@dataclass(slots=True)
class History:
    """Messages of a topic, most of them in the cold tier alone."""

    bodies: dict[tuple[int, int], bytes] = field(default_factory=dict)

    async def send(self, connection: ClientConnection, count: int) -> None:
        """Send `count` messages to each queue."""
        for queue_id in range(QUEUES):
            for start in range(0, count, BATCH):
                messages = [
                    (f"{queue_id}/{number}/".encode().ljust(500, b"."), "")
                    for number in range(start, min(count, start + BATCH))
                ]
                answer = await wire.send_batch(connection, TOPIC, queue_id, messages)
                for index, (body, _) in enumerate(messages):
                    self.bodies[queue_id, answer.queue_offset + index] = body


class Replay(Protocol):
    """A consumer that begins at the first offset and counts what it gets, by (queue id, queue offset)."""

    seen: Counter[tuple[int, int]]
    bodies: dict[tuple[int, int], bytes]

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def refresh(self) -> None:
        """Bring `seen` and `bodies` up to date."""


class Outage(Protocol):
    """Something that history cannot be read without."""

    async def begin(self) -> None:
        """Take it away."""

    async def end(self) -> None:
        """Give it back."""


class TierOutage:
    """The tier process is killed, and whatever the broker starts in its place."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._killer: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Kill it, and go on."""
        await until(lambda: self._broker.kill_helper("tier"))
        self._killer = asyncio.create_task(self._hold_down())

    async def end(self) -> None:
        """Let the next one live."""
        assert self._killer is not None
        self._killer.cancel()
        await asyncio.wait([self._killer])

    async def _hold_down(self) -> None:
        while True:
            self._broker.kill_helper("tier")
            await asyncio.sleep(0.02)


class StoreOutage:
    """The S3 server is killed; its objects stay."""

    def __init__(self, server: S3Server) -> None:
        self._server = server

    async def begin(self) -> None:
        """Kill it."""
        await asyncio.to_thread(self._server.kill)

    async def end(self) -> None:
        """Start it again, on the same port."""
        await asyncio.to_thread(self._server.restart)


@contextlib.asynccontextmanager
async def outage_of(outage: Outage) -> AsyncIterator[None]:
    """The outage lasts for the block, and a moment longer."""
    await outage.begin()
    try:
        yield
        await asyncio.sleep(OUTAGE_S)
    finally:
        await outage.end()


async def reach(replay: Replay, count: int) -> None:
    """Wait until so many messages have come."""
    async with asyncio.timeout(REPLAY_TIMEOUT_S):
        await replay.refresh()
        while len(replay.seen) < count:
            await asyncio.sleep(0.02)
            await replay.refresh()


async def check_whole(replay: Replay, history: History) -> None:
    """Wait for all, and check that each came once, as it was sent."""
    await reach(replay, len(history.bodies))
    assert replay.bodies == history.bodies
    assert set(replay.seen.values()) == {1}, [place for place, count in replay.seen.items() if count > 1][:10]


async def replay_through(
    folder: Path,
    cold_url: str,
    make_outage: Callable[[BrokerProcess], Outage],
    make_replay: Callable[[str, str], Replay],
    *,
    outages: int,
) -> None:
    """Fill a topic, move it to the cold tier, and read it all through outages.

    `make_replay(group, name server)` gives a consumer that has not started yet.
    """
    name_server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    name_server_address = f"127.0.0.1:{await name_server.start()}"
    broker = BrokerProcess(
        folder / "broker",
        {
            **TINY_FILES_GO_AT_ONCE,
            "namesrvAddr": name_server_address,
            "coldUrl": cold_url,
            "mappedFileSizeCommitLog": str(128 << 10),
            "coldSegmentBytes": str(128 << 10),
            "coldFrameBytes": str(16 << 10),
            "coldCacheBytes": str(1 << 20),
        },
    )
    await broker.start()
    try:
        history = History()
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=QUEUES)
        await history.send(connection, 150 + 150 * outages)
        await move_to_cold(broker)

        # Most of it is to be in the cold tier alone; local files go with the broker's rounds.
        cold_count = 0
        async with asyncio.timeout(MOVE_TIMEOUT_S):
            while cold_count <= len(history.bodies) // 2:
                await asyncio.sleep(0.1)
                minimums = await local_minimums(connection)
                cold_count = sum(offset < minimums.get((TOPIC, queue_id), 0) for queue_id, offset in history.bodies)
        connection.close()  # many outages last longer than the broker leaves a connection idle
        outage = make_outage(broker)
        async with make_replay("replay", name_server_address) as replay:
            for number in range(outages):
                await reach(replay, cold_count * (number + 1) // (outages + 2))
                async with outage_of(outage):
                    await replay.refresh()
                    assert len(replay.seen) < cold_count, "it had read all of history before the outage"
            await check_whole(replay, history)
        newcomer = make_replay("newcomer", name_server_address)
        async with contextlib.AsyncExitStack() as stack:
            async with outage_of(outage):
                await stack.enter_async_context(newcomer)
            connection = await ClientConnection.open(broker.address)
            await history.send(connection, BATCH)  # the log goes on behind history
            connection.close()
            await check_whole(newcomer, history)
        assert await broker.stop() == 0
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()
        await name_server.close()
