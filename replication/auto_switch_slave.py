"""Auto-switch slave: the slave's end of its connection to a master under a controller, without the socket.

    greeting                        -> the first frame
    receive                         -> `alignment`, once the master has answered
    alignment before the log's end  -> the caller cuts log and epochs there, and connects again
    otherwise                       as in slave_session.py; an epoch is recorded before its first bytes are handed out

Nothing is reported before the alignment, and nothing if the log has to be cut. A log that has messages and no epoch in
common with its master's may be another broker's: it needs an empty store.
Belongs to the loop thread, or to a simulation.
Source: store/ha/autoswitch/AutoSwitchHAClient.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator

from thermocline.remoting.errors import OffsetOutOfRangeError, ProtocolError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.auto_switch_codec import (
    TRANSFER_HEAD,
    EpochTransferHead,
    MasterHandshake,
    SlaveHandshake,
    decode_master_handshake,
    decode_transfer_head,
    encode_report,
    encode_slave_handshake,
    master_handshake_bytes,
)
from thermocline.replication.epoch_file import EpochFile
from thermocline.replication.epochs import Alignment
from thermocline.replication.plain_codec import TransferHead
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.replication.slave_session import LogBytes, SlaveSession

NOTHING_YET = -1
"""Where RocketMQ's master says the next transfer will begin while it has no file."""


class AutoSwitchSlaveSession(SlaveSession):
    """One connection. A connection whose methods raise is to be closed."""

    _head_bytes = TRANSFER_HEAD.size

    def __init__(
        self,
        epoch_file: EpochFile,
        settings: ReplicationSettings,
        handshake: SlaveHandshake,
        *,
        min_offset: PhysicalOffset,
        end_offset: PhysicalOffset,
        now_ms: int,
    ) -> None:
        """`min_offset`, `end_offset`: where the slave's log begins and ends."""
        super().__init__(settings, end_offset=end_offset, now_ms=now_ms)
        self.greeting = encode_slave_handshake(handshake)
        self.alignment: Alignment | None = None
        """Where the logs part; None before the master's answer, and for a log that is empty."""
        self.is_aligned = False
        """Whether the log is the beginning of the master's."""
        self.confirm_offset = LOG_START
        """The master's last; the log below it is on all brokers of the SyncStateSet. May be ahead of this log."""
        self._epoch_file = epoch_file
        self._min_offset = min_offset
        self._end_offset = end_offset
        self._answer = bytearray()

    @property
    def must_cut(self) -> bool:
        """Whether the log has to be cut at the alignment before it can go on."""
        return self.alignment is not None and self.alignment.end_offset < self._end_offset

    def receive(self, data: bytes, *, now_ms: int) -> Iterator[LogBytes]:
        """Take what the master has sent. The iteration has to be finished.

        Raises:
            ProtocolError: The master sends what does not follow, or no frame at all.
            OffsetOutOfRangeError: The logs have nothing in common.
            StaleEpochError: The master's epochs do not follow this log's.
            OSError, DiskFullError: A new epoch could not be recorded.
        """
        if not self.is_aligned:
            self.read_ms = now_ms
            self._answer += data
            data = self._take_answer()
            if not data:
                return
        yield from super().receive(data, now_ms=now_ms)

    def report(self, offset: PhysicalOffset, *, now_ms: int) -> bytes | None:
        """See SlaveSession; None as long as the log is not the beginning of the master's."""
        return super().report(offset, now_ms=now_ms) if self.is_aligned else None

    def _report(self, offset: PhysicalOffset) -> bytes:
        return encode_report(offset)

    def _take_answer(self) -> bytes:
        """Take the master's handshake once it is whole; what follows it."""
        answer = self._answer
        size_bytes = master_handshake_bytes(answer)
        if size_bytes is None or len(answer) < size_bytes:
            return b""
        self._align(decode_master_handshake(bytes(answer[:size_bytes])))
        rest = bytes(answer[size_bytes:])
        self._answer = bytearray()
        if rest and not self.is_aligned:
            raise ProtocolError("the master sends transfers before a report")
        return rest

    def _align(self, master: MasterHandshake) -> None:
        if self._end_offset == LOG_START:
            self._epoch_file.follow(master.epochs, LOG_START)
            self.is_aligned = True
            return
        alignment = self._epoch_file.epochs.align(self._end_offset, master.epochs, master.end_offset)
        if alignment is None or alignment.end_offset < self._min_offset:
            raise OffsetOutOfRangeError(
                "the log has nothing in common with the master's: it needs an empty store",
                offset=LOG_START if alignment is None else alignment.end_offset,
                start_offset=self._min_offset,
                end_offset=self._end_offset,
            )
        self.alignment = alignment
        self.is_aligned = not self.must_cut
        if self.is_aligned:
            self._epoch_file.follow(master.epochs, alignment.end_offset)

    def _begin_transfer(self) -> None:
        head = decode_transfer_head(self._head, 0)
        self._head.clear()
        self.confirm_offset = head.confirm_offset
        if not head.size_bytes:
            if head.offset not in (self._next_offset, NOTHING_YET) and self._next_offset != LOG_START:
                raise ProtocolError(
                    "the master's bytes do not follow this log's", offset=head.offset, end_offset=self._next_offset
                )
            return
        self._begin_epoch(head)
        self._go_on_with(TransferHead(head.offset, head.size_bytes))

    def _begin_epoch(self, head: EpochTransferHead) -> None:
        last = self._epoch_file.epochs.last
        if last == head.entry:
            return
        if last is not None and self._next_offset != LOG_START and head.entry.start_offset != self._next_offset:
            raise ProtocolError(
                "the master's epoch does not begin where this log ends",
                epoch=head.entry.epoch,
                start_offset=head.entry.start_offset,
                end_offset=self._next_offset,
            )
        self._epoch_file.begin(head.entry)
