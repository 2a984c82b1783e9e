"""A replica set under our controller, whose masters are killed: with a cold tier at work the bucket stays sound, and
topics that a master made in its last moment are served.

Covers `broker/tables/copied_topics.py`, `broker/control.py`, `broker/recovery/promotion.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from thermocline.client import AdminClient, Message, MQError, Producer, SendStatus
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.bucket.bucket_verify import verify

pytestmark = pytest.mark.crash

GROUP = "kept"
FILE_BYTES = 128 << 10


@pytest.mark.full
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


def test_topics_made_right_before_masters_are_killed_are_served(tmp_path: Path, case_count: Callable[..., int]) -> None:
    """Slaves have the messages, and perhaps not the topic; all topics are read once more at the end, at each broker."""
    topics: dict[str, set[bytes]] = {}
    with controlled_brokers(tmp_path, **WAITS_FOR_ALL) as found:
        found.start(2)
        master = found.wait_for({1, 2})
        for number in range(case_count(quick=1, full=10, soak=100)):
            topic = f"Late{number}"
            topics[topic] = send_to_new(found, topic, number)
            found.brokers[master].kill()
            next_master = found.wait_for({1, 2} - {master}, not_master=master)
            wait_until(partial(is_served, found.brokers[next_master].address, topic), what="the new master serves it")
            assert asyncio.run(read_topic(found.brokers[next_master].address, topic)) == topics[topic]
            found.brokers[master].start()
            master = found.wait_for({1, 2})
        for broker in found.brokers.values():
            for topic, bodies in topics.items():
                wait_until(partial(is_served, broker.address, topic), what=f"{topic} is followed")
                assert asyncio.run(read_topic(broker.address, topic)) == bodies
        found.check()


def send_to_new(found: ControlledBrokers, topic: str, number: int) -> set[bytes]:
    """Make a topic, and send until some messages are acknowledged, all at once."""
    with AdminClient(namesrv=found.namesrv) as admin:
        admin.create_topic(topic, queue_nums=QUEUES)
    bodies: set[bytes] = set()
    with Producer(group="late", namesrv=found.namesrv, poll_name_server_interval_ms=100) as producer:

        def is_sent() -> bool:
            with contextlib.suppress(MQError):
                body = b"%d of %d" % (len(bodies), number)
                if producer.send(Message(topic, body)).status is SendStatus.SEND_OK:
                    bodies.add(body)
            return len(bodies) >= 3 * QUEUES

        wait_until(is_sent, what="messages are acknowledged", interval_s=0.001)
    return bodies


def is_served(address: str, topic: str) -> bool:
    """Whether a broker takes pulls of the topic: it has changed its role, or followed the topic."""

    async def find() -> bool:
        connection = await ClientConnection.open(address)
        try:
            return (await wire.pull(connection, topic, 0, 0)).code == ResponseCode.SUCCESS
        finally:
            connection.close()

    with contextlib.suppress(MQError):
        return asyncio.run(find())
    return False


async def read_topic(address: str, topic: str) -> set[bytes]:
    """The bodies of a topic's messages."""
    bodies = set[bytes]()
    connection = await ClientConnection.open(address)
    try:
        for queue_id in range(QUEUES):
            end = await wire.max_offset(connection, topic, queue_id)
            records = await wire.read_queue(connection, topic, queue_id, start=0, end=end)
            assert [record.queue_offset for record in records] == list(range(end))
            bodies |= {record.body for record in records}
    finally:
        connection.close()
    return bodies


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
    return await read_topic(address, TOPIC)


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
