"""Slave link: the connection to the master, made again as long as the broker runs.

    bytes of the master's log -> LogCopy -> report of the log's end, with SYNC_FLUSH of its durable part

The first report of a connection says where the master goes on, so all is made durable before it. A connection that
ends, for whatever reason, is made again after RECONNECT_MS, under a controller sooner; the log goes on where it ends.
Once the log takes no writes until it is opened again, replication ends.
Bytes are read when those before them are in the log, so the kernel's buffers bound what waits. Each part is taken in
the call that the loop makes for it: a task that waits for each would take as long as ten records do.
Belongs to the hot process's loop thread.
Source: store/ha/DefaultHAClient.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NoReturn

import msgspec

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import (
    ClosedError,
    MQError,
    OffsetOutOfRangeError,
    ProtocolError,
    ServiceUnavailableError,
)
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.socket_address import parse_address
from thermocline.replication import (
    Alignment,
    AutoSwitchSlaveSession,
    EpochFile,
    LogCopy,
    ReplicationSettings,
    SlaveHandshake,
    SlaveSession,
)
from thermocline.store.config import FlushDiskType
from thermocline.store.log import PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.read_limit import ReadLimit

logger = logging.getLogger(__name__)

RECONNECT_MS = 5_000
CONTROLLED_RECONNECT_MS = 500
"""Under a controller: puts may wait for this broker."""
CONNECT_TIMEOUT_S = 3.0
TICKS_PER_INTERVAL = 4


class ControlledSlave(msgspec.Struct, frozen=True, kw_only=True):
    """What a slave under a controller has beside a log."""

    epoch_file: EpochFile
    handshake: SlaveHandshake
    on_parted: Callable[[Alignment], None]
    """Called when the log has to be cut before it can go on: the link is to be closed, and another one made."""
    on_failed: Callable[[], None] = lambda: None
    """Called when the log takes no writes until the store is opened again: replication has ended."""
    confirm_offset: PhysicalOffset = LOG_START
    """What this broker has last known as confirmed."""
    may_report: Callable[[], bool] = lambda: True
    """Whether this broker may join the SyncStateSet: it has all its master's tables. It reports nothing before."""


