"""A recovery from a bucket with little or nothing good in it: one clear line, the right status, nothing changed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS, newest
from tests.crash.test_recovery_on_unfit_store import check_refusal
from tests.crash.test_tier_scrub import scrub
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.state.newest_state import list_names, read_newest
from thermocline.tiered.stores.file import FileObjectStore

pytestmark = pytest.mark.crash

TOPIC, BROKEN = "orders", "broken"


@pytest.fixture
def bucket(tmp_path: Path) -> FileObjectStore:
    """The cold tier."""
    return FileObjectStore(str(tmp_path / "cold"), disk=RealDisk())


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker that serves, with two topics of a queue each."""
    settings = {**TINY_FILES_GO_AT_ONCE, "coldSealAgeMs": "3600000", "coldStateIntervalMs": "200"}
    process = BrokerProcess(tmp_path / "broker", {**settings, "coldUrl": (tmp_path / "cold").as_uri()})
    await process.start()
    connection = await ClientConnection.open(process.address)
    for topic in (TOPIC, BROKEN):
        await wire.make_topic(connection, topic, queues=1)
    connection.close()
    yield process
    if process.is_running:
        await process.kill()


async def send(broker: BrokerProcess, topic: str, count: int) -> None:
    """Send so many messages to the only queue."""
    connection = await ClientConnection.open(broker.address)
    for number in range(count):
        await wire.send(connection, topic, 0, b"%d" % number)
    connection.close()


async def seal(broker: BrokerProcess) -> None:
    """Commit everything, each topic by itself."""
    connection = await ClientConnection.open(broker.address)
    for topic in (TOPIC, BROKEN):
        await wire.patiently(lambda topic=topic: wire.seal(connection, topic))  # type: ignore[misc]
    connection.close()


async def saved(bucket: FileObjectStore, **ends: int) -> None:
    """Wait until there is a state, and the newest counts so many messages, by topic."""
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            state = await read_newest(bucket, KEYS)
            found = {each.topic: sum(end.end_offset for end in each.ends) for each in state.topics} if state else {}
            if state is not None and ends.items() <= found.items():
                return
            await asyncio.sleep(0.05)


async def lose_disk(broker: BrokerProcess) -> str:
    """`kill -9`, and everything that it had is gone; what it is to be recovered from."""
    await broker.kill()
    shutil.rmtree(broker.store)
    url = broker.properties["coldUrl"]
    broker.arguments = ("--recover-from", url)
    return url


async def test_an_empty_disk_is_refused_without_the_option(broker: BrokerProcess, bucket: FileObjectStore) -> None:
    await saved(bucket)
    await lose_disk(broker)
    broker.arguments = ()
    epoch = (await newest(bucket)).epoch
    await broker.start()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    last_line = broker.log_tail().splitlines()[-1]
    assert last_line.startswith("thermocline: this prefix holds the history of another store directory")
    assert "--recover-from" in last_line
    assert (await newest(bucket)).epoch == epoch


@pytest.mark.parametrize("damage", ["none there", "both damaged"])
async def test_a_bucket_without_a_state_that_can_be_read_is_left_as_it_is(
    broker: BrokerProcess, bucket: FileObjectStore, damage: str
) -> None:
    await send(broker, TOPIC, 3)
    await seal(broker)
    await saved(bucket, orders=3)
    url = await lose_disk(broker)
    states = [KEYS.state(epoch=name.epoch, sequence=name.sequence) for name in await list_names(bucket, KEYS)]
    for key in states:
        if damage == "none there":
            await bucket.delete(key)
        else:
            await bucket.put(key, (await bucket.get(key))[:-9])
    before = [(info.key, info.etag) async for info in bucket.list("")]
    printed = await check_refusal(broker, url)
    if damage == "none there":
        assert printed.startswith("thermocline: the bucket holds history but no state snapshot")
        assert "--read-only-from serves what is there" in printed
    else:
        assert printed.startswith("thermocline: no state snapshot can be read")
        assert all(key in printed for key in states[-2:])
    assert [(info.key, info.etag) async for info in bucket.list("")] == before


async def test_a_ledger_without_segments_gives_back_topics_and_reports_losses(
    broker: BrokerProcess, bucket: FileObjectStore
) -> None:
    await send(broker, TOPIC, 3)
    await saved(bucket, orders=3)
    await lose_disk(broker)
    assert not (await newest(bucket)).live_keys()
    await broker.start()
    assert f"topic={TOPIC} committed=0 lost=3" in broker.notes
    await send(broker, TOPIC, 1)
    assert await broker.stop() == 0


async def test_quarantined_ranges_are_reported_and_do_not_prevent_a_recovery(
    broker: BrokerProcess, bucket: FileObjectStore
) -> None:
    await send(broker, TOPIC, 3)
    await send(broker, BROKEN, 5)
    await seal(broker)
    await saved(bucket, orders=3, broken=5)
    await lose_disk(broker)
    (segment,) = (await newest(bucket)).topics[BROKEN].segments
    await bucket.delete(segment.log.key)
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await wire.patiently(lambda: wire.ask(connection, PrivateRequestCode.TIER_SCRUB_STATE))
    report = await scrub(connection, deep="true", heal="true")
    assert [each["outcome"] for each in report["findings"]] == ["quarantined"]
    connection.close()
    await lose_disk(broker)
    await broker.start()
    assert f"topic={TOPIC} committed=3 lost=0" in broker.notes
    assert f"topic={BROKEN} committed=0 lost=0 quarantined=5" in broker.notes
    connection = await ClientConnection.open(broker.address)
    assert [record.body for record in await wire.read_queue(connection, TOPIC, 0, start=0, end=3)] == [b"0", b"1", b"2"]
    async with asyncio.timeout(wire.PATIENCE_S):
        while "lost_offsets=[0, 5)" not in (pulled := await wire.pull(connection, BROKEN, 0, 0)).remark:
            assert pulled.code in wire.TRY_AGAIN
            await asyncio.sleep(0.05)
    assert (pulled.code, pulled.next_offset) == (ResponseCode.SYSTEM_BUSY, 0)
    connection.close()
    await send(broker, BROKEN, 1)
    assert await broker.stop() == 0
