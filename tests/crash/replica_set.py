"""A replica set of ours with one bucket: brokers as processes on a NameServer, and what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS
from tests.crash.test_tier_scrub import scrub
from tests.interop.replica_brokers import FAST, log_end, log_files
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.errors import MQError
from thermocline.tiered.bucket.bucket_verify import verify
from tooling.official_rocketmq import free_broker_port

ASYNC_MASTER, SYNC_MASTER, SLAVE = "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"
TOPIC, QUIET, QUEUES = "BucketOrders", "BucketQuiet", 3
BODY_BYTES = 60_000


class ReplicaSet:
    """Members by number, each with a directory of its own; `sent`: every acknowledged message by its place."""

    def __init__(self, folder: Path, name_server: str, cold_url: str, **settings: str) -> None:
        self.cold_url = cold_url
        self.sent: dict[tuple[str, int, int], bytes] = {}
        self.failed_count = 0
        self.arguments: tuple[str, ...] = ()
        """Options of each member."""
        self._folder = folder
        self._settings = {
            **TINY_FILES_GO_AT_ONCE,
            **FAST,
            "namesrvAddr": name_server,
            "coldUrl": cold_url,
            "waitTimeMillsInSendQueue": "10000",  # a busy machine refuses no send
            **settings,
        }
        self._members: list[BrokerProcess] = []

    def member(self, number: int, role: str, broker_id: int = 0, **settings: str) -> BrokerProcess:
        """A member with this role from its next start on; a new number is a new, empty directory."""
        folder = self._folder / f"member{number}"
        properties = {
            **self._settings,
            "haListenPort": str(free_broker_port()),
            "brokerRole": role,
            "brokerId": str(broker_id),
            "slaveReadEnable": "true",
            **settings,
        }
        process = BrokerProcess(folder, properties)
        process.arguments = self.arguments
        self._members.append(process)
        return process

    async def close(self) -> None:
        """Kill what runs."""
        for member in self._members:
            if member.is_running:
                await member.kill()

    async def send(
        self, connection: ClientConnection, count: int, *, topic: str = TOPIC, size: int = BODY_BYTES
    ) -> None:
        """Send messages to the queues in turn; fail on a place that was given out before."""
        for number in range(count):
            body = b"%d %d " % (number, len(self.sent)) + os.urandom(size // 2).hex().encode()
            key = f"{topic}-{len(self.sent)}"
            answer = await wire.send(connection, topic, number % QUEUES, body, properties=f"KEYS\x01{key}\x02")
            self._note(answer, body)

    async def send_until_cut(self, connection: ClientConnection) -> None:
        """Send until the connection is lost; sends that are refused are counted."""
        for number in itertools.count():
            body = os.urandom(4_000).hex().encode()
            try:
                self._note(await wire.send(connection, TOPIC, number % QUEUES, body), body)
            except wire.Refused:
                self.failed_count += 1
                await asyncio.sleep(0.01)
            except MQError:
                return

    def _note(self, answer: wire.Acknowledged, body: bytes) -> None:
        place = (answer.topic, answer.queue_id, answer.queue_offset)
        assert place not in self.sent, f"{place} was given out twice"
        self.sent[place] = body

    async def check_messages(self, connection: ClientConnection) -> None:
        """Fail unless every acknowledged message is read at its place, by a reader that begins with the first one."""
        for topic in sorted({topic for topic, _, _ in self.sent}):
            for queue_id in range(QUEUES):
                end = await wire.max_offset(connection, topic, queue_id)
                records = await wire.read_queue(connection, topic, queue_id, start=0, end=end)
                assert len({record.queue_offset for record in records}) == len(records)
                found = {record.queue_offset: record.body for record in records}
                wanted = {place[2]: body for place, body in self.sent.items() if place[:2] == (topic, queue_id)}
                lost = sorted(offset for offset, body in wanted.items() if found.get(offset) != body)
                assert not lost, f"{topic}/{queue_id}: {lost[:10]} of {len(wanted)} messages, end {end}"

    async def check_bucket(self, connection: ClientConnection) -> None:
        """Fail if `tier verify` or a deep scrub finds anything."""
        await wire.patiently(lambda: wire.seal(connection))
        report = await scrub(connection, deep="true")
        # What a start that was killed had tried stays for an hour, as for tests/crash/bucket.py.
        found = [each for each in report["findings"] if not each["key"].startswith(KEYS.doctor_prefix)]
        assert found == [], report
        for topic in sorted({topic for topic, _, _ in self.sent}):
            reports = await asyncio.to_thread(verify, self.cold_url, topic=topic, key=None)
            assert [each.findings for each in reports] == [()] * len(reports), reports


@contextlib.asynccontextmanager
async def connected(member: BrokerProcess) -> AsyncIterator[ClientConnection]:
    """A client's connection to a member."""
    connection = await ClientConnection.open(member.address)
    try:
        yield connection
    finally:
        connection.close()


def copied_bytes(member: BrokerProcess) -> int:
    """How many bytes of log a member has."""
    folder = member.store / "commitlog"
    files = log_files(folder)
    return log_end(folder) - int(files[0].name) if files else 0


async def until_copied(master: BrokerProcess, slave: BrokerProcess) -> None:
    """Return when the slave's log ends where the master's does."""
    folders = [member.store / "commitlog" for member in (master, slave)]
    await until(lambda: folders[1].exists() and 0 < log_end(folders[0]) == log_end(folders[1]))
