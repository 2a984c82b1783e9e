"""Flushed answers: sends an answer when its records are as durable as the broker makes messages.

    ASYNC_FLUSH   at once
    SYNC_FLUSH    when the log is durable up to `end_offset`; with another code when that fails or takes too long
    SYNC_MASTER   with inSyncReplicas of 2 or more: when enough slaves have confirmed them, too

Bound: answers that wait take `bytes_max`, each counted with ANSWER_BYTES beside its body. With more, POPs and
acknowledgements are refused before they put anything (`has_room`, `check_room`): a disk that flushes slowly must not
have clients fill the memory with answers, of which one POP's holds all its messages.

Belongs to the hot process's loop thread.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.broker.sends.acknowledgements import STATUS_CODES
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.log import PutStatus
from thermocline.store.message_store import MessageStore

LIMIT = "popAnswersUnflushedBytesMax"
ANSWER_BYTES = 1_024


class FlushedAnswers:
    """Holds answers back."""

    def __init__(
        self, store: MessageStore, *, clock: Callable[[], int], bytes_max: Callable[[], int], limits: LimitCounts
    ) -> None:
        """`bytes_max`: asked again for each request."""
        self._store = store
        self._clock = clock
        self._bytes_max = bytes_max
        self._limits = limits
        self._waiting_bytes = 0
        self._gate = store.stored

    def has_room(self, connection: Connection) -> bool:
        """Whether one more answer may wait; if not, that is counted."""
        if self._waiting_bytes < self._bytes_max():
            return True
        self._limits.refused(LIMIT, address=connection.remote_address, detail="answers that wait for the flush")
        return False

    def check_room(self, connection: Connection) -> None:
        """Pass while one more answer may wait.

        Raises:
            BrokerBusyError: Too many do.
        """
        if not self.has_room(connection):
            raise BrokerBusyError("[PC_SYNCHRONIZED]broker busy, start flow control for a while")

    def answer(
        self, connection: Connection, response: RemotingCommand, *, end_offset: PhysicalOffset
    ) -> RemotingCommand | None:
        """The answer to send now; None when it is sent later."""
        if self._gate.is_stored(end_offset, flush_offset=self._store.commit_log.flush_offset):
            return response

        size_bytes = len(response.body) + ANSWER_BYTES
        self._waiting_bytes += size_bytes

        def stored(status: PutStatus) -> None:
            self._waiting_bytes -= size_bytes
            if status is not PutStatus.PUT_OK:
                response.code = STATUS_CODES[status]
                response.remark = status.value
                response.body = b""
            connection.send(response)

        self._gate.wait(end_offset, stored, now_ms=self._clock())
        return None
