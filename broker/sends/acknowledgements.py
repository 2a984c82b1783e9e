"""Acknowledgements: when a put is answered, and when its messages are shown to pulls that wait.

    ASYNC_FLUSH   at once, both
    SYNC_FLUSH    both when the log is durable up to the put's end; a sender that does not want to wait (WAIT=false) is
                  answered at once, its message is shown after the flush all the same
    SYNC_MASTER   with inSyncReplicas of 2 or more: answered when enough slaves have confirmed it, too; shown before
    a read limit  shown when the confirm offset has passed it (store/read_limit.py)

Rules
  - Answers of one chunk wait together and leave together.
  - A flush that failed acknowledges nothing: what waited for it is answered SERVICE_NOT_AVAILABLE. One that takes
    longer than `sync_flush_timeout_ms` is answered FLUSH_DISK_TIMEOUT with the full answer, as RocketMQ does: the
    message is in the log, and shown when it is flushed. Likewise FLUSH_SLAVE_TIMEOUT after `slaveTimeout`.
  - Bound: with more than UNFLUSHED_BYTES_MAX appended and not flushed, or `sends_waiting_max` sends without their
    answer, further ones are refused (`check_room`). A chunk that has begun is taken whole.
  - What clients have sent waits in their connections while the loop is busy. When the loop has come late to two ticks
    running by more than `send_wait_ms_max`, sends have waited for that long: they are refused until a tick is in time.
Belongs to the hot process's loop thread.
Source: CommitLog.java (GroupCommitService), SendMessageProcessor.java (handlePutMessageResult); the remarks of a queue
that is full, NettyRemotingAbstract.java, and of one that is slow, BrokerFastFailure.java. Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from thermocline.broker.pulls import LongPolling
from thermocline.broker.stats import StoreRates
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.frames import LENGTH
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.log import FlushCallback, PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue

logger = logging.getLogger(__name__)

UNFLUSHED_BYTES_MAX = 256 << 20

STATUS_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}


class Acknowledgements:
    """Answers puts, and wakes the pulls that wait for their messages."""

    def __init__(
        self,
        store: MessageStore,
        long_polling: LongPolling,
        *,
        clock: Callable[[], int],
        steady_clock: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        sends_waiting_max: Callable[[], int],
        send_wait_ms_max: Callable[[], int],
        rates: StoreRates,
    ) -> None:
        """`clock`: wall clock in ms; `steady_clock`: the same, never set, for deadlines.

        `call_soon` runs a function later in the loop. `sends_waiting_max`: asked again for each chunk;
        `send_wait_ms_max`: for each tick. `rates`: counts put times, once for all messages of a chunk, a round or a
        request.
        """
        self._store = store
        self._store_clock = store.clock
        self._rates = rates
        self._log = store.commit_log
        self._flush = store.flush
        self._stored = store.stored
        self._long_polling = long_polling
        self._clock = clock
        self._steady_clock = steady_clock
        self._call_soon = call_soon
        self.waits = store.stored.waits
        """Whether puts are answered some time after they are in the log."""
        self._sends_waiting_max = sends_waiting_max
        self._send_wait_ms_max = send_wait_ms_max
        self._waiting_count = 0
        self._late_ms = 0
        self._send_wait_ms = 0
        """How long sends have to wait now, if that is too long; else 0."""
        self._appended: list[ConsumeQueue] = []
        store.on_append = self.appended

    def check_room(self) -> None:
        """Pass while sends may be taken.

        Raises:
            BrokerBusyError: Too much waits for the flush or for slaves, or sends wait for too long.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise BrokerBusyError(refusal)

    def has_room(self) -> bool:
        """Whether `check_room` passes."""
        return self._refusal() is None

    def _refusal(self) -> str | None:
        """The error of sends that are refused now."""
        if self._send_wait_ms:
            return (
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
                f"{self._send_wait_ms}ms, size of queue: {self._waiting_count}"
            )
        if not self.waits:
            return None
        if self._stored.waits_for_flush and self._log.append_offset - self._log.flush_offset > UNFLUSHED_BYTES_MAX:
            return "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        if self._waiting_count >= self._sends_waiting_max():
            return "[OVERLOAD]system busy, start flow control for a while"
        return None

    def ticked(self, late_ms: int) -> None:
        """The loop has come to a tick so much too late."""
        wait_ms = min(late_ms, self._late_ms)
        self._late_ms = late_ms
        is_too_long = wait_ms > self._send_wait_ms_max()
        if is_too_long != bool(self._send_wait_ms):
            change = "refused, they wait for too long" if is_too_long else "taken again"
            logger.warning("sends are %s wait_ms=%d", change, late_ms)
        self._send_wait_ms = wait_ms if is_too_long else 0

    def answer_chunk(
        self,
        connection: Connection,
        replies: Sequence[bytes],
        queues: Sequence[ConsumeQueue],
        *,
        append_end: PhysicalOffset,
    ) -> None:
        """Answer what the fast path stored of one connection's chunk; `replies` are whole frames."""
        if not self.waits:
            if (elapsed_ms := self._clock() - self._store_clock.last_ms) > 0:
                self._rates.add_put_time(elapsed_ms, len(queues))
            else:
                self._rates.put_at_once_count += len(queues)
            if replies:
                connection.write(replies[0] if len(replies) == 1 else b"".join(replies))
            self._long_polling.arrived(queues)
        else:
            self._answer_chunk_later(connection, replies, queues, append_end)

    def _answer_chunk_later(
        self,
        connection: Connection,
        replies: Sequence[bytes],
        queues: Sequence[ConsumeQueue],
        append_end: PhysicalOffset,
    ) -> None:
        stored_ms = self._store_clock.last_ms
        self._waiting_count += len(replies)

        def stored(status: PutStatus) -> None:
            self._waiting_count -= len(replies)
            self._count_put(stored_ms, len(queues))
            frames = replies if status is PutStatus.PUT_OK else with_status(replies, status)
            if frames:
                connection.write(b"".join(frames))

        self._answer_and_show(append_end, stored, queues)

    def answer_frames(
        self, answers: Sequence[tuple[Connection, bytes]], queues: Sequence[ConsumeQueue], *, append_end: PhysicalOffset
    ) -> None:
        """Answer what the fast path stored of many connections' frames."""
        if not self.waits:
            if (elapsed_ms := self._clock() - self._store_clock.last_ms) > 0:
                self._rates.add_put_time(elapsed_ms, len(queues))
            else:
                self._rates.put_at_once_count += len(queues)
            for connection, frame in answers:
                connection.write_now(frame)
            self._long_polling.arrived(queues)
        else:
            self._answer_frames_later(answers, queues, append_end)

    def _answer_frames_later(
        self,
        answers: Sequence[tuple[Connection, bytes]],
        queues: Sequence[ConsumeQueue],
        append_end: PhysicalOffset,
    ) -> None:
        stored_ms = self._store_clock.last_ms
        self._waiting_count += len(answers)

        def stored(status: PutStatus) -> None:
            self._waiting_count -= len(answers)
            self._count_put(stored_ms, len(queues))
            for connection, frame in answers:
                connection.write(frame if status is PutStatus.PUT_OK else with_status((frame,), status)[0])

        self._answer_and_show(append_end, stored, queues)

    def answer(
        self,
        connection: Connection,
        response: RemotingCommand | None,
        *,
        append_end: PhysicalOffset,
        waits: bool,
        count: int = 1,
    ) -> RemotingCommand | None:
        """The answer to send now for `count` messages that ordinary code has just put; None when it is answered later,
        or never (one-way)."""
        stored_ms = self._store_clock.last_ms
        if response is None or not waits or not self.waits:
            self._count_put(stored_ms, count)
            return response

        self._waiting_count += 1

        def stored(status: PutStatus) -> None:
            self._waiting_count -= 1
            self._count_put(stored_ms, count)
            if status is not PutStatus.PUT_OK:
                response.code = STATUS_CODES[status]
                response.remark = status.value
            connection.send(response)

        self._stored.wait(append_end, stored, now_ms=self._steady_clock())
        return None

    def appended(self, queue: ConsumeQueue) -> None:
        """The store put a message into a queue: pulls that wait there are tried again, a moment later."""
        if not self._appended:
            self._call_soon(self._show_appended)
        self._appended.append(queue)

    def expire(self, now_ms: int) -> None:
        """Answer puts that have waited too long; to be called now and then."""
        self._stored.expire(now_ms)

    def _show_appended(self) -> None:
        queues, self._appended = self._appended, []
        self._show(queues, self._log.append_offset)

    def _show(self, queues: Sequence[ConsumeQueue], append_end: PhysicalOffset) -> None:
        """Wake the pulls that wait at these queues, once they may read up to `append_end`."""
        if self._stored.waits_for_flush:
            self._flush.wait(append_end, lambda _: self._show_flushed(queues, append_end))
        else:
            self._show_flushed(queues, append_end)

    def _show_flushed(self, queues: Sequence[ConsumeQueue], append_end: PhysicalOffset) -> None:
        limit = self._store.read_limit
        if limit is None:
            self._long_polling.arrived(queues)
        else:
            limit.show(queues, append_end, self._long_polling.arrived)

    def _answer_and_show(
        self, append_end: PhysicalOffset, stored: FlushCallback, queues: Sequence[ConsumeQueue]
    ) -> None:
        """Call `stored` when the puts count as stored; show their queues when they may be read."""
        if self._stored.replicas is not None:
            self._stored.wait(append_end, stored, now_ms=self._steady_clock())
            self._show(queues, append_end)
            return

        def flushed(status: PutStatus) -> None:
            stored(status)
            if status is PutStatus.FLUSH_DISK_TIMEOUT:
                self._show(queues, append_end)  # the flush has not ended: nothing more is to be seen yet
            else:
                self._long_polling.arrived(queues)

        self._stored.wait(append_end, flushed, now_ms=self._steady_clock())

    def _count_put(self, stored_ms: int, count: int) -> None:
        """Count the put time of `count` messages that are acknowledged now."""
        self._rates.add_put_time(self._clock() - stored_ms, count)


def with_status(replies: Sequence[bytes], status: PutStatus) -> list[bytes]:
    """The same answers with another outcome. Rare, so they are taken apart and made anew."""
    frames: list[bytes] = []
    for reply in replies:
        response = decode_command(reply[LENGTH.size :])
        response.code = STATUS_CODES[status]
        response.remark = status.value
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            response.ext_fields = None
        frames.append(response.encode())
    return frames
