"""Single records for tests of the decoder: plain ones, with whatever field is named changed."""

from __future__ import annotations

from typing import Any

from thermocline.remoting.records import sys_flag as flags
from thermocline.remoting.records.compression import compress
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.records.sys_flag import CompressionType
from thermocline.remoting.socket_address import Host
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS

ALL_COLUMNS = tuple(column.name for column in MESSAGE_COLUMNS)
TIME_MS = 1_700_000_000_000
HOST_V4: Host = ("10.1.2.3", 40_000)
HOST_V6: Host = ("2001:db8::7", 10_911)


def record(queue_offset: int = 0, body: bytes = b"body", properties: bytes = b"", **fields: Any) -> bytes:
    """A record with plain fields, save those given."""
    plain: dict[str, Any] = {
        "topic": "orders",
        "queue_id": 3,
        "physical_offset": 1_000 + queue_offset * 300,
        "born_timestamp_ms": TIME_MS + queue_offset,
        "born_host": HOST_V4,
        "store_timestamp_ms": TIME_MS + 5 + queue_offset,
        "store_host": ("10.1.2.4", 10_911),
    }
    return encode_record(queue_offset=queue_offset, body=body, properties_text=properties, **plain | fields)


def compressed_record(queue_offset: int, body: bytes, compression: CompressionType, **fields: Any) -> bytes:
    """A record whose body a client has compressed."""
    sys_flag = flags.with_compression(fields.pop("sys_flag", 0), compression)
    return record(queue_offset, compress(body, compression), sys_flag=sys_flag, **fields)
