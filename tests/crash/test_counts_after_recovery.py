"""After a recovery from the bucket: a lag counts messages that exist, and the report those that readers get.

Covers `broker/recovery/readable_counts.py`.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import urllib.request
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import now_ms
from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS, newest
from tests.waiting import until
from thermocline.broker.recovery.bucket_recovery import recover_from_bucket
from thermocline.broker.recovery.recovery_report import RecoveryReport
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies import ConsumeStats, MessageQueue
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.headers.group import GetConsumeStatsRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.state.newest_state import read_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS
from thermocline.tiered.stores.object_store_url import open_object_store

pytestmark = pytest.mark.crash

TOPIC = "Counted"
COUNT = 12
TTL_MS = 3_600_000
GROUPS = {"counted-none": 0, "counted-some": 5, "counted-all": COUNT}
SETTINGS = {
    **TINY_FILES_GO_AT_ONCE,
    "coldStateIntervalMs": "100",
    "flushConsumerOffsetInterval": "100",
    "coldReserveBytes": str(64 << 20),
    "coldSealAgeMs": "3600000",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker on a cold tier of files; not started."""
    url = (tmp_path / "cold").as_uri()
    process = BrokerProcess(tmp_path / "broker", {**SETTINGS, "coldUrl": url, "healthPort": str(free_port())})
    yield process
    if process.is_running:
        await process.kill()


async def reported_lag(connection: ClientConnection, group: str) -> int:
    """As `mqadmin consumerProgress` works it out."""
    answer = await wire.ask(
        connection, RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group=group)
    )
    wrapper = ConsumeStats.decode(answer.body).offset_table[
        MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
    ]
    return wrapper.broker_offset - wrapper.consumer_offset


async def lags_shown(broker: BrokerProcess) -> dict[str, int]:
    """Group -> its lag on the metrics page."""

    def page() -> str:
        url = f"http://127.0.0.1:{broker.properties['healthPort']}/metrics"
        with urllib.request.urlopen(url, timeout=wire.PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text

    lines = [line for line in (await asyncio.to_thread(page)).splitlines() if f'topic="{TOPIC}"' in line]
    found = [line for line in lines if line.startswith("thermocline_consumer_lag_messages{")]
    return {line.partition('group="')[2].partition('"')[0]: int(line.rpartition(" ")[2]) for line in found}


async def test_a_lag_does_not_count_the_hole_that_a_recovery_leaves(broker: BrokerProcess) -> None:
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await wire.make_topic(connection, TOPIC, queues=1)
    for number in range(COUNT):
        await wire.send(connection, TOPIC, 0, b"%d" % number)
    for group, offset in GROUPS.items():
        await wire.make_group(connection, group)
        await wire.commit_offset(connection, group, TOPIC, 0, offset)
    await wire.patiently(lambda: wire.seal(connection, TOPIC))
    bucket = await open_object_store(broker.properties["coldUrl"])

    async def is_saved() -> bool:
        snapshot = await read_newest(bucket, KEYS)
        table = snapshot.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {}) if snapshot is not None else {}
        return all(f"{TOPIC}@{group}" in table for group in GROUPS)

    await wire.until_true(is_saved)
    await bucket.close()
    connection.close()
    for hole_count in (1, 2):
        await broker.kill()
        shutil.rmtree(broker.store)
        broker.arguments = ("--recover-from", broker.properties["coldUrl"])
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        sent = await wire.send(connection, TOPIC, 0, b"later")
        assert sent.queue_offset > 100_000 * hole_count
        expected = {group: COUNT + hole_count - offset for group, offset in GROUPS.items()}

        async def are_reported(connection: ClientConnection = connection, expected: dict[str, int] = expected) -> bool:
            return {group: await reported_lag(connection, group) for group in GROUPS} == expected

        await wire.until_true(are_reported)  # the cold tier is heard of a moment after the start
        assert await lags_shown(broker) == expected
        await wire.seal(connection, TOPIC)
        connection.close()


async def test_the_report_counts_readable_messages(broker: BrokerProcess, tmp_path: Path) -> None:
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await wire.make_topic(connection, TOPIC, queues=1, ttl_ms=TTL_MS)
    first_ms = now_ms()
    for number in range(5):
        await wire.send(connection, TOPIC, 0, b"%d" % number)
    later_ms = now_ms() + 5
    await until(lambda: now_ms() > later_ms)
    middle_ms = now_ms()
    for number in range(5, COUNT):
        await wire.send(connection, TOPIC, 0, b"%d" % number)
    await wire.patiently(lambda: wire.seal(connection, TOPIC))
    assert (await newest_count(broker)) == COUNT
    await broker.kill()
    connection.close()

    async def recovered(clock_ms: int, name: str) -> RecoveryReport:
        bucket = await open_object_store(broker.properties["coldUrl"])
        try:
            report = await recover_from_bucket(
                bucket,
                broker=BrokerConfig(listen_host="127.0.0.1", broker_name="broker-a"),
                store=StoreConfig(root_path=str(tmp_path / name)),
                tier=TierConfig(cold_url=broker.properties["coldUrl"], reserve_bytes=64 << 20),
                disk=RealDisk(),
                clock=lambda: clock_ms,
                random=random.Random(name),
                make_id=lambda: uuid.uuid4().hex[:16],
            )
        finally:
            await bucket.close()
        assert report is not None
        return report

    for clock_ms, line in (
        (first_ms + TTL_MS - 1, f"topic={TOPIC} committed={COUNT} lost=0"),
        (middle_ms + TTL_MS, f"topic={TOPIC} committed={COUNT - 5} lost=0 expired=5"),
        (middle_ms + 2 * TTL_MS, f"topic={TOPIC} committed=0 lost=0 expired={COUNT}"),
    ):
        report = await recovered(clock_ms, f"at-{clock_ms}")
        assert line in list(report.lines()), list(report.lines())


async def newest_count(broker: BrokerProcess) -> int:
    """How many messages of the topic the catalog counts."""
    bucket = await open_object_store(broker.properties["coldUrl"])
    try:
        catalog = await newest(bucket)
    finally:
        await bucket.close()
    return sum(end - start for start, end in catalog.queue_bounds(TOPIC).values())
