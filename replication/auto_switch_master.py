"""Auto-switch master: the master's end of a slave's connection under a controller, without the socket.

    handshake  -> take_reply      -> the log's end and epochs, to be sent
    reports    -> receive         -> what the slave has
    transfers  as in master_session.py, each of one epoch

An empty slave begins with the oldest file, or where it says so with the last one; where the master has a cold tier, as
in master_session.py.
Belongs to the loop thread, or to a simulation.
Source: store/ha/autoswitch/AutoSwitchHAConnection.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.remoting.errors import OffsetOutOfRangeError, ProtocolError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.auto_switch_codec import (
    HANDSHAKE,
    REPORT,
    SLAVE_HANDSHAKE,
    STATE,
    TRANSFER,
    EpochTransferHead,
    MasterHandshake,
    SlaveHandshake,
    decode_report,
    decode_slave_handshake,
    encode_master_handshake,
    encode_transfer_head,
)
from thermocline.replication.epochs import EpochEntry, Epochs
from thermocline.replication.master_session import MasterSession, SourceLog
from thermocline.replication.replication_settings import ReplicationSettings


class AutoSwitchMasterSession(MasterSession):
    """One connection of a master's epoch: a new epoch begins with new connections."""

    def __init__(
        self,
        log: SourceLog,
        epochs: Epochs,
        settings: ReplicationSettings,
        *,
        confirm_offset: Callable[[], PhysicalOffset],
        now_ms: int,
        empty_start: Callable[[], PhysicalOffset | None] = lambda: None,
    ) -> None:
        """`confirm_offset`: the log below it is on all brokers of the SyncStateSet. `empty_start`: see MasterSession;
        None: the slave gets the oldest file, or if it asks for that the last one."""
        super().__init__(log, settings, now_ms=now_ms, empty_start=empty_start)
        self.slave: SlaveHandshake | None = None
        """How the slave has introduced itself."""
        self._epochs = epochs
        self._confirm_offset = confirm_offset
        self._reply = b""

    def take_reply(self) -> bytes:
        """What has to be sent before the next transfer; empty if nothing has."""
        reply, self._reply = self._reply, b""
        return reply

    def _take_frames(self, received: bytearray) -> bool:
        has_report = False
        while len(received) >= STATE.size:
            (state,) = STATE.unpack_from(received)
            if state == HANDSHAKE:
                if len(received) < SLAVE_HANDSHAKE.size:
                    break
                self._greeted(decode_slave_handshake(received, 0))
                del received[: SLAVE_HANDSHAKE.size]
            elif state == TRANSFER:
                if len(received) < REPORT.size:
                    break
                if self.slave is None:
                    raise ProtocolError("a slave reports before its handshake")
                self._reported(decode_report(received, 0))
                del received[: REPORT.size]
                has_report = True
            else:
                raise ProtocolError("a slave sends an impossible state", state=state)
        return has_report

    def _greeted(self, handshake: SlaveHandshake) -> None:
        # RocketMQ's slave repeats its handshake while it has no answer.
        if self.next_offset is not None or self.slave not in (None, handshake):
            raise ProtocolError("a slave introduces itself again", replica_id=handshake.replica_id)
        self.slave = handshake
        self._reply = encode_master_handshake(MasterHandshake(self._log.append_offset, self._epochs))

    def _start_for_empty_slave(self) -> PhysicalOffset:
        assert self.slave is not None
        has_cold_tier = self._empty_start() is not None
        if has_cold_tier or self.slave.begins_with_last_file:
            return super()._start_for_empty_slave()
        return self._log.min_offset

    def _transferable_bytes(self, offset: PhysicalOffset) -> int:
        epoch_end = self._epochs.end_of(self._entry_at(offset).epoch)
        size_bytes = super()._transferable_bytes(offset)
        return size_bytes if epoch_end is None else min(size_bytes, epoch_end - offset)

    def _head(self, offset: PhysicalOffset, size_bytes: int) -> bytes:
        return encode_transfer_head(
            EpochTransferHead(offset, size_bytes, self._entry_at(offset), self._confirm_offset())
        )

    def _entry_at(self, offset: PhysicalOffset) -> EpochEntry:
        entry = self._epochs.at(offset)
        if entry is None:
            raise OffsetOutOfRangeError("no epoch is recorded for this part of the log", offset=offset)
        return entry
