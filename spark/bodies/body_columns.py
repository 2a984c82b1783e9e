"""BodyColumns: the columns `body` and `corruptBody` beside a message's own, from Arrow batch to Arrow batch.

    bodyFormat    json | avro | protobuf
    bodySchema    json: DDL, `id BIGINT, tags ARRAY<STRING>`; avro: the schema's JSON; protobuf: the descriptor set, as
                  the path of a file on the driver or in base64
    bodyMessage   protobuf: the full name of the message type

    body          struct of the schema's columns; null where the body does not parse at all
    corruptBody   null, or struct<value: binary, reason: string> for a body that does not parse, or not in whole

One function for all who have batches with a column `value`: batch reads, streams, `mapInArrow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.bodies.column_values import BadBodies, ValueRules, column_of

BODY = "body"
CORRUPT_BODY = "corruptBody"
CORRUPT_TYPE = pa.struct([("value", pa.binary()), ("reason", pa.string())])
CORRUPT_DDL = "STRUCT<value: BINARY, reason: STRING>"
FORMATS = ("json", "avro", "protobuf")


class BodyDecoder(ValueRules, Protocol):
    """One format."""

    def decode(self, bodies: list[bytes | None], bad: BadBodies) -> list[dict[str, Any] | None]:
        """The value in each body; None, and marked as bad, where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOptions:
    """What the options say about bodies. Picklable: decoders are made from it where they run."""

    format: str
    schema: str | bytes
    message_name: str = ""

    def ddl(self) -> str:
        """The columns of a body as Spark's DDL, checked as far as that can be done here.

        Raises:
            InvalidRequestError: The schema is none, or the format's library is missing.
        """
        if self.format == "avro":
            from thermocline.spark.bodies.avro_bodies import avro_ddl

            assert isinstance(self.schema, str)
            return avro_ddl(self.schema)
        if self.format == "protobuf":
            from thermocline.spark.bodies.protobuf_bodies import protobuf_ddl

            assert isinstance(self.schema, bytes)
            return protobuf_ddl(self.schema, self.message_name)
        assert isinstance(self.schema, str)
        return self.schema

    def columns_ddl(self) -> str:
        """Both columns as Spark's DDL."""
        return f"{BODY} STRUCT<{self.ddl()}>, {CORRUPT_BODY} {CORRUPT_DDL}"

    def decoder(self, kind: pa.StructType) -> BodyDecoder:
        """A decoder for bodies of that type; errors as for `ddl`."""
        if self.format == "avro":
            from thermocline.spark.bodies.avro_bodies import AvroBodies

            assert isinstance(self.schema, str)
            return AvroBodies(self.schema)
        if self.format == "protobuf":
            from thermocline.spark.bodies.protobuf_bodies import ProtobufBodies

            assert isinstance(self.schema, bytes)
            return ProtobufBodies(self.schema, self.message_name)
        from thermocline.spark.bodies.json_bodies import JsonBodies

        return JsonBodies(kind)


def body_options_from(options: Mapping[str, str]) -> BodyOptions | None:
    """Check the options about bodies; None when they ask for none.

    Raises:
        InvalidRequestError: One is missing, wrong, or without the others.
    """
    words = {name.lower(): value.strip() for name, value in options.items()}
    name, schema, message = words.get("bodyformat"), words.get("bodyschema"), words.get("bodymessage")
    if name is None:
        if schema is not None or message is not None:
            raise InvalidRequestError(f"say the format of the bodies: one of {', '.join(FORMATS)}", option="bodyFormat")
        return None
    name = name.lower()
    if name not in FORMATS:
        raise InvalidRequestError(f"{name!r} is none of {', '.join(FORMATS)}", option="bodyFormat")
    if not schema:
        raise InvalidRequestError("say the schema of the bodies", option="bodySchema")
    if name != "protobuf":
        return BodyOptions(format=name, schema=schema)
    if not message:
        raise InvalidRequestError("say the full name of the bodies' message type", option="bodyMessage")
    from thermocline.spark.bodies.protobuf_bodies import descriptor_bytes

    return BodyOptions(format=name, schema=descriptor_bytes(schema), message_name=message)


class BodyColumns:
    """Parses the bodies of batches. Belongs to one task."""

    def __init__(self, options: BodyOptions, kind: pa.StructType) -> None:
        """`kind`: what Spark made of the schema; errors as for `BodyOptions.ddl`."""
        self._kind = kind
        self._decoder = options.decoder(kind)

    def parse(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The columns `body` and `corruptBody` for a column of bodies; a null body is null in both."""
        bodies: list[bytes | None] = values.to_pylist()
        bad = BadBodies(len(bodies))
        decoded = self._decoder.decode(bodies, bad)
        parsed = column_of(decoded, self._kind, self._decoder, bad, owners=np.arange(len(bodies)), name="")
        if not any(bad.reasons):
            return parsed, pa.nulls(len(bodies), CORRUPT_TYPE)
        pairs = zip(bodies, bad.reasons, strict=True)
        corrupt = [None if reason is None else {"value": body, "reason": reason} for body, reason in pairs]
        return parsed, pa.array(corrupt, CORRUPT_TYPE)

    def append(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, value: str) -> Iterator[pa.RecordBatch]:
        """The batches with both columns, in the columns and order of `schema`; `value`: the column of the bodies."""
        for batch in batches:
            body, corrupt = self.parse(batch.column(value))
            made = {BODY: body, CORRUPT_BODY: corrupt}
            columns = [made[name] if name in made else batch.column(name) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
