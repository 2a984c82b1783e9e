"""A broker whose old messages exist only in the bucket, where an object is lost: errors for clients, and the repair."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import KEYS, newest
from tests.crash.test_kill_nine import local_minimums, move_to_cold
from tests.waiting import until
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.ledger.pins import Pin, create_pin
from thermocline.tiered.state.newest_state import list_names, read_newest
from thermocline.tiered.state.snapshot import KEPT_COUNT
from thermocline.tiered.stores.file import FileObjectStore

TOPIC = "Scrubbed"
COUNT = 120
BODY_BYTES = 2_000
SETTINGS = {
    **TINY_FILES_GO_AT_ONCE,
    "mappedFileSizeCommitLog": str(64 << 10),
    "coldSegmentBytes": str(64 << 10),
    "coldFrameBytes": str(8 << 10),
    "coldGraceMs": "400",
}


async def scrub(connection: ClientConnection, **fields: str) -> dict[str, Any]:
    """A scrub from its beginning to its end; its report."""
    begun = json.loads(bytes((await wire.ask(connection, PrivateRequestCode.TIER_SCRUB, ext_fields=fields)).body))
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            answer = await wire.ask(connection, PrivateRequestCode.TIER_SCRUB_STATE)
            state: dict[str, Any] = json.loads(bytes(answer.body))
            if not state["isRunning"]:
                break
            await asyncio.sleep(0.05)
    assert (state["number"], state["error"]) == (begun["number"], "")
    report: dict[str, Any] = state["report"]
    return report


async def why_in_bucket(connection: ClientConnection) -> str:
    """What `tier explain` says of the first queue's cold messages."""
    answer = await wire.ask(connection, PrivateRequestCode.TIER_EXPLAIN, ext_fields={"topic": TOPIC, "queueId": "0"})
    why: str = json.loads(bytes(answer.body))["queues"][0]["whyInBucket"]
    return why


async def read(connection: ClientConnection, start: int, end: int) -> list[bytes]:
    """Bodies of offsets [start, end), as a consumer gets them that begins there."""
    records = await wire.read_queue(connection, TOPIC, 0, start=start, end=end)
    assert [record.queue_offset for record in records][: end - start] == list(range(start, end))
    return [record.body for record in records[: end - start]]


async def test_lost_records_are_named_and_restored_ones_come_back(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, "coldUrl": f"file://{cold}"})
    store = FileObjectStore(str(cold), disk=RealDisk())
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=1)
        bodies = [f"{number}/".encode().ljust(BODY_BYTES, b".") for number in range(COUNT)]
        for body in bodies:
            await wire.send(connection, TOPIC, 0, body)
        await move_to_cold(broker)
        local_from = (await local_minimums(connection))[TOPIC, 0]
        segment = (await newest(store)).topics[TOPIC].segments[0]
        (run,) = segment.runs
        assert run.end_offset <= local_from
        kept = await store.get(segment.log.key)
        await store.delete(segment.log.key)

        report = await scrub(connection, deep="true", heal="true")
        assert [(each["problem"], each["outcome"]) for each in report["findings"]] == [("missing", "quarantined")]
        # Each retry gets the same refusal and never skips the range; offsets behind it are served as before.
        for offset in (run.start_offset, run.end_offset - 1):
            remark = await refused(connection, offset)
            assert segment.log.key in remark
            assert f"lost_offsets=[{run.start_offset}, {run.end_offset})" in remark
        assert await read(connection, run.end_offset, COUNT) == bodies[run.end_offset :]
        assert await wire.min_offset(connection, TOPIC, 0) == 0
        status = await wire.tier_status(connection)
        assert status["lastScrub"]["broken"] == 1
        assert await why_in_bucket(connection) == (
            f"kept for ever; [{run.start_offset}, {run.end_offset}) was quarantined by a scrub, and reads of it fail:"
            f" {segment.log.key} missing"
        )
        catalog = await newest(store)
        pin = Pin(pin_id="job-1", version=catalog.version, until_ms=4_000_000_000_000, owner="a test")
        await create_pin(store, KEYS, pin)

        # The next tier process does the same, and reports it after a restart.
        pid = broker.helper_pid("tier")
        broker.kill_helper("tier")
        await until(lambda: broker.helper_pid("tier") not in (None, pid))
        await wire.patiently(lambda: wire.ask(connection, PrivateRequestCode.TIER_SCRUB_STATE))
        assert segment.log.key in await refused(connection, run.start_offset)

        await store.put(segment.log.key, kept)
        report = await scrub(connection, heal="true")
        assert [each["outcome"] for each in report["findings"]] == ["healed"]
        assert await read(connection, 0, COUNT) == bodies
        why = await why_in_bucket(connection)
        assert "quarantined" not in why
        assert why.startswith("kept for ever; 3 objects (")
        assert why.endswith(" that have left the catalog are held by a pin job-1 until 2096-10-02T07:06:40Z (a test)")
        assert (await scrub(connection, deep="true"))["findings"] == []
        connection.close()
        assert await broker.stop() == 0
    finally:
        if broker.is_running:
            await broker.kill()


async def test_damaged_state_is_found_and_written_again_by_the_broker(tmp_path: Path) -> None:
    """Damaged ballots, which a scrub checks too: it finds nothing else; after a restart both snapshots are whole."""
    cold = tmp_path / "cold"
    port = free_port()
    settings = {
        **SETTINGS,
        "coldFencing": "ballots",
        "coldUrl": f"file://{cold}",
        "coldStateIntervalMs": "3600000",
        "healthPort": str(port),
    }
    broker = BrokerProcess(tmp_path / "broker", settings)
    store = FileObjectStore(str(cold), disk=RealDisk())
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=1)
        await wire.send(connection, TOPIC, 0, b"anything")
        await wire.patiently(lambda: wire.seal(connection))
        assert (await scrub(connection, deep="true"))["findings"] == []
        await both_states(store)
        for name in await list_names(store, KEYS):
            await store.put(KEYS.state(epoch=name.epoch, sequence=name.sequence), b"{}")
        assert len((await scrub(connection))["findings"]) == await shown_broken(port) == KEPT_COUNT
        report = await scrub(connection, heal="true")
        assert {(each["kind"], each["outcome"]) for each in report["findings"]} == {("state snapshot", "healed")}
        assert await shown_broken(port) == 0
        assert (await scrub(connection, deep="true"))["findings"] == []
        newest_state = await read_newest(store, KEYS)
        assert newest_state is not None
        assert [topic.topic for topic in newest_state.topics if topic.topic == TOPIC] == [TOPIC]
        connection.close()
        assert await broker.stop() == 0
    finally:
        if broker.is_running:
            await broker.kill()


async def shown_broken(port: int) -> int:
    """What the alert rule looks at."""
    page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
    (line,) = [line for line in page.splitlines() if line.startswith("thermocline_tier_scrub_broken ")]
    return int(line.split()[1])


async def both_states(store: FileObjectStore) -> None:
    """Wait until the broker has saved what it is twice."""
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            if len(await list_names(store, KEYS)) == KEPT_COUNT:
                return
            await asyncio.sleep(0.05)


async def refused(connection: ClientConnection, offset: int) -> str:
    """Return the refusal of a pull at an offset, once the tier process runs."""
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            pulled = await wire.pull(connection, TOPIC, 0, offset)
            assert pulled.code in wire.TRY_AGAIN, pulled
            assert (pulled.records, pulled.next_offset) == ([], offset)
            if "lost" in pulled.remark:
                return pulled.remark
            await asyncio.sleep(0.05)