class SlaveLink:
    """`start` once, `close` as often as wanted."""

    def __init__(
        self,
        store: MessageStore,
        settings: ReplicationSettings,
        *,
        clock: Callable[[], int],
        reconnect_ms: int = RECONNECT_MS,
        controlled: ControlledSlave | None = None,
    ) -> None:
        """Nothing but this link appends to the store's log from now on. `clock`: ms, for intervals. `controlled`: under
        a controller."""
        self._store = store
        self._settings = settings
        self._clock = clock
        self._reconnect_ms = reconnect_ms if controlled is None else min(reconnect_ms, CONTROLLED_RECONNECT_MS)
        self._controlled = controlled
        self._confirm_offset = LOG_START if controlled is None else controlled.confirm_offset
        self.read_limit = ReadLimit(lambda: self.confirm_offset)
        """Under a controller: what all brokers of the SyncStateSet have, as the master has said."""
        self._copy = LogCopy(store)
        self._reports_flushed = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._address = ""
        self._has_address = asyncio.Event()
        self._is_due = asyncio.Event()
        self._session: SlaveSession | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_error = ""

    @property
    def master_address(self) -> str:
        """host:port of the master's replication port; empty while it is not known."""
        return self._address

    @property
    def is_following(self) -> bool:
        """Whether a master is connected whose log goes on where this one ends."""
        session = self._session
        if isinstance(session, AutoSwitchSlaveSession):
            return session.is_aligned
        return session is not None and session.has_transfer

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """Under a controller: this log below it is on all brokers of the SyncStateSet. Never goes back."""
        session = self._session
        if isinstance(session, AutoSwitchSlaveSession) and session.is_aligned:
            confirmed = min(session.confirm_offset, self._copy.end_offset)
            self._confirm_offset = max(self._confirm_offset, confirmed)
        return self._confirm_offset

    @property
    def bytes_per_second(self) -> int:
        """What came in the last second."""
        return 0 if self._session is None else self._session.rate.last_second(self._clock())

    @property
    def last_read_ms(self) -> int:
        """When something came last, by the wall clock; 0 without a connection."""
        return 0 if self._session is None else self._at_wall_clock(self._session.read_ms)

    @property
    def last_written_ms(self) -> int:
        """When a report was sent last, by the wall clock; 0 without a connection."""
        return 0 if self._session is None else self._at_wall_clock(self._session.written_ms)

    def _at_wall_clock(self, time_ms: int) -> int:
        return wall_clock_ms() - (self._clock() - time_ms)

    def follow(self, address: str) -> None:
        """Follow the master at this address, or none if it is empty; a connection to another one ends."""
        if address != self._address:
            logger.info("master's replication address address=%s before=%s", address, self._address)
            self._address = address
            if address:
                self._has_address.set()
            else:
                self._has_address.clear()
            if self._transport is not None:
                self._transport.close()

    def connect_soon(self) -> None:
        """Try now, if the master is not connected: it is there again."""
        self._is_due.set()

    def start(self) -> None:
        """Begin; returns at once."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="replication from the master")

    async def close(self) -> None:
        """Stop. Idempotent."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            await self._has_address.wait()
            address = self._address
            try:
                await self._follow_once(address)
            except (MQError, OSError, TimeoutError) as error:
                if isinstance(error, ClosedError) or self._store.commit_log.is_failed:
                    logger.error("replication ends, the log takes no writes error=%s", error)
                    if self._controlled is not None:
                        self._controlled.on_failed()
                    return
                text = str(error) or type(error).__name__
                if text != self._last_error:
                    logger.warning("replication interrupted master=%s error=%s", address, text)
                self._last_error = text
            except Exception:  # a bug of ours must not end replication for good
                logger.exception("replication interrupted, a bug of ours master=%s", address)
            if address == self._address:
                self._is_due.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._reconnect_ms / 1_000):
                        await self._is_due.wait()

    async def _follow_once(self, address: str) -> None:
        """Follow a master until its connection ends, which raises."""
        if self._reports_flushed:
            await self._flush()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self._receive), *parse_address(address)
            )
        try:
            if address != self._address:
                raise ProtocolError("another master is to be followed", master=self._address)
            self._copy.restart()
            self._transport = transport
            self._session = self._make_session(transport)
            if not self._last_error:
                logger.info("replication begins master=%s offset=%d", address, self._copy.end_offset)
            self.report()
            await self._watch(connection, self._session)
        finally:
            self._session = self._transport = None
            connection.end()
            transport.close()
            self._copy.restart()

    def _make_session(self, transport: asyncio.WriteTransport) -> SlaveSession:
        log, controlled, now_ms = self._store.commit_log, self._controlled, self._clock()
        if controlled is None:
            return SlaveSession(self._settings, end_offset=log.append_offset, now_ms=now_ms)
        session = AutoSwitchSlaveSession(
            controlled.epoch_file,
            self._settings,
            controlled.handshake,
            min_offset=log.min_offset,
            end_offset=log.append_offset,
            now_ms=now_ms,
        )
        transport.write(session.greeting)
        return session

    def _check_parted(self, session: SlaveSession) -> None:
        """
        Raises:
            OffsetOutOfRangeError: This log and the master's part: it has to be cut before it can go on.
        """
        if isinstance(session, AutoSwitchSlaveSession) and session.must_cut:
            assert session.alignment is not None
            assert self._controlled is not None
            self._controlled.on_parted(session.alignment)
            raise OffsetOutOfRangeError(
                "the log parts from the master's, and is cut",
                offset=session.alignment.end_offset,
                start_offset=self._store.commit_log.min_offset,
                end_offset=self._copy.end_offset,
            )

    async def _flush(self) -> None:
        flushed: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self._store.flush.wait(
            self._copy.end_offset, lambda status: None if flushed.done() else flushed.set_result(status)
        )
        status = await flushed
        if status is not PutStatus.PUT_OK:
            raise ServiceUnavailableError(status.value)

    async def _watch(self, connection: _Connection, session: SlaveSession) -> None:
        """Send heartbeats until the connection ends, which raises."""
        tick_s = min(self._settings.heartbeat_interval_ms, self._settings.silence_ms_max) / TICKS_PER_INTERVAL / 1_000
        while True:
            await asyncio.wait((connection.ended,), timeout=tick_s)
            if connection.ended.done():
                connection.ended.result()
            if session.is_silent(self._clock()):
                raise ProtocolError("the master is silent")
            self.report()

    def _receive(self, data: bytes) -> None:
        session = self._session
        if session is None:
            raise ProtocolError("the master sends before this broker has")
        for offset, part in session.receive(data, now_ms=self._clock()):
            self._copy.receive(offset, part)
        self._check_parted(session)
        if session.has_transfer:
            self._last_error = ""
        self.read_limit.advanced()
        if self._reports_flushed:
            self._store.flush.wait(self._copy.end_offset, lambda _: self.report())
        else:
            self.report()

    def report(self) -> None:
        """Report the log's end to the master, unless it has that report already or may not get it yet."""
        session, transport = self._session, self._transport
        if session is None or transport is None or transport.is_closing():
            return
        if self._controlled is not None and not self._controlled.may_report():
            return
        frame = session.report(self._stored_offset, now_ms=self._clock())
        if frame is not None:
            transport.write(frame)

    @property
    def _stored_offset(self) -> PhysicalOffset:
        return self._store.commit_log.flush_offset if self._reports_flushed else self._copy.end_offset


class _Connection(asyncio.Protocol):
    """One connection; what comes is handed to `receive` in the loop's own call, and its first error ends all."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self.ended: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()
        """Fails when the connection has ended, or `receive` has raised."""
        self._receive = receive

    def end(self) -> None:
        """Hand out nothing more. Idempotent."""
        if not self.ended.done():
            self.ended.cancel()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.ended.done():
            return
        try:
            self._receive(data)
        except (MQError, OSError) as error:  # of any other the loop makes the connection's end
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._fail(exc or ProtocolError("the master has closed the connection"))

    def _fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # a link that was closed reads no error: asyncio would log it
