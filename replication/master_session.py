"""Master session: the master's end of one slave's connection, without the socket.

    bytes received -> receive         -> reports
    next_transfer  -> head and place  -> the caller sends the head and these bytes of the log

The first report says what the slave has. It is where transfers begin; if it is 0, that is the log's last file, or,
where a cold tier has older messages, the first file that it lacks (`empty_start`). A slave whose log ends behind the
master's, or before its oldest file, cannot be followed up: the connection is closed, where RocketMQ's master sends
heartbeats for ever.
Belongs to the loop thread, or to a simulation.
Source: store/ha/DefaultHAConnection.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from thermocline.remoting.errors import OffsetOutOfRangeError, ProtocolError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.byte_rate import ByteRate
from thermocline.replication.plain_codec import PlainCodec
from thermocline.replication.replication_settings import ReplicationSettings


class SourceLog(Protocol):
    """The log that is copied; CommitLog is one."""

    @property
    def min_offset(self) -> PhysicalOffset:
        """Where its oldest file begins."""
        ...

    @property
    def append_offset(self) -> PhysicalOffset:
        """Where it ends."""
        ...

    @property
    def file_bytes(self) -> int:
        """The length of its files."""
        ...


class Transfer(NamedTuple):
    """A head to be sent, and behind it the log's bytes [offset, offset + size_bytes)."""

    head: bytes
    offset: PhysicalOffset
    size_bytes: int


class MasterSession:
    """One connection. A connection whose methods raise is to be closed."""

    def __init__(
        self,
        log: SourceLog,
        settings: ReplicationSettings,
        *,
        now_ms: int,
        empty_start: Callable[[], PhysicalOffset | None] = lambda: None,
    ) -> None:
        """`empty_start`: the log offset from which on an empty slave needs the log, asked when one connects; None: it
        gets the last file, as from RocketMQ's master."""
        self.confirmed_offset = LOG_START
        """What the slave has, by its last report."""
        self.next_offset: PhysicalOffset | None = None
        """Where the next transfer begins; None before the first report."""
        self.was_empty = False
        """Whether the slave had nothing when it connected: it lacks what is before the first transfer."""
        self.rate = ByteRate()
        self._log = log
        self._codec = PlainCodec()
        self._settings = settings
        self._empty_start = empty_start
        self._input = bytearray()
        self._read_ms = now_ms
        self._written_ms = now_ms

    def receive(self, data: bytes, *, now_ms: int) -> bool:
        """Take what the slave has sent; whether it was a report, in whole.

        Raises:
            ProtocolError: A report is impossible.
            OffsetOutOfRangeError: The slave's log cannot be followed up from this one.
        """
        self._read_ms = now_ms
        self._input += data
        return self._take_frames(self._input)

    def next_transfer(self, *, now_ms: int) -> Transfer | None:
        """What to send now, a heartbeat when that is due; None: nothing. The caller sends it, in this order.

        Raises:
            OffsetOutOfRangeError: The file that the slave needs next was deleted meanwhile.
        """
        log, settings, offset = self._log, self._settings, self.next_offset
        if offset is None:
            return None
        if offset < log.min_offset:
            raise OffsetOutOfRangeError(
                "the slave needs a log file that is deleted",
                offset=offset,
                start_offset=log.min_offset,
                end_offset=log.append_offset,
            )
        size_bytes = min(settings.transfer_bytes_max, self._transferable_bytes(offset))
        if settings.bytes_per_second_max:
            size_bytes = min(size_bytes, settings.bytes_per_second_max - self.rate.this_second(now_ms))
        if size_bytes <= 0:
            if now_ms - self._written_ms < settings.heartbeat_interval_ms:
                return None
            size_bytes = 0
        self._written_ms = now_ms
        self.rate.add(size_bytes, now_ms)
        self.next_offset = offset + size_bytes
        return Transfer(self._head(offset, size_bytes), offset, size_bytes)

    def take_reply(self) -> bytes:
        """What has to be sent before the next transfer; empty if nothing has."""
        return b""

    @property
    def is_behind(self) -> bool:
        """Whether the log has bytes that were not sent."""
        return self.next_offset is not None and self.next_offset < self._log.append_offset

    def is_at_rate_limit(self, now_ms: int) -> bool:
        """Whether no more bytes of the log are to be sent in this second."""
        limit = self._settings.bytes_per_second_max
        return bool(limit) and self.rate.this_second(now_ms) >= limit

    def is_silent(self, now_ms: int) -> bool:
        """Whether nothing has come for too long."""
        return now_ms - self._read_ms > self._settings.silence_ms_max

    def _take_frames(self, received: bytearray) -> bool:
        """Take the whole frames off the front; whether a report was among them."""
        codec = self._codec
        whole_bytes = len(received) - len(received) % codec.report_bytes
        for position in range(0, whole_bytes, codec.report_bytes):
            self._reported(codec.decode_report(received, position))
        del received[:whole_bytes]
        return whole_bytes > 0

    def _transferable_bytes(self, offset: PhysicalOffset) -> int:
        """How many bytes from here on may be in one transfer."""
        log = self._log
        return min(log.append_offset - offset, log.file_bytes - offset % log.file_bytes)

    def _head(self, offset: PhysicalOffset, size_bytes: int) -> bytes:
        return self._codec.encode_head(offset, size_bytes)

    def _start_for_empty_slave(self) -> PhysicalOffset:
        """The file border at which an empty slave's log begins."""
        log, needed = self._log, self._empty_start()
        start = log.append_offset if needed is None else min(needed, log.append_offset)
        return max(PhysicalOffset(start - start % log.file_bytes), log.min_offset)

    def _reported(self, offset: PhysicalOffset) -> None:
        log = self._log
        if self.next_offset is None:
            if offset and not log.min_offset <= offset <= log.append_offset:
                raise OffsetOutOfRangeError(
                    "the slave's log does not end within this one: it needs an empty store, or another master",
                    offset=offset,
                    start_offset=log.min_offset,
                    end_offset=log.append_offset,
                )
            self.was_empty = not offset
            self.next_offset = offset or self._start_for_empty_slave()
        elif not self.confirmed_offset <= offset <= self.next_offset:
            raise ProtocolError(
                "a slave reports what it cannot have",
                offset=offset,
                confirmed_offset=self.confirmed_offset,
                sent_offset=self.next_offset,
            )
        self.confirmed_offset = offset
