"""Hostile bytes at a live broker and a live NameServer: they stay up, small and quiet; honest clients notice nothing.

Both are daemons of their own, so that memory is theirs alone. The probe is an honest client's whole exchange: a route,
a message sent and read again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess, resident_bytes
from tests.remoting.wire_fuzz import FuzzCases, throw
from thermocline.remoting.clients.client import ClientConnection, RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

TOPIC = "Honest"
GROWTH_BYTES_MAX = 24 << 20
"""What a process may grow by between the first tenth of the cases and the last: no case may leave something behind."""
WARM_UP_SHARE = 10
BUGS = ("Traceback", "a bug of ours", "AssertionError")


@dataclass(slots=True)
class Live:
    """A NameServer and a broker that has registered there, and an honest client of both."""

    name_server: str
    name_server_pid: int
    name_server_log: Path
    broker: BrokerProcess
    client: RemotingClient

    async def probe(self) -> None:
        """An honest exchange with both; raises when anything is not as it should be."""
        number = next(_numbers)
        route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": TOPIC})
        answer = await self.client.call(self.name_server, route, timeout_ms=10_000)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        connection = await ClientConnection.open(self.broker.address)
        try:
            body = f"honest {number}".encode()
            sent = await wire.send(connection, TOPIC, number % 4, body)
            pulled = await wire.pull(connection, TOPIC, number % 4, sent.queue_offset, count=1)
            assert [record.body for record in pulled.records] == [body], pulled.code
        finally:
            connection.close()


_numbers = itertools.count()


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    """Both daemons, and the honest client's topic."""
    log_path = tmp_path / "namesrv.log"
    with log_path.open("wb") as log:
        name_server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "thermocline.cli", "namesrv", "--listen", "127.0.0.1:0"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    assert name_server.stdout is not None
    async with asyncio.timeout(60):
        line = (await name_server.stdout.readline()).decode()
    assert line.startswith("ready "), log_path.read_text()
    address = dict(part.split("=", 1) for part in line.split()[1:])["namesrv"]
    settings = {**TINY_FILES_GO_AT_ONCE, "namesrvAddr": address, "coldUrl": f"file://{tmp_path}/cold"}
    broker = BrokerProcess(tmp_path / "broker", settings)
    try:
        await broker.start()
        async with RemotingClient() as client:
            connection = await ClientConnection.open(broker.address)
            await wire.make_topic(connection, TOPIC, queues=4)
            connection.close()
            yield Live(address, name_server.pid, log_path, broker, client)
        assert await broker.stop() == 0
    finally:
        if broker.is_running:
            await broker.kill()
        name_server.terminate()
        await name_server.wait()


@pytest.mark.crash
@pytest.mark.parametrize("target", ["broker", "namesrv"])
async def test_hostile_bytes_harm_no_other_client(live: Live, case_count: Callable[..., int], target: str) -> None:
    count = case_count(quick=750, soak=50_000)
    seed = int(os.environ.get("TEST_FUZZ_SEED", "20"))
    address = live.broker.address if target == "broker" else live.name_server
    pid = live.broker.pid if target == "broker" else live.name_server_pid
    await live.probe()
    cases = FuzzCases(seed=seed)
    warm_up = count // WARM_UP_SHARE
    report = await throw(address, cases, count=warm_up, probe=live.probe, probe_every=50)
    assert not report.violations, report.violations[:5]
    before_bytes = resident_bytes(pid)
    report = await throw(address, cases, count=count - warm_up, probe=live.probe, probe_every=100)
    assert not report.violations, report.violations[:5]
    assert report.answered
    assert report.closed
    grown_bytes = resident_bytes(pid) - before_bytes
    assert grown_bytes < GROWTH_BYTES_MAX, f"grew by {grown_bytes >> 20} MiB over {count - warm_up} cases"
    live.broker.check_log()
    name_server_log = live.name_server_log.read_text(errors="replace")
    assert not any(text in name_server_log for text in BUGS), name_server_log[-4_000:]
