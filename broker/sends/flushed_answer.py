"""Flushed answers: sends an answer when its records are as durable as the broker makes messages.

    ASYNC_FLUSH   at once
    SYNC_FLUSH    when the log is durable up to `end_offset`; with another code when that fails or takes too long

Belongs to the hot process's loop thread.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.broker.sends.acknowledgements import STATUS_CODES
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.config import FlushDiskType
from thermocline.store.log import PutStatus
from thermocline.store.message_store import MessageStore


class FlushedAnswers:
    """Holds answers back."""

    def __init__(self, store: MessageStore, *, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._waits_for_flush = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def answer(
        self, connection: Connection, response: RemotingCommand, *, end_offset: PhysicalOffset
    ) -> RemotingCommand | None:
        """The answer to send now; None when it is sent later."""
        if not self._waits_for_flush or end_offset <= self._store.commit_log.flush_offset:
            return response

        def flushed(status: PutStatus) -> None:
            if status is not PutStatus.PUT_OK:
                response.code = STATUS_CODES[status]
                response.remark = status.value
                response.body = b""
            connection.send(response)

        deadline_ms = self._clock() + self._store.config.sync_flush_timeout_ms
        self._store.flush.wait(end_offset, flushed, deadline_ms=deadline_ms)
        return None
