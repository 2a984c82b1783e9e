"""What the rows of a message table must be, made one record at a time by the record codec: the decoder's witness."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from thermocline.remoting.records import sys_flag as flags
from thermocline.remoting.records.batch import decode_batch
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.socket_address import Host

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected_rows(records: bytes, *, broker_name: str = "") -> list[dict[str, Any]]:
    """All columns of every message in `records`, as `RecordBatch.to_pylist` would give them."""
    rows: list[dict[str, Any]] = []
    for record in iterate_records(records, check_crc=False):
        body = record.body
        if flags.is_compressed(record.sys_flag) and body:
            body = decompress(body, flags.compression_type(record.sys_flag))
        messages: Iterable[tuple[int, bytes, dict[str, str], int]]
        unwrap = flags.NEED_UNWRAP | flags.INNER_BATCH
        if record.sys_flag & unwrap == unwrap:
            messages = [(m.flag, m.body, decode_properties(m.properties_text), 0) for m in decode_batch(body)]
        else:
            messages = [(record.flag, body, record.properties, record.reconsume_times)]
        for index, (flag, message_body, properties, reconsume_times) in enumerate(messages):
            rows.append(
                _row(record, broker_name)
                | {
                    "queueOffset": record.queue_offset + index,
                    "value": message_body,
                    "flag": flag,
                    "reconsumeTimes": reconsume_times,
                    "key": properties.get("KEYS"),
                    "tag": properties.get("TAGS"),
                    "msgId": properties.get("UNIQ_KEY"),
                    "properties": properties,
                }
            )
    return rows


def normal_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a batch with their property maps as dictionaries: the order within a map means nothing."""
    return [row | {"properties": dict(row["properties"])} if "properties" in row else row for row in rows]


def _row(record: MessageRecord, broker_name: str) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "timestamp": _time(record.store_timestamp_ms),
        "bornTimestamp": _time(record.born_timestamp_ms),
        "sysFlag": record.sys_flag & ~(flags.COMPRESSED if record.body else 0),
        "bornHost": _host(record.born_host),
        "storeHost": _host(record.store_host),
    }


def _time(timestamp_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=timestamp_ms)


def _host(host: Host) -> str:
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
