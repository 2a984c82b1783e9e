"""A broker is not recovered from a store that would let two of them commit: it is tried before anything is claimed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from tests.crash.unfit_store import WOULD_LET_TWO_COMMIT, refusal_for_a_race
from tests.fixtures_s3 import S3Bucket, new_bucket, objects_in
from tests.s3_proxy import S3Proxy
from tests.waiting import until
from thermocline.localstack import S3Server
from thermocline.remoting.clients.client import ClientConnection

pytestmark = [pytest.mark.s3, pytest.mark.crash]

TOPIC = "orders"
BODY = b"committed before the disk was lost"


@asynccontextmanager
async def with_lost_disk(folder: Path, **properties: str) -> AsyncIterator[BrokerProcess]:
    """A broker that has committed a message and saved its state, and then lost its disk."""
    broker = BrokerProcess(folder, {"coldStateIntervalMs": "200", **properties})
    try:
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=1)
        await wire.send(connection, TOPIC, 0, BODY)
        await wire.patiently(lambda: wire.seal(connection, TOPIC))
        await until(lambda: "state saved" in broker.log)
        connection.close()
        await broker.kill()
        shutil.rmtree(broker.store)
        yield broker
    finally:
        if broker.is_running:
            await broker.kill()


async def check_refusal(broker: BrokerProcess, url: str) -> str:
    """That a recovery from there is refused, and leaves no store; the one line that says why."""
    before = len(broker.log)
    broker.properties["coldUrl"] = url
    broker.arguments = ("--recover-from", url)
    with pytest.raises(AssertionError):
        await broker.start()
    assert await broker.wait() == 1
    assert broker.notes == []
    printed = broker.log[before:]
    assert "Traceback" not in printed
    assert not (broker.store / "thermocline" / "identity.json").exists()
    return printed.splitlines()[-1]


async def check_recovery(broker: BrokerProcess, url: str) -> None:
    """That it comes back from there, with the message."""
    broker.properties["coldUrl"] = url
    broker.arguments = ("--recover-from", url)
    await broker.start()
    assert broker.notes[1] == f"topic={TOPIC} committed=1 lost=0"
    connection = await ClientConnection.open(broker.address)
    pulled = await wire.patiently(lambda: wire.pull(connection, TOPIC, 0, 0))
    assert [record.body for record in pulled.records] == [BODY]
    connection.close()


def contents(server: S3Server, bucket: S3Bucket) -> dict[str, bytes]:
    """Every object that is there, seen past the broker."""
    client = server.client()
    try:
        keys = objects_in(server, bucket)
        return {key: client.get_object(Bucket=bucket.name, Key=key)["Body"].read() for key in keys}
    finally:
        client.close()


@pytest.mark.xdist_group("s3-rclone")
async def test_a_store_that_ignores_conditions_is_refused_until_ballots_are_chosen(
    tmp_path: Path, s3_servers: Callable[[str], S3Server]
) -> None:
    server = s3_servers("rclone")
    bucket = new_bucket(server)
    async with with_lost_disk(tmp_path, coldUrl=bucket.cold_url, coldFencing="ballots") as broker:
        before = contents(server, bucket)
        assert any("/ledger/" in key for key in before)
        del broker.properties["coldFencing"]
        last_line = await check_refusal(broker, bucket.cold_url)
        assert last_line.startswith(WOULD_LET_TWO_COMMIT)
        assert last_line.endswith("set coldFencing=ballots, which it is fit for.")
        assert contents(server, bucket) == before
        broker.properties["coldFencing"] = "ballots"
        await check_recovery(broker, bucket.cold_url)


@pytest.mark.full
async def test_a_store_behind_a_proxy_that_drops_the_condition_is_refused(
    tmp_path: Path, s3_bucket: S3Bucket, s3_server: S3Server
) -> None:
    async with with_lost_disk(tmp_path, coldUrl=s3_bucket.cold_url) as broker:
        before = contents(s3_server, s3_bucket)
        async with S3Proxy(s3_bucket, drops=("If-None-Match",)) as proxy:
            last_line = await check_refusal(broker, proxy.bucket.cold_url)
            assert last_line.startswith(WOULD_LET_TWO_COMMIT)
            assert last_line.endswith("set coldFencing=ballots, which it is fit for.")
            assert proxy.drop_count > 0
        assert contents(s3_server, s3_bucket) == before
        await check_recovery(broker, s3_bucket.cold_url)


@pytest.mark.full
@pytest.mark.xdist_group("s3-s3s-fs")
async def test_a_store_that_looks_before_it_writes_is_refused(
    tmp_path: Path, s3_servers: Callable[[str], S3Server]
) -> None:
    """No broker ever ran on it: the bucket was copied there."""
    server = s3_servers("s3s-fs")
    bucket = new_bucket(server)
    cold = tmp_path / "cold"
    async with with_lost_disk(tmp_path / "broker", coldUrl=cold.as_uri()) as broker:
        client = server.client()
        for path in cold.rglob("*"):
            if path.is_file():
                key = f"cold/{path.relative_to(cold)}"
                await asyncio.to_thread(client.put_object, Bucket=bucket.name, Key=key, Body=path.read_bytes())
        client.close()
        before = contents(server, bucket)
        last_line = await refusal_for_a_race(lambda: check_refusal(broker, bucket.cold_url))
        assert "honours If-None-Match one at a time, but" in last_line
        assert last_line.endswith("use another store.")
        assert contents(server, bucket) == before


async def test_a_directory_is_tried_before_it_is_claimed(tmp_path: Path) -> None:
    async with with_lost_disk(tmp_path / "broker", coldUrl=(tmp_path / "cold").as_uri()) as broker:
        before = len(broker.log)
        await check_recovery(broker, broker.properties["coldUrl"])
        printed = broker.log[before:]
        assert printed.index("store checked fencing=conditional") < printed.index("ledger claimed")
        assert not [path for path in (tmp_path / "cold").glob("**/doctor/**/*") if path.is_file()]
