"""Avro bodies: every type, nulls, damage, and schemas that have no columns."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.bodies.avro_bodies import avro_ddl
from thermocline.spark.bodies.body_columns import BodyColumns, BodyOptions

fastavro = pytest.importorskip("fastavro")

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": ["null", "int"]},
        {"name": "wide", "type": ["null", "int", "long"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "rate", "type": "double"},
        {"name": "weight", "type": "float"},
        {"name": "name", "type": "string"},
        {"name": "paid", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exactly", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "parts", "type": {"type": "map", "values": {"type": "record", "name": "Part", "fields": [
            {"name": "n", "type": "int"}]}}},
        {"name": "first", "type": ["null", "Part"]},
    ],
}  # fmt: skip
DDL = (
    "`id` bigint, `count` int, `wide` bigint, `price` DECIMAL(9, 2), `rate` double, `weight` float, `name` string, "
    "`paid` boolean, `raw` binary, `hash` binary, `state` string, `before` string, `day` date, `at` timestamp, "
    "`exactly` timestamp, `time` int, `token` string, `tags` ARRAY<string>, `parts` MAP<STRING, STRUCT<`n`: int>>, "
    "`first` STRUCT<`n`: int>"
)
PART = pa.struct([("n", pa.int32())])
KIND = pa.struct(
    [
        *(("id", pa.int64()), ("count", pa.int32()), ("wide", pa.int64()), ("price", pa.decimal128(9, 2))),
        *(("rate", pa.float64()), ("weight", pa.float32()), ("name", pa.string()), ("paid", pa.bool_())),
        *(("raw", pa.binary()), ("hash", pa.binary()), ("state", pa.string()), ("before", pa.string())),
        *(("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("exactly", pa.timestamp("us", "UTC"))),
        *(("time", pa.int32()), ("token", pa.string()), ("tags", pa.list_(pa.string()))),
        *(("parts", pa.map_(pa.string(), PART)), ("first", PART)),
    ]
)
FULL = {
    "id": 2**40,
    "count": 7,
    "wide": 2**40,
    "price": Decimal("12.50"),
    "rate": 0.25,
    "weight": 1.5,
    "name": "Köln",
    "paid": True,
    "raw": b"\x00\xff",
    "hash": b"abcd",
    "state": "SENT",
    "before": "NEW",
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 1, 2, 3, 4_000, tzinfo=UTC),
    "exactly": datetime(2026, 1, 31, 1, 2, 3, 4_005, tzinfo=UTC),
    "time": 1_000,
    "token": str(uuid.UUID(int=5)),
    "tags": ["a", None],
    "parts": {"x": {"n": 1}},
    "first": {"n": 2},
}
EMPTY = FULL | {"count": None, "wide": None, "before": None, "exactly": None, "tags": [], "parts": {}, "first": None}


def body_of(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType": "time-millis"', '"x": 1'))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), record)
    return out.getvalue()


def columns() -> BodyColumns:
    return BodyColumns(BodyOptions(format="avro", schema=json.dumps(SCHEMA)), KIND)


def test_every_type_has_its_column() -> None:
    assert avro_ddl(json.dumps(SCHEMA)) == DDL
    body, corrupt = columns().parse(pa.array([body_of(FULL), None, body_of(EMPTY)], pa.binary()))
    full, nothing, empty = body.to_pylist()
    assert full == FULL | {"parts": [("x", {"n": 1})]}
    assert nothing is None
    assert empty == EMPTY | {"parts": []}
    assert corrupt.null_count == 3


def test_damaged_bodies_are_set_apart() -> None:
    good = body_of(FULL)
    bad = [b"", good[:-1], good + b"x", b"\xff" * 40]
    body, corrupt = columns().parse(pa.array([good, *bad], pa.binary()))
    assert [row is None for row in body.to_pylist()] == [False, True, True, True, True]
    rows = corrupt.to_pylist()
    assert rows[0] is None
    assert [row["value"] for row in rows[1:]] == bad
    assert rows[3]["reason"] == "1 bytes behind the Avro datum"
    assert all("Avro datum" in row["reason"] for row in rows[1:])


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "the Avro schema is no JSON"),
        ('"string"', "none of a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "strange"}]}', "no Avro schema"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}', "not a union"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}', "contains itself"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: str, sentence: str) -> None:
    with pytest.raises(InvalidRequestError, match=sentence):
        avro_ddl(schema)
