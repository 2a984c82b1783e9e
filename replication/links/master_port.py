"""Master port: where slaves connect, and the sending of the log to them.

    append -> (once, if a slave has all there was) wake -> sendmsg of heads and slices of the mapped log
    report -> confirmations -> puts that wait

Rules
  - Bytes go from the mapped log to the socket, no copy is made of them. What a slave does not take stays in the log: of
    each slave at most SEND_BYTES_MAX are prepared.
  - Without a slave that has all there was, an append tests one attribute. Nothing is woken for each message: one wake
    sends what was appended until the loop comes to it.
  - Where no put waits for slaves, transfers of new messages begin at least PACE_S apart: under load each carries what
    came meanwhile, and the two brokers wake ten times less often. RocketMQ's master looks every 100 ms there.
  - A turn of the loop sends at most SEND_BYTES_MAX to a slave, so that clients are served between two.
  - Bound: `connections_max` slaves; a further one is closed and counted. A silent one is closed after
    haHousekeepingInterval.
  - RocketMQ's protocol has no TLS and no names: the port belongs in a network of brokers alone (docs/security.md).
Belongs to the hot process's loop thread.
Source: store/ha/DefaultHAService.java, DefaultHAConnection.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import socket
from collections.abc import Callable

import msgspec

from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.socket_address import format_address
from thermocline.replication import Confirmations, MasterSession, ReplicationSettings
from thermocline.replication.links.slave_books import PlainBook, SlaveBook
from thermocline.store.log import CommitLog

logger = logging.getLogger(__name__)

SEND_BYTES_MAX = 256 << 10
SEND_PIECES_MAX = 512
"""Heads and slices of one sendmsg; the kernel takes 1024."""
RECEIVE_BYTES = 4_096
PACE_S = 0.002
TICK_S_MAX = 1.0
TICKS_PER_INTERVAL = 4
BACKLOG = 16
ACCEPT_AGAIN_S = 1.0
LIMIT = "haConnectionsMax"


class SlaveState(msgspec.Struct, frozen=True, kw_only=True):
    """One slave, as its master sees it."""

    address: str
    confirmed_offset: PhysicalOffset
    next_offset: PhysicalOffset
    """Where the next transfer begins; 0 before the first report."""
    bytes_per_second: int
    replica_id: int | None
    """Its number under a controller."""


class MasterPort:
    """`start` once, `close` as often as wanted."""

    def __init__(
        self,
        log: CommitLog,
        settings: ReplicationSettings,
        *,
        confirmations: Confirmations | None,
        clock: Callable[[], int],
        limits: LimitCounts,
        connections_max: int,
        empty_start: Callable[[], PhysicalOffset | None] = lambda: None,
        book: SlaveBook | None = None,
    ) -> None:
        """`confirmations`: None if no put waits for slaves. `clock`: ms, for intervals. `empty_start`: see
        MasterSession. `book`: under a controller, instead of both."""
        self.log = log
        self.clock = clock
        self.book = book or PlainBook(log, settings, confirmations, empty_start)
        self._settings = settings
        self._limits = limits
        self._connections_max = connections_max
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._slaves: dict[int, _Slave] = {}
        self._ids = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._sent_s = 0.0
        """When a transfer of new messages began last, by the loop's clock."""

    def start(self, host: str, port: int) -> int:
        """Take the port, 0 for a free one; returns it.

        Raises:
            OSError: The port is taken.
        """
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise OSError(
                error.errno, f"the replication port cannot be opened on {format_address(host, port)}: {error.strerror}"
            ) from error
        self._socket = listener
        self._loop.add_reader(listener.fileno(), self._accept)
        bound: int = listener.getsockname()[1]
        logger.info("replication port open address=%s", format_address(host, bound))
        return bound

    def close(self) -> None:
        """Close the port and all connections. Idempotent."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for slave in list(self._slaves.values()):
            slave.close("the broker stops")

    def states(self) -> list[SlaveState]:
        """The slaves that are connected."""
        now_ms = self.clock()
        return [
            SlaveState(
                address=slave.address,
                confirmed_offset=slave.session.confirmed_offset,
                next_offset=LOG_START if slave.session.next_offset is None else slave.session.next_offset,
                bytes_per_second=slave.session.rate.last_second(now_ms),
                replica_id=self.book.replica_id(slave.session),
            )
            for slave in self._slaves.values()
        ]

    def wake_soon(self) -> None:
        """Send what is appended next, when it is."""
        self.log.notify_growth(self._grown)

    def forget(self, slave: _Slave) -> None:
        """A connection has been closed."""
        self._slaves.pop(slave.id, None)
        self.book.closed(slave.id, slave.session)

    def _grown(self) -> None:
        early_s = self._sent_s + PACE_S - self._loop.time()
        if early_s <= 0 or self.book.puts_wait:
            self._loop.call_soon(self._send_all)
        else:
            self._loop.call_later(early_s, self._send_all)

    def _send_all(self) -> None:
        self._sent_s = self._loop.time()
        for slave in list(self._slaves.values()):
            slave.send()

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            connection, peer = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptor is free: the slave waits in the kernel's queue
            logger.warning("slave not accepted error=%s", error)
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(ACCEPT_AGAIN_S, self._accept_again)
            return
        address = format_address(peer[0], peer[1])
        if len(self._slaves) >= self._connections_max:
            self._limits.refused(LIMIT, address=peer[0], detail="a slave's connection")
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        slave = _Slave(self, next(self._ids), connection, address, self.book.make_session(self.clock()))
        self._slaves[slave.id] = slave
        self.book.opened(slave.id, peer[0])
        slave.start()
        logger.info("slave connected address=%s", address)
        if self._timer is None:
            self._tick()

    def _accept_again(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _tick(self) -> None:
        """Send heartbeats, close what is silent; while there is a slave."""
        self._timer = None
        now_ms = self.clock()
        for slave in list(self._slaves.values()):
            if slave.session.is_silent(now_ms):
                slave.close("it is silent")
            else:
                slave.send()
        if self._slaves:
            interval_ms = min(self._settings.heartbeat_interval_ms, self._settings.silence_ms_max)
            self._timer = self._loop.call_later(min(interval_ms / TICKS_PER_INTERVAL / 1_000, TICK_S_MAX), self._tick)


class _Slave:
    """One slave's connection."""

    def __init__(
        self, port: MasterPort, id_: int, connection: socket.socket, address: str, session: MasterSession
    ) -> None:
        self.id = id_
        self.address = address
        self.session = session
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._unsent: list[memoryview] = []
        self._is_writer = False
        self._is_scheduled = False
        self._is_closed = False

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._receive)

    def close(self, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._unsent.clear()
        self._port.forget(self)
        logger.info("slave disconnected address=%s reason=%s", self.address, reason)

    def send(self) -> None:
        """Send what is there now, up to a bound; the rest when the socket takes more, or in the loop's next turn."""
        if self._is_closed or self._is_writer:
            return
        try:
            if not self._unsent:
                self._prepare()
            while self._unsent:
                self._drop_sent(self._socket.sendmsg(self._unsent))
        except BlockingIOError:
            self._is_writer = True
            self._loop.add_writer(self._socket.fileno(), self._writable)
            return
        except (OSError, MQError) as error:
            self.close(str(error))
            return
        if self._wants_more():
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._send_on)
        elif self.session.next_offset is not None:
            self._port.wake_soon()

    def _send_on(self) -> None:
        self._is_scheduled = False
        self.send()

    def _begin(self) -> None:
        """Send from where the first report says."""
        start = self.session.next_offset
        assert start is not None
        logger.info("slave follows address=%s offset=%d", self.address, start)
        if self.session.was_empty:
            self._port.book.began_empty(self.id, self.session, start)
        self.send()

    def _wants_more(self) -> bool:
        """Whether bytes of the log may be sent at once; with a limit of the rate the next tick sends on."""
        return self.session.is_behind and not self.session.is_at_rate_limit(self._port.clock())

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._is_writer = False
        self.send()

    def _prepare(self) -> None:
        log, now_ms = self._port.log, self._port.clock()
        size_bytes = 0
        while size_bytes < SEND_BYTES_MAX and len(self._unsent) < SEND_PIECES_MAX:
            transfer = self.session.next_transfer(now_ms=now_ms)
            if transfer is None:
                return
            self._unsent.append(memoryview(transfer.head))
            if not transfer.size_bytes:
                return
            self._unsent.append(log.record_view(transfer.offset, transfer.size_bytes))
            size_bytes += transfer.size_bytes

    def _drop_sent(self, size_bytes: int) -> None:
        unsent, count = self._unsent, 0
        for view in unsent:
            if size_bytes < len(view):
                break
            size_bytes -= len(view)
            count += 1
        del unsent[:count]
        if size_bytes:
            unsent[0] = unsent[0][size_bytes:]

    def _receive(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(str(error))
            return
        if not data:
            self.close("it has closed the connection")
            return
        was_first = self.session.next_offset is None
        now_ms = self._port.clock()
        try:
            has_report = self.session.receive(data, now_ms=now_ms)
            self._port.book.received(self.id, self.session, now_ms)
        except MQError as error:
            logger.warning("slave refused address=%s error=%s", self.address, error)
            self.close(str(error))
            return
        reply = self.session.take_reply()
        if reply:
            self._unsent.append(memoryview(reply))
            self.send()
        if not has_report or self._is_closed:
            return
        if was_first:
            self._begin()
        if not self._is_closed:
            self._port.book.reported(self.id, self.session, now_ms)
