"""The message record: what the commit log holds, a pull answers with, and a cold segment keeps byte for byte.

    int32  size of the whole record
    int32  magic: V1, or V2 when the topic's name is longer than 127 bytes
    int32  checksum of the body: CRC-32 & 0x7fffffff; 0 for an empty body
    int32  queue id
    int32  flag, the user's
    int64  queue offset
    int64  physical offset of this record
    int32  system flag (see sys_flag.py)
    int64  born time, ms
    8/20   born host: IPv4 or IPv6 address, then int32 port; which, says the system flag
    int64  store time, ms
    8/20   store host, likewise
    int32  reconsume times
    int64  prepared transaction offset
    int32  body size, then the body
    int8   topic size (V2: int16), then the topic, UTF-8
    int16  properties size, then the properties' text (see properties.py)

Rules
  - The size is the sum of the fields, or the record is damaged.
  - A file of the log ends with a blank: int32 remaining bytes, int32 MAGIC_BLANK, whatever follows.
  - A record whose hosts are IPv4 (nearly all) starts with the fixed `HEAD`; the POSITION_* constants are for it, and
    those before POSITION_BORN_HOST for every record.
Source: MessageExtEncoder.java, MessageDecoder.java, CommitLog.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from thermocline.remoting.errors import (
    InvalidRequestError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    RecordChecksumError,
    RecordMagicError,
    RecordSizeError,
)
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.crc32 import crc32
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX, PropertyName, decode_properties, find_property
from thermocline.remoting.records.record_layout import HOST_V6_MORE_BYTES, HOSTS_V6, head_struct, position_of
from thermocline.remoting.records.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from thermocline.remoting.socket_address import Host

MAGIC_V1 = -626_843_481  # 0xDAA320A7
MAGIC_V2 = -626_843_477  # 0xDAA320AB
MAGIC_BLANK = -875_286_124  # 0xCBD43194

_HEAD_BY_HOSTS = {hosts: head_struct(hosts) for hosts in (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6)}
HEAD = _HEAD_BY_HOSTS[0]
"""With IPv4 hosts; its fields: record_layout.py."""

POSITION_SIZE = position_of("size_bytes")
POSITION_MAGIC = position_of("magic")
POSITION_BODY_CHECKSUM = position_of("body_crc")
POSITION_QUEUE_ID = position_of("queue_id")
POSITION_FLAG = position_of("flag")
POSITION_QUEUE_OFFSET = position_of("queue_offset")
POSITION_PHYSICAL_OFFSET = position_of("physical_offset")
POSITION_SYS_FLAG = position_of("sys_flag")
POSITION_BORN_TIMESTAMP = position_of("born_timestamp_ms")
POSITION_BORN_HOST = position_of("born_host")
POSITION_STORE_TIMESTAMP = position_of("store_timestamp_ms")
POSITION_STORE_HOST = position_of("store_host")
POSITION_RECONSUME_TIMES = position_of("reconsume_times")
POSITION_PREPARED_TRANSACTION_OFFSET = position_of("prepared_transaction_offset")
POSITION_BODY_SIZE = position_of("body_bytes")
POSITION_BODY = HEAD.size

RECONSUME_TIMES_MAX = 2**31 - 1

INT = struct.Struct(">i")
LONG = struct.Struct(">q")
SHORT = struct.Struct(">h")
BLANK = struct.Struct(">ii")  # bytes that remain in the file, MAGIC_BLANK
RECORD_BYTES_MIN = HEAD.size + 1 + SHORT.size
TOPIC_BYTES_MAX_V1 = 127
TOPIC_BYTES_MAX_V2 = 32_767
CHECKSUM_MASK = 0x7FFF_FFFF


def body_checksum(body: bytes | memoryview) -> int:
    """The checksum that a record carries for its body."""
    return crc32(body) & CHECKSUM_MASK


@lru_cache(maxsize=1024)
def encode_host(host: Host) -> bytes:
    """8 bytes for an IPv4 address and port, 20 for IPv6.

    Raises:
        InvalidRequestError: It is no IP address.
    """
    address, port = host
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address) + INT.pack(port)
    except (OSError, ValueError, struct.error) as error:
        raise InvalidRequestError("not an IP address and port", host=host) from error


@lru_cache(maxsize=1024)
def decode_host(host: bytes) -> Host:
    """The address and port in 8 or 20 bytes."""
    assert len(host) in (8, 20)
    family = socket.AF_INET6 if len(host) == 20 else socket.AF_INET
    (port,) = INT.unpack_from(host, len(host) - INT.size)
    return socket.inet_ntop(family, host[: -INT.size]), port


class MessageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it is stored; decoded field by field, with its properties still in their text."""

    queue_id: int
    flag: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: PhysicalOffset
    body: bytes
    topic: str
    properties_text: bytes
    body_crc: int
    size_bytes: int

    @property
    def properties(self) -> dict[str, str]:
        """All properties, decoded at each call: keep the result, or use `property_text` for one."""
        return decode_properties(self.properties_text)

    def property_text(self, name: str) -> str | None:
        """One property, found without decoding the others."""
        value = find_property(self.properties_text, name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def keys(self) -> str | None:
        """The index keys, separated by spaces."""
        return self.property_text(PropertyName.KEYS)

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.property_text(PropertyName.TAGS)

    @property
    def unique_key(self) -> str | None:
        """The id that the producing client made."""
        return self.property_text(PropertyName.UNIQUE_KEY)

    @property
    def next_reconsume_times(self) -> int:
        """The count of tries after one more. A producer sets the first count: the greatest 32-bit number stays."""
        return min(self.reconsume_times + 1, RECONSUME_TIMES_MAX)

    @property
    def end_offset(self) -> PhysicalOffset:
        """The physical offset just behind this record."""
        return self.physical_offset + self.size_bytes


def record_size(
    *, body_bytes: int, topic_bytes: int, properties_bytes: int, born_host_v6: bool = False, store_host_v6: bool = False
) -> int:
    """The size of the record with parts of these sizes."""
    hosts = (BORN_HOST_V6 if born_host_v6 else 0) | (STORE_HOST_V6 if store_host_v6 else 0)
    topic_size_bytes = 1 if topic_bytes <= TOPIC_BYTES_MAX_V1 else SHORT.size
    head_bytes = _HEAD_BY_HOSTS[hosts].size
    return head_bytes + body_bytes + topic_size_bytes + topic_bytes + SHORT.size + properties_bytes


def encode_record(
    *,
    topic: str | bytes,
    queue_id: int,
    queue_offset: QueueOffset,
    physical_offset: PhysicalOffset,
    body: bytes | memoryview,
    properties_text: bytes,
    born_timestamp_ms: int,
    born_host: Host | bytes,
    store_timestamp_ms: int,
    store_host: Host | bytes,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: PhysicalOffset = LOG_START,
) -> bytes:
    """One whole record. The host bits of `sys_flag` are set from the hosts given, as text or as `encode_host` bytes.

    Raises:
        MessageTooLargeError: The topic's name does not fit.
        PropertiesTooLargeError: The property text does not fit.
    """
    topic_bytes = topic.encode() if isinstance(topic, str) else topic
    born = encode_host(born_host) if isinstance(born_host, tuple) else born_host
    store = encode_host(store_host) if isinstance(store_host, tuple) else store_host
    hosts = (BORN_HOST_V6 if len(born) == 20 else 0) | (STORE_HOST_V6 if len(store) == 20 else 0)
    head = _HEAD_BY_HOSTS[hosts]
    if len(topic_bytes) <= TOPIC_BYTES_MAX_V1:
        magic, topic_size = MAGIC_V1, bytes((len(topic_bytes),))
    elif len(topic_bytes) <= TOPIC_BYTES_MAX_V2:
        magic, topic_size = MAGIC_V2, SHORT.pack(len(topic_bytes))
    else:
        raise MessageTooLargeError("the topic's name is too long", size_bytes=len(topic_bytes))
    if len(properties_text) > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLargeError(size_bytes=len(properties_text), size_bytes_max=PROPERTIES_BYTES_MAX)
    size_bytes = head.size + len(body) + len(topic_size) + len(topic_bytes) + SHORT.size + len(properties_text)
    return b"".join(
        (
            head.pack(
                size_bytes,
                magic,
                crc32(body) & CHECKSUM_MASK,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag & ~HOSTS_V6 | hosts,
                born_timestamp_ms,
                born,
                store_timestamp_ms,
                store,
                reconsume_times,
                prepared_transaction_offset,
                len(body),
            ),
            body,
            topic_size,
            topic_bytes,
            SHORT.pack(len(properties_text)),
            properties_text,
        )
    )


def is_blank(data: bytes | memoryview, position: int) -> bool:
    """Whether a blank (the filler at the end of a log file) starts at `position`."""
    if len(data) - position < BLANK.size:
        return False
    _remaining, magic = BLANK.unpack_from(data, position)
    return bool(magic == MAGIC_BLANK)


def decode_record(data: bytes | memoryview, position: int = 0, *, check_crc: bool = True) -> MessageRecord:
    """The record that starts at `position`.

    Raises:
        RecordMagicError: No record starts there (a blank is none).
        RecordSizeError: It is cut short, or its size is not the sum of its fields.
        RecordChecksumError: The body is not the one that was stored; only with `check_crc`.
    """
    available = len(data) - position
    if available < RECORD_BYTES_MIN:
        raise RecordSizeError("the record is cut short", position=position, available_bytes=available)
    size_bytes, magic = BLANK.unpack_from(data, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordMagicError("no message record starts here", position=position, magic=magic)
    if not RECORD_BYTES_MIN <= size_bytes <= available:
        raise RecordSizeError("impossible record size", position=position, size_bytes=size_bytes)
    end = position + size_bytes
    (sys_flag,) = INT.unpack_from(data, position + POSITION_SYS_FLAG)
    head = _HEAD_BY_HOSTS[sys_flag & HOSTS_V6]
    body_start = position + head.size
    if body_start > end:
        raise RecordSizeError("the record is smaller than its head", position=position, size_bytes=size_bytes)
    fields = head.unpack_from(data, position)
    (
        _size_bytes,
        _magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        _sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_bytes,
    ) = fields
    body_end = body_start + body_bytes
    topic_start = body_end + (1 if magic == MAGIC_V1 else SHORT.size)
    if body_bytes < 0 or topic_start > end:
        raise RecordSizeError("impossible body size", position=position, size_bytes=body_bytes)
    topic_bytes = data[body_end] if magic == MAGIC_V1 else SHORT.unpack_from(data, body_end)[0]
    topic_end = topic_start + topic_bytes
    properties_start = topic_end + SHORT.size
    if topic_bytes < 0 or properties_start > end:
        raise RecordSizeError("impossible topic size", position=position, size_bytes=topic_bytes)
    (properties_bytes,) = SHORT.unpack_from(data, topic_end)
    if properties_bytes < 0 or properties_start + properties_bytes != end:
        raise RecordSizeError("the record's size is not the sum of its fields", position=position)
    body = bytes(data[body_start:body_end])
    if check_crc and body_bytes and body_checksum(body) != body_crc:
        raise RecordChecksumError("the body's checksum does not match", position=position)
    return MessageRecord(
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host=decode_host(born_host),
        store_timestamp_ms=store_timestamp_ms,
        store_host=decode_host(store_host),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        topic=bytes(data[topic_start:topic_end]).decode("utf-8", "replace"),
        properties_text=bytes(data[properties_start:end]),
        body_crc=body_crc,
        size_bytes=size_bytes,
    )


def read_properties_text(data: bytes | memoryview, position: int = 0) -> bytes:
    """The property text of the record that starts at `position`, found without decoding anything else.

    Raises:
        RecordMagicError: No record starts there.
        RecordSizeError: It is cut short, or its size is not the sum of its fields.
    """
    try:
        size_bytes, magic = BLANK.unpack_from(data, position)
        (sys_flag,) = INT.unpack_from(data, position + POSITION_SYS_FLAG)
        body_start = position + _HEAD_BY_HOSTS[sys_flag & HOSTS_V6].size
        (body_bytes,) = INT.unpack_from(data, body_start - INT.size)
        topic_start = body_start + body_bytes
        if magic == MAGIC_V1:
            topic_end = topic_start + 1 + data[topic_start]
        elif magic == MAGIC_V2:
            topic_end = topic_start + SHORT.size + SHORT.unpack_from(data, topic_start)[0]
        else:
            raise RecordMagicError("no message record starts here", position=position, magic=magic)
        properties_start = topic_end + SHORT.size
        end = properties_start + SHORT.unpack_from(data, topic_end)[0]
    except (struct.error, IndexError) as error:
        raise RecordSizeError("the record is cut short", position=position) from error
    if body_bytes < 0 or end != position + size_bytes or not topic_start <= topic_end < properties_start <= end:
        raise RecordSizeError("the record's size is not the sum of its fields", position=position)
    if end > len(data):
        raise RecordSizeError("the record is cut short", position=position)
    return bytes(data[properties_start:end])


def store_timestamp_at(data: bytes | memoryview, position: int = 0) -> int:
    """The store time in ms of the record that starts at `position`, which is not checked."""
    (sys_flag,) = INT.unpack_from(data, position + POSITION_SYS_FLAG)
    if sys_flag & BORN_HOST_V6:
        position += HOST_V6_MORE_BYTES
    (store_timestamp_ms,) = LONG.unpack_from(data, position + POSITION_STORE_TIMESTAMP)
    return int(store_timestamp_ms)


def count_bodies(data: bytes | memoryview) -> tuple[int, int]:
    """How many records follow each other, as in a pull's body, and the bytes of their bodies; none is checked."""
    count, bodies_bytes, position = 0, 0, 0
    try:
        while position < len(data):
            (size_bytes,) = INT.unpack_from(data, position)
            (sys_flag,) = INT.unpack_from(data, position + POSITION_SYS_FLAG)
            body_start = position + _HEAD_BY_HOSTS[sys_flag & HOSTS_V6].size
            (body_bytes,) = INT.unpack_from(data, body_start - INT.size)
            if size_bytes <= 0 or body_bytes < 0:
                break
            count, bodies_bytes, position = count + 1, bodies_bytes + body_bytes, position + size_bytes
    except struct.error:
        pass  # cut short: its reader will say so
    return count, bodies_bytes


def iterate_records(
    data: bytes | memoryview, start: int = 0, end: int | None = None, *, check_crc: bool = True
) -> Iterator[MessageRecord]:
    """Every record in `[start, end)`, to the end or to a blank, as a pull's body or a stretch of the log holds them.

    Raises:
        CorruptDataError: See `decode_record`; what came before has been given.
    """
    position = start
    stop = len(data) if end is None else end
    while position < stop and not is_blank(data, position):
        record = decode_record(data, position, check_crc=check_crc)
        yield record
        position += record.size_bytes
