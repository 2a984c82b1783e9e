"""Stored records as rows of `tier cat` and `cold read`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from thermocline.remoting.compression import decompress
from thermocline.remoting.sys_flag import compression_type, is_compressed

if TYPE_CHECKING:
    from thermocline.remoting.message_record import MessageRecord

__all__ = ["COLUMNS", "message_row"]

BODY_SHOWN_CHARACTERS = 80
COLUMNS = ("broker", "queue", "queue_offset", "store_timestamp_ms", "tags", "keys", "message_id", "body")


def message_row(broker: str, record: MessageRecord, *, full: bool) -> dict[str, object]:
    """One record; its body decompressed, cut to what a table shows unless `full`, in base64 where it is no text."""
    data = record.body
    if is_compressed(record.sys_flag):
        data = decompress(data, compression_type(record.sys_flag))
    try:
        body = data.decode()
    except UnicodeDecodeError:
        body = "base64:" + base64.b64encode(data).decode()
    if not full and len(body) > BODY_SHOWN_CHARACTERS:
        body = body[:BODY_SHOWN_CHARACTERS] + "…"
    return {
        "topic": record.topic,
        "broker": broker,
        "queue": record.queue_id,
        "queue_offset": record.queue_offset,
        "message_id": record.unique_key,
        "tags": record.tags,
        "keys": record.keys,
        "born_timestamp_ms": record.born_timestamp_ms,
        "store_timestamp_ms": record.store_timestamp_ms,
        "physical_offset": record.physical_offset,
        "properties": dict(record.properties),
        "body": body,
    }
