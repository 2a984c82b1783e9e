"""Auto-switch codec: the frames of replication under a controller.

    slave -> master   handshake   int32 1, int16 begins with the last file, int16 learner, int64 the slave's number
                      report      int32 2, int64 physical offset that the slave has
    master -> slave   handshake   int32 1, int32 bytes that follow, int64 the log's end, int32 last epoch (-1: none),
                                  of each epoch int32 epoch, int64 its start
                      transfer    int32 2, int32 bytes that follow, int64 physical offset, int32 epoch, int64 its start,
                                  int64 confirm offset, bytes of the log

Every frame begins with the state of its sender. A transfer without bytes is a heartbeat; its offset is where the next
one will begin, or -1 where RocketMQ's master has nothing yet, and its epoch means nothing. The bytes of a transfer are
of one epoch and one log file.
Source: store/ha/autoswitch/AutoSwitchHAConnection.java, AutoSwitchHAClient.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.epochs import ENTRIES_MAX, EpochEntry, Epochs
from thermocline.store.files import Buffer

STATE = Struct(">i")
HANDSHAKE, TRANSFER = 1, 2
"""HAConnectionState."""
SLAVE_HANDSHAKE = Struct(
    ">i"  # state
    "h"  # 1: an empty slave begins with the last file
    "h"  # 1: a learner
    "q"  # the slave's number
)
assert SLAVE_HANDSHAKE.size == 16
REPORT = Struct(
    ">i"  # state
    "q"  # physical offset
)
assert REPORT.size == 12
MASTER_HANDSHAKE = Struct(
    ">i"  # state
    "i"  # bytes that follow
    "q"  # the log's end
    "i"  # last epoch
)
assert MASTER_HANDSHAKE.size == 20
EPOCH = Struct(
    ">i"  # epoch
    "q"  # physical offset where it begins
)
assert EPOCH.size == 12
TRANSFER_HEAD = Struct(
    ">i"  # state
    "i"  # bytes that follow
    "q"  # physical offset of the first byte, or of the next one in a heartbeat
    "i"  # epoch
    "q"  # where it begins
    "q"  # confirm offset
)
assert TRANSFER_HEAD.size == 36
NO_EPOCH = -1


class SlaveHandshake(NamedTuple):
    """How a slave introduces itself."""

    replica_id: int
    begins_with_last_file: bool
    is_learner: bool


class MasterHandshake(NamedTuple):
    """What a master has."""

    end_offset: PhysicalOffset
    epochs: Epochs


class EpochTransferHead(NamedTuple):
    """What stands before the bytes of a transfer."""

    offset: PhysicalOffset
    size_bytes: int
    entry: EpochEntry
    confirm_offset: PhysicalOffset


def encode_slave_handshake(handshake: SlaveHandshake) -> bytes:
    """A slave's first frame."""
    return SLAVE_HANDSHAKE.pack(HANDSHAKE, handshake.begins_with_last_file, handshake.is_learner, handshake.replica_id)


def decode_slave_handshake(data: Buffer, position: int) -> SlaveHandshake:
    """The handshake at `position`, whose state is HANDSHAKE; ProtocolError if its number is impossible."""
    _, last_file, learner, replica_id = SLAVE_HANDSHAKE.unpack_from(data, position)
    if replica_id <= 0:
        raise ProtocolError("a slave has an impossible number", replica_id=replica_id)
    return SlaveHandshake(replica_id, last_file == 1, learner == 1)


def encode_report(offset: PhysicalOffset) -> bytes:
    """The report of a slave that has the log below `offset`."""
    return REPORT.pack(TRANSFER, offset)


def decode_report(data: Buffer, position: int) -> PhysicalOffset:
    """The report at `position`, whose state is TRANSFER; ProtocolError if it cannot be one."""
    _, offset = REPORT.unpack_from(data, position)
    if offset < 0:
        raise ProtocolError("a slave reports an impossible offset", offset=offset)
    return PhysicalOffset(offset)


def encode_master_handshake(handshake: MasterHandshake) -> bytes:
    """A master's answer to a slave's handshake."""
    last = handshake.epochs.last
    head = MASTER_HANDSHAKE.pack(
        HANDSHAKE,
        len(handshake.epochs) * EPOCH.size,
        handshake.end_offset,
        NO_EPOCH if last is None else last.epoch,
    )
    return head + b"".join(EPOCH.pack(*entry) for entry in handshake.epochs)


def master_handshake_bytes(data: Buffer) -> int | None:
    """The length of the handshake that these bytes begin with; None while they are too few.

    Raises:
        ProtocolError: It is no handshake.
    """
    if len(data) < MASTER_HANDSHAKE.size:
        return None
    body_bytes: int
    state, body_bytes, end_offset, _ = MASTER_HANDSHAKE.unpack_from(data)
    if state != HANDSHAKE:
        raise ProtocolError("the master answers a handshake with something else", state=state)
    if not 0 <= body_bytes <= ENTRIES_MAX * EPOCH.size or body_bytes % EPOCH.size or end_offset < 0:
        raise ProtocolError("an impossible handshake", size_bytes=body_bytes, end_offset=end_offset)
    return MASTER_HANDSHAKE.size + body_bytes


def decode_master_handshake(data: Buffer) -> MasterHandshake:
    """A whole handshake of a master; ProtocolError if its epochs do not follow each other."""
    _, _, end_offset, _ = MASTER_HANDSHAKE.unpack_from(data)
    with memoryview(data) as view:
        entries = [
            EpochEntry(epoch, PhysicalOffset(start))
            for epoch, start in EPOCH.iter_unpack(view[MASTER_HANDSHAKE.size :])
        ]
    try:
        return MasterHandshake(PhysicalOffset(end_offset), Epochs(entries))
    except ValueError as error:
        raise ProtocolError("the master's epochs do not follow each other", reason=str(error)) from error


def encode_transfer_head(head: EpochTransferHead) -> bytes:
    """The head of a transfer."""
    return TRANSFER_HEAD.pack(TRANSFER, head.size_bytes, head.offset, *head.entry, head.confirm_offset)


def decode_transfer_head(data: Buffer, position: int) -> EpochTransferHead:
    """The head at `position`; ProtocolError if it cannot be one."""
    state, size_bytes, offset, epoch, start, confirm_offset = TRANSFER_HEAD.unpack_from(data, position)
    if state != TRANSFER:
        raise ProtocolError("the master sends no transfer", state=state)
    # In a heartbeat only its length counts: see the module's header.
    if size_bytes < 0 or (size_bytes and not 0 <= start <= offset):
        raise ProtocolError("a master sends an impossible head", offset=offset, size_bytes=size_bytes)
    return EpochTransferHead(
        PhysicalOffset(offset),
        size_bytes,
        EpochEntry(epoch, PhysicalOffset(start)),
        PhysicalOffset(max(confirm_offset, LOG_START)),
    )
