"""The sockets of replication: a port and links on one loop, over real stores.

Covers `replication/links/master_port.py`, `replication/links/slave_link.py`, `replication/replication_settings.py`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop

from tests.clock import now_ms
from tests.store.store_parts import draft, small_config
from tests.waiting import until
from thermocline.remoting.connections.limit_counts import LimitCounts
from thermocline.remoting.offsets import LOG_START
from thermocline.replication.confirmations import Confirmations
from thermocline.replication.links.master_port import LIMIT, PACE_S, MasterPort
from thermocline.replication.links.slave_link import SlaveLink
from thermocline.replication.log_copy import LogCopy
from thermocline.replication.plain_codec import PlainCodec
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.files.disk import RealDisk
from thermocline.store.message_store import MessageStore

LOOPBACK = "127.0.0.1"
SETTINGS = ReplicationSettings(transfer_bytes_max=1_000, heartbeat_interval_ms=100, silence_ms_max=60_000)
FILE_BYTES = 1 << 20


@dataclass(slots=True, kw_only=True)
class Sides:
    """A master with its port, and slaves."""

    folder: Path
    master: MessageStore
    port: MasterPort
    address: str
    limits: LimitCounts
    confirmations: Confirmations

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            self.master.put(draft(body=b"x" * 500))

    @asynccontextmanager
    async def slave(
        self, name: str = "slave", *, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    ) -> AsyncIterator[tuple[MessageStore, SlaveLink]]:
        store = open_on_disk(self.folder / name, flush=flush)
        link = SlaveLink(store, SETTINGS, clock=now_ms, reconnect_ms=10)
        link.follow(self.address)
        link.start()
        try:
            yield store, link
        finally:
            await link.close()
            store.close()

    async def wait_equal(self, slave: MessageStore) -> None:
        """Return when the slave has the master's log."""
        log, copy = self.master.commit_log, slave.commit_log
        await until(lambda: copy.append_offset == log.append_offset, what="the slave has the log")
        for file in copy.files:
            assert bytes(file.view) == bytes(log.files.find(file.base_offset).view)


def open_on_disk(folder: Path, *, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> MessageStore:
    config = small_config(str(folder), log_file_bytes=FILE_BYTES, queue_file_bytes=20_000, flush_disk_type=flush)
    return MessageStore.open(config, disk=RealDisk(), clock=now_ms)


@asynccontextmanager
async def sides(
    folder: Path, settings: ReplicationSettings = SETTINGS, *, slaves_max: int = 4, puts_wait: bool = True
) -> AsyncIterator[Sides]:
    master = open_on_disk(folder / "master")
    limits = LimitCounts()
    confirmations = Confirmations(slaves_needed=1, timeout_ms=lambda: 3_000)
    port = MasterPort(
        master.commit_log,
        settings,
        confirmations=confirmations if puts_wait else None,
        clock=now_ms,
        limits=limits,
        connections_max=slaves_max,
    )
    number = port.start(LOOPBACK, 0)
    try:
        yield Sides(
            folder=folder,
            master=master,
            port=port,
            address=f"{LOOPBACK}:{number}",
            limits=limits,
            confirmations=confirmations,
        )
    finally:
        port.close()
        port.close()
        master.close()


async def test_a_slave_gets_what_is_there_and_what_is_appended(tmp_path: Path) -> None:
    async with sides(tmp_path) as both, both.slave() as (slave, _):
        both.put()
        await both.wait_equal(slave)
        both.put(3_000)
        await both.wait_equal(slave)
        assert len(slave.commit_log.files) > 1
        for _ in range(20):
            both.put()
            await both.wait_equal(slave)
        await until(lambda: both.confirmations.confirmed_offset == both.master.commit_log.append_offset)
        (state,) = both.port.states()
        assert state.confirmed_offset == state.next_offset == both.master.commit_log.append_offset


async def test_what_a_synchronous_slave_confirms_is_durable(tmp_path: Path) -> None:
    async with sides(tmp_path) as both, both.slave(flush=FlushDiskType.SYNC_FLUSH) as (slave, _):
        both.put(100)
        end = both.master.commit_log.append_offset
        await until(lambda: both.confirmations.confirmed_offset == end)
        assert slave.commit_log.flush_offset == end


async def test_a_slave_that_restarts_goes_on(tmp_path: Path) -> None:
    async with sides(tmp_path) as both:
        for _ in range(3):
            both.put(500)
            async with both.slave() as (slave, _):
                await both.wait_equal(slave)


async def test_several_slaves_follow_one_master(tmp_path: Path) -> None:
    async with sides(tmp_path) as both, both.slave("one") as (one, _), both.slave("two") as (two, _):
        both.put(1_000)
        await both.wait_equal(one)
        await both.wait_equal(two)


async def test_a_slave_too_many_is_closed_and_counted(tmp_path: Path) -> None:
    async with sides(tmp_path, slaves_max=1) as both, both.slave("one") as (one, _):
        both.put()
        await both.wait_equal(one)
        async with both.slave("two") as (two, _):
            await until(lambda: both.limits.totals.get(LIMIT, 0) >= 1)
            assert two.commit_log.append_offset == 0


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with sides(tmp_path) as both:
        host, _, port = both.address.partition(":")
        with pytest.raises(
            OSError, match=f"the replication port cannot be opened on {both.address}: Address already"
        ) as raised:
            both.port.start(host, int(port))
        assert raised.value.errno == errno.EADDRINUSE


async def test_a_silent_slave_is_closed_and_an_idle_one_is_not(tmp_path: Path) -> None:
    settings = ReplicationSettings(heartbeat_interval_ms=100, silence_ms_max=600)
    async with sides(tmp_path, settings) as both, both.slave() as (slave, link):
        both.put()
        await both.wait_equal(slave)
        first = both.port.states()[0].address
        _, silent = await asyncio.open_connection(*both.address.rsplit(":"))
        await until(lambda: len(both.port.states()) == 2)
        await until(lambda: len(both.port.states()) == 1)
        assert both.port.states()[0].address == first, "the slave that reports is still there"
        assert link.last_read_ms > 0
        silent.close()
        await silent.wait_closed()


async def test_a_slave_leaves_a_silent_master(tmp_path: Path) -> None:
    connected: list[asyncio.StreamWriter] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)

    server = await asyncio.start_server(accepted, LOOPBACK, 0)
    store = open_on_disk(tmp_path / "slave")
    settings = ReplicationSettings(heartbeat_interval_ms=50, silence_ms_max=200)
    link = SlaveLink(store, settings, clock=now_ms, reconnect_ms=1)
    host, port = server.sockets[0].getsockname()[:2]
    link.follow(f"{host}:{port}")
    link.start()
    await until(lambda: len(connected) >= 3)
    await link.close()
    for writer in connected:
        writer.close()
    server.close()
    await server.wait_closed()
    store.close()


