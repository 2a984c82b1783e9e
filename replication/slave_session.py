"""Slave session: the slave's end of its connection to the master, without the socket.

    bytes received -> receive     -> places and bytes of the log, as they come
    report         -> the frame that is due, if any

A transfer has to begin where the last one ended, or anywhere if the slave has nothing yet.
Belongs to the loop thread, or to a simulation.
Source: store/ha/DefaultHAClient.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.byte_rate import ByteRate
from thermocline.replication.plain_codec import PlainCodec, TransferHead
from thermocline.replication.replication_settings import ReplicationSettings


class LogBytes(NamedTuple):
    """Bytes of the master's log from `offset` on. Valid until the next call of `receive`."""

    offset: PhysicalOffset
    data: memoryview


class SlaveSession:
    """One connection. A connection whose methods raise is to be closed."""

    _head_bytes = PlainCodec.head_bytes

    def __init__(self, settings: ReplicationSettings, *, end_offset: PhysicalOffset, now_ms: int) -> None:
        """`end_offset`: where the slave's log ends; 0: it has nothing."""
        self.has_transfer = False
        """Whether the master has accepted the first report: it has sent something that follows it."""
        self.rate = ByteRate()
        self.read_ms = now_ms
        self.written_ms = now_ms
        self._codec = PlainCodec()
        self._settings = settings
        self._next_offset = end_offset
        self._head = bytearray()
        self._body_bytes = 0
        self._reported_offset: PhysicalOffset | None = None

    def receive(self, data: bytes, *, now_ms: int) -> Iterator[LogBytes]:
        """Take what the master has sent. The iteration has to be finished.

        Raises:
            ProtocolError: The master sends what does not follow, or no frame at all.
        """
        self.read_ms = now_ms
        self.rate.add(len(data), now_ms)
        view = memoryview(data)
        while view:
            if self._body_bytes:
                body = view[: self._body_bytes]
                offset = self._next_offset
                self._body_bytes -= len(body)
                self._next_offset += len(body)
                view = view[len(body) :]
                yield LogBytes(offset, body)
                continue
            missing = self._head_bytes - len(self._head)
            self._head += view[:missing]
            view = view[missing:]
            if len(self._head) == self._head_bytes:
                self._begin_transfer()

    def report(self, offset: PhysicalOffset, *, now_ms: int) -> bytes | None:
        """The frame to send when the slave has the log below `offset`; None if that is not new, and none is due."""
        is_due = now_ms - self.written_ms >= self._settings.heartbeat_interval_ms
        if offset == self._reported_offset and not is_due:
            return None
        self._reported_offset = offset
        self.written_ms = now_ms
        return self._report(offset)

    def is_silent(self, now_ms: int) -> bool:
        """Whether nothing has come for too long."""
        return now_ms - self.read_ms > self._settings.silence_ms_max

    def _report(self, offset: PhysicalOffset) -> bytes:
        return self._codec.encode_report(offset)

    def _begin_transfer(self) -> None:
        head = self._codec.decode_head(self._head, 0)
        self._head.clear()
        self._go_on_with(head)

    def _go_on_with(self, head: TransferHead) -> None:
        if self._next_offset == LOG_START:
            self._next_offset = head.offset if head.size_bytes else LOG_START
        elif head.offset != self._next_offset:
            raise ProtocolError(
                "the master's bytes do not follow this log's", offset=head.offset, end_offset=self._next_offset
            )
        self._body_bytes = head.size_bytes
        self.has_transfer = True
