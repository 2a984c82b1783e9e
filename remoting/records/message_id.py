"""The two ids of a message.

Offset message id: where the broker put it. Upper-case hexadecimal of
    4/16   IP address of the store host
    int32  port of the store host
    int64  physical offset
so 32 or 56 characters. The host must be one that a client can reach: it asks there for the message.

Unique id: what the producing client calls it (property UNIQ_KEY). Upper-case hexadecimal of
    4/16   IP address of the client
    int16  low bits of its process id
    int32  a number of this generator (in Java the hash of the class loader)
    int32  ms since the first of the month, local time
    int16  counter
Clients of RocketMQ 5 that speak gRPC make others, of 34 characters:
    int8   1
    6      hardware address of the client
    int16  low bits of its process id
    int32  seconds since 2021, UTC
    int32  counter
Source: MessageDecoder.java, MessageClientIDSetter.java, Apache RocketMQ 5.3; MessageIdCodec.java, rocketmq-clients 5.2.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import msgspec

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.message_record import decode_host, encode_host
from thermocline.remoting.socket_address import Host

_LONG = struct.Struct(">q")
_OFFSET_ID_CHARACTERS = (32, 56)
UNIQUE_ID_CHARACTERS = (32, 56)
"""Of the ids of remoting clients, which count from the start of a month."""
_GRPC_ID_CHARACTERS = 34
_GRPC_EPOCH_MS = 1_609_459_200_000
_UNIQUE_FIXED = struct.Struct(">Hi")  # process id, generator number


class OffsetMessageId(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an offset message id."""

    host: Host
    physical_offset: PhysicalOffset


def encode_message_id(host: Host | bytes, physical_offset: PhysicalOffset) -> str:
    """The id of the record at `physical_offset` on the broker at `host` (text and port, or `encode_host` bytes)."""
    host_bytes = encode_host(host) if isinstance(host, tuple) else host
    return (host_bytes + _LONG.pack(physical_offset)).hex().upper()


def decode_message_id(text: str) -> OffsetMessageId:
    """Decode the id.

    Raises:
        InvalidParameterError: It is no offset message id.
    """
    if len(text) not in _OFFSET_ID_CHARACTERS:
        raise InvalidParameterError("not an offset message id", message_id=text[:64])
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise InvalidParameterError("not an offset message id", message_id=text[:64]) from error
    if len(data) * 2 != len(text):  # fromhex skips blanks
        raise InvalidParameterError("not an offset message id", message_id=text[:64])
    (physical_offset,) = _LONG.unpack_from(data, len(data) - _LONG.size)
    return OffsetMessageId(host=decode_host(data[: -_LONG.size]), physical_offset=physical_offset)


def month_bounds_ms(now_ms: int) -> tuple[int, int]:
    """The first instants of the local month that holds `now_ms`, and of the next."""
    now = time.localtime(now_ms / 1000)
    start = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    following = time.mktime((now.tm_year, now.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(start * 1000), int(following * 1000)


_ELAPSED_AND_COUNTER_BYTES = 12


class UniqueIdGenerator:
    """Makes unique ids; one instance a process is enough. Not for several threads at once."""

    def __init__(self, *, address: str, process_id: int, number: int, clock_ms: Callable[[], int]) -> None:
        """`number` tells generators of one process apart: a random 32-bit number."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        fixed = _UNIQUE_FIXED.pack(process_id & 0xFFFF, (number & 0xFFFF_FFFF) - (1 << 32 if number & 1 << 31 else 0))
        self._fixed = (socket.inet_pton(family, address) + fixed).hex().upper()
        self._clock_ms = clock_ms
        self._counter = 0
        self._time_ms = -1
        self._before_counter = ""
        self._month_start_ms, self._month_end_ms = month_bounds_ms(clock_ms())

    @property
    def id_bytes(self) -> int:
        """How long each id is, in ASCII characters."""
        return len(self._fixed) + _ELAPSED_AND_COUNTER_BYTES

    def next(self) -> str:
        """A new id."""
        now_ms = self._clock_ms()
        if now_ms != self._time_ms:  # else all but the counter stays: busy producers make many ids a millisecond
            self._take_time(now_ms)
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        return f"{self._before_counter}{counter:04X}"

    def _take_time(self, now_ms: int) -> None:
        if not self._month_start_ms <= now_ms < self._month_end_ms:  # a clock may be set back over the month's start
            self._month_start_ms, self._month_end_ms = month_bounds_ms(now_ms)
        elapsed_ms = max(0, now_ms - self._month_start_ms)
        self._time_ms = now_ms
        self._before_counter = f"{self._fixed}{elapsed_ms & 0xFFFF_FFFF:08X}"


def unique_id_time_ms(unique_id: str, now_ms: int) -> int:
    """When a unique id was made: the latest such time that is not after `now_ms`.

    Raises:
        InvalidParameterError: It is no unique id.
    """
    if len(unique_id) not in (*UNIQUE_ID_CHARACTERS, _GRPC_ID_CHARACTERS):
        raise InvalidParameterError("not a unique message id", message_id=unique_id[:64])
    try:
        if len(unique_id) == _GRPC_ID_CHARACTERS:
            return min(now_ms, _GRPC_EPOCH_MS + int(unique_id[18:26], 16) * 1000)
        elapsed_ms = int(unique_id[-12:-4], 16)
    except ValueError as error:
        raise InvalidParameterError("not a unique message id", message_id=unique_id[:64]) from error
    month_start_ms, _ = month_bounds_ms(now_ms)
    if month_start_ms + elapsed_ms > now_ms:
        month_start_ms, _ = month_bounds_ms(month_start_ms - 1)
    return month_start_ms + elapsed_ms