async def test_a_limit_of_the_rate_holds(tmp_path: Path) -> None:
    settings = ReplicationSettings(heartbeat_interval_ms=100, silence_ms_max=60_000, bytes_per_second_max=100_000)
    async with sides(tmp_path, settings) as both:
        both.put(400)
        async with both.slave() as (slave, _):
            size_bytes = both.master.commit_log.append_offset
            await both.wait_equal(slave)
            rates = max(state.bytes_per_second for state in both.port.states())
            assert 0 < rates <= 100_000 < size_bytes


async def transfers_of(both: Sides, put_count: int) -> tuple[int, float]:
    """Put so many messages, each in a turn of the loop of its own: how many transfers they came in, and seconds."""
    codec, loop = PlainCodec(), asyncio.get_running_loop()
    both.put()
    reader, writer = await asyncio.open_connection(*both.address.rsplit(":"))
    try:
        writer.write(codec.encode_report(LOG_START))
        first = codec.decode_head(await reader.readexactly(codec.head_bytes), 0)
        await reader.readexactly(first.size_bytes)
        begun_s, count, end_offset = loop.time(), 0, first.size_bytes
        for _ in range(put_count):
            both.put()
            await asyncio.sleep(0)
        while end_offset < both.master.commit_log.append_offset:
            head = codec.decode_head(await reader.readexactly(codec.head_bytes), 0)
            await reader.readexactly(head.size_bytes)
            end_offset += head.size_bytes
            count += head.size_bytes > 0
        return count, loop.time() - begun_s
    finally:
        writer.close()
        await writer.wait_closed()


async def test_transfers_are_apart_where_no_put_waits_for_them(tmp_path: Path) -> None:
    async with sides(tmp_path, ReplicationSettings(transfer_bytes_max=FILE_BYTES), puts_wait=False) as both:
        count, seconds = await transfers_of(both, 300)
        assert count <= 2 + seconds / (PACE_S - 0.001), "the loop counts in milliseconds"


async def test_transfers_follow_at_once_where_puts_wait(tmp_path: Path) -> None:
    async with sides(tmp_path, ReplicationSettings()) as both:
        count, _ = await transfers_of(both, 300)
        assert count > 100


def test_a_report_is_left_out_when_the_connection_has_just_ended(tmp_path: Path) -> None:
    """The event loop of the broker refuses what is written then; tables that were followed lead to a report."""

    async def report_at_every_turn() -> None:
        async with sides(tmp_path) as both, both.slave() as (slave, link):
            both.put()
            await both.wait_equal(slave)
            session, transport = link._session, link._transport
            assert session is not None
            assert transport is not None
            transport.abort()
            while link._transport is transport:
                session._reported_offset = None
                link.report()
                await asyncio.sleep(0)

    uvloop.run(report_at_every_turn())


async def test_a_slave_goes_on_after_a_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with sides(tmp_path) as both, both.slave() as (slave, _):
        both.put()
        await both.wait_equal(slave)
        with monkeypatch.context() as patched:
            patched.setattr(LogCopy, "receive", lambda *_: [][0])
            both.put()
            await until(lambda: "a bug of ours" in caplog.text)
        both.put()
        await both.wait_equal(slave)


async def test_a_slave_follows_its_master_to_another_address(tmp_path: Path) -> None:
    async with sides(tmp_path / "a") as first, sides(tmp_path / "b") as second, first.slave() as (slave, link):
        first.put(10)
        await first.wait_equal(slave)
        second.put(3_000)
        link.follow(second.address)
        await until(lambda: not first.port.states())
        assert link.master_address == second.address


async def test_a_master_that_changes_while_a_connection_is_made_is_not_followed(tmp_path: Path) -> None:
    """The one before may be cut off from the controllers, and count the reports that this slave would send it."""
    async with sides(tmp_path / "a") as first, sides(tmp_path / "b") as second:
        first.put(10)
        second.put(20)
        store = open_on_disk(tmp_path / "slave")
        link = SlaveLink(store, SETTINGS, clock=now_ms, reconnect_ms=10)
        link.follow(first.address)
        link.start()
        await asyncio.sleep(0)  # the connection to the first one is being made
        link.follow(second.address)
        try:
            await second.wait_equal(store)
            assert not first.confirmations.confirmed_offset
        finally:
            await link.close()
            store.close()
