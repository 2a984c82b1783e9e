"""`kill -9` of a broker's processes during mixed load: nothing acknowledged is lost, doubled or moved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.mixed_load import MixedLoad
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.errors import UnavailableError

SEED = 20_261_121
START_SECONDS_MAX = 20.0
MOVE_TIMEOUT_S = wire.PATIENCE_S
"""A tier process that was killed a hundred times has much to catch up with."""
VICTIMS = ("tier", "hot", "all", "index")


def segments_in(folder: Path) -> int:
    """How many segments and packs lie in a cold tier of files, committed or not."""
    return sum(1 for pattern in ("topics/*/*.log", "packs/*/*.pack") for _ in folder.glob(f"*/*/{pattern}"))


def victims(chance: random.Random) -> Iterator[str]:
    """Each kind as often as the others, in no order."""
    while True:
        yield from chance.sample(VICTIMS, len(VICTIMS))


@pytest.mark.crash
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_kills_lose_nothing_acknowledged(tmp_path: Path, case_count: Callable[..., int], flush: str) -> None:
    kills = case_count(quick=1, full=4, soak=100)
    chance = random.Random(f"{SEED}/{flush}")
    cold = tmp_path / "cold"
    broker = BrokerProcess(
        tmp_path / "broker", {**TINY_FILES_GO_AT_ONCE, "flushDiskType": flush, "coldUrl": f"file://{cold}"}
    )
    await broker.start()
    load = MixedLoad(broker, f"{SEED}/{flush}", pause_s=0.005)
    await load.start(6)
    try:
        for number, victim in zip(range(kills), victims(chance), strict=False):
            wanted = load.acknowledged_count + chance.randrange(50, 400)
            await until(lambda wanted=wanted: load.acknowledged_count >= wanted)
            if chance.random() < 0.5:
                # A tier process that is always killed young never commits: let it come to something now and then.
                sealed = segments_in(cold)
                await until(lambda sealed=sealed: segments_in(cold) > sealed, timeout_s=wire.PATIENCE_S)
            if victim in ("index", "tier"):
                broker.kill_helper(victim)
                continue
            await broker.kill(helpers_first=victim == "all")
            await broker.start()
            assert broker.start_seconds < START_SECONDS_MAX, f"kill {number}: served after {broker.start_seconds:.1f} s"
        await write_log_files(broker, 3)
        await load.stop()
        await move_to_cold(broker)
        assert await broker.stop() == 0
        await broker.start()
        await check_from_both_tiers(broker, load)
        broker.check_log()
    finally:
        try:
            await load.stop()
        finally:
            if broker.is_running:
                await broker.kill()


async def write_log_files(broker: BrokerProcess, count: int) -> None:
    """Wait until the load has filled so many files more: the last one never leaves the local disk."""
    wanted = broker.newest_log_file() + count * int(broker.properties["mappedFileSizeCommitLog"])
    await until(lambda: broker.newest_log_file() >= wanted, timeout_s=wire.PATIENCE_S)


async def move_to_cold(broker: BrokerProcess) -> None:
    """Commit everything, and wait until local files have gone."""
    connection = await ClientConnection.open(broker.address)
    try:
        async with asyncio.timeout(MOVE_TIMEOUT_S):
            await wire.patiently(lambda: wire.seal(connection), timeout_s=MOVE_TIMEOUT_S)
            while not await local_minimums(connection):  # noqa: ASYNC110 - the broker's own rounds
                await asyncio.sleep(0.1)
    except UnavailableError as error:
        raise AssertionError(f"the broker is gone: {broker.log_tail()}") from error
    finally:
        connection.close()


async def local_minimums(connection: ClientConnection) -> dict[tuple[str, int], int]:
    """Where the local files of each queue begin that has lost some."""
    status = await wire.tier_status(connection)
    return {
        (topic["topic"], queue["queueId"]): queue["localMin"]
        for topic in status["topics"]
        for queue in topic["queues"]
        if queue["localMin"] > 0
    }


async def check_from_both_tiers(broker: BrokerProcess, load: MixedLoad) -> None:
    """Check all, and that part of it could only come from the cold tier."""
    connection = await ClientConnection.open(broker.address)
    try:
        await load.check(connection)
        minimums = await local_minimums(connection)
        cold = sum(
            offset < minimums.get(queue, 0) for queue, offsets in load.acknowledged.items() for offset in offsets
        )
        assert cold, "nothing acknowledged had left the local files"
        requests = (await wire.tier_status(connection))["requests"]
        assert sum(count for verb, count in requests.items() if "get" in verb.lower()), requests
    finally:
        connection.close()
