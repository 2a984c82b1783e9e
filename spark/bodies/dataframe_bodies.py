"""Bodies of any DataFrame into columns: `body` and `corruptBody`, as the data source's option `bodyFormat` makes them.

JSON is parsed by Spark's own `from_json`; Avro and Protobuf by this project's parser in `mapInArrow`, which needs no
further jars and says why a body does not parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.bodies.body_columns import BODY, CORRUPT_BODY, BodyColumns, BodyOptions
from thermocline.spark.bodies.protobuf_bodies import descriptor_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_CORRUPT_RECORD = "_corrupt_record"


def with_json_body(table: DataFrame, schema: str | StructType, *, column: str = "value") -> DataFrame:
    """The DataFrame with the struct `body`, and in `corruptBody` what does not parse in whole, with the reason.

    Raises:
        InvalidRequestError: The DataFrame has no such column, or has `body` or `corruptBody` already.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    _check(table, column)
    kind = _struct(schema) if isinstance(schema, str) else schema
    text = f.col(column).cast("string")
    whole = StructType([*kind.fields]).add(_CORRUPT_RECORD, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT_RECORD}
    parsed = table.withColumn(BODY, f.from_json(text, whole, options))
    is_corrupt = f.col(f"{BODY}.{_CORRUPT_RECORD}").isNotNull()
    # (A literal alone would make a field that cannot be null, in a struct that is.)
    reason = f.when(is_corrupt, f.lit("no JSON object of the schema"))
    corrupt = f.struct(f.col(column).cast("binary").alias("value"), reason.alias("reason"))
    parsed = parsed.withColumn(CORRUPT_BODY, f.when(is_corrupt, corrupt))
    return parsed.withColumn(BODY, f.col(BODY).dropFields(_CORRUPT_RECORD))


def with_avro_body(table: DataFrame, schema: str, *, column: str = "value") -> DataFrame:
    """The same for Avro; `schema`: an Avro record's, as JSON.

    Raises:
        InvalidRequestError: As above; or it is no such schema, or fastavro is not installed.
    """
    return _with_body(table, BodyOptions(format="avro", schema=schema), column=column)


def with_protobuf_body(
    table: DataFrame, descriptors: bytes | str, message_name: str, *, column: str = "value"
) -> DataFrame:
    """The same for Protobuf; `descriptors`: a descriptor set, or the path of its file here.

    Raises:
        InvalidRequestError: As above; or there is no such message, or protobuf is not installed.
    """
    read = descriptors if isinstance(descriptors, bytes) else descriptor_bytes(descriptors)
    return _with_body(table, BodyOptions(format="protobuf", schema=read, message_name=message_name), column=column)


def _with_body(table: DataFrame, options: BodyOptions, *, column: str) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    _check(table, column)
    added = _struct(options.columns_ddl())
    schema = StructType([*table.schema.fields, *added.fields])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from BodyColumns(options, arrow.field(BODY).type).append(batches, arrow, value=column)

    return table.mapInArrow(parse, schema)


def _struct(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    kind = StructType.fromDDL(ddl)
    assert isinstance(kind, StructType)
    return kind


def _check(table: DataFrame, column: str) -> None:
    if column not in table.columns:
        raise InvalidRequestError("the DataFrame has no such column", column=column)
    for name in (BODY, CORRUPT_BODY):
        if name in table.columns:
            raise InvalidRequestError(f"the DataFrame has a column {name!r} already")
