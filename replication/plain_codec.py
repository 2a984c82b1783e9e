"""Plain codec: the frames of replication without a controller.

    slave -> master   report     int64 physical offset that the slave has
    master -> slave   transfer   int64 physical offset, int32 bytes that follow, bytes of the log

A transfer without bytes is a heartbeat; its offset is where the next one will begin. Bytes are of one log file; they
begin and end anywhere in a record.
Source: store/ha/DefaultHAConnection.java, DefaultHAClient.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.files import Buffer

REPORT = Struct(">q")
assert REPORT.size == 8
TRANSFER_HEAD = Struct(
    ">q"  # physical offset of the first byte, or of the next one in a heartbeat
    "i"  # bytes that follow
)
assert TRANSFER_HEAD.size == 12


class TransferHead(NamedTuple):
    """What stands before the bytes of a transfer."""

    offset: PhysicalOffset
    size_bytes: int


class PlainCodec:
    """See the module's header."""

    report_bytes = REPORT.size
    head_bytes = TRANSFER_HEAD.size

    def encode_report(self, offset: PhysicalOffset) -> bytes:
        """The report of a slave that has the log below `offset`."""
        return REPORT.pack(offset)

    def decode_report(self, data: Buffer, position: int) -> PhysicalOffset:
        """The report at `position`; ProtocolError if it cannot be one."""
        (offset,) = REPORT.unpack_from(data, position)
        if offset < 0:
            raise ProtocolError("a slave reports an impossible offset", offset=offset)
        return PhysicalOffset(offset)

    def encode_head(self, offset: PhysicalOffset, size_bytes: int) -> bytes:
        """The head of a transfer."""
        return TRANSFER_HEAD.pack(offset, size_bytes)

    def decode_head(self, data: Buffer, position: int) -> TransferHead:
        """The head at `position`; ProtocolError if it cannot be one."""
        offset, size_bytes = TRANSFER_HEAD.unpack_from(data, position)
        if offset < 0 or size_bytes < 0:
            raise ProtocolError("a master sends an impossible head", offset=offset, size_bytes=size_bytes)
        return TransferHead(PhysicalOffset(offset), size_bytes)
