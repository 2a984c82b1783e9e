"""Messages as rows: what is shown of them, and stored records as `tier cat` and `cold read` show them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.sys_flag import compression_type, is_compressed

if TYPE_CHECKING:
    from thermocline.remoting.records.message_record import MessageRecord

__all__ = ["COLUMNS", "body_text", "message_row"]

BODY_SHOWN_CHARACTERS = 80
COLUMNS = ("broker", "queue", "queue_offset", "store_timestamp_ms", "tags", "keys", "message_id", "body")


def message_row(broker: str, record: MessageRecord, *, full: bool) -> dict[str, object]:
    """One record; its body decompressed, as `body_text`."""
    data = record.body
    if is_compressed(record.sys_flag):
        data = decompress(data, compression_type(record.sys_flag))
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
        "body": body_text(data, full=full),
    }


def body_text(data: bytes, *, full: bool) -> str:
    """A body as text, in base64 where it is none; cut to what a table shows unless `full`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "base64:" + base64.b64encode(data).decode()
    return text if full or len(text) <= BODY_SHOWN_CHARACTERS else text[:BODY_SHOWN_CHARACTERS] + "…"
