"""The limits on reads from the cold tier: those that wait for their group's quota keep no others from reading."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import data_broker
from tests.broker.popping import PopClient, bodies
from tests.broker.pulling import GROUP, TOPIC, Consumer, expire_local_files, offsets
from thermocline.broker.pulls.cold_pull_limits import ColdPullLimits
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.connections import Connection

CONFIG = BrokerConfig(listen_host="127.0.0.1", cold_flow_control=True)


class OpenConnection:
    """All that the limits know of one."""

    remote_address = "10.7.0.1:4711"


HERE = cast(Connection, OpenConnection())


class Reader:
    """A read that waits for its quota, then goes on until it is let go."""

    def __init__(self, limits: ColdPullLimits, *, waits: bool = True) -> None:
        self.quota, self.end = asyncio.Event(), asyncio.Event()
        self.is_reading = False
        self._waits = waits
        self.task = asyncio.ensure_future(self._read(limits))

    async def _read(self, limits: ColdPullLimits) -> None:
        with limits.reading(HERE):
            if self._waits:
                await limits.while_waiting(self._wait)
            self.is_reading = True
            await self.end.wait()

    async def _wait(self) -> None:
        await self.quota.wait()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_waits_has_no_place_and_goes_on_in_turn() -> None:
    limits = ColdPullLimits(count_max=1)
    first, second = Reader(limits), Reader(limits)
    await turns()
    assert len(limits) == 0
    other = Reader(limits, waits=False)
    await turns()
    assert (other.is_reading, limits.has_room(HERE)) == (True, False)
    first.quota.set()
    second.quota.set()
    await turns()
    assert (first.is_reading, second.is_reading) == (False, False)
    other.end.set()
    await turns()
    assert (first.is_reading, second.is_reading, len(limits)) == (True, False, 1)
    first.end.set()
    await turns()
    assert (second.is_reading, len(limits)) == (True, 1)
    second.end.set()
    await turns()
    assert (len(limits), limits.has_room(HERE)) == (0, True)


async def test_what_waits_counts_for_its_connection() -> None:
    departed: list[str] = []
    limits = ColdPullLimits(count_max=10, connection_count_max=2, on_reader_left=departed.append)
    limits.forget(HERE)
    readers = [Reader(limits), Reader(limits)]
    await turns()
    assert (len(limits), limits.has_room(HERE)) == (0, False)
    assert departed == []
    limits.forget(HERE)
    assert departed == [HERE.remote_address]
    await asyncio.gather(*(reader.task for reader in readers), return_exceptions=True)
    assert all(reader.task.cancelled() for reader in readers)
    assert (len(limits), limits.has_room(HERE)) == (0, True)


@pytest.mark.parametrize("moment", ["for its quota", "for a place", "with a place just given"])
async def test_a_read_that_is_cancelled_while_it_waits_leaves_the_count_right(moment: str) -> None:
    limits = ColdPullLimits(count_max=1)
    leaver, next_one = Reader(limits), Reader(limits)
    await turns()
    other = Reader(limits, waits=False)
    await turns()
    if moment != "for its quota":
        leaver.quota.set()
        await turns()
    next_one.quota.set()
    await turns()
    if moment == "with a place just given":
        other.task.cancel()
        await asyncio.sleep(0)
        assert other.task.done()  # its place was given in the same step
    leaver.task.cancel()
    other.end.set()
    await turns()
    assert (leaver.is_reading, next_one.is_reading, len(limits)) == (False, True, 1)
    next_one.end.set()
    await turns()
    assert len(limits) == 0


async def test_a_group_that_is_held_back_keeps_no_other_group_from_history(tmp_path: Path) -> None:
    """Its pulls and POPs wait for the next window; those of others are answered meanwhile."""
    cold = MemoryColdTier()
    async with data_broker(
        tmp_path, topics=[TOPIC], cold=cold, config=CONFIG, start=False, log_file_bytes=8 * 1024
    ) as broker:
        for limits in (broker.messages._pulls._limits, broker.pop._limits):
            limits._count_max = 1
        held, other = Consumer(broker), Consumer(broker)
        held.send(100)
        cold.copy_from(broker.store, TOPIC, 0, end=90)
        expire_local_files(broker, 60)
        broker.parts.reads.cold_quota.set_thresholds({GROUP: 1})
        assert offsets(await held.pull_later(0))[0] == 0
        held.ask(0)
        held_popper, popper = PopClient(broker), PopClient(broker)
        held_popper.ask_pop()
        await turns()
        assert offsets(await other.pull_later(0, consumerGroup="other"))[0] == 0
        assert bodies(await popper.pop_later(consumerGroup="other"))
        assert (held.wire.drain(), held_popper.wire.drain()) == (b"", b"")
        for wire in (held.wire, held_popper.wire):
            wire.lose()
            await wire.connection.wait_requests()
        assert (len(broker.messages._pulls._limits), len(broker.pop._limits)) == (0, 0)
