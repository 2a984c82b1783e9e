"""Avro bodies: one datum each, without a header, by the schema that the reader names.

    null|boolean|int|long|float|double|string|bytes   boolean, int, bigint, float, double, string, binary
    fixed                                             binary
    enum, uuid                                        string
    array, map                                        array, map of string
    record                                            struct
    union of null and one type                        that type, null where it is null
    union of int and long, float and double           bigint, double
    date, time-millis, time-micros                    date, int, bigint
    timestamp-millis, timestamp-micros                timestamp
    decimal                                           decimal(p,s)

Other unions, local timestamps and schemas that contain themselves are refused. Bytes behind the datum make a body bad:
it was written with another schema.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.bodies.column_values import BadBodies, SchemaRules
from thermocline.spark.missing_extra import missing_extra

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("string", "uuid"): "string",
}
# Taken as the numbers that they are.
_PLAIN_LOGICAL = {("int", "time-millis"), ("long", "time-micros")}
_SCHEMA_PARTS = ("type", "items", "values", "fields")
_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


class AvroBodies(SchemaRules):
    """Decodes Avro, and says what fits which type; see the module. Picklable: the decoder is made where it is used."""

    def __init__(self, schema_text: str) -> None:
        """Read the schema.

        Raises:
            InvalidRequestError: fastavro is not installed, or it is no schema of a record.
        """
        self._fastavro = _fastavro()
        self._schema = _parsed(self._fastavro, _plain_times(_read_schema(schema_text)))

    def decode(self, bodies: Sequence[bytes | None], bad: BadBodies) -> list[dict[str, Any] | None]:
        """The record in each body; None, and marked as bad, where there is none."""
        decoded: list[dict[str, Any] | None] = []
        read, schema = self._fastavro.schemaless_reader, self._schema
        for place, body in enumerate(bodies):
            value: dict[str, Any] | None = None
            if body is not None:
                source = io.BytesIO(body)
                try:
                    value = read(source, schema, None)
                # fastavro raises exceptions of any type on bytes that are no datum.
                except Exception as error:  # noqa: BLE001
                    bad.mark(place, f"no Avro datum of the schema: {type(error).__name__} {error}".rstrip())
                else:
                    if source.tell() != len(body):
                        bad.mark(place, f"{len(body) - source.tell()} bytes behind the Avro datum")
                        value = None
            decoded.append(value)
        return decoded


def avro_ddl(schema_text: str) -> str:
    """The columns of an Avro record as Spark's DDL: `a INT, b STRING`.

    Raises:
        InvalidRequestError: It is no Avro schema, none of a record, or has a type that no column can hold.
    """
    schema = _read_schema(schema_text)
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in _fields(schema, {}))


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise InvalidRequestError(missing_extra("fastavro, which Avro bodies need,", "bodies")) from error
    return fastavro


def _read_schema(schema_text: str) -> dict[str, Any]:
    try:
        schema = json.loads(schema_text)
    except ValueError as error:
        raise InvalidRequestError("the Avro schema is no JSON", option="bodySchema") from error
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise InvalidRequestError("the Avro schema is none of a record", option="bodySchema")
    _parsed(_fastavro(), schema)
    return schema


def _parsed(fastavro: Any, schema: dict[str, Any]) -> Any:
    try:
        return fastavro.parse_schema(schema, _write_hint=False)
    except (fastavro.schema.SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequestError(f"no Avro schema: {error}", option="bodySchema") from error


def _fields(
    schema: Mapping[str, Any], named_schemas: dict[str, Any], seen: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    name = str(schema.get("name"))
    if name in seen:
        raise InvalidRequestError("an Avro record that contains itself has no columns", option="bodySchema", name=name)
    named_schemas[name] = schema
    namespace = schema.get("namespace")
    if namespace:
        named_schemas[f"{namespace}.{name}"] = schema
    return [(field["name"], _ddl(field["type"], named_schemas, (*seen, name))) for field in schema["fields"]]


def _ddl(schema: Any, named_schemas: dict[str, Any], seen: tuple[str, ...]) -> str:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:
            return _ddl(branches[0], named_schemas, seen)
        wider = _WIDER.get(frozenset(branch for branch in branches if isinstance(branch, str)))
        if wider is None or len(branches) != 2:
            raise InvalidRequestError("a column holds one type, not a union of several", option="bodySchema")
        return _PRIMITIVES[wider]
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema not in named_schemas:
            raise InvalidRequestError(f"Avro type {schema!r} fits no column", option="bodySchema")
        return _ddl(named_schemas[schema], named_schemas, seen)
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _ddl(kind, named_schemas, seen)
    if kind == "record":
        inner = ", ".join(f"{_quoted(name)}: {inner}" for name, inner in _fields(schema, named_schemas, seen))
        return f"STRUCT<{inner}>"
    if kind == "array":
        return f"ARRAY<{_ddl(schema['items'], named_schemas, seen)}>"
    if kind == "map":
        return f"MAP<STRING, {_ddl(schema['values'], named_schemas, seen)}>"
    if kind in ("enum", "fixed"):
        named_schemas[str(schema["name"])] = schema
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return f"DECIMAL({int(schema['precision'])}, {int(schema.get('scale', 0))})"
    if kind == "enum":
        return "string"
    if kind == "fixed":
        return "binary"
    if logical is None or (kind, logical) in _PLAIN_LOGICAL:
        return _ddl(kind, named_schemas, seen)
    if (kind, logical) not in _LOGICAL:
        raise InvalidRequestError(f"Avro's logical type {logical!r} fits no column", option="bodySchema")
    return _LOGICAL[kind, logical]


def _plain_times(schema: Any) -> Any:
    """The schema without those logical types that are to be read as the numbers that they are, and uuid as its text."""
    if isinstance(schema, list):
        return [_plain_times(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and (kind, schema.get("logicalType")) in {*_PLAIN_LOGICAL, ("string", "uuid")}:
        return kind
    return {name: _plain_times(part) if name in _SCHEMA_PARTS else part for name, part in schema.items()}


def _quoted(name: str) -> str:
    return f"`{name}`"
