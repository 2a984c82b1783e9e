"""A start holds for no object store: `ready` comes, sends and recent reads are served, history follows when the store
answers. What the store has to be checked for is checked then, and nothing is committed before.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from tests.cli.test_daemons import Daemon
from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.unfit_store import WOULD_LET_TWO_COMMIT
from tests.fixtures_s3 import S3Bucket, new_bucket, objects_in
from tests.s3_proxy import Forward, ProxiedRequest, S3Proxy, s3_error
from thermocline.localstack import S3Server
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.response_code import ResponseCode

pytestmark = [pytest.mark.s3, pytest.mark.crash]

TOPIC = "Orders"
SLOW_ANSWER_S = 0.5
READY_DELAY_S_MAX = 9.0
"""By how much `ready` may be later than with a store that answers: 13 s where it is waited for, 2 s where it is not."""


class Store:
    """The rule of a proxy whose store answers, hangs, answers slowly or with errors."""

    def __init__(self) -> None:
        self.mode = "answers"
        self._released = asyncio.Event()

    def hang(self) -> None:
        """Hold requests from now on."""
        self.mode, self._released = "hangs", asyncio.Event()

    def answer(self) -> None:
        """Carry out all requests, those that are held too."""
        self.mode = "answers"
        self._released.set()

    async def rule(self, _request: ProxiedRequest, forward: Forward) -> web.Response:
        """What a request meets."""
        if self.mode == "hangs":
            await self._released.wait()
        elif self.mode == "slow":
            await asyncio.sleep(SLOW_ANSWER_S)
        elif self.mode == "errors":
            return s3_error(503, "SlowDown")
        return await forward()


@contextlib.asynccontextmanager
async def dev(folder: Path, cold_url: str, *, log: list[str]) -> AsyncIterator[tuple[float, str]]:
    """`thermocline dev` on the folder; how long it took to be ready, in seconds, and the broker's address."""
    settings = [word for name, value in TINY_FILES_GO_AT_ONCE.items() for word in ("--set", f"{name}={value}")]
    addresses = ["--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0"]
    started = time.monotonic()
    daemon = Daemon(["dev", "--data", "data", *addresses, "--cold", cold_url, *settings], folder)
    try:
        ready = await asyncio.to_thread(daemon.ready)
        yield time.monotonic() - started, ready["broker"]
        log.append(daemon.errors())
    finally:
        assert await asyncio.to_thread(daemon.stop) == 0


async def fill(connection: ClientConnection) -> None:
    """Send until messages are in the cold tier alone."""
    await wire.make_topic(connection, TOPIC, queues=1)

    async def has_let_go() -> bool:
        await wire.send_batch(connection, TOPIC, 0, [(b"x" * 4_000, "")] * 50)
        return await wire.has_let_go(connection, TOPIC)

    await wire.until_true(partial(wire.patiently, has_let_go))


async def check_hot_tier(connection: ClientConnection) -> None:
    """A message is sent and read back."""
    sent = await wire.send(connection, TOPIC, 0, b"recent")
    pulled = await wire.pull(connection, TOPIC, 0, sent.queue_offset)
    assert [record.body for record in pulled.records] == [b"recent"]


async def check_history_is_put_off(connection: ClientConnection) -> None:
    """The queue's first offset is not answered, and a reader there gets SYSTEM_BUSY."""
    pulled = await wire.pull(connection, TOPIC, 0, 0)
    assert (pulled.code, pulled.next_offset) == (ResponseCode.SYSTEM_BUSY, 0)
    with pytest.raises(wire.Refused) as refused:
        await wire.min_offset(connection, TOPIC, 0)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY


async def check_history(connection: ClientConnection) -> None:
    """The first message is served."""
    assert await wire.patiently(lambda: wire.min_offset(connection, TOPIC, 0)) == 0
    (first, *_) = await wire.read_queue(connection, TOPIC, 0, start=0, end=1)
    assert first.queue_offset == 0


async def test_ready_does_not_wait_for_the_store(tmp_path: Path, s3_server: S3Server) -> None:
    store, log = Store(), list[str]()
    async with S3Proxy(new_bucket(s3_server), rule=store.rule) as proxy:
        start = partial(dev, tmp_path, proxy.bucket.cold_url, log=log)
        async with start() as (usual_s, address):
            connection = await ClientConnection.open(address)
            await fill(connection)
            connection.close()
        for mode in ("errors", "slow", "hangs"):
            store.hang() if mode == "hangs" else setattr(store, "mode", mode)
            async with start() as (took_s, address):
                connection = await ClientConnection.open(address)
                await check_hot_tier(connection)
                if mode != "slow":
                    await check_history_is_put_off(connection)
                assert took_s < usual_s + READY_DELAY_S_MAX, mode
                if mode == "hangs":
                    store.answer()
                    await check_history(connection)
                connection.close()
            assert "ready without the cold tier" in log[-1], mode
        assert "helper did not stop in time" not in "".join(log)


async def end_after_release(broker: BrokerProcess, store: Store) -> str:
    """Start on a store that hangs, send, let it answer; the last line of the broker, which must end then."""
    store.hang()
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await wire.make_topic(connection, TOPIC, queues=1)
    await check_hot_tier(connection)
    connection.close()
    store.answer()
    async with asyncio.timeout(wire.PATIENCE_S):
        assert await broker.wait() == 1
    return broker.log_tail().splitlines()[-1]


async def ledger_keys(server: S3Server, bucket: S3Bucket) -> list[str]:
    """The entries of all ledgers in the bucket."""
    return [key for key in await asyncio.to_thread(objects_in, server, bucket) if "/ledger/" in key]


async def test_a_store_that_is_unfit_is_refused_when_it_answers(tmp_path: Path, s3_server: S3Server) -> None:
    store, bucket = Store(), new_bucket(s3_server)
    async with S3Proxy(bucket, drops=("If-None-Match",), rule=store.rule) as proxy:
        broker = BrokerProcess(tmp_path, {**TINY_FILES_GO_AT_ONCE, "coldUrl": proxy.bucket.cold_url})
        last_line = await end_after_release(broker, store)
    assert last_line.startswith(WOULD_LET_TWO_COMMIT), last_line
    assert await ledger_keys(s3_server, bucket) == [], "nothing was committed"
    assert broker.newest_log_file() == 0
    assert (broker.store / "commitlog" / "0".zfill(20)).exists(), "nothing local was deleted"


async def test_a_foreign_prefix_is_refused_when_the_store_answers(tmp_path: Path, s3_server: S3Server) -> None:
    store, bucket = Store(), new_bucket(s3_server)
    async with S3Proxy(bucket, rule=store.rule) as proxy:
        settings = {**TINY_FILES_GO_AT_ONCE, "coldUrl": proxy.bucket.cold_url}
        first = BrokerProcess(tmp_path / "first", settings)
        await first.start()

        async def has_ledger() -> bool:
            return bool(await ledger_keys(s3_server, bucket))

        await wire.until_true(has_ledger)
        assert await first.stop() == 0
        history = await ledger_keys(s3_server, bucket)
        second = BrokerProcess(tmp_path / "second", settings)
        last_line = await end_after_release(second, store)
    assert last_line.startswith("thermocline: this prefix holds the history of another store directory"), last_line
    assert await ledger_keys(s3_server, bucket) == history
    assert (second.store / "commitlog" / "0".zfill(20)).exists(), "nothing local was deleted"
