"""Stored gate: when a put counts as stored, as the settings promise it.

    ASYNC_FLUSH               when it is in the log
    SYNC_FLUSH                when it is durable: `FlushGate`
    SYNC_MASTER, with inSyncReplicas of 2 or more
                              when that is so, and enough other brokers have confirmed it: `ReplicaGate`

A put that has waited too long for the flush ends as FLUSH_DISK_TIMEOUT, one that has waited too long for other brokers
as FLUSH_SLAVE_TIMEOUT; both are in the log.
Owner: the loop thread.
"""

from __future__ import annotations

from typing import Protocol

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.log.flush_service import FlushCallback, FlushGate
from thermocline.store.log.message_draft import PutStatus

TOO_FEW_IN_SYNC = "in-sync replicas not enough"
"""Why the log takes no puts, in RocketMQ's words: fewer brokers are in sync than minInSyncReplicas."""


class ReplicaGate(Protocol):
    """The puts that wait for other brokers."""

    @property
    def confirmed_offset(self) -> PhysicalOffset:
        """Enough brokers have confirmed the log below it. Never goes back."""
        ...

    @property
    def timeout_ms(self) -> int:
        """How long a put may wait."""
        ...

    def wait(self, offset: PhysicalOffset, callback: FlushCallback, *, deadline_ms: int) -> None:
        """Call back once enough brokers have confirmed the log up to `offset`, at once if they have."""
        ...

    def expire(self, now_ms: int) -> None:
        """Answer those whose deadline has passed."""
        ...


class StoredGate:
    """One store's."""

    def __init__(self, flush: FlushGate, *, waits_for_flush: bool, flush_timeout_ms: int) -> None:
        self.waits_for_flush = waits_for_flush
        self.replicas: ReplicaGate | None = None
        """Set before the first put, if puts wait for other brokers."""
        self._flush = flush
        self._flush_timeout_ms = flush_timeout_ms

    @property
    def waits(self) -> bool:
        """Whether a put counts as stored some time after it is in the log."""
        return self.waits_for_flush or self.replicas is not None

    def is_stored(self, offset: PhysicalOffset, *, flush_offset: PhysicalOffset) -> bool:
        """Whether all puts below `offset` count as stored."""
        is_confirmed = self.replicas is None or offset <= self.replicas.confirmed_offset
        return is_confirmed and (not self.waits_for_flush or offset <= flush_offset)

    def wait(self, offset: PhysicalOffset, callback: FlushCallback, *, now_ms: int) -> None:
        """Call back once the puts below `offset` count as stored, or one has waited too long."""
        replicas = self.replicas
        if replicas is None:
            if self.waits_for_flush:
                self._flush.wait(offset, callback, deadline_ms=now_ms + self._flush_timeout_ms)
            else:
                callback(PutStatus.PUT_OK)
            return
        deadline_ms = now_ms + replicas.timeout_ms
        if not self.waits_for_flush:
            replicas.wait(offset, callback, deadline_ms=deadline_ms)
            return

        def flushed(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                replicas.wait(offset, callback, deadline_ms=deadline_ms)
            else:
                callback(status)

        self._flush.wait(offset, flushed, deadline_ms=now_ms + self._flush_timeout_ms)

    def expire(self, now_ms: int) -> None:
        """Answer those that have waited too long. Called now and then."""
        self._flush.expire(now_ms)
        if self.replicas is not None:
            self.replicas.expire(now_ms)
