"""A replica set under our controller, with a cold tier at work, whose masters are killed: the bucket stays sound.

Covers `broker/control.py`, `broker/recovery/promotion.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import FILES_GO_AT_ONCE
from tests.crash.bucket import KEYS
from tests.crash.test_tier_scrub import scrub
from tests.interop.controlled_brokers import QUEUES, WAITS_FOR_ALL, ControlledBrokers, controlled_brokers
from tests.interop.replica_brokers import TOPIC, Load
from tests.waiting import wait_until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.tiered.bucket.bucket_verify import verify

pytestmark = pytest.mark.crash

GROUP = "kept"
FILE_BYTES = 128 << 10


def test_the_bucket_stays_sound_while_masters_are_killed(tmp_path: Path, case_count: Callable[..., int]) -> None:
    cold_url = (tmp_path / "cold").as_uri()
    settings = {
        **WAITS_FOR_ALL,
        **FILES_GO_AT_ONCE,
        "fileReservedTime": "0.02",  # 72 s: a broker that is killed comes back before its master has let go of the log
        "coldUrl": cold_url,
        "coldSegmentBytes": str(64 << 10),
        "mappedFileSizeCommitLog": str(FILE_BYTES),
    }
    with controlled_brokers(tmp_path, **settings) as found:
        found.start(3)
        master = found.wait_for({1, 2, 3})
        found.make_topic()
        load = Load(found.namesrv)
        with load.running():
            for number in range(case_count(quick=1, full=6, soak=100)):
                load.wait_for(300)
                offset = 10 * (number + 1)
                asyncio.run(commit(found.brokers[master].address, offset))
                wait_until(partial(followed, found, offset), what="the offsets are followed", timeout_s=60)
                found.brokers[master].kill()
                begin_s = time.monotonic()
                found.wait_writable()
                print(f"every queue is writable after {time.monotonic() - begin_s:.2f} s")  # noqa: T201 - a measurement
                next_master = found.wait_for({1, 2, 3} - {master}, not_master=master)
                assert asyncio.run(offsets(found.brokers[next_master].address)) == [offset] * QUEUES
                found.brokers[master].start()
                master = found.wait_for({1, 2, 3})
        address = found.brokers[master].address
        asyncio.run(check_bucket(address, cold_url))
        assert load.acknowledged <= asyncio.run(read_all(address))
        found.check()


async def commit(address: str, offset: int) -> None:
    """Commit an offset of the group in every queue."""
    connection = await ClientConnection.open(address)
    try:
        await wire.make_group(connection, GROUP)
        for queue_id in range(QUEUES):
            await wire.commit_offset(connection, GROUP, TOPIC, queue_id, offset)
    finally:
        connection.close()


async def offsets(address: str) -> list[int | None]:
    """The group's, by queue."""
    connection = await ClientConnection.open(address)
    try:
        return [await wire.consumer_offset(connection, GROUP, TOPIC, queue_id) for queue_id in range(QUEUES)]
    finally:
        connection.close()


async def read_all(address: str) -> set[bytes]:
    """The bodies of all messages, from the log and from the bucket."""
    bodies = set[bytes]()
    connection = await ClientConnection.open(address)
    try:
        for queue_id in range(QUEUES):
            end = await wire.max_offset(connection, TOPIC, queue_id)
            records = await wire.read_queue(connection, TOPIC, queue_id, start=0, end=end)
            assert [record.queue_offset for record in records] == list(range(end))
            bodies |= {record.body for record in records}
    finally:
        connection.close()
    return bodies


def followed(found: ControlledBrokers, offset: int) -> bool:
    """Whether all brokers have it."""
    wanted = [offset] * QUEUES
    return all(asyncio.run(offsets(broker.address)) == wanted for broker in found.brokers.values())


async def check_bucket(address: str, cold_url: str) -> None:
    """Fail if `tier verify` or a deep scrub finds anything."""
    connection = await ClientConnection.open(address)
    try:
        await wire.patiently(lambda: wire.seal(connection))
        report = await scrub(connection, deep="true")
    finally:
        connection.close()
    found = [each for each in report["findings"] if not each["key"].startswith(KEYS.doctor_prefix)]
    assert found == [], report
    assert any(path.suffix == ".pack" for path in Path(cold_url.removeprefix("file://")).rglob("*"))
    reports = await asyncio.to_thread(verify, cold_url, topic=TOPIC, key=None)
    assert [each.findings for each in reports] == [()] * len(reports), reports
