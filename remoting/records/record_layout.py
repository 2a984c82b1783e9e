"""The layout of a message record's head, from which every form that reads or writes one is made.

A head is what stands in front of the body (message_record.py has the whole record). Its fields follow each other
without gaps, big-endian. A host is an address and an int32 port: 8 bytes with IPv4, 20 with IPv6, as the system flag
says; an IPv6 host moves everything behind it.

    head_struct         the fields of a head, some of them skipped
    fields_format       some fields that follow each other, with IPv4 hosts
    position_of         where a field starts with IPv4 hosts; up to the born host also with others

Source: MessageDecoder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

from thermocline.remoting.records.sys_flag import BORN_HOST_V6, STORE_HOST_V6

HOST_V4_BYTES = 8
HOST_V6_BYTES = 20
HOST_V6_MORE_BYTES = HOST_V6_BYTES - HOST_V4_BYTES
HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
"""The bits of a system flag that decide how long a head is."""

HOST = "host"

HEAD_FIELDS: tuple[tuple[str, str], ...] = (
    ("size_bytes", "i"),  # of the whole record
    ("magic", "i"),
    ("body_crc", "i"),
    ("queue_id", "i"),
    ("flag", "i"),  # the user's
    ("queue_offset", "q"),
    ("physical_offset", "q"),
    ("sys_flag", "i"),
    ("born_timestamp_ms", "q"),
    ("born_host", HOST),
    ("store_timestamp_ms", "q"),
    ("store_host", HOST),
    ("reconsume_times", "i"),
    ("prepared_transaction_offset", "q"),
    ("body_bytes", "i"),
)
"""Name and `struct` code of each field."""

_HOST_FLAGS = {"born_host": BORN_HOST_V6, "store_host": STORE_HOST_V6}


def head_struct(hosts: int = 0, *, fields: Collection[str] | None = None) -> struct.Struct:
    """The struct of a head with these IPv6 hosts (bits of `HOSTS_V6`): all fields, or `fields` in the head's order."""
    assert hosts & ~HOSTS_V6 == 0
    assert fields is None or set(fields) <= {name for name, _ in HEAD_FIELDS}
    codes = ">"
    for name, code in _codes(hosts):
        codes += code if fields is None or name in fields else f"{struct.calcsize('>' + code)}x"
    return struct.Struct(codes)


def fields_format(first: str, last: str) -> str:
    """The `struct` codes, without byte order, of the fields from `first` to `last`, with IPv4 hosts."""
    names = [name for name, _ in HEAD_FIELDS]
    start, end = names.index(first), names.index(last) + 1
    assert start < end
    return "".join(code for _, code in list(_codes(0))[start:end])


def position_of(field: str) -> int:
    """Where a field of a head with IPv4 hosts starts, in bytes from the start of the record."""
    position = 0
    for name, code in _codes(0):
        if name == field:
            return position
        position += struct.calcsize(">" + code)
    raise AssertionError(f"no field {field}")


def _codes(hosts: int) -> Iterator[tuple[str, str]]:
    for name, code in HEAD_FIELDS:
        if code == HOST:
            code = f"{HOST_V6_BYTES if hosts & _HOST_FLAGS[name] else HOST_V4_BYTES}s"
        yield name, code


assert head_struct().size == 88, "on-disk format shared with Apache RocketMQ"
assert head_struct(HOSTS_V6).size == 112
