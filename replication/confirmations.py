"""Confirmations: what slaves have confirmed, and the puts that wait for so many of them.

A report completes the front of those that wait (waiting_puts.py). `confirmed_offset` is the offset that as many slaves
as are needed have reported, at any time so far: what they had then is on their disks, whether they are connected or
not.

Connections stand for slaves, as the protocol has no names. A slave that reconnects may have a dead connection that is
still open here, and would count twice. So a connection stops to count when another one comes from the same host, until
it reports again, which a dead one does not.
An empty slave gets the log from the last file on, and then reports offsets as if it had all that is before. Puts that
were waiting then, and are before that file, are not on it: it completes none of them (`began_at`).

Belongs to the loop thread, or to a simulation.
Source: store/ha/GroupTransferService.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.waiting_puts import WaitingPuts
from thermocline.store.log import FlushCallback, PutStatus


class _Slave(msgspec.Struct):
    host: str
    offset: PhysicalOffset = LOG_START
    is_doubtful: bool = False


class Confirmations:
    """One master's. A ReplicaGate (store/log/stored_gate.py)."""

    def __init__(self, *, slaves_needed: int, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms`: asked again for each put."""
        assert slaves_needed > 0
        self._slaves_needed = slaves_needed
        self._timeout_ms = timeout_ms
        self._slaves: dict[int, _Slave] = {}
        self._waiting = WaitingPuts()
        self._confirmed_offset = LOG_START
        self._gap_start = self._gap_end = LOG_START

    @property
    def confirmed_offset(self) -> PhysicalOffset:
        """See the module's header."""
        return self._confirmed_offset

    @property
    def timeout_ms(self) -> int:
        """How long a put may wait."""
        return self._timeout_ms()

    @property
    def waiting_count(self) -> int:
        """How many puts wait."""
        return len(self._waiting)

    def connected(self, connection_id: int, host: str) -> None:
        """A connection has been accepted from a host."""
        for slave in self._slaves.values():
            if slave.host == host:
                slave.is_doubtful = True
        self._slaves[connection_id] = _Slave(host)

    def disconnected(self, connection_id: int) -> None:
        """A connection has ended. Idempotent."""
        self._slaves.pop(connection_id, None)

    def began_at(self, offset: PhysicalOffset) -> None:
        """An empty slave gets the log from `offset` on: of puts before that, none counts as confirmed from now on that
        does not already."""
        if offset > self._confirmed_offset:
            if self._gap_end <= self._confirmed_offset:
                self._gap_start = self._confirmed_offset
            self._gap_end = max(self._gap_end, offset)

    def reported(self, connection_id: int, offset: PhysicalOffset) -> None:
        """A slave has the log below this offset."""
        slave = self._slaves[connection_id]
        slave.offset, slave.is_doubtful = offset, False
        if offset <= self._confirmed_offset:
            return
        offsets = sorted((each.offset for each in self._slaves.values() if not each.is_doubtful), reverse=True)
        if len(offsets) >= self._slaves_needed:
            self._confirm(offsets[self._slaves_needed - 1])

    def wait(self, offset: PhysicalOffset, callback: FlushCallback, *, deadline_ms: int) -> None:
        """Call back once the log is confirmed up to `offset`, at once if it is."""
        if self._is_confirmed(offset):
            callback(PutStatus.PUT_OK)
        else:
            self._waiting.add(offset, callback, deadline_ms=deadline_ms)

    def expire(self, now_ms: int) -> None:
        """Answer those whose deadline has passed, FLUSH_SLAVE_TIMEOUT. Called now and then."""
        self._waiting.expire(now_ms)

    def close(self) -> None:
        """This broker is no master any more; see WaitingPuts."""
        self._waiting.close()

    def _confirm(self, offset: PhysicalOffset) -> None:
        if offset <= self._confirmed_offset:
            return
        self._confirmed_offset = offset
        self._waiting.release(offset, self._is_confirmed)

    def _is_confirmed(self, offset: PhysicalOffset) -> bool:
        return offset <= self._confirmed_offset and not self._gap_start < offset <= self._gap_end
