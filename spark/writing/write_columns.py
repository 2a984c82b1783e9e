"""Write columns: from a DataFrame's columns to messages, a column at a time.

    value         binary or string   the body; required, never null or empty
    topic         string             where the message goes, unless the option `topic` says it for all
    key           string             the property KEYS, and what chooses the queue: equal keys, equal queue, in order
    keys          array<string>      several keys; their text as a whole chooses the queue
    tag           string
    properties    map<string,string> the application's own
    flag          int
    queueId       int                the queue, instead of the key's
    brokerName    string             with queueId, where several brokers have the topic
    deliverAt     timestamp          when consumers may see it, instead of at once
    id            string, long, int or binary   with deduplicate: what tells rows apart, instead of their content

Columns are matched by name, without regard to case; any other column is refused, as it would be ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from thermocline.client.message import Message
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.spark.writing.write_options import WriteOptions

DIGEST_BYTES = 12

_TEXT = (t.StringType, t.VarcharType, t.CharType)
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "value": ((t.BinaryType, *_TEXT), "binary or string"),
    "topic": (_TEXT, "string"),
    "key": (_TEXT, "string"),
    "keys": ((t.ArrayType,), "array<string>"),
    "tag": (_TEXT, "string"),
    "properties": ((t.MapType,), "map<string,string>"),
    "flag": ((t.IntegerType, t.ShortType, t.ByteType), "int"),
    "queueId": ((t.IntegerType, t.ShortType, t.ByteType), "int"),
    "brokerName": (_TEXT, "string"),
    "deliverAt": ((t.TimestampType,), "timestamp"),
    "id": ((*_TEXT, t.LongType, t.IntegerType, t.BinaryType), "string, bigint, int or binary"),
}
_NAMES = {name.lower(): name for name in _TYPES}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRow:
    """One row, ready to be sent but for its unique id."""

    message: Message
    key: str
    """What chooses the queue; "" when any will do."""
    queue_id: int | None
    broker_name: str | None
    digest: bytes
    """Identifies the row; empty without deduplication."""


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """Which of the known columns a DataFrame has, and where. Picklable."""

    places: Mapping[str, int]

    @classmethod
    def of(cls, schema: t.StructType, options: WriteOptions) -> WriteColumns:
        """Check a DataFrame's columns against what is asked.

        Raises:
            InvalidRequestError: A column is missing, unknown, of another type, or contradicts an option.
        """
        places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            name = _NAMES.get(field.name.lower())
            if name is None:
                raise InvalidRequestError(
                    f"a write has no column {field.name!r}; select some of these: {', '.join(_TYPES)}"
                )
            if name in places:
                raise InvalidRequestError(f"the column {name!r} is there twice")
            kinds, wanted = _TYPES[name]
            if not isinstance(field.dataType, kinds) or not _has_text_inside(field.dataType):
                raise InvalidRequestError(f"the column {name!r} must be {wanted}", type=field.dataType.simpleString())
            places[name] = place
        if "value" not in places:
            raise InvalidRequestError("a write needs the column 'value': the bodies, binary or string")
        if options.topic is None and "topic" not in places:
            raise InvalidRequestError("name the topic to write to: .option('topic', 'orders'), or a column 'topic'")
        if "key" in places and "keys" in places:
            raise InvalidRequestError("choose one of the columns 'key' and 'keys'")
        if "brokerName" in places and "queueId" not in places:
            raise InvalidRequestError("the column 'brokerName' says nothing without 'queueId'")
        if options.deduplicate and "deliverAt" in places:
            raise InvalidRequestError(
                "deduplicate=true cannot be had with the column 'deliverAt': a message that waits for its time "
                "cannot be read back from its topic"
            )
        if "id" in places and not options.deduplicate:
            raise InvalidRequestError("the column 'id' is for deduplicate=true")
        return cls(places)

    def rows(self, batch: pa.RecordBatch, options: WriteOptions) -> list[OutgoingRow]:
        """All rows of one Arrow batch, each checked, so that nothing of a batch with an impossible row is sent.

        Raises:
            InvalidRequestError: A row is no message: no body, one that is too large, an impossible property or topic.
        """
        columns = {name: self._values(batch, name, place) for name, place in self.places.items()}
        rows = []
        for number, values in enumerate(_records(columns, batch.num_rows)):
            try:
                rows.append(_row(values, options))
            except MQError as error:
                raise type(error)(error.message, **error.context, row=number) from error
        return rows

    def _values(self, batch: pa.RecordBatch, name: str, place: int) -> Sequence[Any]:
        column = batch.column(place)
        if name == "deliverAt":
            # Microseconds since 1970, whatever the session's time zone.
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        elif name == "value" and not pa.types.is_binary(column.type):
            column = column.cast(pa.binary())
        values: Sequence[Any] = column.to_pylist()
        return values


def _has_text_inside(kind: t.DataType) -> bool:
    if isinstance(kind, t.ArrayType):
        return isinstance(kind.elementType, _TEXT)
    if isinstance(kind, t.MapType):
        return isinstance(kind.keyType, _TEXT) and isinstance(kind.valueType, _TEXT)
    return True


def _records(columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[tuple[Any, ...]]:
    """Row by row the values of all known columns in the order of _TYPES, None where there is no such column."""
    nothing = [None] * count
    return zip(*(columns.get(name, nothing) for name in _TYPES), strict=True)


def _row(values: tuple[Any, ...], options: WriteOptions) -> OutgoingRow:
    body, topic, key, keys, tag, properties, flag, queue_id, broker_name, deliver_us, row_id = values
    topic = options.topic or topic
    if topic is None:
        raise InvalidRequestError("a row has no topic")
    if options.topics and topic not in options.topics:
        raise InvalidRequestError("a row names a topic that the option topics does not", topic=topic)
    if keys is not None:
        key = " ".join(word for word in keys if word)
    named = dict(properties) if properties else {}
    if "" in (tag, broker_name):
        tag, broker_name = tag or None, broker_name or None
    message = Message(
        topic,
        body or b"",
        tags=tag or "",
        keys=key or "",
        properties=named,
        flag=flag or 0,
        deliver_at_ms=None if deliver_us is None else deliver_us // 1_000,
    )
    message.check(message_bytes_max=options.message_bytes_max)
    return OutgoingRow(
        message=message,
        key=key or "",
        queue_id=queue_id,
        broker_name=broker_name,
        digest=_digest(message, row_id, queue_id, broker_name) if options.deduplicate else b"",
    )


def _digest(message: Message, row_id: object, queue_id: int | None, broker_name: str | None) -> bytes:
    """A digest that identifies the row: of its id when it has one, else of all that makes the message."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    if row_id is not None:
        text = row_id if isinstance(row_id, bytes) else str(row_id).encode()
        digest.update(b"id:" + text)
        return digest.digest()
    parts = [message.topic, message.tags, message.keys, message.flag, queue_id, broker_name]
    parts += [part for item in sorted(message.properties.items()) for part in item]
    digest.update(repr((len(message.body), *parts)).encode("utf-8", "surrogatepass"))
    digest.update(message.body)
    return digest.digest()
