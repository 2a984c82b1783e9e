"""Trace records: what happened to a message, in the form of the official clients.

A record is a line of fields, each followed by \\x01 but the last, which is followed by \\x02; records stand one after
another in the body of a message of the trace topic. The first field names the kind:

    Pub        time ms, region, group, topic, message id, tags, keys, broker, body bytes, cost ms, kind of message,
               offset message id, success
    SubBefore  time ms, region, group, request id, message id, retries, keys          one for each message of a call
    SubAfter   request id, message id, cost ms, success, keys, outcome, time ms, group        likewise

What a message does not have is written `null`, as Java writes it; truth is `true` or `false`. A request id joins the
two halves of one listener call. The trace message has the ids and keys of its records as its keys, so that the broker's
index finds it by each of them (`mqadmin queryMsgTraceById`).
Source: client/trace/TraceDataEncoder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from thermocline.remoting.errors import CorruptDataError

__all__ = [
    "ConsumeOutcome",
    "MessageKind",
    "PublishTrace",
    "SubscribeAfterTrace",
    "SubscribeBeforeTrace",
    "TraceRecord",
    "decode_trace",
    "encode_trace",
]

FIELD_END, RECORD_END = "\x01", "\x02"
NOTHING = "null"


class MessageKind(enum.IntEnum):
    """What kind of message was sent."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeOutcome(enum.IntEnum):
    """How a listener call ended."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NOTHING = 3
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTrace:
    """A message was sent."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str
    keys: str
    store_host: str
    body_bytes: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str
    succeeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeBeforeTrace:
    """A message is about to be given to a listener."""

    timestamp_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeAfterTrace:
    """A listener is done with a message."""

    request_id: str
    message_id: str
    cost_ms: int
    succeeded: bool
    keys: str
    outcome: ConsumeOutcome
    timestamp_ms: int
    group: str


TraceRecord: TypeAlias = PublishTrace | SubscribeBeforeTrace | SubscribeAfterTrace


def encode_trace(record: TraceRecord) -> str:
    """The text of one record, its end included."""
    fields: tuple[object, ...]
    match record:
        case PublishTrace():
            fields = (
                *("Pub", record.timestamp_ms, record.region, record.group, record.topic, record.message_id),
                *(record.tags or NOTHING, record.keys or NOTHING, record.store_host, record.body_bytes),
                *(record.cost_ms, int(record.kind), record.offset_message_id, _truth(record.succeeded)),
            )
        case SubscribeBeforeTrace():
            fields = (
                *("SubBefore", record.timestamp_ms, record.region, record.group, record.request_id),
                *(record.message_id, record.retry_times, record.keys or NOTHING),
            )
        case SubscribeAfterTrace():
            fields = (
                *("SubAfter", record.request_id, record.message_id, record.cost_ms, _truth(record.succeeded)),
                *(record.keys or NOTHING, int(record.outcome), record.timestamp_ms, record.group),
            )
    return FIELD_END.join(map(str, fields)) + RECORD_END


def decode_trace(text: str) -> Iterator[TraceRecord]:
    """The records in a trace message's body; kinds that are not known here are passed over.

    Raises:
        CorruptDataError: A record lacks fields, or has one that cannot be one.
    """
    for line in text.split(RECORD_END):
        kind, *fields = line.split(FIELD_END)
        try:
            record = _decode(kind, fields)
        except (IndexError, ValueError) as error:
            raise CorruptDataError("not a trace record", kind=kind, fields=len(fields)) from error
        if record is not None:
            yield record


def trace_keys(records: Iterable[TraceRecord]) -> list[str]:
    """The keys under which a message with these records is to be found."""
    keys: dict[str, None] = {}
    for record in records:
        keys.update(dict.fromkeys(record.message_id.split(",")))
        keys.update(dict.fromkeys(record.keys.split()))
    return list(keys)


def _decode(kind: str, fields: list[str]) -> TraceRecord | None:
    if kind == "Pub":
        # Old clients have no offset message id, new ones name themselves behind the outcome.
        has_offset_id = len(fields) >= 13
        return PublishTrace(
            timestamp_ms=int(fields[0]),
            region=fields[1],
            group=fields[2],
            topic=fields[3],
            message_id=fields[4],
            tags=_text(fields[5]),
            keys=_text(fields[6]),
            store_host=fields[7],
            body_bytes=int(fields[8]),
            cost_ms=int(fields[9]),
            kind=MessageKind(int(fields[10])),
            offset_message_id=_text(fields[11]) if has_offset_id else "",
            succeeded=fields[12 if has_offset_id else 11] == "true",
        )
    if kind == "SubBefore":
        return SubscribeBeforeTrace(
            timestamp_ms=int(fields[0]),
            region=fields[1],
            group=fields[2],
            request_id=fields[3],
            message_id=fields[4],
            retry_times=int(fields[5]),
            keys=_text(fields[6]),
        )
    if kind == "SubAfter":
        return SubscribeAfterTrace(
            request_id=fields[0],
            message_id=fields[1],
            cost_ms=int(fields[2]),
            succeeded=fields[3] == "true",
            keys=_text(fields[4]),
            outcome=ConsumeOutcome(int(fields[5])),
            timestamp_ms=int(fields[6]) if len(fields) > 6 else 0,
            group=fields[7] if len(fields) > 7 else "",
        )
    return None


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _text(field: str) -> str:
    return "" if field == NOTHING else field
