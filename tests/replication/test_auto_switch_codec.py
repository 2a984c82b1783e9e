"""The frames of replication under a controller, in the bytes that RocketMQ's brokers write."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication import auto_switch_codec as codec
from thermocline.replication.auto_switch_codec import EpochTransferHead, MasterHandshake, SlaveHandshake
from thermocline.replication.epochs import EpochEntry, Epochs

OFFSET = PhysicalOffset(0x0102030405)
ENTRIES = [EpochEntry(1, PhysicalOffset(0)), EpochEntry(3, OFFSET)]


def test_a_slaves_frames() -> None:
    handshake = SlaveHandshake(2, begins_with_last_file=True, is_learner=False)
    data = bytes.fromhex("00000001 0001 0000 0000000000000002")
    assert codec.encode_slave_handshake(handshake) == data
    assert codec.decode_slave_handshake(data, 0) == handshake
    report = bytes.fromhex("00000002 0000000102030405")
    assert codec.encode_report(OFFSET) == report
    assert codec.decode_report(b"?" + report, 1) == OFFSET


def test_a_masters_handshake() -> None:
    data = bytes.fromhex(
        "00000001 00000018 0000000102030405 00000003"
        "00000001 0000000000000000"
        "00000003 0000000102030405"
    )  # fmt: skip
    assert codec.encode_master_handshake(MasterHandshake(OFFSET, Epochs(ENTRIES))) == data
    assert [codec.master_handshake_bytes(data[:size]) for size in (19, 20, 44)] == [None, 44, 44]
    decoded = codec.decode_master_handshake(data)
    assert (decoded.end_offset, list(decoded.epochs)) == (OFFSET, ENTRIES)
    nothing = codec.encode_master_handshake(MasterHandshake(PhysicalOffset(0), Epochs()))
    assert nothing == bytes.fromhex("00000001 00000000 0000000000000000 ffffffff")


def test_a_transfers_head() -> None:
    head = EpochTransferHead(OFFSET, 32_768, ENTRIES[1], PhysicalOffset(0x0102030400))
    data = bytes.fromhex("00000002 00008000 0000000102030405 00000003 0000000102030405 0000000102030400")
    assert codec.encode_transfer_head(head) == data
    assert codec.decode_transfer_head(data, 0) == head


def test_a_heartbeat_of_a_master_that_has_nothing() -> None:
    """RocketMQ's: no offset yet, its first epoch, and no confirm offset."""
    data = bytes.fromhex("00000002 00000000 ffffffffffffffff 00000001 0000000000000000 ffffffffffffffff")
    head = codec.decode_transfer_head(data, 0)
    assert (head.offset, head.size_bytes, head.confirm_offset) == (-1, 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        "00000001 00000001 0000000000000000 00000001 0000000000000000 0000000000000000",  # a handshake
        "00000002 ffffffff 0000000000000000 00000001 0000000000000000 0000000000000000",
        "00000002 00000001 ffffffffffffffff 00000001 0000000000000000 0000000000000000",
        "00000002 00000001 0000000000000001 00000001 0000000000000002 0000000000000000",  # begins before its epoch
    ],
)
def test_impossible_heads(data: str) -> None:
    with pytest.raises(ProtocolError):
        codec.decode_transfer_head(bytes.fromhex(data), 0)


@pytest.mark.parametrize(
    "data",
    [
        "00000002 00000000 0000000000000000 00000001",
        "00000001 0000000b 0000000000000000 00000001",
        "00000001 00002eec 0000000000000000 00000001",  # 1001 epochs
        "00000001 00000000 ffffffffffffffff 00000001",
    ],
)
def test_impossible_handshakes(data: str) -> None:
    with pytest.raises(ProtocolError):
        codec.master_handshake_bytes(bytes.fromhex(data))


def test_epochs_of_a_master_that_do_not_follow_each_other() -> None:
    data = bytes.fromhex(
        "00000001 00000018 0000000000000009 00000001 00000001 0000000000000004 00000001 0000000000000005"
    )
    with pytest.raises(ProtocolError):
        codec.decode_master_handshake(data)


def test_impossible_numbers_of_slaves() -> None:
    with pytest.raises(ProtocolError):
        codec.decode_slave_handshake(bytes.fromhex("00000001 0000 0000 ffffffffffffffff"), 0)
    with pytest.raises(ProtocolError):
        codec.decode_report(bytes.fromhex("00000002 ffffffffffffffff"), 0)
