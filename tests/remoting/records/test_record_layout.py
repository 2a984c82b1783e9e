"""The head of a record: laid out once, and every form that is made from it has Apache RocketMQ's bytes.

Covers `store/sends/record_head.py`.
"""

import struct

import pytest

from thermocline.remoting.records import message_record, record_heads
from thermocline.remoting.records.record_layout import HEAD_FIELDS, HOSTS_V6, fields_format, head_struct, position_of
from thermocline.remoting.records.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from thermocline.store.log import log_scan
from thermocline.store.sends.record_head import CHUNK_FIELDS, RECORD_HEAD

# Written out as MessageDecoder.java has them: name, position with IPv4 hosts.
POSITIONS = {
    "size_bytes": 0,
    "magic": 4,
    "body_crc": 8,
    "queue_id": 12,
    "flag": 16,
    "queue_offset": 20,
    "physical_offset": 28,
    "sys_flag": 36,
    "born_timestamp_ms": 40,
    "born_host": 48,
    "store_timestamp_ms": 56,
    "store_host": 64,
    "reconsume_times": 72,
    "prepared_transaction_offset": 76,
    "body_bytes": 84,
}


def test_positions_are_rocketmqs() -> None:
    assert {name: position_of(name) for name, _ in HEAD_FIELDS} == POSITIONS
    assert {name: offset for name, (_, offset) in (record_heads.HEAD.fields or {}).items()} == POSITIONS
    assert message_record.POSITION_BODY == 88


@pytest.mark.parametrize(
    ("hosts", "codes", "size_bytes"),
    [
        (0, ">iiiiiqqiq8sq8siqi", 88),
        (BORN_HOST_V6, ">iiiiiqqiq20sq8siqi", 100),
        (STORE_HOST_V6, ">iiiiiqqiq8sq20siqi", 100),
        (HOSTS_V6, ">iiiiiqqiq20sq20siqi", 112),
    ],
)
def test_heads_of_every_pair_of_hosts(hosts: int, codes: str, size_bytes: int) -> None:
    assert (head_struct(hosts).format, head_struct(hosts).size) == (codes, size_bytes)
    numbers = struct.Struct(codes).unpack(bytes(range(size_bytes)))
    some = head_struct(hosts, fields=("magic", "store_timestamp_ms", "body_bytes"))
    assert some.size == size_bytes
    assert some.unpack(bytes(range(size_bytes))) == (numbers[1], numbers[10], numbers[14])


def test_the_fast_paths_head_is_the_same_bytes() -> None:
    values = (1, 2, 3, 4, 5, 6, 7, 8, 9, b"12345678", 10, b"abcdefgh", 11, 12, 13)
    shared = CHUNK_FIELDS.pack(*values[9:14])
    assert RECORD_HEAD.pack(*values[:9], shared, values[14]) == message_record.HEAD.pack(*values)
    assert fields_format("born_host", "prepared_transaction_offset") == "8sq8siq"


def test_the_scan_skips_fields_that_it_does_not_need() -> None:
    values = (1, 2, 3, 4, 5, 6, 7, 8, 9, b"12345678", 10, b"abcdefgh", 11, 12, 13)
    assert log_scan._SCAN_HEADS[0].unpack(message_record.HEAD.pack(*values)) == (1, 2, 3, 4, 6, 7, 8, 10, 13)
    assert set(log_scan._SCAN_HEADS) == {0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6}
