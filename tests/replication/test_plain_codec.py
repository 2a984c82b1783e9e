"""The frames of the plain protocol, in the bytes that RocketMQ's brokers write."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.plain_codec import PlainCodec, TransferHead

CODEC = PlainCodec()


def test_a_report_is_eight_bytes() -> None:
    assert CODEC.encode_report(PhysicalOffset(0x0102030405)) == bytes.fromhex("0000000102030405")
    assert CODEC.decode_report(b"?" + bytes.fromhex("0000000102030405"), 1) == 0x0102030405


def test_a_head_is_twelve_bytes() -> None:
    head = bytes.fromhex("0000000102030405 00008000")
    assert CODEC.encode_head(PhysicalOffset(0x0102030405), 32_768) == head
    assert CODEC.decode_head(head, 0) == TransferHead(PhysicalOffset(0x0102030405), 32_768)


@pytest.mark.parametrize("data", ["8000000000000000 00000000", "0000000000000000 ffffffff"])
def test_negative_numbers_are_no_frames(data: str) -> None:
    with pytest.raises(ProtocolError):
        CODEC.decode_head(bytes.fromhex(data), 0)
    with pytest.raises(ProtocolError):
        CODEC.decode_report(bytes.fromhex("ffffffffffffffff"), 0)
