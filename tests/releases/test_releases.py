"""A store directory and its bucket change releases: an earlier release opens what this one wrote, and the reverse.

    pytest tests/releases --full --release COMMIT

Without `--release` the earlier one is `RELEASE`. Each life of a broker sends,
leaves what waits, and ends; the next one,
of the other release, has all of it and goes on. At the end its disk is lost twice: each release brings the broker back
from the bucket alone, which the other one wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS
from tests.interop.exchange.saved_offsets import saved_offsets
from tests.releases.release import Release, released, this_release
from tests.releases.stored_messages import GROUP, QUEUES, StoredMessages
from tests.releases.waiting_messages import HOLD_MS, WaitingMessages
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.tiered.state.newest_state import find_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS
from thermocline.tiered.stores.object_store_url import open_object_store

pytestmark = [pytest.mark.crash, pytest.mark.full, pytest.mark.timeout(900)]

RELEASE = "a9ea28d4"
"""The last one before the folders of the broker and of the cold tier were cut."""
SEED = 20_261_126
STOPPED, KILLED = "stopped", "killed"
SETTINGS = {
    **TINY_FILES_GO_AT_ONCE,
    "coldStateIntervalMs": "200",
    "flushConsumerOffsetInterval": "200",
    "flushDelayOffsetInterval": "200",
    "coldReserveBytes": str(64 << 20),
    "recallMessageEnable": "true",
    "mappedFileSizeTimerLog": str(1 << 20),
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1000000",
    "transactionOpBatchInterval": "300",
}
ASKS, DOES_NOT_ASK = {"transactionTimeOut": "1000"}, {"transactionTimeOut": str(HOLD_MS)}


@pytest.fixture(scope="module")
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The earlier release."""
    commit = request.config.getoption("--release") or RELEASE
    try:
        return released(commit, tmp_path_factory.mktemp("release"))
    except LookupError as error:
        if request.config.getoption("--release"):
            raise
        pytest.skip(f"the source has no history: {error}")


class ChangingBroker:
    """One store directory and one bucket, under one release after another."""

    def __init__(self, folder: Path) -> None:
        self.cold_url = (folder / "cold").as_uri()
        self.process = BrokerProcess(folder / "broker", {**SETTINGS, "coldUrl": self.cold_url})
        self.stored = StoredMessages(Random(SEED))
        self.waiting = WaitingMessages()
        self._life = 0

    async def live(self, release: Release, *, ending: str) -> None:
        """Start under a release, check what the starts before have stored, store the like, restart, end."""
        await self._start(release, ASKS)
        connection = await ClientConnection.open(self.process.address)
        if self._life == 0:
            await self.stored.prepare(connection)
            await self.waiting.prepare(connection)
        else:
            await self.stored.check(connection)
            await self.waiting.check(connection)
        await self.stored.leave(connection, self._life)
        await until(self._are_offsets_saved, what="the group's offsets are saved")
        connection.close()
        await self._end(ending)
        # What it went on writing after another release's it reads itself, and now it leaves what waits.
        await self._start(release, DOES_NOT_ASK)
        connection = await ClientConnection.open(self.process.address)
        await self.stored.check(connection)
        await self.waiting.leave(connection, self._life)
        await wire.patiently(lambda: wire.seal(connection))
        await self._wait_until_state_is_saved()
        connection.close()
        self._life += 1
        await self._end(ending)

    async def recover(self, release: Release) -> None:
        """Lose the disk, come back from the bucket under a release, and go on."""
        shutil.rmtree(self.process.store)
        self.process.arguments = ("--recover-from", self.cold_url)
        await self._start(release, DOES_NOT_ASK)
        self.process.arguments = ()
        connection = await ClientConnection.open(self.process.address)
        for (topic, queue_id), offset in self.stored.group_offsets.items():
            assert await wire.consumer_offset(connection, GROUP, topic, queue_id) == offset
        for topic, queue_id in self.stored.ends:
            # The queue goes on behind whatever the lost broker can have given out.
            end = await wire.max_offset(connection, topic, queue_id)
            assert end >= self.stored.ends[topic, queue_id]
            self.stored.ends[topic, queue_id] = end
        await self.stored.check(connection)
        await self.stored.leave(connection, self._life)
        await wire.patiently(lambda: wire.seal(connection))
        await self._wait_until_state_is_saved()
        connection.close()
        self._life += 1
        await self._end(KILLED)

    def _are_offsets_saved(self) -> bool:
        return all(
            saved_offsets(self.process.store, topic, GROUP).get(queue_id) == offset
            for (topic, queue_id), offset in self.stored.group_offsets.items()
        )

    async def _wait_until_state_is_saved(self) -> None:
        expected = {f"{topic}@{GROUP}": {} for topic, _ in self.stored.group_offsets}
        for (topic, queue_id), offset in self.stored.group_offsets.items():
            expected[f"{topic}@{GROUP}"][str(queue_id)] = offset
        bucket = await open_object_store(self.cold_url)

        async def is_saved() -> bool:
            # An object, not only a state that a ledger entry carries: RELEASE does not read those.
            state = (await find_newest(bucket, KEYS)).snapshot
            table = state.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {}) if state is not None else {}
            return all(table.get(name) == offsets for name, offsets in expected.items())

        await wire.until_true(is_saved)
        await bucket.close()

    async def _start(self, release: Release, settings: dict[str, str]) -> None:
        self.process.environment = release.environment
        self.process.properties.update(settings)
        await self.process.start()

    async def _end(self, ending: str) -> None:
        if ending == KILLED:
            await self.process.kill()
        else:
            assert await self.process.stop() == 0
        self.process.check_log()

    def check_bucket(self, release: Release) -> None:
        """Without a broker, a release reads from the bucket the stored messages."""
        for topic in QUEUES:
            command = ("-m", "thermocline.cli", "tier", "cat", self.cold_url, topic, "--count", "100000", "--json")
            done = subprocess.run(
                [sys.executable, *command], env={**os.environ, **release.environment}, capture_output=True, check=True
            )
            rows = json.loads(done.stdout)
            found = {(topic, row["queue"], row["queue_offset"]) for row in rows}
            assert len(found) == len(rows)
            assert found == {place for place in self.stored.records if place[0] == topic}, (release.name, topic)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ChangingBroker]:
    """A broker that is not started."""
    changing = ChangingBroker(tmp_path)
    yield changing
    if changing.process.is_running:
        await changing.process.kill()


@pytest.mark.parametrize("ending", [STOPPED, KILLED])
@pytest.mark.parametrize("first", ["earlier", "this"])
async def test_a_store_and_its_bucket_change_releases(
    broker: ChangingBroker, earlier: Release, first: str, ending: str
) -> None:
    this = this_release()
    one, other = (earlier, this) if first == "earlier" else (this, earlier)
    for release in (one, other, one):
        await broker.live(release, ending=ending)
    for release in (other, one):
        await broker.recover(release)
        broker.check_bucket(this)
        broker.check_bucket(earlier)
