"""A client that leaves in the middle of a replay, while the bucket hangs: what was read for it is free within a second.

The whole way: its connection closes, the hot process cancels its pulls and tells the tier process, which gives up what
it fetches for that client alone, and its share of the budget with it. Another client's reads go on.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.boundary.whole_broker import WholeBroker
from tests.crash import wire
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

READ_ON, LOOKED_INTO = "Steam", "Brine"
"""Each is one segment: of the first all is fetched at once, of the second a frame alone, and the footer."""
QUEUES = 2
MESSAGES = 80
"""For each queue."""
ROUNDS_OF_DELETION = 3
FREE_WITHIN_S = 1.0
DEADLINE_S = 20.0


class HangingStore(WrappingObjectStore):
    """Gives no answer to range reads of a `.log` while the gate is closed, and no error either."""

    def __init__(self, inner: ObjectStore, gate: asyncio.Event) -> None:
        super().__init__(inner)
        self._gate = gate

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb is Verb.GET_RANGE and call.key.endswith(".log"):
            await self._gate.wait()
        return await attempt()


class BrokerOverHangingStore(WholeBroker):
    """A whole broker whose bucket hangs while `gate` is closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate = asyncio.Event()
        self.gate.set()

    async def _open_crashing_store(self, url: str, options: ObjectStoreOptions) -> ObjectStore:
        return HangingStore(await super()._open_crashing_store(url, options), self.gate)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tc-"))
    yield path
    shutil.rmtree(path)


async def fill(broker: WholeBroker) -> None:
    """Messages of which all but the last few are in the bucket alone."""
    for topic in (LOOKED_INTO, READ_ON):
        await wire.make_topic(broker.connection, topic, queues=QUEUES)
        for queue_id in range(QUEUES):
            for start in range(0, MESSAGES, 10):
                numbers = range(start, start + 10)
                messages = [(f"{queue_id}/{number}/".encode().ljust(200, b"."), "") for number in numbers]
                await wire.send_batch(broker.connection, topic, queue_id, messages)
        await wire.seal(broker.connection, topic)  # by name: into a segment of its own
    broker.clock.now_ms += 1_000
    for _ in range(ROUNDS_OF_DELETION):
        await broker.delete_local_files()


async def test_reads_of_a_disconnected_client_are_freed_within_a_second(folder: Path) -> None:
    broker = BrokerOverHangingStore(folder)
    await broker.start()
    try:
        await fill(broker)
        budget = broker.tier_role.budgets.reads
        host, port = broker.connection.remote_address.rsplit(":", 1)
        leaving, staying = [await ClientConnection.open(f"{host}:{port}") for _ in range(2)]
        # One after the other, so that a run of records is kept for the first, and more is read ahead.
        offset = 0
        while not broker.cold.kept_bytes:
            pulled = await wire.pull(leaving, READ_ON, 0, offset, count=3, group="leaving")
            assert pulled.code == ResponseCode.SUCCESS
            offset = pulled.next_offset
        await wire.pull(staying, LOOKED_INTO, 0, 20, count=1, group="staying")
        broker.gate.clear()
        waiting = [
            asyncio.create_task(wire.pull(leaving, LOOKED_INTO, 0, 50, group="leaving")),
            asyncio.create_task(wire.pull(leaving, LOOKED_INTO, 1, 30, group="leaving")),
            asyncio.create_task(wire.pull(staying, LOOKED_INTO, 1, 55, group="staying")),
        ]
        await until(lambda: budget.used_bytes > 0, timeout_s=DEADLINE_S)
        await asyncio.sleep(0.05)  # the others are on their way too
        used_bytes = budget.used_bytes
        leaving.close()
        await until(lambda: 0 < budget.used_bytes < used_bytes, timeout_s=FREE_WITHIN_S)
        await until(lambda: broker.cold.kept_bytes == 0, timeout_s=FREE_WITHIN_S)
        for task in waiting[:2]:
            with pytest.raises(UnavailableError):
                await task
        assert not waiting[2].done()
        broker.gate.set()
        assert (await waiting[2]).records[0].queue_offset == 55
        await until(lambda: budget.used_bytes == 0, timeout_s=FREE_WITHIN_S)
        staying.close()
    finally:
        broker.gate.set()
        await broker.stop(is_crash=False)
        await broker.remove_objects()
