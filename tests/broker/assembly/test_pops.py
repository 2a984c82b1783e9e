"""PopPath: a client that leaves is forgotten everywhere, and a queue that is free again wakes a POP that waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import GROUP, TOPIC, PopClient
from tests.broker.pulling import expire_local_files
from tests.waiting import until
from thermocline.remoting.response_code import ResponseCode

POLL_MS = 15_000


@pytest.fixture
def cold() -> MemoryColdTier:
    return MemoryColdTier()


@pytest.fixture
async def broker(tmp_path: Path, cold: MemoryColdTier) -> AsyncIterator[DataBroker]:
    async with data_broker(
        tmp_path, topics=[TOPIC], cold=cold, start=False, near_bytes=0, log_file_bytes=4_096
    ) as broker:
        yield broker


async def put_into_the_cold_tier(broker: DataBroker, cold: MemoryColdTier, client: PopClient) -> None:
    """The first messages of queue 0 are only there."""
    client.send(*[bytes(400)] * 40)
    cold.copy_from(broker.store, TOPIC, 0, end=20)
    assert expire_local_files(broker, 15) > 0


async def test_nothing_waits_for_a_client_that_has_left(broker: DataBroker, cold: MemoryColdTier) -> None:
    waiting, reading = PopClient(broker), PopClient(broker)
    waiting.ask_pop(pollTime=POLL_MS)
    born_ms = broker.clock()
    waiting.ask(200_054, consumerGroup=GROUP, topic=TOPIC, queueId=-1, pollTime=POLL_MS, bornTime=born_ms)
    assert (len(broker.pop.polling), len(broker.pop.notifications)) == (1, 1)
    broker.dispatcher.connection_closed(waiting.wire.connection)
    assert (len(broker.pop.polling), len(broker.pop.notifications)) == (0, 0)
    cold.gate = asyncio.Event()
    await put_into_the_cold_tier(broker, cold, reading)
    reading.ask_pop(queueId=0)
    await until(lambda: cold.pulls)
    assert len(broker.pop._limits) == 1
    broker.dispatcher.connection_closed(reading.wire.connection)
    await until(lambda: len(broker.pop._limits) == 0)
    assert broker.parts.pops.store.in_flight.next_due_ms is None, "nothing was given out"


async def test_a_pop_that_met_a_busy_queue_looks_again_when_it_is_free(
    broker: DataBroker, cold: MemoryColdTier
) -> None:
    """Also when the other POP gave nothing out, as its client has left."""
    first, second = PopClient(broker), PopClient(broker)
    cold.gate = asyncio.Event()
    await put_into_the_cold_tier(broker, cold, first)
    first.ask_pop(queueId=0, maxMsgNums=1)
    await until(lambda: cold.pulls)
    waiting = second.ask_pop(queueId=0, maxMsgNums=1, pollTime=POLL_MS)
    assert len(broker.pop.polling) == 1
    broker.dispatcher.connection_closed(first.wire.connection)
    assert (await second.wait_answer(waiting)).code == ResponseCode.POLLING_TIMEOUT, "it asks again at once"
    assert len(broker.pop.polling) == 0
    cold.gate.set()
    (one,) = await second.pop_later(queueId=0, maxMsgNums=1)
    assert one.record.queue_offset == 0


async def test_the_tasks_end_with_their_resources(broker: DataBroker) -> None:
    async with AsyncExitStack() as resources:
        broker.pop.start(resources)
        tasks = broker.pop._tasks
        assert len(tasks) == 3
        with pytest.raises(AssertionError):
            broker.pop.start(resources)
    assert all(task.cancelled() for task in tasks)
    await broker.pop.close()
